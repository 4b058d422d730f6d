#include "search/cost/memory.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "common/first_devices.h"
#include "common/micro_batches.h"
#include "common/operators/conversion.h"
#include "common/task_graph/edge_copies.h"
#include "common/task_graph/live_memory.h"
#include "common/task_graph/parameter_buffers.h"
#include "common/task_graph/shared_kernels.h"
#include "common/topology.h"

namespace ff {
namespace {

// In the arena.
int64_t place_of(DataType type, const Block& block) { return aligned(bytes_of(type, block)); }

Vector<int64_t> corners(const Block& block) {
  Vector<int64_t> result;
  for (int axis = 0; axis < block.rank(); ++axis) result.insert(result.end(), {block[axis].begin, block[axis].end});
  return result;
}

}  // namespace

Vector<bool> gpus_of(const Topology& topology) {
  Vector<bool> gpus;
  for (const Device& device : topology.devices) gpus.push_back(device.kind == DeviceKind::gpu);
  return gpus;
}

MemoryModel::MemoryModel(TaskGraphBuilder& builder, int device_count, int state_buffers, Vector<bool> gpus,
                         const FrameworkConventions& framework)
    : builder_(builder), state_buffers_(state_buffers), gpus_(std::move(gpus)), framework_(framework),
      edges_of_tensor_(graph().tensors.size()), groups_of_(graph().operators.size()),
      items_around_(graph().operators.size()), part_bytes_(graph().operators.size()),
      block_numbers_(graph().parameters.size()), sums_(static_cast<size_t>(device_count)),
      at_end_(static_cast<size_t>(device_count)), on_demand_(static_cast<size_t>(device_count)),
      bytes_(static_cast<size_t>(device_count)) {
  Vector<Vector<int>> edges_around(graph().operators.size());
  for (const int e : builder.edges().indices()) {
    const Edge& edge = builder.edges()[e];
    edges_of_tensor_[edge.tensor].push_back(e);
    for (const OperatorId op : {edge.producer, edge.consumer}) edges_around[op].push_back(e);
  }
  find_kept_in_fp8();
  for (size_t g = 0; g < builder.groups().size(); ++g)
    for (OperatorId op : builder.groups()[g].operators) groups_of_[op].push_back(static_cast<int>(g));
  for (OperatorId op = 0; op < static_cast<OperatorId>(graph().operators.size()); ++op) {
    Vector<Item>& items = items_around_[op];
    items.push_back({Item::Kind::operation, op});
    for (const int e : edges_around[op]) items.push_back({Item::Kind::edge, e});
    Vector<TensorId> tensors = graph().operators[op].inputs;
    tensors.insert(tensors.end(), graph().operators[op].outputs.begin(), graph().operators[op].outputs.end());
    sort_and_unique(tensors);
    for (TensorId tensor : tensors)
      if (graph().tensors[tensor].producer >= 0) items.push_back({Item::Kind::tensor, tensor});
    for (int g : groups_of_[op]) items.push_back({Item::Kind::group, g});
  }
  find_whole_layers();
}

// Of a layer that is gathered at once its largest group is counted, for all.
void MemoryModel::find_whole_layers() {
  const Vector<ParameterGroup>& groups = builder_.groups();
  whole_over_own_.assign(groups.size(), 1);
  if (!builder_.shards_layers()) return;
  struct Layer {
    int64_t elements = 0, most = 0;
    int largest = -1;  // group
  };
  std::map<int, Layer> layers;
  for (const int g : groups.indices()) {
    if (!shard_rounds(builder_, g).gradients) continue;
    int64_t elements = 0;
    for (const ParameterId parameter : groups[g].parameters)
      elements += ff::volume(graph().parameters[parameter].spec.shape);
    Layer& layer = layers[builder_.sharded_layer(groups[g].operators[0])];
    layer.elements += elements;
    if (elements > layer.most) layer.most = elements, layer.largest = g;
  }
  for (const auto& [number, layer] : layers)
    if (layer.most > 0)
      whole_over_own_[layer.largest] = static_cast<double>(layer.elements) / static_cast<double>(layer.most);
}

size_t MemoryModel::number(Item item) const {
  const size_t index = static_cast<size_t>(item.index), operators = graph().operators.size(),
               edges = builder_.edges().size();
  switch (item.kind) {
    case Item::Kind::operation: return index;
    case Item::Kind::edge: return operators + index;
    case Item::Kind::tensor: return operators + edges + index;
    case Item::Kind::group: return operators + edges + graph().tensors.size() + index;
  }
  return 0;
}

MemoryModel::NeedList MemoryModel::needs_of(Item item, const Strategy& strategy) {
  switch (item.kind) {
    case Item::Kind::operation: return needs_of_operator(item.index, strategy);
    case Item::Kind::edge: return needs_of_edge(item.index, strategy);
    case Item::Kind::tensor: return needs_of_tensor(item.index, strategy);
    case Item::Kind::group: return needs_of_group(item.index, strategy);
  }
  return {};
}

int MemoryModel::block_number(ParameterId parameter, const Block& block) {
  auto& numbers = block_numbers_[parameter];
  return numbers.emplace(corners(block), static_cast<int>(numbers.size())).first->second;
}

void MemoryModel::find_kept_in_fp8() {
  kept_weight_bytes_.assign(graph().parameters.size(), 0);
  kept_in_fp8_.assign(graph().tensors.size(), false);
  const Vector<std::optional<Fp8Use>> in_fp8 = fp8_operators(graph(), framework_);
  const Vector<bool> weights = fp8_weights(graph(), framework_);
  for (const ParameterId parameter : weights.indices())  // in place of bf16 ones, or beside them
    if (weights[parameter] && !framework_.fp8_weights) kept_weight_bytes_[parameter] = fp8_weight_copies;
  for (const TensorId id : kept_in_fp8_.indices()) {
    const Tensor& tensor = graph().tensors[id];
    if (tensor.producer < 0 || graph().operators[tensor.producer].definition->backward_reads_output()) continue;
    bool products = false, others = false;
    for (const TensorUse& use : tensor.uses)
      if (in_fp8[use.consumer]) products = true;
      else others = others || graph().operators[use.consumer].definition->backward_reads_input(use.input);
    kept_in_fp8_[id] = products && !others;
  }
}

// The value that forward reads lives as long as that.
void MemoryModel::halve_kept_in_fp8(const TaskGraph& tasks, MemoryPlan& plan) const {
  using Kind = BufferKey::Kind;
  for (PlannedBuffer& buffer : plan.buffers) {
    const bool output = buffer.key.kind == Kind::output || buffer.key.kind == Kind::recomputed_output;
    if ((!output && buffer.key.kind != Kind::input) || buffer.last >= plan.steps.count()) continue;
    const Operator& op = graph().operators[buffer.key.what];
    const TaskKind last = tasks.tasks[plan.steps[buffer.last]].kind;
    if (kept_in_fp8_[output ? op.outputs[buffer.key.slot] : op.inputs[buffer.key.slot]] && is_compute(last) &&
        !is_forward(last))
      buffer.bytes /= 2;
  }
  count_bytes(plan);
}

// A tensor that products alone read is gathered for them: that is all of it.
int64_t MemoryModel::replicas_of_output(OperatorId id, const Block& part) const {
  if (!framework_.replicates_length) return 1;
  const Operator& op = graph().operators[id];
  const auto is_kept_whole = [&](TensorId output) {
    const Vector<TensorUse>& uses = graph().tensors[output].uses;
    return std::any_of(uses.begin(), uses.end(), [&](const TensorUse& use) {
      return !is_projection(*graph().operators[use.consumer].definition);
    });
  };
  const bool any = std::any_of(op.outputs.begin(), op.outputs.end(), is_kept_whole);
  return any && !is_projection(*op.definition) ? length_replication(*op.definition, part, framework_) : 1;
}

void MemoryModel::multiply_replicated(const Strategy& strategy, MemoryPlan& plan) const {
  using Kind = BufferKey::Kind;
  for (PlannedBuffer& buffer : plan.buffers)
    if (buffer.key.kind == Kind::output || buffer.key.kind == Kind::recomputed_output) {
      const OperatorId op = buffer.key.what;
      buffer.bytes *=
          replicas_of_output(op, graph().operators[op].definition->part(strategy[op].degrees, buffer.key.part));
    }
  count_bytes(plan);
}

MemoryModel::BytesOfPart MemoryModel::bytes_of_part(OperatorId id, const Block& part) const {
  const Operator& op = graph().operators[id];
  const OperatorDefinition& definition = *op.definition;
  const bool framework = framework_.framework_memory;
  BytesOfPart result;
  result.workspace =
      framework ? framework_workspace_bytes(definition, part, framework_) : definition.workspace_bytes(part);
  result.conversion = framework ? framework_scratch_bytes(definition, part, framework_)
                                : conversion_bytes(definition, part, op.has_backward, graph().inputs_with_gradient(id));
  result.scratch = definition.shared_workspace_bytes(part);
  const int64_t replicas = replicas_of_output(id, part);
  for (const int o : op.outputs.indices()) {
    const Block block = definition.output_block(o, part);
    const DataType type = definition.outputs()[o].type;
    result.outputs.push_back(place_of(type, block) * replicas / (kept_in_fp8_[op.outputs[o]] ? 2 : 1));
    if (definition.is_loss()) result.fixed += bytes_of(type, block);
    else result.activations += result.outputs.back();
  }
  for (const int i : op.inputs.indices()) {
    const Block block = definition.input_block(i, part);
    const DataType type = definition.inputs()[i].type;
    result.inputs.push_back(place_of(type, block) / (kept_in_fp8_[op.inputs[i]] ? 2 : 1));
    if (graph().tensors[op.inputs[i]].producer < 0) result.fixed += bytes_of(type, block);
    if (graph().input_has_gradient(id, i)) result.gradients += result.inputs.back();
  }
  return result;
}

const MemoryModel::PartBytes& MemoryModel::part_bytes(OperatorId id, const Degrees& degrees) {
  const auto [it, added] = part_bytes_[id].try_emplace(degrees);
  PartBytes& result = it->second;
  if (!added) return result;
  const Operator& op = graph().operators[id];
  const OperatorDefinition& definition = *op.definition;
  const Vector<int> kinds = definition.kinds_of_parts(degrees);
  Vector<int> number;  // [kind]: of its bytes
  for (const int part : kinds.indices()) {
    if (kinds[part] >= number.count()) number.resize(kinds[part] + 1, -1);
    int& known = number[kinds[part]];
    if (known < 0) {
      known = result.distinct.count();
      result.distinct.push_back(bytes_of_part(id, definition.part(degrees, part)));
    }
    result.which.push_back(known);
  }
  // Parts that differ in the sample alone have the same parameters.
  const bool samples = !definition.dimensions().empty() && definition.dimensions()[0].kind == DimensionKind::sample;
  const int different = samples ? kinds.count() / degrees[0] : kinds.count();
  result.parameters.resize(op.parameters.size());
  for (const int p : op.parameters.indices())
    for (int part = 0; part < different; ++part) {
      const Block block = definition.parameter_block(p, definition.part(degrees, part));
      result.parameters[p].emplace_back(block_number(op.parameters[p], block), block.volume());
    }
  return result;
}

// The gradients of inputs and, where backward does not read them, the outputs live for a short time.
MemoryModel::NeedList MemoryModel::needs_of_operator(OperatorId id, const Strategy& strategy) {
  const Operator& op = graph().operators[id];
  const PartBytes& bytes = part_bytes(id, strategy[id].degrees);
  const bool keeps_outputs = op.has_backward && op.definition->backward_reads_output();
  // Other tasks run between the two backward tasks of a part.
  const bool all_at_once = op.definition->has_statistics(strategy[id].degrees, /*backward=*/true);
  NeedList needs;
  for (int part = 0; part < bytes.count(); ++part) {
    const BytesOfPart& own = bytes[part];
    const int64_t outputs = own.activations, gradients = own.gradients;
    const DeviceId device = strategy[id].devices[part];
    needs.push_back({device, own.fixed + own.workspace + (keeps_outputs ? outputs : 0) + (all_at_once ? gradients : 0),
                     std::max(keeps_outputs ? 0 : outputs, all_at_once ? 0 : gradients) + own.conversion,
                     scratch(own, device)});
  }
  const NeedList statistics = needs_of_statistics(id, strategy);
  needs.insert(needs.end(), statistics.begin(), statistics.end());
  return needs;
}

int64_t MemoryModel::scratch(const BytesOfPart& bytes, DeviceId device) const {
  return gpus_.empty() || !gpus_[device] ? bytes.scratch : 0;
}

// What parts have in common is there once per device: gathered, all of it; summed, the sum, and the partial sums of
// several parts on one device.
MemoryModel::NeedList MemoryModel::needs_of_statistics(OperatorId id, const Strategy& strategy) const {
  const Operator& op = graph().operators[id];
  NeedList needs;
  if (op.definition->statistics_in_scratch()) return needs;
  const auto add = [&](DeviceId device, const StatisticsReduction& reduction) {
    needs.push_back({device, reduction.bytes, 0, 0, reduction.parts[0]});
  };
  for (Direction direction : directions) {
    if (direction == Direction::backward && !op.has_backward) continue;
    for (const StatisticsReduction& reduction : statistics_reductions(*op.definition, strategy[id], direction)) {
      for (DeviceId holder : reduction.holders) add(holder, reduction);
      if (op.definition->gathers_statistics()) continue;
      Vector<DeviceId> devices;
      for (const int part : reduction.parts) devices.push_back(strategy[id].devices[part]);
      std::sort(devices.begin(), devices.end());
      for (const int i : devices.indices()) {
        const bool several =
            (i > 0 && devices[i - 1] == devices[i]) || (i + 1 < devices.count() && devices[i + 1] == devices[i]);
        if (several) add(devices[i], reduction);
      }
    }
  }
  return needs;
}

// For a short time what is packed to be sent and received, and inputs that are not the producer's own buffer, which are
// kept where backward reads them.
MemoryModel::NeedList MemoryModel::needs_of_edge(int e, const Strategy& strategy) {
  const Edge& edge = builder_.edges()[e];
  const Configuration &producer = strategy[edge.producer], &consumer = strategy[edge.consumer];
  const Operator& reader = graph().operators[edge.consumer];
  const bool keeps_inputs = reader.has_backward && reader.definition->backward_reads_input(edge.input);
  const PartBytes& read = part_bytes(edge.consumer, consumer.degrees);
  Vector<int64_t> inputs;  // [part]
  inputs.reserve(consumer.devices.size());
  for (int part = 0; part < read.count(); ++part) inputs.push_back(read[part].inputs[edge.input]);
  NeedList needs;
  if (const Vector<Collective> collectives = builder_.collectives(e, strategy); !collectives.empty()) {
    const Vector<int64_t> buffers = buffers_of_collectives(e, collectives, strategy);
    for (const DeviceId device : buffers.indices())
      if (buffers[device] > 0) needs.push_back({device, 0, buffers[device]});
    if (framework_.gathers_inputs_again && keeps_inputs) add_gathered_again(e, collectives, strategy, inputs, needs);
  } else {
    // by part: what is packed for all that read it, or received from all that it reads
    Vector<int64_t> packed(producer.devices.size(), 0), received(consumer.devices.size(), 0);
    for (const auto pairs = builder_.pairs(e, strategy); const BlockPair& pair : *pairs) {
      const bool local = producer.devices[pair.producer_part] == consumer.devices[pair.consumer_part];
      const EdgeCopy copy = edge_copy(pair, local, Direction::forward);
      if (copy.destination == BlockUse::in_place) inputs[pair.consumer_part] = 0;
      if (copy.source == BlockUse::packed) packed[pair.producer_part] += aligned(pair.bytes);
      if (copy.destination == BlockUse::packed && !local) received[pair.consumer_part] += aligned(pair.bytes);
    }
    for (int part : packed.indices())
      if (packed[part] > 0) needs.push_back({producer.devices[part], 0, packed[part]});
    for (int part : received.indices())
      if (received[part] > 0) needs.push_back({consumer.devices[part], 0, received[part]});
  }
  for (int part : inputs.indices())
    if (inputs[part] > 0)
      needs.push_back({consumer.devices[part], keeps_inputs ? inputs[part] : 0, keeps_inputs ? 0 : inputs[part]});
  return needs;
}

// Kept are the producers' shards; `inputs`, by part, are there for a short time and become 0.
void MemoryModel::add_gathered_again(int e, const Vector<Collective>& collectives, const Strategy& strategy,
                                     Vector<int64_t>& inputs, NeedList& needs) {
  const Edge& edge = builder_.edges()[e];
  const Configuration &producer = strategy[edge.producer], &consumer = strategy[edge.consumer];
  const auto exchanges = builder_.exchanges(e, producer.degrees, consumer.degrees);
  for (const int number : collectives.indices()) {
    if (collectives[number].kind != CollectiveKind::all_gather) continue;
    const Exchange& exchange = exchanges->exchanges[number];
    for (const int32_t part : exchange.producers)
      needs.push_back({producer.devices[part], exchanges->moved_bytes(exchange, CollectiveKind::all_gather, part)});
    for (const int32_t part : exchange.consumers)
      needs.push_back({consumer.devices[part], 0, std::exchange(inputs[part], 0)});
  }
}

// What collectives pack on each device: it sends from one buffer and receives into one, in one direction at a time.
Vector<int64_t> MemoryModel::buffers_of_collectives(int e, const Vector<Collective>& collectives,
                                                    const Strategy& strategy) {
  const Edge& edge = builder_.edges()[e];
  const auto exchanges = builder_.exchanges(e, strategy[edge.producer].degrees, strategy[edge.consumer].degrees);
  Vector<int64_t> most(bytes_.size(), 0);
  for (Direction direction : directions) {
    if (direction == Direction::backward && !has_gradient(graph(), edge)) break;
    const bool forward = direction == Direction::forward;
    for (int number : collectives.indices()) {
      const Exchange& exchange = exchanges->exchanges[number];
      const CollectiveKind kind = forward ? collectives[number].kind : reversed(collectives[number].kind);
      std::map<DeviceId, int64_t> packed;
      if (forward ? sends_packed(kind) : receives_packed(kind))
        for (int32_t part : exchange.producers)
          packed[strategy[edge.producer].devices[part]] += exchanges->moved_bytes(exchange, kind, part);
      if (forward ? receives_packed(kind) : sends_packed(kind))
        for (int32_t part : exchange.consumers)
          packed[strategy[edge.consumer].devices[part]] += exchanges->consumer_bytes[part];
      for (const auto& [device, bytes] : packed) most[device] = std::max(most[device], aligned(bytes));
    }
  }
  return most;
}

namespace {

// What the consumers of a part's output do with it and its gradient.
struct OutputUse {
  int contributions = 0;  // to the gradient
  bool in_place = false, received = false, kept = false;
  int64_t staged = 0;  // bytes of contributions that are received and cover the whole output
};

void add_collective_uses(TaskGraphBuilder& builder, int e, const Strategy& strategy,
                         const Vector<Collective>& collectives, Vector<OutputUse>& uses) {
  const Edge& edge = builder.edges()[e];
  const auto exchanges = builder.exchanges(e, strategy[edge.producer].degrees, strategy[edge.consumer].degrees);
  for (int number : collectives.indices())
    for (int32_t part : exchanges->exchanges[number].producers) {
      OutputUse& use = uses[part];
      ++use.contributions;
      if (receives_packed(reversed(collectives[number].kind))) continue;
      use.received = true;
      use.staged += aligned(exchanges->producer_bytes[part]);
    }
}

void add_uses(TaskGraphBuilder& builder, int e, const Strategy& strategy, Vector<OutputUse>& uses) {
  const Edge& edge = builder.edges()[e];
  const bool contributes = has_gradient(builder.graph(), edge);
  if (const Vector<Collective> collectives = builder.collectives(e, strategy); !collectives.empty()) {
    if (contributes) add_collective_uses(builder, e, strategy, collectives, uses);
    return;
  }
  const Operator& reader = builder.graph().operators[edge.consumer];
  const bool reads_again = reader.has_backward && reader.definition->backward_reads_input(edge.input);
  const Vector<DeviceId>&producers = strategy[edge.producer].devices, &consumers = strategy[edge.consumer].devices;
  for (const auto pairs = builder.pairs(e, strategy); const BlockPair& pair : *pairs) {
    OutputUse& use = uses[pair.producer_part];
    const bool local = producers[pair.producer_part] == consumers[pair.consumer_part];
    if (reads_again && edge_copy(pair, local, Direction::forward).destination == BlockUse::in_place) use.kept = true;
    if (!contributes) continue;
    ++use.contributions;
    const BlockUse contribution = edge_copy(pair, local, Direction::backward).destination;
    if (contribution == BlockUse::in_place) use.in_place = true;
    if (contribution != BlockUse::whole) continue;
    use.received = true;
    use.staged += aligned(pair.bytes);
  }
}

}  // namespace

// For a short time gradients of outputs that are not one consumer's own contribution; outputs that a consumer on the
// device reads in place in its backward pass.
MemoryModel::NeedList MemoryModel::needs_of_tensor(TensorId id, const Strategy& strategy) {
  const Tensor& tensor = graph().tensors[id];
  if (tensor.producer < 0 || graph().operators[tensor.producer].definition->is_loss()) return {};
  const Operator& op = graph().operators[tensor.producer];
  const Configuration& producer = strategy[tensor.producer];
  Vector<OutputUse> uses(producer.devices.size());
  for (int e : edges_of_tensor_[id]) add_uses(builder_, e, strategy, uses);
  const bool keeps_outputs = op.has_backward && op.definition->backward_reads_output();
  const bool all_at_once = op.definition->has_statistics(producer.degrees, /*backward=*/true);
  const PartBytes& bytes = part_bytes(tensor.producer, producer.degrees);
  NeedList needs;
  for (int part : uses.indices()) {
    const OutputUse& use = uses[part];
    const int64_t output = bytes[part].outputs[tensor.output];
    const bool single = use.contributions == 1;
    int64_t added_up = 0;
    if (op.has_backward && single && use.received) added_up = output;
    else if (op.has_backward && !(single && use.in_place)) added_up = output + use.staged;
    const Need need{producer.devices[part], (use.kept && !keeps_outputs ? output : 0) + (all_at_once ? added_up : 0),
                    all_at_once ? 0 : added_up};
    if (need.bytes > 0 || need.on_demand > 0) needs.push_back(need);
  }
  return needs;
}

// One copy of a parameter's block serves all parts on a device. Parts of one operator have equal or disjoint blocks, so
// that these are its pieces.
MemoryModel::NeedList MemoryModel::needs_of_group(int g, const Strategy& strategy) {
  const ParameterGroup& group = builder_.groups()[g];
  const ShardRounds rounds = shard_rounds(builder_, g);
  const bool shared = group.operators.count() > 1, sharded = group.trained && is_sharded(builder_.synchronization(g));
  std::set<std::pair<ParameterId, int>> pieces;  // numbers of those blocks that are pieces
  if (shared && group.trained)
    for (const auto all = builder_.pieces(g, strategy); const ParameterPiece& piece : *all)
      pieces.emplace(piece.parameter, block_number(piece.parameter, piece.block));
  // device, parameter, number of the block, has no backward pass, elements
  Vector<std::tuple<DeviceId, ParameterId, int, bool, int64_t>> blocks;
  for (OperatorId op : group.operators) {
    const PartBytes& bytes = part_bytes(op, strategy[op].degrees);
    const Vector<DeviceId>& devices = strategy[op].devices;
    const bool repeats = has_micro_batches(*graph().operators[op].definition);
    const int of_micro_batch = repeats ? bytes.count() / builder_.micro_batches() : bytes.count();
    for (const int p : bytes.parameters.indices()) {
      const ParameterId parameter = graph().operators[op].parameters[p];
      if (std::find(group.parameters.begin(), group.parameters.end(), parameter) == group.parameters.end()) continue;
      for (int part = 0; part < bytes.count(); ++part) {
        if (part >= of_micro_batch && devices[part] == devices[part - of_micro_batch]) continue;
        const auto& [number, elements] = bytes.parameter(p, part);
        blocks.emplace_back(devices[part], parameter, number, !graph().operators[op].has_backward, elements);
      }
    }
  }
  std::sort(blocks.begin(), blocks.end());  // of one block the user with a backward pass comes first
  NeedList needs;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto& [device, parameter, block, no_backward, elements] = blocks[i];
    const bool again = i > 0 && device == std::get<0>(blocks[i - 1]) && parameter == std::get<1>(blocks[i - 1]) &&
                       block == std::get<2>(blocks[i - 1]);
    if (again) continue;
    const ParameterUse use{!no_backward, !shared || pieces.contains({parameter, block})};
    int64_t held = parameter_buffer_sizes(graph(), parameter, elements, sharded ? 0 : state_buffers_, use).elements();
    if (rounds.gradients || (sharded && is_framework_in_bf16())) held = 0;  // add_shards
    const int64_t gradient = !shared && group.trained && !sharded ? gradient_sum_bytes(elements) : 0;
    const int64_t copy = rounds.parameters ? 0 : weight_copy_bytes(graph(), parameter, elements);
    needs.push_back({device, held * element_bytes + gradient + copy + kept_weight_bytes_[parameter] * elements});
  }
  if (sharded) add_shards(g, strategy, rounds, needs);
  else if (shared && group.trained) add_gradient_sums(g, strategy, needs);
  if (group.trained && builder_.synchronization() == Synchronization::parameter_server)
    add_exchange_with_owners(g, strategy, needs);
  return needs;
}

