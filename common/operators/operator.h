// What an operator means, apart from its kernels: attributes, shapes, parallelizable dimensions, and for one task's
// part of the operator the block of every tensor that it touches. Transfers, halo rows, parameter shards, memory and
// the backward pass all follow from the block functions, so a new operator is one file here, one kernel file a backend,
// and one line in operator_list.h.
//
// A task's *part* is a Block over the operator's parallelizable dimensions (its iteration space), in the order of
// dimensions(). For conv2d the part is [sample, channel, height, width]; for flatten it is [sample, channel], in whole
// channels of the input.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/block.h"
#include "common/data_type.h"
#include "common/degrees.h"
#include "common/json_file.h"
#include "common/vector.h"

namespace ff {

// The S, A, P of SOAP (paper section 4, table 1); O is the choice of devices. And R, which the paper does not have: a
// dimension that is summed over (the contracted one of a product). Parts that differ in it alone write the same block,
// each a partial sum; whoever reads the block adds them up.
enum class DimensionKind { sample, attribute, parameter, reduction };
std::string_view to_string(DimensionKind kind);

struct ParallelDimension {
  std::string name;  // "sample", "channel", "height", "width", "length", ...: the key in a strategy's "degrees"
  DimensionKind kind;
  int64_t size;  // the largest possible degree
};

// What the numbers in a tensor of slots mean (top_k_gating). Each group of tokens has `capacity` places in the buffer
// of each expert; place p of expert e is slot e * capacity + p, and -1 is none.
struct Routing {
  int64_t experts = 0, capacity = 0;
  int64_t group_samples = 1;  // consecutive samples, whose tokens are one group
  int64_t slots() const { return experts * capacity; }
  bool operator==(const Routing&) const = default;
};

struct TensorSpec {
  std::string name;  // of the output ("" for the first and only one)
  Shape shape;       // the first axis is the sample, but where rows have been dispatched to experts
  DataType type = DataType::f32;
  std::optional<Routing> routing{};  // of slots: those who read them learn from it what they mean
};

// Initial values: uniform in [-bound, bound], or a constant.
struct ParameterSpec {
  std::string name;  // "weight", "bias"
  Shape shape;
  double uniform_bound = 0;
  double constant = 0;
  bool trained = true;  // false: kept by the operator itself, such as running statistics; never shared
  bool given = false;   // a constant of the model whose values the graph does not say: a checkpoint has them
};

// Work of one task, for the analytic cost model. Bytes count each operand once.
struct Work {
  double flops = 0;
  double bytes = 0;
};
// The scaled dot products of attention, which fused kernels compute at rates of their own.
struct AttentionWork {
  double flops = 0;  // of Work::flops; with a mask, of the products that are not masked too
  int64_t length = 0, head_channels = 0;
  bool causal = false;
};

class OperatorDefinition {
 public:
  virtual ~OperatorDefinition() = default;

  const std::string& type() const { return type_; }
  const Vector<TensorSpec>& inputs() const { return inputs_; }
  const Vector<TensorSpec>& outputs() const { return outputs_; }
  const Vector<ParameterSpec>& parameters() const { return parameters_; }
  const Vector<ParallelDimension>& dimensions() const { return dimensions_; }

  // Part number `index` (row-major over the degrees) of the operator split by `degrees` (one a dimension).
  Block part(const Degrees& degrees, int64_t index) const;
  // How many parts write the same blocks, each a partial sum: the product of the degrees of kind reduction.
  int partial_results(const Degrees& degrees) const;
  // Parts with equal numbers do equal work: their blocks have equal shapes and see equal padding, and differ in
  // position alone. [part], from 0
  Vector<int> kinds_of_parts(const Degrees& degrees) const;
  Block whole() const;  // the part of a single task

  // Of what the operator computes: f32, or bf16 (data_type.h). Types of inputs and outputs are in their specs.
  DataType activation_type() const { return activation_type_; }
  // Of a parameter as kernels read it.
  virtual DataType parameter_type(int parameter) const {
    return parameters_[parameter].trained ? activation_type_ : DataType::f32;
  }
  // By the graph, as soon as the definition is made. Losses stay f32.
  virtual void set_types(const Vector<DataType>& inputs, DataType activations);

  // The block of each tensor that the task of `part` computes or reads. An input block may be empty (concat).
  virtual Block output_block(int output, const Block& part) const = 0;
  virtual Block input_block(int input, const Block& part) const = 0;
  virtual Block parameter_block(int parameter, const Block& part) const;  // default: the whole parameter

  // Does every non-empty part read something of this input? Does every element of the input reach some part? Both
  // whatever the degrees; false is always safe.
  virtual bool every_part_reads(int /*input*/) const { return true; }
  virtual bool reads_every_element(int input) const {
    return input_block(input, whole()) == Block(inputs_[input].shape);
  }

  // Attributes in a fixed order, "kernel=5x5 stride=1x1"; "" without any.
  virtual std::string attribute_text() const { return ""; }
  // Everything on which the execution time depends: type, attributes, local shapes, local padding. Key of a profile
  // entry.
  virtual std::string signature(const Block& part) const;

  // Does a part's work depend on where it lies in this dimension, and not on its size alone? True is always safe.
  virtual bool position_matters(int dimension) const { return dimensions_[dimension].kind != DimensionKind::sample; }

