#include "search/cost/task_costs.h"

#include <map>
#include <set>
#include <unordered_map>

#include "common/hash.h"

namespace ff {

TaskCostModel::TaskCostModel(const Graph& graph, const Topology& topology, KernelCosts& kernels,
                             const Replicas* replicas)
    : graph_(graph), topology_(topology), kernels_(kernels),
      communication_(topology, kernels.conventions().nccl_collectives), replicas_(replicas), edges_(edges_of(graph)),
      uses_(graph.operators.size()), second_of_gate_(graph.operators.size(), false),
      read_by_gate_(graph.operators.size(), false), cache_(graph.operators.size() * topology.models.size()) {
  for (const GatedProducts& gate : gated_products(graph)) {
    const Tensor& input = graph.tensors[gate.input];
    second_of_gate_[gate.second] = true;
    if (input.producer >= 0 && input.uses.size() == 2) read_by_gate_[input.producer] = true;
  }
  const Vector<std::optional<Fp8Use>> in_fp8 = fp8_operators(graph, kernels.conventions());
  for (const OperatorId op : graph.operator_ids())
    if (in_fp8[op]) uses_[op].fp8 = true, uses_[op].fp8_input_bytes = in_fp8[op]->input_bytes;
  std::map<std::string, int64_t> shared_bytes;  // by operator type: see KernelUse
  for (const Parameter& parameter : graph.parameters)
    if (parameter.uses.size() > 1)
      shared_bytes[graph.operators[parameter.uses[0].first].definition->type()] +=
          2 * volume(parameter.spec.shape) * element_bytes;
  for (OperatorId op = 0; op < static_cast<OperatorId>(graph.operators.size()); ++op) {
    const Operator& described = graph.operators[op];
    for (size_t input = 0; input < described.inputs.size(); ++input)
      uses_[op].input_gradients = uses_[op].input_gradients || graph.input_has_gradient(op, static_cast<int>(input));
    for (ParameterId parameter : described.parameters)
      if (graph.parameters[parameter].uses.size() > 1)
        // 1: shared with another type
        uses_[op].shared_bytes = shared_bytes.try_emplace(described.definition->type(), 1).first->second;
  }
}

TaskCostModel::PartCost TaskCostModel::cost_of(OperatorId op, const Block& part, const KernelUse& use, int model) {
  const Operator& described = graph_.operators[op];
  const auto kernel = [&](Phase phase) {
    return kernels_.kernel(*described.definition, part, phase, described.has_backward, use, model);
  };
  const auto statistics = [&](bool backward) { return described.definition->statistics_bytes(part, backward) > 0; };
  PartCost cost;
  if (statistics(false)) cost.forward_statistics = kernel(Phase::forward_statistics);
  if (statistics(true) && described.has_backward) cost.backward_statistics = kernel(Phase::backward_statistics);
  cost.forward = kernel(Phase::forward);
  if (described.has_backward) cost.backward = kernel(Phase::backward);
  return cost;
}

const TaskCostModel::PartCosts& TaskCostModel::part_costs(OperatorId op, const Degrees& degrees, int model) {
  auto& cache = cache_[static_cast<size_t>(model) * graph_.operators.size() + static_cast<size_t>(op)];
  const auto found = cache.find(degrees);
  if (found != cache.end()) return found->second;
  const OperatorDefinition& definition = *graph_.operators[op].definition;
  PartCosts costs;
  const Vector<int> kinds = definition.kinds_of_parts(degrees);
  Vector<int> number;  // [kind]: of its cost
  for (size_t part = 0; part < kinds.size(); ++part) {
    const size_t kind = static_cast<size_t>(kinds[part]);
    if (kind >= number.size()) number.resize(kind + 1, -1);
    if (number[kind] < 0) {
      number[kind] = static_cast<int>(costs.distinct.size());
      costs.distinct.push_back(cost_of(op, definition.part(degrees, static_cast<int64_t>(part)), uses_[op], model));
    }
    costs.which.push_back(static_cast<uint16_t>(number[kind]));
  }
  if (costs.distinct.size() == 1) costs.which = {};
  if (cached_parts_ > most_cached_parts) {
    for (auto& of_operator : cache_) of_operator.clear();
    cached_parts_ = 0;
  }
  cached_parts_ += costs.which.size() + costs.distinct.size() * sizeof(PartCost) / sizeof(uint16_t) + 64;
  return cache.emplace(degrees, std::move(costs)).first->second;
}

Nanoseconds TaskCostModel::copy_ns(int64_t bytes, int model) {
  if (bytes == 0) return 0;
  const auto [it, added] = copies_.try_emplace(bytes * static_cast<int64_t>(topology_.models.size()) + model, 0);
  if (added) it->second = kernels_.copy(bytes, model);
  return it->second;
}

Nanoseconds TaskCostModel::update_ns(int64_t bytes, int model) {
  if (bytes == 0) return 0;
  const auto [it, added] = updates_.try_emplace(bytes * static_cast<int64_t>(topology_.models.size()) + model, 0);
  if (!added) return it->second;
  it->second = kernels_.update(bytes, model);
  // The copies that kernels read: 4 bytes are read and 2 are written for each weight; a copy reads and writes bytes.
  if (graph_.activation_type == DataType::bf16) it->second += kernels_.copy(bytes * 3 / 4, model);
  return it->second;
}

Nanoseconds TaskCostModel::duration(const Task& task, const Strategy& strategy) {
  const int model = topology_.devices[task.device].model;
  if (task.kind == TaskKind::update)
    return update_ns(static_cast<int64_t>(sharing_[task.unit].updated * static_cast<double>(task.bytes)), model) +
           copy_ns(task.copy_bytes, model);
  if (task.kind == TaskKind::parameter_copy && kernels_.conventions().gathers_in_place) return 1;
  if (task.kind == TaskKind::barrier || task.kind == TaskKind::parameter_copy)
    return barrier_ns(task.copy_bytes, model);
  if (!task.computed && !kernels_.conventions().recomputes_whole_segments) return 1;
  const PartCost& cost = part_cost(task.op, strategy[task.op].degrees, task.part, model);
  const KernelCost& kernel = task.kind == TaskKind::forward              ? cost.forward
                             : task.kind == TaskKind::recompute          ? cost.forward
                             : task.kind == TaskKind::backward           ? cost.backward
                             : task.kind == TaskKind::forward_statistics ? cost.forward_statistics
                                                                         : cost.backward_statistics;
  const FrameworkConventions& known = kernels_.conventions();
  if (known.joined_gates && read_by_gate_[task.op] && task.kind == TaskKind::backward) return kernel.ns;
  return kernel.ns + copy_ns(task.copy_bytes - (known.exchanges_in_place ? task.exchange_copy_bytes : 0), model);
}

// Of a collective of activations: what tensor parallelism gathers for a product in fp8 is in fp8.
int64_t TaskCostModel::exchanged_bytes(const TaskGraph& graph, const Task& task) const {
  if (!is_edge_collective(task.kind) || graph.collective_kind(task) != CollectiveKind::all_gather) return task.bytes;
  const Edge& edge = edges_[task.edge];
  const OperatorId reader = direction_of(task.kind) == Direction::forward ? edge.consumer : edge.producer;
  return uses_[reader].fp8 ? task.bytes / 2 : task.bytes;
}

void TaskCostModel::repeat_exchanges(const TaskGraph& graph, TaskCosts& costs) const {
  const auto recomputed = [](const Task& task) { return task.kind == TaskKind::recompute; };
  if (std::none_of(graph.tasks.begin(), graph.tasks.end(), recomputed)) return;
  std::unordered_map<int64_t, Nanoseconds> received;  // by operator and device: of all that it reads
  const auto key = [&](OperatorId op, DeviceId device) { return int64_t{op} * topology_.devices.count() + device; };
  std::set<std::pair<int64_t, int>> counted;  // of one micro-batch, and by the edge; -1: of the operator's statistics
  for (const int t : graph.tasks.indices()) {
    const Task& task = graph.tasks[t];
    const bool exchanged = is_edge_collective(task.kind), statistics = is_reduction(task.kind);
    if ((!exchanged && !statistics) || direction_of(task.kind) != Direction::forward) continue;
    // Of a gated layer's input once, also where each of the two products sums the gradients of its own.
    const OperatorId op = exchanged ? edges_[task.edge].consumer : task.op;
    if (exchanged && second_of_gate_[op]) continue;
    for (const DeviceId device : graph.holders(task))
      if (counted.emplace(key(op, device), exchanged ? task.edge : -1).second)
        received[key(op, device)] += costs.duration[t];
  }
  for (const int t : graph.tasks.indices()) {
    const Task& task = graph.tasks[t];
    if (!recomputed(task) || (!task.computed && !kernels_.conventions().recomputes_whole_segments)) continue;
    const auto found = received.find(key(task.op, task.device));
    if (found == received.end()) continue;
    costs.duration[t] += found->second;
    costs.uses[costs.use_ranges[t].begin].occupancy += found->second;
  }
}

// Of a reduction of statistics that gathered logits replace; else 0.
int64_t TaskCostModel::gathered_logits_bytes(const TaskGraph& graph, const Task& task, const Strategy& strategy) const {
  if (!kernels_.conventions().gathers_logits || !is_reduction(task.kind)) return 0;
  const OperatorDefinition& loss = *graph_.operators[task.op].definition;
  if (!loss.is_loss() || !loss.counts_correct()) return 0;
  int64_t logits = 0;
  for (const int part : graph.reductions[task.reduction].parts)
    logits += loss.input_block(0, loss.part(strategy[task.op].degrees, part)).volume();
  return 2 * logits;  // in bf16
}

namespace {

std::pair<int32_t, Nanoseconds> numbers_of(const ResourceUse& use) { return {use.resource, use.occupancy}; }
std::pair<int32_t, Nanoseconds> numbers_of(const WorkBeside& work) { return {work.device, work.work}; }

// Lists, of resource uses or of work, one behind the other; those that are added to be shared once each.
template <typename T>
class Lists {
 public:
  explicit Lists(Vector<T>& all) : all_(all) {}