// Then the master weights are sharded with the optimizer's state.
bool MemoryModel::is_framework_in_bf16() const {
  return framework_.framework_memory && graph().activation_type == DataType::bf16;
}

int64_t MemoryModel::gradient_sum_bytes(int64_t elements) const {
  return gradient_sum_elements(elements) * (is_framework_in_bf16() ? framework_.whole_gradient_bytes : element_bytes);
}

// Of operators that share parameters: piece by piece.
void MemoryModel::add_gradient_sums(int g, const Strategy& strategy, NeedList& needs) {
  Vector<DeviceId> holders;
  for (const auto pieces = builder_.pieces(g, strategy); const ParameterPiece& piece : *pieces) {
    holders.clear();
    for (const auto& [op, part] : piece.users) holders.push_back(strategy[op].devices[part]);
    sort_and_unique(holders);
    const int64_t bytes = gradient_sum_bytes(piece.block.volume());
    for (const DeviceId holder : holders) needs.push_back({holder, bytes});
  }
}

// Of each unit and holder: packed gradients, the optimizer's state of its shard, and what is exchanged. Of what is
// sharded in rounds the whole units live in the arena, few at a time.
void MemoryModel::add_shards(int g, const Strategy& strategy, const ShardRounds& rounds, NeedList& needs) {
  const auto pieces = builder_.pieces(g, strategy);
  for (const SynchronizationUnit& unit :
       synchronization_units(g, *pieces, strategy, builder_.synchronization(g), builder_.replicas())) {
    const int64_t all = unit.holder_count(), elements = packed(unit).elements;
    const int64_t holders = framework_.shard_group > 0 ? std::min<int64_t>(all, framework_.shard_group) : all;
    const int64_t shard = shard_elements(elements, holders),
                  whole = packed_elements(elements, holders, builder_.synchronization(g));
    if (is_framework_in_bf16() && holders > 1) {
      // Master weights, and gradients or what they are added up in; weights are counted in needs_of_group.
      const int64_t of_shard = (state_buffers_ + 1 + (rounds.gradients ? 1 : 0)) * shard * element_bytes;
      const int64_t gradients = rounds.gradients ? 0 : whole * framework_.whole_gradient_bytes;
      const int64_t in_arena = (rounds.gradients ? whole : 0) + (rounds.parameters ? whole : 0);
      for (const DeviceId holder : unit.holders)
        needs.push_back({holder, of_shard + gradients, whole_bytes(g, in_arena * element_bytes / 2)});
      continue;
    }
    int64_t held = (state_buffers_ + (holders > 1 ? 1 : 0)) * shard, in_arena = 0, copies = 0;
    if (!rounds.gradients || holders == 1) held += whole;
    else in_arena = whole;
    if (rounds.gradients || is_framework_in_bf16()) {  // weights
      if (holders == 1) {
        for (const ParameterPiece* piece : unit.pieces) {
          held += piece->block.volume();
          if (rounds.parameters) copies += weight_copy_bytes(graph(), piece->parameter, piece->block.volume());
        }
      } else if (rounds.parameters) held += shard, in_arena += whole;
      else held += whole;
    }
    for (const DeviceId holder : unit.holders)
      needs.push_back({holder, held * element_bytes + copies, whole_bytes(g, in_arena * element_bytes)});
  }
}

