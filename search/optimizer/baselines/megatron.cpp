#include "search/optimizer/baselines/megatron.h"

#include <algorithm>
#include <numeric>

#include "search/optimizer/device_nodes.h"

namespace ff {
namespace {

// How an operator is split in addition to the batch.
enum class Role {
  between_layers,  // by length: sequence parallelism
  heads,           // attention: the heads
  columns,         // by channel: the first linear layers of a feed-forward, what is elementwise after them, the output
  rows,            // by what is contracted: the linear after attention, the last of a feed-forward, the embedding
  classes,         // the loss
};

bool is_one_of(const std::string& type, const Vector<std::string>& types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

class Roles {
 public:
  Roles(const Graph& graph, int degree)
      : graph_(graph), degree_(degree), roles_(graph.operators.size(), Role::between_layers) {
    for (const OperatorId op : graph.operator_ids()) {
      if (type(op) == "multi_head_attention") roles_[op] = Role::heads;
      else if (type(op) == "embedding" && splits(op, DimensionKind::reduction)) roles_[op] = Role::rows;
      else if (type(op) == "linear" || type(op) == "expert_linear") find_rows(op);
      else if (type(op) == "softmax_cross_entropy") find_output(op);
    }
  }
  Role of(OperatorId op) const { return roles_[op]; }

 private:
  const std::string& type(OperatorId op) const { return graph_.operators[op].definition->type(); }

  template <typename Condition>
  bool any_dimension(OperatorId op, const Condition& condition) const {
    const auto& dimensions = graph_.operators[op].definition->dimensions();
    return std::any_of(dimensions.begin(), dimensions.end(), [&](const ParallelDimension& dimension) {
      return dimension.size >= degree_ && condition(dimension);
    });
  }
  bool splits(OperatorId op, DimensionKind kind) const {
    return any_dimension(op, [&](const ParallelDimension& dimension) { return dimension.kind == kind; });
  }
  bool splits(OperatorId op, const std::string& name) const {
    return any_dimension(op, [&](const ParallelDimension& dimension) { return dimension.name == name; });
  }

  bool elementwise(OperatorId op) const {
    return is_one_of(type(op), {"relu", "tanh", "sigmoid", "gelu", "silu", "mul", "dropout"});
  }

  // Is it the linear layer after attention, or the last one of a feed-forward: one that reads, through elementwise
  // operators, nothing but linear layers that nobody else reads? Then these are split by column.
  void find_rows(OperatorId op) {
    if (!splits(op, DimensionKind::reduction)) return;
    const OperatorId source = producer(op, 0);
    if (source < 0) return;
    if (type(source) == "multi_head_attention") {
      roles_[op] = Role::rows;
      return;
    }
    Vector<OperatorId> columns;
    if (!collect_columns(op, source, columns)) return;
    for (const OperatorId column : columns) roles_[column] = Role::columns;
    roles_[op] = Role::rows;
  }

  // Adds `op` and what it reads, up to linear layers. False where something else is found.
  bool collect_columns(OperatorId reader, OperatorId op, Vector<OperatorId>& columns) const {
    if (roles_[op] != Role::between_layers || !splits(op, "channel")) return false;
    for (const TensorId output : graph_.operators[op].outputs)
      for (const TensorUse& use : graph_.tensors[output].uses)
        if (use.consumer != reader) return false;
    columns.push_back(op);
    if (type(op) == "linear" || type(op) == "expert_linear") return true;
    if (!elementwise(op)) return false;
    for (const int input : graph_.operators[op].inputs.indices())
      if (const OperatorId source = producer(op, input); source < 0 || !collect_columns(op, source, columns))
        return false;
    return true;
  }

  // Where the loss can be split by class, so is the linear layer in front of it.
  void find_output(OperatorId loss) {
    const OperatorId source = producer(loss, 0);
    if (!splits(loss, "class") || source < 0 || type(source) != "linear" || !splits(source, "channel") ||
        roles_[source] != Role::between_layers)
      return;
    roles_[source] = Role::columns;
    roles_[loss] = Role::classes;
  }

  OperatorId producer(OperatorId op, int input) const {
    return graph_.tensors[graph_.operators[op].inputs[input]].producer;
  }

  const Graph& graph_;
  const int degree_;
  Vector<Role> roles_;
};

// The dimension that an operator of this role is split in, in addition to the batch; -1: none is large enough.
int tensor_dimension(const OperatorDefinition& definition, Role role, int degree) {
  const auto find = [&](const auto& condition) {
    for (const int d : definition.dimensions().indices())
      if (definition.dimensions()[d].size >= degree && condition(definition.dimensions()[d])) return d;
    return -1;
  };
  const auto named = [&](const std::string& name) {
    return find([&](const ParallelDimension& dimension) { return dimension.name == name; });
  };
  const auto is = [&](const char* type) { return definition.type() == type; };
  const bool has_tokens = is("dispatch") || is("combine") || experts_dimension(definition) >= 0;  // not a length
  switch (role) {
    case Role::between_layers: return named(has_tokens ? "channel" : "length");
    case Role::heads: return named("head");
    case Role::columns: return named("channel");
    case Role::rows:
      return find([](const ParallelDimension& dimension) { return dimension.kind == DimensionKind::reduction; });
    case Role::classes: return named("class");
  }
  return -1;
}

// How many ways the length is split for context parallelism, the dimension in `dimension`; 1: there is no length, or
// one of too few positions.
int context_of(const OperatorDefinition& definition, int context, int& dimension) {
  for (dimension = 0; dimension < definition.dimensions().count(); ++dimension)
    if (const ParallelDimension& one = definition.dimensions()[dimension]; one.name == "length")
      return one.size >= context ? context : 1;
  return 1;
}

// Of what has the experts' tokens: parts of these, of the experts, and of each expert, on one device after the other.
Configuration configuration_of_experts(const OperatorDefinition& definition, Role role, const LayerDegrees& layer,
                                       std::span<const DeviceId> devices) {
  const auto& dimensions = definition.dimensions();
  const int all = static_cast<int>(devices.size()), of_expert = layer.expert_tensor;
  Configuration configuration{Degrees(dimensions.size(), 1), {}};
  configuration.degrees[0] = static_cast<int>(std::min<int64_t>(dimensions[0].size, all / (layer.expert * of_expert)));
  configuration.degrees[experts_dimension(definition)] = layer.expert;
  const int split = tensor_dimension(definition, role, of_expert);
  if (split >= 0) configuration.degrees[split] *= of_expert;
  for (int part = 0, parts = parts_of(configuration.degrees); part < parts; ++part)
    configuration.devices.push_back(devices[static_cast<size_t>(split >= 0 ? part : part * of_expert)]);
  return configuration;
}

// What has no length (gating, losses of groups) is split further by batch, or else is on the first device of each
// group; dispatch and combine, which have none either, by channel, over all devices of a group.
Configuration configuration_of(const OperatorDefinition& definition, Role role, const LayerDegrees& layer,
                               std::span<const DeviceId> devices) {
  if (experts_dimension(definition) >= 0) return configuration_of_experts(definition, role, layer, devices);
  const auto& dimensions = definition.dimensions();
  int length = 0;
  const int context = context_of(definition, layer.context, length);
  const int of_group = layer.of_group(), all = static_cast<int>(devices.size()), groups = all / of_group;
  const int tensor = is_one_of(definition.type(), {"dispatch", "combine"}) ? of_group : layer.tensor;
  Configuration configuration{Degrees(dimensions.size(), 1), {}};
  int split = tensor_dimension(definition, role, tensor);
  if (split == length && context > 1 && dimensions[length].size < context * tensor) split = -1;
  const bool whole_batch = split < 0 && context == 1 && dimensions[0].size >= all;
  configuration.degrees[0] = whole_batch ? all : static_cast<int>(std::min<int64_t>(dimensions[0].size, groups));
  if (context > 1) configuration.degrees[length] = context;
  if (split >= 0) configuration.degrees[split] *= tensor;
  const int of_context = split >= 0 ? tensor : 1;  // parts
  for (int part = 0, parts = parts_of(configuration.degrees); part < parts; ++part) {
    const int group = part / of_context / context, place = part / of_context % context, rank = part % of_context;
    configuration.devices.push_back(
        devices[static_cast<size_t>(whole_batch ? part : group * of_group + place * tensor + rank)]);
  }
  return configuration;
}

int64_t heads_of(const OperatorDefinition& attention) {
  for (const ParallelDimension& dimension : attention.dimensions())
    if (dimension.name == "head") return dimension.size;
  return 1;
}

// Is it an embedding of its own table, all of whose readers are on other devices? Partial sums of its rows would cross
// to these, from each device as many bytes as there are sums.
bool is_embedding_alone(const Graph& graph, OperatorId op, const DevicesOfOperator& devices_of) {
  const Operator& embedding = graph.operators[op];
  if (embedding.definition->type() != "embedding" || graph.parameters[embedding.parameters[0]].uses.count() > 1)
    return false;
  const Vector<TensorUse>& uses = graph.tensors[embedding.outputs[0]].uses;
  return std::none_of(uses.begin(), uses.end(),
                      [&](const TensorUse& use) { return devices_of(use.consumer).data() == devices_of(op).data(); });
}

}  // namespace

int experts_dimension(const OperatorDefinition& definition) {
  if (definition.type() == "combine") return -1;
  for (const int d : definition.dimensions().indices())
    if (definition.dimensions()[d].name == "expert") return d;
  return -1;
}

int64_t experts_of(const Graph& graph) {
  int64_t experts = 1;
  for (const Operator& op : graph.operators)
    if (const int d = experts_dimension(*op.definition); d >= 0) experts = op.definition->dimensions()[d].size;
  return experts;
}

Strategy tensor_parallel(const Graph& graph, const LayerDegrees& degrees, const DevicesOfOperator& devices_of) {
  const Roles roles(graph, degrees.tensor);
  Strategy strategy;
  for (const OperatorId op : graph.operator_ids()) {
    const Role role = is_embedding_alone(graph, op, devices_of) ? Role::columns : roles.of(op);
    strategy.push_back(configuration_of(*graph.operators[op].definition, role, degrees, devices_of(op)));
  }
  return strategy;
}

std::optional<MegatronStrategy> megatron(const Graph& graph, const Topology& topology) {
  const Vector<Vector<DeviceId>> nodes = devices_by_node(topology);
  int in_node = nodes[0].count();
  for (const Vector<DeviceId>& node : nodes) in_node = std::min(in_node, node.count());
  MegatronStrategy result;
  bool attention = false;
  result.tensor_degree = in_node;
  int64_t batch = 1;
  for (const Operator& op : graph.operators) {
    if (op.definition->type() != "multi_head_attention") continue;
    attention = true;
    batch = op.definition->dimensions()[0].size;
    result.tensor_degree = static_cast<int>(std::gcd(int64_t{result.tensor_degree}, heads_of(*op.definition)));
  }
  if (!attention) return std::nullopt;
  Vector<DeviceId> devices;  // node by node, so that each group of tensor_degree is within one
  for (const Vector<DeviceId>& node : nodes) devices.insert(devices.end(), node.begin(), node.begin() + in_node);
  const int groups = devices.count() / result.tensor_degree;
  result.data_degree = static_cast<int>(std::min<int64_t>(groups, batch));
  while (groups % result.data_degree != 0) --result.data_degree;
  const auto used = static_cast<size_t>(result.tensor_degree * result.data_degree);
  result.strategy = tensor_parallel(graph, {.tensor = result.tensor_degree, .expert_tensor = result.tensor_degree},
                                    [&](OperatorId) { return std::span<const DeviceId>(devices).first(used); });
  return result;
}

}  // namespace ff
