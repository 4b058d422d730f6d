// The operator graph: nodes are operators, edges are tensors. Immutable once loaded.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/operators/operator.h"
#include "common/optimizer.h"
#include "common/vector.h"

namespace ff {

using OperatorId = int;   // index into Graph::operators, which is in topological order
using TensorId = int;     // index into Graph::tensors
using ParameterId = int;  // index into Graph::parameters

struct TensorUse {
  OperatorId consumer;
  int input;  // which input of the consumer
};

struct Tensor {
  std::string name;  // "conv1", "lstm1.t2:h", or a graph input's name
  Shape shape;
  DataType type;
  std::optional<Routing> routing{};  // of slots
  OperatorId producer = -1;          // -1: a graph input, present wherever it is needed
  int output = 0;                    // which output of the producer
  Vector<TensorUse> uses;
  // Of a graph input with steps ("token" with 40 of them is the tensors token:0 .. token:39): its data file and the
  // place on its second axis.
  std::string data_name;  // graph inputs: "token"
  int64_t step = -1;      // -1: the file holds this tensor alone
  int64_t steps = 0;
  bool has_gradient = false;  // backward computes d loss / d tensor: parameters lie upstream and a loss downstream
};

struct Operator {
  std::string name;
  std::shared_ptr<const OperatorDefinition> definition;
  Vector<TensorId> inputs;
  Vector<TensorId> outputs;
  Vector<ParameterId> parameters;  // one a definition's parameter; shared within a parameter group
  int function = 0;                // equal numbers: the same type, attributes and shapes of inputs
  bool has_backward = false;       // a loss lies downstream and something upstream or here is trained
};

// A trained tensor. Operators that name the same parameter group share it.
struct Parameter {
  std::string name;  // "conv1.weight": group and parameter name
  ParameterSpec spec;
  Vector<std::pair<OperatorId, int>> uses;  // (operator, which of its parameters)
};

struct GraphVariants;

struct Graph {
  std::string name;
  int64_t batch_size = 0;
  DataType activation_type = DataType::f32;  // of the tensors that operators compute, but losses
  Vector<Tensor> tensors;
  Vector<Operator> operators;  // topological order, the order of the file wherever that is one
  Vector<Parameter> parameters;
  Vector<TensorId> inputs;
  Vector<OperatorId> losses;
  std::optional<OptimizerSettings> optimizer;  // empty: the file does not say
  std::shared_ptr<const Json> source;          // what was read, but for the batch size
  std::shared_ptr<GraphVariants> variants;     // of the same source, as they were asked for

  Indices operator_ids() const { return operators.indices(); }
  // Does `op` compute a gradient of its input in backward?
  bool input_has_gradient(OperatorId op, int input) const {
    return operators[op].has_backward && tensors[operators[op].inputs[input]].has_gradient &&
           operators[op].definition->differentiable_input(input);
  }
  Vector<bool> inputs_with_gradient(OperatorId op) const;  // by input
  int64_t parameter_count() const;                         // elements that are trained
  Json file() const;  // what was read, with the batch size in force: goes into strategy files
};

// Throws InputError for anything that is not a valid ffgraph/1. batch_size 0 keeps the file's.
Graph load_graph(const std::string& path, int64_t batch_size = 0);
Graph parse_graph(const JsonPlace& place, int64_t batch_size = 0, DataType activation_type = DataType::f32);
void set_optimizer(Graph& graph, const OptimizerSettings& optimizer);  // in its file too
// The same network with another batch; messages begin with `place`.
Graph with_batch_size(const Graph& graph, int64_t batch_size, const std::string& place);
// The same network with activations of another type.
Graph with_activation_type(const Graph& graph, DataType type);

}  // namespace ff