// As memory_plan.h has it: an owner receives from every other holder and packs what it sends back, which they receive.
void MemoryModel::add_exchange_with_owners(int g, const Strategy& strategy, NeedList& needs) {
  const auto pieces = builder_.pieces(g, strategy);
  for (const SynchronizationUnit& unit : synchronization_units(g, *pieces, strategy, builder_.synchronization())) {
    const int64_t holders = unit.holders.count();
    const int64_t bytes = aligned(packed(unit).elements * element_bytes);
    if (holders < 2) continue;
    for (const DeviceId holder : unit.holders)
      needs.push_back({holder, 0, holder == unit.owner ? holders * bytes : bytes});
  }
}

void MemoryModel::add(const NeedList& needs, Item::Kind kind, int64_t sign) {
  for (const Need& need : needs) {
    sums_[need.device] += sign * need.bytes;
    const bool at_end = kind == Item::Kind::group && !is_sharded(builder_.synchronization());
    if (kind == Item::Kind::group) at_end_[need.device] += sign * (need.bytes + (at_end ? need.on_demand : 0));
    const auto count = [&](int of, int64_t bytes) {
      if (bytes == 0) return;
      auto& counts = on_demand_[need.device][of];
      const auto it = counts.try_emplace(bytes, 0).first;
      it->second += static_cast<int>(sign);
      if (it->second == 0) counts.erase(it);
    };
    count(of_scratch, need.scratch);
    if (!at_end) count(static_cast<int>(kind), need.on_demand);
  }
}

