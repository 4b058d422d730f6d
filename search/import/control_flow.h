// Loops, branches and sequences of tensors that are decided before the model runs: how often a Loop runs, which branch
// an If takes and what is in a sequence follow from shapes and constants. Then the nodes inside take their place, once
// for each iteration, and a sequence is a list of names. What depends on the samples is left, and refused.
#pragma once

#include <functional>
#include <optional>

#include "search/import/model.h"

namespace ff::importing {

class ControlFlow {
 public:
  // `visit` gets the nodes that take the place of another one, in order, and finds their shapes and constants.
  ControlFlow(Model& model, std::function<void(Node)> visit) : model_(model), visit_(std::move(visit)) {}

  // Has the node been replaced? Other operators, and those that depend on the samples, are not.
  bool expand(const Node& node);
  // A sequence as an output of the model has no tensor.
  void expect_tensors(const Vector<std::string>& outputs) const;

 private:
  using Names = std::map<std::string, std::string>;
  using Sequence = Vector<std::string>;

  bool expand_loop(const Node& node);
  bool expand_branch(const Node& node);
  bool expand_sequence(const Node& node);
  bool split_to_sequence(const Node& node);
  bool insert_or_erase(const Node& node, Sequence sequence);

  // The nodes of a graph inside the node, with these names for its inputs; the names of its outputs.
  Vector<std::string> run(const Node& node, const Subgraph& graph, Names names);
  Vector<std::string> mended_inputs(const Vector<std::string>& inputs);
  // An output of the node is this value, or this sequence.
  void give(const Node& node, size_t output, const std::string& value);
  std::string join(const Node& node, Sequence parts, int64_t axis, bool new_axis);
  std::string emit(const Node& node, const std::string& op, const Vector<std::string>& inputs,
                   std::map<std::string, Attribute> attributes = {});
  std::string add_constant(Constant constant);
  std::string new_name() { return "control flow " + std::to_string(count_++); }
  const Shape* shape(const std::string& value) const;
  int64_t position(const Node& node, size_t input, int64_t size, bool end, int64_t otherwise) const;

  Model& model_;
  std::function<void(Node)> visit_;
  std::map<std::string, Sequence> sequences_;
  int64_t count_ = 0, visited_ = 0;
};

// Operators on sequences of tensors.
bool is_of_sequences(const std::string& op);

}  // namespace ff::importing
