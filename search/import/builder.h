// Writes an operator graph of ours, operator by operator; each is checked as it comes, and says its shape.
#pragma once

#include <map>
#include <set>
#include <string>

#include "common/json_file.h"
#include "search/import/layout.h"
#include "search/import/model.h"

namespace ff::importing {

class Builder {
 public:
  Builder(std::string file, int64_t batch) : file_(std::move(file)), batch_(batch) {}

  struct Operator {
    std::string name, type;
    Vector<std::string> inputs;
    Json attributes = Json::object();
    std::string group{};  // "": its own
    Vector<std::string> outputs{};
    Vector<Shape> shapes{};  // of the outputs
    Vector<ParameterSpec> parameters{};
    std::string origin{};  // for messages: the ONNX node
    bool is_loss() const { return type == "softmax_cross_entropy" || type == "mean_loss"; }
  };

  // A free name as near to the hint as our names allow.
  std::string unique_name(const std::string& hint);
  // Operators with parameters get the name that they asked for where its owner is no longer there.
  void take_freed_names();
  void add_input(const std::string& name, const Shape& shape, DataType type);

  // Adds an operator, whose inputs are tensors of ours. Its outputs as ONNX would see them if they were as they lie.
  struct Request {
    std::string name, type;
    Vector<std::string> inputs;
    Json attributes = Json::object();
    std::string group{};
    std::string origin{};
  };
  Vector<Value> add(const Request& request);
  Value add_one(const Request& request) { return add(request)[0]; }

  // The tensor whose axes are these lists of atoms, the first of them the batch's: reshaped and transposed as needed.
  std::string arrange(const Value& value, const Vector<Axis>& physical, const std::string& hint,
                      const std::string& origin);

  // Values of an operator's parameter, in our order and shape: GROUP.NAME. The first ones stay.
  struct Parameter {
    Constant constant;
    bool trained = true;
  };
  void set_parameter(const std::string& name, Parameter parameter) { parameters_.emplace(name, std::move(parameter)); }

  int64_t batch() const { return batch_; }
  const Shape& shape(const std::string& tensor) const { return shapes_.at(tensor).first; }
  Vector<Operator>& operators() { return operators_; }
  const Vector<Operator>& operators() const { return operators_; }
  Vector<std::string> outputs;  // tensors that are the model's outputs

  // Initializers that are trained as a summand of a parameter, and its name.
  std::map<std::string, std::string> summed;

  Json graph(const std::string& name) const;
  const std::map<std::string, Parameter>& parameters() const { return parameters_; }
  std::map<std::string, Parameter>& parameters() { return parameters_; }

 private:
  std::string arrange_in_steps(const Value& value, const Vector<Axis>& physical, const Vector<Axis>& runs,
                               const std::string& hint, const std::string& origin);
  std::string reshaped(const std::string& tensor, const Shape& shape, const std::string& hint,
                       const std::string& origin);

  std::string file_;
  int64_t batch_;
  std::set<std::string> names_;
  std::map<std::string, int> numbers_;        // the last one that was given to a name
  std::map<std::string, std::string> hints_;  // of names that were taken, by the name given instead
  Json inputs_ = Json::array();
  Vector<Operator> operators_;
  std::map<std::string, std::pair<Shape, DataType>> shapes_;  // of all tensors
  std::map<std::string, std::string> arranged_;               // what reshapes and transposes a tensor, once
  std::map<std::string, Parameter> parameters_;
};

}  // namespace ff::importing