const Vector<int64_t>& MemoryModel::total() {
  for (size_t device = 0; device < bytes_.size(); ++device) {
    bytes_[device] = sums_[device];
    for (const auto& counts : on_demand_[device])
      if (!counts.empty()) bytes_[device] += counts.rbegin()->first;
    if (const auto& edges = on_demand_[device][static_cast<int>(Item::Kind::edge)]; !edges.empty()) {
      const auto largest = edges.rbegin();
      if (largest->second > 1) bytes_[device] += largest->first;
      else if (edges.size() > 1) bytes_[device] += std::next(largest)->first;
    }
    if (const auto& groups = on_demand_[device][static_cast<int>(Item::Kind::group)]; !groups.empty())
      bytes_[device] += (shards_in_flight - 1) * groups.rbegin()->first;
    bytes_[device] = std::max(bytes_[device], at_end_[device]);
  }
  return bytes_;
}

Vector<int64_t> MemoryModel::bytes(const Strategy& strategy) {
  reset(strategy);
  return bytes_;
}

Vector<int64_t> MemoryModel::bytes(const Strategy& strategy, const TaskGraph& tasks, const Vector<int>& order,
                                   TransferBuffers buffers) {
  Needs needs = this->needs(strategy, tasks, order, buffers);
  lay_out(needs.plans);
  return needs.bytes();
}