  TaskCosts::Range add(std::span<const T> list) {
    const int begin = all_.count();
    all_.insert(all_.end(), list.begin(), list.end());
    return {begin, all_.count()};
  }

  TaskCosts::Range share(const Vector<T>& list) {
    uint64_t hash = hash_basis;
    for (const T& one : list) {
      const auto [of, time] = numbers_of(one);
      hash = hash_step(hash_step(hash, static_cast<uint64_t>(of)), static_cast<uint64_t>(time));
    }
    const auto [begin, end] = known_.equal_range(hash);
    const auto found = std::find_if(
        begin, end, [&](const auto& one) { return std::ranges::equal(one.second.of(std::span<const T>(all_)), list); });
    return found != end ? found->second : known_.emplace(hash, add(list))->second;
  }

 private:
  Vector<T>& all_;
  std::unordered_multimap<uint64_t, TaskCosts::Range> known_;  // by hash
};

}  // namespace

TaskCosts TaskCostModel::costs(const TaskGraph& graph, const Strategy& strategy) {
  TaskCosts costs;
  costs.device_count = topology_.devices.count();
  costs.channel_count = topology_.channels.count();
  costs.separate_parameters = kernels_.conventions().overlapped_collectives;
  costs.resource_count = costs.device_count + (costs.separate_parameters ? 2 : 1) * costs.channel_count;
  costs.duration.reserve(graph.tasks.size());
  costs.use_ranges.reserve(graph.tasks.size());
  costs.uses.reserve(graph.tasks.size());
  const bool beside = kernels_.conventions().overlapped_collectives ||
                      std::any_of(topology_.channels.begin(), topology_.channels.end(), [](const Channel& channel) {
                        return channel.cpu_overhead_us > 0 || channel.cpu_overhead_ns_per_byte > 0;
                      });
  CommunicationCost communication;
  Lists uses(costs.uses);
  Lists works(costs.beside);
  sharing_ = sharing_of(graph);
  bucket_shares_ = bucket_shares(graph_, graph, strategy, kernels_.conventions());
  for (const Task& task : graph.tasks) {
    const bool is_shared = is_collective(task.kind);
    if (is_transfer(task.kind) || is_shared) {
      if (is_parameter_collective(task.kind)) synchronize(graph, task, communication);
      else if (is_exchanged_already(task)) communication = {};
      else if (const int64_t logits = gathered_logits_bytes(graph, task, strategy))
        communication_.collective(CollectiveKind::all_gather, graph.holders(task), logits, communication);
      else if (is_collective(task.kind))
        communication_.collective(graph.collective_kind(task), graph.holders(task), exchanged_bytes(graph, task),
                                  communication);
      else communication_.transfer(task.device, task.destination, task.bytes, communication);
      if (!is_exchanged_already(task)) hide_tensor_parallel(graph, task, strategy, communication);
      if (costs.separate_parameters && is_parameter_collective(task.kind))
        for (ResourceUse& use : communication.uses) use.resource += costs.channel_count;
      if (kernels_.conventions().waits_for_stages && is_between_stages(task, strategy))
        communication.beside.assign(
            {{task.device, communication.duration}, {task.destination, communication.duration}});
      costs.duration.push_back(communication.duration);
      costs.use_ranges.push_back(is_shared ? uses.share(communication.uses) : uses.add(communication.uses));
      if (beside)
        costs.beside_ranges.push_back(is_shared ? works.share(communication.beside) : works.add(communication.beside));
    } else {
      const Nanoseconds ns = duration(task, strategy);
      costs.duration.push_back(ns);
      const ResourceUse use{task.device, ns};
      costs.use_ranges.push_back(uses.add({&use, 1}));
      if (beside) costs.beside_ranges.push_back(works.add({}));
    }
  }
  if (kernels_.conventions().recomputes_exchanges) repeat_exchanges(graph, costs);
  if (kernels_.conventions().overlapped_collectives) {
    for (const Device& device : topology_.devices)
      costs.slowed.push_back(topology_.models[device.model].efficiency.collectives);
    const BesideKernels reductions =
        kernels_.conventions().waits_for_reductions ? BesideKernels::waited_for : BesideKernels::runs;
    for (const Task& task : graph.tasks)
      costs.collectives.push_back(task.kind == TaskKind::synchronization ? reductions
                                  : is_parameter_collective(task.kind)   ? BesideKernels::runs
                                                                         : BesideKernels::no);
    costs.resource_count += costs.slowed.count();
  }
  return costs;
}

namespace {

// Of a kernel's operations those that are not attention's own, of which a causal mask leaves half.
double share_of_projections(const OperatorDefinition& definition, const Block& part, bool backward) {
  const AttentionWork attention = definition.attention_work(part, backward);
  const double all = (backward ? definition.backward_work(part, true) : definition.forward_work(part)).flops;
  const double projections = all - attention.flops;
  return projections > 0 ? projections / (projections + attention.flops * (attention.causal ? 0.5 : 1)) : 0;
}

}  // namespace

struct TaskCostModel::Exchange {
  const Edge& edge;
  bool backward;
  bool sums;        // forward, of partial results; else parts are gathered
  int devices;      // of the collective, or the two of a transfer
  DeviceId device;  // one of them
};

std::optional<TaskCostModel::Exchange> TaskCostModel::exchange_of(const TaskGraph& graph, const Task& task,
                                                                  const Strategy& strategy) const {
  const bool collective = is_edge_collective(task.kind);
  if (!(is_edge_transfer(task.kind) || collective) || is_between_stages(task, strategy)) return {};
  const bool backward = direction_of(task.kind) == Direction::backward;
  bool sums = task.pair && task.pair->partial;
  if (!task.pair) {
    const CollectiveKind kind = graph.collective_kind(task), forward = backward ? reversed(kind) : kind;
    if (forward != CollectiveKind::all_gather && forward != CollectiveKind::reduce_scatter) return {};
    sums = forward == CollectiveKind::reduce_scatter;
  }
  return Exchange{.edge = edges_[task.edge],
                  .backward = backward,
                  .sums = sums,
                  .devices = collective ? static_cast<int>(graph.holders(task).size()) : 2,
                  .device = collective ? graph.holders(task)[0] : task.device};
}

// Of the exchange's pass; backward of one of the two gradients' products, half of the kernel. 0: not a product, or the
// one in front of a loss.
double TaskCostModel::product_ns(OperatorId product, const Exchange& exchange, const Strategy& strategy) {
  const Operator& op = graph_.operators[product];
  if (!is_projection(*op.definition)) return 0;
  for (const TensorId output : op.outputs)
    for (const TensorUse& use : graph_.tensors[output].uses)
      if (graph_.operators[use.consumer].definition->is_loss()) return 0;
  const Degrees& degrees = strategy[product].degrees;
  const PartCost& kernels = part_cost(product, degrees, 0, topology_.devices[exchange.device].model);
  return share_of_projections(*op.definition, op.definition->part(degrees, 0), exchange.backward) *
         static_cast<double>(exchange.backward ? kernels.backward.ns / 2 : kernels.forward.ns);
}

// In as many chunks as there are devices: of the product that reads what is gathered, or of the one whose results are
// summed.
void TaskCostModel::hide_behind_product(const Exchange& exchange, const Strategy& strategy, CommunicationCost& cost) {
  const double product =
      product_ns(exchange.sums ? exchange.edge.producer : exchange.edge.consumer, exchange, strategy);
  const double chunks = exchange.devices, all = static_cast<double>(cost.duration);
  if (product > 0)
    cost.duration = static_cast<Nanoseconds>(std::max(all / chunks, all - product * (chunks - 1) / chunks));
}

// While both run, the product loses what the exchange takes of the device. With sequence parallelism the input is
// gathered again, as long and as much beside the input gradients' product. Without it what is gathered behind the sum
// belongs to the same all-reduce, of the next product's input; each of the two halves has half of the product.
void TaskCostModel::hide_behind_weight_gradients(const Exchange& exchange, const Strategy& strategy,
                                                 CommunicationCost& cost) {
  const bool whole_length = kernels_.conventions().replicates_length;
  if (!exchange.backward || (exchange.sums && !whole_length)) return;
  OperatorId product = exchange.edge.consumer;
  if (exchange.sums) {
    product = exchange.edge.producer + 1;
    while (product < graph_.operators.count() && !is_projection(*graph_.operators[product].definition)) ++product;
    if (product == graph_.operators.count() || strategy[product].devices != strategy[exchange.edge.producer].devices)
      return;
  }
  const double beside = product_ns(product, exchange, strategy) / (whole_length ? 2 : 1);
  if (beside == 0) return;
  const double all = static_cast<double>(cost.duration), hidden = std::min(all, beside);
  const double lost = topology_.models[topology_.devices[exchange.device].model].efficiency.collectives;
  cost.duration = static_cast<Nanoseconds>((whole_length ? 1 : 2) * (all - hidden + lost * hidden));
}

void TaskCostModel::hide_tensor_parallel(const TaskGraph& graph, const Task& task, const Strategy& strategy,
                                         CommunicationCost& cost) {
  const FrameworkConventions& known = kernels_.conventions();
  if (!known.overlaps_tensor_parallel && !known.overlaps_input_gradients) return;
  const std::optional<Exchange> exchange = exchange_of(graph, task, strategy);
  if (!exchange) return;
  if (known.overlaps_tensor_parallel) hide_behind_product(*exchange, strategy, cost);
  else hide_behind_weight_gradients(*exchange, strategy, cost);
  for (ResourceUse& use : cost.uses) use.occupancy = std::min(use.occupancy, cost.duration);
}

// With the input of the other product of a gated layer.
bool TaskCostModel::is_exchanged_already(const Task& task) const {
  return is_edge_collective(task.kind) && kernels_.conventions().shares_gate_inputs &&
         second_of_gate_[edges_[task.edge].consumer];
}

// The devices of a stage share all operators of the stage, in the same order.
bool TaskCostModel::is_between_stages(const Task& task, const Strategy& strategy) const {
  if (!is_edge_transfer(task.kind)) return false;
  const Edge& edge = edges_[task.edge];
  return strategy[edge.producer].devices[0] != strategy[edge.consumer].devices[0];
}

Vector<TaskCostModel::Sharing> TaskCostModel::sharing_of(const TaskGraph& tasks) const {
  Vector<Sharing> result(tasks.units.size());
  const FrameworkConventions& known = kernels_.conventions();
  if (!known.whole_parameter_owners && known.shard_group == 0) return result;
  struct Held {
    double parameters = 0, bytes = 0, largest = 0;
  };
  std::map<Vector<DeviceId>, Held> by_holders;
  Vector<double> parameters;  // [unit]
  for (const SynchronizationUnit& unit : tasks.units) {
    std::map<ParameterId, double> bytes;
    for (const ParameterPiece* piece : unit.pieces)
      bytes[piece->parameter] += static_cast<double>(piece->block.volume()) * element_bytes;
    parameters.push_back(static_cast<double>(bytes.size()));
    Held& held = by_holders[unit.holders];
    held.parameters += parameters.back();
    for (const auto& [parameter, size] : bytes) held.bytes += size, held.largest = std::max(held.largest, size);
  }
  for (const int u : tasks.units.indices()) {
    const SynchronizationUnit& unit = tasks.units[u];
    if (!is_sharded(tasks.synchronization_of(unit.group))) continue;
    const Held& held = by_holders[unit.holders];
    const double holders = static_cast<double>(unit.holder_count());
    const double ranks = known.shard_group > 0 ? std::min<double>(known.shard_group, holders) : holders;
    result[u].updated = holders / ranks;
    if (!known.whole_parameter_owners) continue;
    result[u].updated = holders * std::max(1 / ranks, held.largest / held.bytes);
    result[u].broadcasts = parameters[u] * std::min(1.0, ranks / held.parameters);
  }
  return result;
}

void TaskCostModel::synchronize(const TaskGraph& tasks, const Task& task, CommunicationCost& cost) {
  const FrameworkConventions& known = kernels_.conventions();
  const BucketShare& bucket = bucket_shares_[task.unit];
  const double together = task.kind == TaskKind::parameter_all_gather ? bucket.gathered : bucket.reduced;
  if (together == 0) {
    cost = {};
    cost.duration = 1;
    return;
  }
  const double share = kernels_.precision() != Precision::bf16       ? 1
                       : task.kind == TaskKind::parameter_all_gather ? known.gathered_share
                                                                     : known.reduced_share;
  const int64_t bytes = static_cast<int64_t>(share * together * static_cast<double>(task.bytes));
  if (replicas_) synchronize_replicas(tasks, task, bytes, cost);
  else exchange(communication_, tasks, task, tasks.holders(task), bytes, cost);
  if (!known.overlapped_collectives) return;
  const Nanoseconds collective = cost.duration;
  for (const DeviceId device : tasks.holders(task)) {
    const DeviceModel& model = topology_.models[topology_.devices[device].model];
    double work_ns = 0;
    if (task.kind == TaskKind::synchronization) {
      const double moved = known.gradient_copy_bytes / element_bytes * together * static_cast<double>(task.bytes);
      const double copies_ns = moved / (model.memory_gb_per_s * model.efficiency.memory);  // 1 GB/s is 1 byte a ns
      if (tasks.reduces_after_backward(task)) {
        cost.duration = std::max(cost.duration, collective + static_cast<Nanoseconds>(copies_ns));
        continue;
      }
      work_ns = copies_ns;
    }
    cost.beside.push_back({device, static_cast<Nanoseconds>(work_ns)});
  }
}

namespace {

// Holders of which every `count`-th from `first` on, at most `most`.
Vector<DeviceId> some_of(const Vector<DeviceId>& holders, int first, int count, int most) {
  Vector<DeviceId> result;
  for (int h = first; h < holders.count() && result.count() < most; h += count) result.push_back(holders[h]);
  return result;
}

// At the same time as the others.
void add_cost(const CommunicationCost& one, CommunicationCost& all) {
  all.duration = std::max(all.duration, one.duration);
  all.uses.insert(all.uses.end(), one.uses.begin(), one.uses.end());
  all.beside.insert(all.beside.end(), one.beside.begin(), one.beside.end());
}

// Each resource and each device once, with all that it does.
void add_up_uses(CommunicationCost& cost) {
  std::map<int32_t, Nanoseconds> occupancy, work;
  for (const ResourceUse& use : cost.uses) occupancy[use.resource] += use.occupancy;
  for (const WorkBeside& beside : cost.beside) work[beside.device] += beside.work;
  cost.uses.clear();
  cost.beside.clear();
  for (const auto& [resource, ns] : occupancy) cost.uses.push_back({resource, ns});
  for (const auto& [device, ns] : work) cost.beside.push_back({device, ns});
}

}  // namespace

// Of a unit's parameters or gradients among its holders, all of them, or with a shard group in two steps.
void TaskCostModel::exchange(CommunicationModel& among, const TaskGraph& tasks, const Task& task,
                             const Vector<DeviceId>& holders, int64_t bytes, CommunicationCost& cost) {
  const FrameworkConventions& known = kernels_.conventions();
  CollectiveKind kind = tasks.collective_kind(task);
  const double broadcasts = sharing_[task.unit].broadcasts;
  if (kind == CollectiveKind::reduce_scatter && known.all_reduces_gradients) kind = CollectiveKind::all_reduce;
  const int count = holders.count(), group = known.shard_group > 0 ? std::min(known.shard_group, count) : count;
  const auto gather = [&](const Vector<DeviceId>& some, CommunicationCost& its) {
    if (kind == CollectiveKind::all_gather && broadcasts > 0) among.broadcasts(some, broadcasts, bytes, its);
    else among.collective(kind, some, bytes, its);
  };
  if (group == count || kind == CollectiveKind::all_reduce) return gather(holders, cost);
  cost = {};
  CommunicationCost one;
  for (int first = 0; first < count; first += group) {
    gather(some_of(holders, first, 1, group), one);
    add_cost(one, cost);
  }
  const Nanoseconds within = cost.duration;
  CommunicationCost across;
  for (int place = 0; place < group && kind == CollectiveKind::reduce_scatter; ++place) {
    among.collective(CollectiveKind::all_reduce, some_of(holders, place, group, count), bytes / group, one);
    add_cost(one, across);
  }
  add_cost(across, cost);
  if (kind == CollectiveKind::reduce_scatter) cost.duration = within + across.duration;
  add_up_uses(cost);
}

// Channels have the same numbers in both topologies; of the devices those stay that are simulated.
void TaskCostModel::synchronize_replicas(const TaskGraph& tasks, const Task& task, int64_t bytes,
                                         CommunicationCost& cost) {
  const auto [found, is_new] = holders_of_all_.try_emplace(tasks.holders(task));
  HoldersOfAll& holders = found->second;
  if (is_new) {
    for (const DeviceId holder : tasks.holders(task)) {
      const Vector<DeviceId>& devices = replicas_->devices[holder];
      holders.all.insert(holders.all.end(), devices.begin(), devices.end());
      holders.simulated[devices[0]] = holder;
    }
    std::sort(holders.all.begin(), holders.all.end());
  }
  const auto [known, is_new_cost] =
      holders.costs.try_emplace(std::tuple(tasks.collective_kind(task), bytes, sharing_[task.unit].broadcasts));
  if (is_new_cost) known->second = of_simulated(tasks, task, bytes, holders);
  cost = known->second;
}

CommunicationCost TaskCostModel::of_simulated(const TaskGraph& tasks, const Task& task, int64_t bytes,
                                              const HoldersOfAll& holders) {
  CommunicationCost cost;
  exchange(*replicas_->communication, tasks, task, holders.all, bytes, cost);
  const int32_t devices = static_cast<int32_t>(topology_.devices.size()),
                of_all = static_cast<int32_t>(replicas_->topology->devices.size());
  Vector<ResourceUse> uses;
  for (const ResourceUse& use : cost.uses)
    if (use.resource >= of_all) uses.push_back({use.resource - of_all + devices, use.occupancy});
    else if (const auto one = holders.simulated.find(use.resource); one != holders.simulated.end())
      uses.push_back({one->second, use.occupancy});
  cost.uses = std::move(uses);
  Vector<WorkBeside> beside;
  for (const WorkBeside& work : cost.beside)
    if (const auto one = holders.simulated.find(work.device); one != holders.simulated.end())
      beside.push_back({one->second, work.work});
  cost.beside = std::move(beside);
  return cost;
}

CostCounts TaskCostModel::count_sources(const Strategy& strategy) {
  CostCounts counts;
  const auto count = [&](CostSource source) {
    ++(source == CostSource::profile    ? counts.profile
       : source == CostSource::measured ? counts.measured
                                        : counts.analytic);
  };
  for (OperatorId op = 0; op < static_cast<OperatorId>(strategy.size()); ++op)
    for (int part = 0; part < strategy[op].parts(); ++part) {
      const PartCost& cost =
          part_cost(op, strategy[op].degrees, part, topology_.devices[strategy[op].devices[part]].model);
      count(cost.forward.source);
      if (graph_.operators[op].has_backward) count(cost.backward.source);
    }
  return counts;
}

}  // namespace ff