  // A loss operator starts backward: it has no incoming gradient, and its first output is the loss of each sample (or
  // position, or group of samples).
  virtual bool is_loss() const { return false; }
  // Of a loss: its factor in the training loss.
  virtual double loss_weight() const { return 1; }
  // Of a loss: is there a second output, "correct", 1 where the label has the largest logit and 0 elsewhere?
  bool counts_correct() const { return is_loss() && outputs_.size() > 1; }
  // Does the gradient flow to this input (class labels and token indices have none)?
  virtual bool differentiable_input(int input) const { return is_floating(inputs_[input].type); }
  // Values of an i32 input lie from 0 (slots: from -1) up to, but not including, this.
  virtual int64_t index_limit(int /*input*/) const { return 2; }
  // What backward reads of forward's data (for memory planning).
  virtual bool backward_reads_input(int /*input*/) const { return true; }
  virtual bool backward_reads_output() const { return false; }

  // Some operators need halfway what several parts know together: batch_norm sums over the whole batch, a loss that is
  // split by class the largest score of all. The direction then has two tasks a part: one computes the part's own
  // statistics, a reduction makes them common to a group of parts, and the other goes on. Bytes of a part's own; 0
  // where it needs none.
  virtual int64_t statistics_bytes(const Block& /*part*/, bool /*backward*/) const { return 0; }
  bool has_statistics(const Degrees& degrees, bool backward) const;
  bool may_have_statistics() const;  // under some degrees
  // Common statistics are the sum of the parts' own, or hold each part's own in a slot of its own, one after the
  // other.
  virtual bool gathers_statistics() const { return false; }
  // Are common statistics there while a part's kernels run alone, in their scratch memory, and exchanged anew in each
  // direction (keys and values of attention)? Else they are kept until the direction ends.
  virtual bool statistics_in_scratch() const { return false; }
  // Are they needed in evaluation too?
  virtual bool statistics_in_evaluation() const { return false; }
  // Have parts that differ in this dimension alone statistics in common? By default unless it splits parameters.
  virtual bool statistics_span(int dimension) const { return dimensions_[dimension].kind != DimensionKind::parameter; }
  // Parts with the same number have statistics in common: those that agree in all other dimensions.
  int statistics_group(const Degrees& degrees, int part) const;
  int statistics_groups(const Degrees& degrees) const;
  Vector<int> statistics_members(const Degrees& degrees, int part) const;  // of the part's group, ascending
  virtual Work statistics_work(const Block& /*part*/, bool /*backward*/) const { return {}; }

  // What a kernel keeps from forward to backward, or needs in between, beyond its arguments: masks, denominators,
  // probabilities.
  virtual int64_t workspace_bytes(const Block& /*part*/) const { return 0; }
  // Scratch memory that the kernels of a processor use in turn, each within one call: a device has as much as the
  // kernel that needs most.
  virtual int64_t shared_workspace_bytes(const Block& /*part*/) const { return 0; }
  // Does a kernel name its operator in messages, or draw random numbers by its name for good?
  virtual bool kernel_names_operator() const { return false; }

  virtual Work forward_work(const Block& part) const;
  // input_gradients: does any input need its gradient (false for the first layer)?
  virtual Work backward_work(const Block& part, bool input_gradients) const;
  virtual AttentionWork attention_work(const Block& /*part*/, bool /*backward*/) const { return {}; }
  // Bytes that backward moves beyond that where it adds to the gradients of the parameters, which are then read too,
  // instead of writing them.
  virtual double gradient_addition_bytes(const Block& part) const;

 protected:
  OperatorDefinition(std::string type, Vector<TensorSpec> inputs)
      : type_(std::move(type)), inputs_(std::move(inputs)) {}

  double touched_bytes(const Block& part) const;                          // inputs + parameters + outputs
  int64_t activation_bytes() const { return size_of(activation_type_); }  // an element

  std::string type_;
  Vector<TensorSpec> inputs_;
  Vector<TensorSpec> outputs_;
  Vector<ParameterSpec> parameters_;
  Vector<ParallelDimension> dimensions_;

 private:
  DataType activation_type_ = DataType::f32;
};

// What a family's factory gets. `place` is the operator's object in the graph file, for messages; `attributes` is
// absent when the file has none.
struct OperatorRequest {
  std::string type;
  Vector<TensorSpec> inputs;
  JsonPlace place;
  std::optional<JsonPlace> attributes;

  void expect_inputs(size_t count) const;
  void expect_inputs_between(size_t least, size_t most) const;
  void expect_rank(size_t input, size_t least, size_t most) const;
  void expect_type(size_t input, DataType type) const;
  void expect_one_input(size_t least_rank, size_t most_rank, DataType type = DataType::f32) const;
  void allow_attributes(const Vector<std::string>& keys) const;
  std::optional<JsonPlace> attribute(const std::string& key) const;
  JsonPlace required_attribute(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t otherwise, int64_t least, int64_t most) const;
  double number(const std::string& key, double otherwise, double least, double most) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string choice(const std::string& key, const std::string& otherwise, const Vector<std::string>& choices) const;
  // One integer for both axes, or an array of two.
  Array<int64_t, 2> pair(const std::string& key, Array<int64_t, 2> otherwise, int64_t least, int64_t most) const;
};

// Creates the definition, or throws InputError at the place in the graph file that is at fault.
std::unique_ptr<OperatorDefinition> make_operator(const OperatorRequest& request);
const Vector<std::string>& operator_types();

// Names of a tensor's axes as parallelizable dimensions: [sample, channel, height, width], [sample, length, channel],
// [sample, channel].
Vector<std::string> axis_names(size_t rank);
// Every axis of a tensor, but perhaps one, as a dimension: the first is the sample, all others are attributes.
Vector<ParallelDimension> every_axis(const Shape& shape, int but = -1);

}  // namespace ff