Vector<int64_t> MemoryModel::of_parameters(const Strategy& strategy) {
  Vector<int64_t> result(bytes_.size(), 0);
  const bool at_end = !is_sharded(builder_.synchronization());
  for (const int group : builder_.groups().indices())
    for (const Need& need : needs_of_group(group, strategy))
      result[need.device] += need.bytes + (at_end ? need.on_demand : 0);
  return result;
}

Vector<int64_t> MemoryModel::Needs::bytes() const {
  Vector<int64_t> result;
  for (const DeviceId device : plans.indices()) result.push_back(bytes(device));
  return result;
}

Vector<DeviceId> MemoryModel::devices_of(const TaskGraph& tasks) const {
  return tasks.devices.empty() ? first_devices(bytes_.count()) : tasks.devices;
}

MemoryModel::Needs MemoryModel::needs(const Strategy& strategy, const TaskGraph& tasks, const Vector<int>& order,
                                      TransferBuffers buffers) {
  const Vector<DeviceId> devices = devices_of(tasks);
  const Vector<int64_t> none(bytes_.size(), 0);
  Needs result{none, none, none, Vector<MemoryPlan>(bytes_.size()), none, none};
  Vector<MemoryPlan> plans =
      plan_lives(builder_, strategy, tasks, order, devices, buffers,
                 framework_.gathers_inputs_again ? InputsOfCollectives::gathered_again : InputsOfCollectives::kept);
  for (const int i : devices.indices()) {
    if (framework_.fp8) halve_kept_in_fp8(tasks, plans[i]);
    if (framework_.replicates_length) multiply_replicated(strategy, plans[i]);
    result.plans[devices[i]] = std::move(plans[i]);
  }
  Vector<int64_t> conversions = none;  // one scratch memory serves all parts on a device
  const auto add_of_part = [&](OperatorId id, int32_t part, DeviceId device, int64_t of_part) {
    result.other[device] += of_part;
    if (micro_batch_of_part(builder_, strategy, id, part) == builder_.micro_batches() - 1)
      result.of_last_micro_batch[device] += of_part;
  };
  // one copy serves all that read the same block
  std::set<std::tuple<DeviceId, TensorId, Vector<int64_t>>> inputs;
  for (OperatorId id = 0; id < static_cast<OperatorId>(graph().operators.size()); ++id) {
    const Operator& op = graph().operators[id];
    const PartBytes& bytes = part_bytes(id, strategy[id].degrees);
    for (const int32_t part : tasks.parts[id]) {
      const DeviceId device = strategy[id].devices[part];
      const BytesOfPart& own = bytes[part];
      int64_t inputs_and_losses = own.fixed;
      conversions[device] = std::max(conversions[device], own.conversion);
      result.scratch[device] = std::max(result.scratch[device], scratch(own, device));
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        if (graph().tensors[op.inputs[i]].producer >= 0) continue;
        const Block block =
            op.definition->input_block(static_cast<int>(i), op.definition->part(strategy[id].degrees, part));
        if (!inputs.emplace(device, op.inputs[i], corners(block)).second)
          inputs_and_losses -= bytes_of(graph().tensors[op.inputs[i]].type, block);
      }
      add_of_part(id, part, device, inputs_and_losses);
    }
    for (const Need& need : needs_of_statistics(id, strategy)) add_of_part(id, need.part, need.device, need.bytes);
  }
  for (const DeviceId device : devices) result.other[device] += conversions[device];
  for (const DeviceId device : devices)
    for (const auto& [op, part] : shared_kernels(graph(), strategy, tasks, result.plans[device].steps).kernels) {
      const int64_t workspace = workspace_bytes(op, strategy[op].degrees, part);
      result.other[device] += workspace;
      if (!builder_.recomputed(op)) result.kept_workspaces[device] += workspace;
    }
  for (size_t g = 0; g < builder_.groups().size(); ++g)
    for (const Need& need : needs_of_group(static_cast<int>(g), strategy)) result.parameters[need.device] += need.bytes;
  if (tasks.devices.empty()) return result;
  for (const DeviceId device : bytes_.indices())
    if (!std::binary_search(devices.begin(), devices.end(), device))
      result.parameters[device] = result.other[device] = result.scratch[device] = result.of_last_micro_batch[device] =
          0;
  return result;
}

