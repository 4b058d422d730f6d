// From ONNX's operators to ours: one function an operator, in the list converters() (convert.cpp), which docs/onnx.md
// repeats as a table.
#pragma once

#include <map>
#include <set>
#include <string>

#include "search/import/analysis.h"
#include "search/import/builder.h"

namespace ff::importing {

// What the converters work on: the model, what has become of its values so far, and the graph that is written.
class Conversion {
 public:
  Conversion(const Model& model, int64_t batch) : model(model), builder(model.file, batch) {}

  const Model& model;
  Builder builder;
  std::map<std::string, Value> values;  // by ONNX's name
  // Initializers that places of the model read in different ways, so that each is one value for all of them.
  std::set<std::string> as_values;
  bool is_as_value(const Constant& constant) const;

  // A node's input: as a value of the graph, or as a constant (null where it is none). What is asked for as a value and
  // is a constant becomes one: the same for each sample, which is on this axis.
  Value value(const Node& node, size_t input, int batch_axis = 0);
  const Constant* constant(const Node& node, size_t input) const;
  // The same, but of a constant that an Expand node repeats for each sample, what it repeats.
  const Constant* repeated(const Node& node, size_t input) const;
  const Constant& required_constant(const Node& node, size_t input, const std::string& what) const;
  // Gives a node's output its value; its shape must be what ONNX says.
  void set(const Node& node, size_t output, Value value);

  // The value with its tensor moved so that its axes are these lists of atoms, which are renumbered.
  Value arranged(const Node& node, const Value& value, const Vector<Axis>& physical);
  // The same with a tensor axis for each of ONNX's.
  Value arranged(const Node& node, const Value& value) { return arranged(node, value, value.axes); }
  // [batch, all other atoms in the tensor's order, those of this axis]; without others [batch, axis].
  Value with_last(const Node& node, const Value& value, int axis);

  // A constant for each sample. `shape`: of the value, with the samples on an axis of it.
  Value for_each_sample(const Node& node, const Constant& constant, const Shape& shape, int batch_axis);
  // The same, of one that has size 1 along other axes of the shape, too.
  Value repeated_for_each_sample(const Node& node, const Constant& once, const Shape& shape, int batch_axis);
  // What is computed from initializers alone, as a value of the same shape without an axis for the samples; perhaps an
  // initializer itself.
  Value without_samples(const Node& node, const std::string& name);
  // Is an initializer that is repeated for each sample read by several nodes? Then it is one value for all of them.
  bool is_value_elsewhere(const std::string& name) const;
  // Does a node read what arithmetic has made of this initializer?
  bool is_computed_with(const Constant& initializer);
  bool is_without_samples() const { return without_samples_; }  // is such a value just being computed?
  // Integers (tokens, masks) as numbers: rows of a table that has the number of each row.
  Value as_floats(const Node& node, const Value& integers, bool condition);

  // An operator without parameters.
  Vector<Value> add(const Node& node, const std::string& type, const Vector<std::string>& inputs,
                    const Json& attributes = Json::object());
  // One that works element by element: the result is read as the input is.
  Value add_elementwise(const Node& node, const std::string& type, const Value& input,
                        const Json& attributes = Json::object());

  // An operator with parameters, whose values are constants in our order. It is named after the first one that is an
  // initializer of the file, and shares the parameters of the operator that has used that one before (tied weights).
  struct NamedConstant {
    std::string name;  // "weight"
    Constant constant;
    bool shared = true;                // false: not trained, the operator's own
    std::set<std::string> summands{};  // initializers that have been added to the one that it is
  };
  Value add_with_parameters(const Node& node, const std::string& type, const Vector<std::string>& inputs,
                            const Json& attributes, const Vector<NamedConstant>& parameters);

  // The node's converter. Fails where the node reads what is trained and does not train it.
  void convert(const Node& node);

  // How the node is called in the graph: by its module, as PyTorch's exporter has it in the node's name.
  std::string name_of(const Node& node) const;
  // The initializers that a constant is made of: "cls" [1, 1, 16]: --frozen.
  std::string text_of_constants(const Constant& constant) const;
  [[noreturn]] void fail(const Node& node, const std::string& message) const { model.fail(node, message); }

 private:
  static bool reads_values(const std::string& op);
  static bool is_weight_normalization(const std::set<std::string>& initializers);
  Value value_along(const Node& node, size_t input, int batch_axis);
  std::string ones(const Node& node);  // [batch, 1]
  int64_t largest_table() const;
  void expect_trained(const Node& node, const std::string& type, const NamedConstant& parameter) const;

  std::map<int64_t, std::pair<std::string, std::string>> owners_;  // a parameter's first number -> group, its name
  std::set<std::string> trained_;                                  // initializers of the parameters of this node
  std::string ones_;
  bool without_samples_ = false;
  std::optional<std::set<std::string>> computed_with_;  // initializers of which arithmetic has made others
};

using Converter = void (*)(Conversion&, const Node&);
const std::map<std::string, Converter>& converters();

// Of each family, for the list.
void convert_conv(Conversion&, const Node&);
void convert_pool(Conversion&, const Node&);
void convert_global_average_pool(Conversion&, const Node&);
void convert_batch_normalization(Conversion&, const Node&);
void convert_lrn(Conversion&, const Node&);
void convert_pad(Conversion&, const Node&);

void convert_same(Conversion&, const Node&);
void convert_cast(Conversion&, const Node&);
void convert_dropout(Conversion&, const Node&);
void convert_unary(Conversion&, const Node&);
void convert_binary(Conversion&, const Node&);
void convert_selu(Conversion&, const Node&);
void convert_square(Conversion&, const Node&);
void convert_abs(Conversion&, const Node&);
void convert_prelu(Conversion&, const Node&);
void convert_pow(Conversion&, const Node&);
void convert_clip(Conversion&, const Node&);
void convert_where(Conversion&, const Node&);

void convert_linear(Conversion&, const Node&);
void convert_gemm(Conversion&, const Node&);
void convert_matmul(Conversion&, const Node&);
void convert_einsum(Conversion&, const Node&);
void convert_fixed_product(Conversion&, const Node&);
void convert_softmax(Conversion&, const Node&);
void convert_normalization(Conversion&, const Node&);
void convert_reduce_mean(Conversion&, const Node&);

// The product of a constant matrix [out, in] with an axis.
Value product_along(Conversion&, const Node&, const Value& x, int axis, const Constant& matrix);

void convert_reshape(Conversion&, const Node&);
void convert_transpose(Conversion&, const Node&);
void convert_concat(Conversion&, const Node&);
void convert_slice(Conversion&, const Node&);
void convert_split(Conversion&, const Node&);
void convert_gather(Conversion&, const Node&);
void convert_expand(Conversion&, const Node&);

void convert_lstm(Conversion&, const Node&);

void convert_mean_loss(Conversion&, const Node&);
void convert_cross_entropy_loss(Conversion&, const Node&);
void convert_one_hot(Conversion&, const Node&);

}  // namespace ff::importing