void MemoryModel::reset(const Strategy& strategy) {
  needs_.clear();
  undo_.clear();
  std::fill(sums_.begin(), sums_.end(), 0);
  std::fill(at_end_.begin(), at_end_.end(), 0);
  for (auto& counts : on_demand_) counts = {};
  const auto append = [&](Item::Kind kind, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      needs_.push_back(needs_of({kind, static_cast<int>(i)}, strategy));
      add(needs_.back(), kind, 1);
    }
  };
  append(Item::Kind::operation, graph().operators.size());
  append(Item::Kind::edge, builder_.edges().size());
  append(Item::Kind::tensor, graph().tensors.size());
  append(Item::Kind::group, builder_.groups().size());
  changed_.assign(needs_.size(), 0);
  changes_ = 0;
  total();
}

void MemoryModel::remove_around(OperatorId op) {
  for (const Item item : items_around_[op]) {
    if (std::exchange(changed_[number(item)], changes_) == changes_) continue;  // of another operator's too
    NeedList& current = needs_[number(item)];
    add(current, item.kind, -1);
    undo_.emplace_back(item, std::move(current));
    current.clear();
  }
}

const Vector<int64_t>& MemoryModel::change(const Vector<Change>& changes, const Strategy& changed) {
  undo_.clear();
  ++changes_;
  for (const Change& change : changes) remove_around(change.op);
  for (const auto& removed : undo_) {
    const Item item = removed.first;
    NeedList& current = needs_[number(item)];
    current = needs_of(item, changed);
    add(current, item.kind, 1);
  }
  return total();
}

const Vector<int64_t>& MemoryModel::without(const Vector<OperatorId>& operators) {
  undo_.clear();
  ++changes_;
  for (const OperatorId op : operators) remove_around(op);
  return total();
}

void MemoryModel::undo() {
  for (auto& [item, needs] : undo_) {
    add(needs_[number(item)], item.kind, -1);
    needs_[number(item)] = std::move(needs);
    add(needs_[number(item)], item.kind, 1);
  }
  undo_.clear();
  total();
}

}  // namespace ff
