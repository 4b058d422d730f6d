#include "search/simulator/delta/bounds/configuration_bound.h"

#include <algorithm>
#include <limits>

#include "search/simulator/delta/known_timeline.h"

namespace ff::delta {

ConfigurationBound::ConfigurationBound(StrategyState& state, StrategyTotals& totals)
    : state_(state), totals_(totals), forward_ready_(state.operators.size()),
      forward_ready_epoch_(state.operators.size(), 0), channel_uses_(state.topology.channels.size()),
      incoming_(state.topology.incoming_rates()), producer_blocks_(incoming_.node.size()),
      node_bytes_(incoming_.node.size()), node_rounding_(incoming_.node.size()) {}

// Fast ones first: those that look at pairs of parts take longest.
Bound ConfigurationBound::exceeds(const Change& change, const KnownPrefix& prefix, Nanoseconds limit) {
  prefix_ = &prefix;
  ++epoch_;
  if (kernels_exceed(change, limit)) return Bound::work;
  if (paths_exceed(change, limit)) return Bound::paths;
  if (volumes_exceed(change, limit) || transfers_exceed(change, limit)) return Bound::transfers;
  return Bound::none;
}

bool ConfigurationBound::kernels_exceed(const Change& change, Nanoseconds limit) {
  const auto& [op, configuration] = change;
  const OperatorState& old = state_.operators[op];
  const size_t parts = configuration.devices.size();
  work_ = totals_.kernel_work();
  for (int part = 0; part < old.parts(); ++part)
    work_[old.devices[part]] -= old.kernel[Direction::forward][part] + old.kernel[Direction::backward][part];
  Vector<Nanoseconds>&forward_kernel = kernel_[Direction::forward], &backward_kernel = kernel_[Direction::backward];
  forward_kernel.resize(parts);
  backward_kernel.resize(parts);
  for (Direction direction : directions) statistics_[direction].resize(parts);
  const TaskCostModel::PartCosts* costs = nullptr;
  int model = -1;
  for (size_t part = 0; part < parts; ++part) {
    const DeviceId device = configuration.devices[part];
    if (state_.model_of(device) != model) {
      model = state_.model_of(device);
      costs = &state_.costs.part_costs(op, configuration.degrees, model);
    }
    const TaskCostModel::PartCost& cost = (*costs)[part];
    forward_kernel[part] = cost.all_forward();
    backward_kernel[part] = state_.has_backward(op) ? cost.all_backward() : 0;
    statistics_[Direction::forward][part] = cost.forward_statistics.ns;
    statistics_[Direction::backward][part] = state_.has_backward(op) ? cost.backward_statistics.ns : 0;
    work_[device] += forward_kernel[part] + backward_kernel[part];
  }
  for (Direction direction : directions)
    least_[direction] = *std::min_element(kernel_[direction].begin(), kernel_[direction].end());
  return *std::max_element(work_.begin(), work_.end()) > limit;
}

bool ConfigurationBound::paths_exceed(const Change& change, Nanoseconds limit) {
  constexpr int most_looked_at = 4;
  const OperatorId op = change.op;
  known_reductions_.clear();
  for (auto other = std::upper_bound(state_.with_statistics.begin(), state_.with_statistics.end(), op);
       other != state_.with_statistics.begin() && known_reductions_.count() < most_looked_at;) {
    if (!totals_.paths().has_joint_reduction[Direction::forward][*--other]) continue;
    const KnownTimeline::Recorded known = prefix_->timeline.recorded(TaskKind::forward_reduction, *other, 0);
    if (known.position < prefix_->events) known_reductions_.push_back({*other, known.end});
  }
  const bool from_start = known_reductions_.empty();
  change_spans(change);
  set_proposed(change);
  proposed_.connect_behind(state_, totals_.spans(), state_.around[op][0],
                           from_start ? 0 : known_reductions_.back().first);
  const bool all_exceeds = from_start && totals_.spans().of_all(proposed_) > limit;
  totals_.spans().undo();
  behind_ = proposed_.middle[op] + proposed_.tail_producers[op];
  return all_exceeds || std::any_of(known_reductions_.begin(), known_reductions_.end(), [&](const auto& known) {
           return known.second + proposed_.behind_reduction(Direction::forward, known.first) > limit;
         });
}

// The operator's kernels as they become, and tasks next to it without copies, which are not known.
void ConfigurationBound::change_spans(const Change& change) {
  Spans& spans = totals_.spans();
  spans.begin_change();
  for (OperatorId op : state_.around[change.op]) {
    const OperatorTasks& tasks = state_.tasks[op];
    const OperatorState& operator_state = state_.operators[op];
    const bool changes = op == change.op;
    if (!changes && !tasks.has_copies) continue;
    for (Direction direction : directions) {
      const Vector<Nanoseconds>&kernel = operator_state.kernel[direction],
            &statistics = operator_state.statistics_kernel[direction];
      const bool has_statistics = operator_state.has_statistics(direction);
      if (Nanoseconds* more = spans.change_of(stage_of(direction, op, false)))
        for (int part : tasks.parts.indices())
          more[tasks.parts[part].device] += (changes ? 0 : kernel[part] - (has_statistics ? statistics[part] : 0)) -
                                            tasks.parts[part].duration[direction];
      if (!has_statistics) continue;
      if (Nanoseconds* more = spans.change_of(stage_of(direction, op, true)))
        for (int part : tasks.parts.indices())
          more[tasks.parts[part].device] += (changes ? 0 : statistics[part]) - tasks.statistics[direction][part];
    }
  }
  const Vector<DeviceId>& devices = change.configuration.devices;
  for (Direction direction : directions) {
    const Vector<Nanoseconds>&kernel = kernel_[direction], &statistics = statistics_[direction];
    if (Nanoseconds* more = spans.change_of(stage_of(direction, change.op, false)))
      for (int part : devices.indices()) more[devices[part]] += kernel[part] - statistics[part];
    if (Nanoseconds* more = spans.change_of(stage_of(direction, change.op, true)))
      for (int part : devices.indices()) more[devices[part]] += statistics[part];
  }
  spans.end_change();
}

// What the change says of the paths, those backward of operators in front of it aside, which are the current
// strategy's. Its synchronization, and how long a reduction of its takes, are not looked at.
void ConfigurationBound::set_proposed(const Change& change) {
  const auto& [op, configuration] = change;
  const OperatorPaths& current = totals_.paths();
  const OperatorId first = state_.around[op][0];
  if (proposed_version_ != totals_.version()) {
    proposed_ = current;
    proposed_version_ = totals_.version();
  } else {
    for (Direction direction : directions) {
      proposed_.least[direction][proposed_op_] = current.least[direction][proposed_op_];
      proposed_.has_joint_reduction[direction][proposed_op_] = current.has_joint_reduction[direction][proposed_op_];
    }
    proposed_.least_synchronization[proposed_op_] = current.least_synchronization[proposed_op_];
    for (const auto* numbers : {&state_.next_statistics_of[proposed_op_], &state_.next_statistics_for[proposed_op_]})
      for (int number : *numbers) proposed_.held_up[number] = current.held_up[number];
    for (OperatorId before = state_.around[proposed_op_][0]; before < first; ++before) {
      proposed_.tail_producers[before] = current.tail_producers[before];
      proposed_.tail[Direction::backward][before] = current.tail[Direction::backward][before];
      for (const bool statistics : {false, true}) {
        const int stage = stage_of(Direction::backward, before, statistics);
        proposed_.behind[stage] = current.behind[stage];
      }
    }
  }
  proposed_op_ = op;
  proposed_.least_synchronization[op] = 0;
  for (const auto* numbers : {&state_.next_statistics_of[op], &state_.next_statistics_for[op]})
    for (int number : *numbers) proposed_.held_up[number] = 0;
  const OperatorDefinition& definition = *state_.graph.operators[op].definition;
  for (Direction direction : directions) {
    const Vector<Nanoseconds>& statistics = statistics_[direction];
    OperatorPaths::Least& its = proposed_.least[direction][op];
    its = {};
    its.kernel = its.rest = least_[direction];
    its.statistics = *std::min_element(statistics.begin(), statistics.end());
    for (int part : configuration.devices.indices())
      its.rest = std::min(its.rest, kernel_[direction][part] - statistics[part]);
    const bool backward = direction == Direction::backward;
    proposed_.has_joint_reduction[direction][op] = state_.may_have_statistics[op] &&
                                                   (!backward || state_.has_backward(op)) &&
                                                   definition.has_statistics(configuration.degrees, backward) &&
                                                   definition.statistics_groups(configuration.degrees) == 1;
  }
}

Nanoseconds ConfigurationBound::forward_end(OperatorId op, int part) {
  const KnownTimeline::Recorded known = prefix_->timeline.recorded(TaskKind::forward, op, part);
  if (known.position < prefix_->events) return known.end;
  const OperatorState& operator_state = state_.operators[op];
  const Nanoseconds ready = forward_ready(op), kernel = operator_state.kernel[Direction::forward][part];
  if (!operator_state.has_statistics(Direction::forward)) return std::max(ready, prefix_->ready) + kernel;
  // The first of its two tasks may have been taken.
  const Vector<ReductionState>& reductions = operator_state.reductions[Direction::forward];
  return std::max(ready + kernel + reductions[operator_state.reduction_of[part]].collective.duration,
                  prefix_->ready + kernel - operator_state.statistics_kernel[Direction::forward][part]);
}

Nanoseconds ConfigurationBound::forward_ready(OperatorId op) {
  if (forward_ready_epoch_[op] == epoch_) return forward_ready_[op];
  Nanoseconds ready = 0;
  for (int e : state_.in_edges[op]) {
    if (!state_.every_part_reads[e]) continue;
    const OperatorId producer = state_.edge(e).producer;
    Nanoseconds earliest = std::numeric_limits<Nanoseconds>::max();
    for (int part = 0; part < state_.operators[producer].parts() && earliest > ready; ++part)
      earliest = std::min(earliest, forward_end(producer, part));
    ready = std::max(ready, earliest);
  }
  forward_ready_epoch_[op] = epoch_;
  return forward_ready_[op] = ready;
}

bool ConfigurationBound::volumes_exceed(const Change& change, Nanoseconds limit) {
  const auto& [op, configuration] = change;
  const Nanoseconds behind = least_behind(op);
  const OperatorDefinition& definition = *state_.graph.operators[op].definition;
  const size_t parts = configuration.devices.size();
  exchanges_.clear();
  for (int e : state_.in_edges[op]) {
    const Edge& edge = state_.edge(e);
    const DataType type = state_.graph.tensors[edge.tensor].type;
    const OperatorState& producer = state_.operators[edge.producer];
    exchanges_.push_back(state_.builder.exchanges(e, producer.degrees, configuration.degrees));
    if (!exchanges_.back()->exchanges.empty()) continue;  // a collective may bring data into a node once for all parts
    const OperatorDefinition& producer_definition = *state_.graph.operators[edge.producer].definition;
    Nanoseconds earliest = std::numeric_limits<Nanoseconds>::max();
    for (auto& blocks : producer_blocks_) blocks.clear();
    for (int part = 0; part < producer.parts(); ++part) {
      earliest = std::min(earliest, forward_end(edge.producer, part));
      const DeviceId device = producer.devices[part];
      producer_blocks_[incoming_.node_of[device]].emplace_back(
          device, producer_definition.output_block(state_.graph.tensors[edge.tensor].output,
                                                   producer_definition.part(producer.degrees, part)));
    }
    const Nanoseconds begin = earliest + behind;
    std::fill(node_bytes_.begin(), node_bytes_.end(), 0);
    std::fill(node_rounding_.begin(), node_rounding_.end(), 0);
    for (size_t part = 0; part < parts; ++part) {
      const DeviceId device = configuration.devices[part];
      const int node = incoming_.node_of[device];
      const Block read =
          definition.input_block(edge.input, definition.part(configuration.degrees, static_cast<int64_t>(part)));
      if (read.empty()) continue;
      int64_t from_elsewhere = bytes_of(type, read);
      int64_t from_outside = from_elsewhere;
      for (const auto& [holder, block] : producer_blocks_[node]) {
        const int64_t bytes = bytes_of(type, intersect(block, read));
        from_outside -= bytes;
        if (holder == device) from_elsewhere -= bytes;
      }
      node_bytes_[node] += from_outside;
      // Every transfer takes its bytes over the rate of some channel, rounded to nanoseconds.
      const Nanoseconds rounding = producer.parts();
      node_rounding_[node] += rounding;
      const double device_rate = incoming_.device[device], node_rate = incoming_.node[node];
      if (from_elsewhere > 0 && device_rate > 0 &&
          begin - rounding + static_cast<Nanoseconds>(static_cast<double>(from_elsewhere) / device_rate) > limit)
        return true;
      if (node_bytes_[node] > 0 && node_rate > 0 &&
          begin - node_rounding_[node] + static_cast<Nanoseconds>(static_cast<double>(node_bytes_[node]) / node_rate) >
              limit)
        return true;
    }
  }
  return false;
}

Nanoseconds ConfigurationBound::add_transfer(DeviceId source, DeviceId destination, int64_t bytes,
                                             Nanoseconds earliest) {
  state_.costs.communication().transfer(source, destination, bytes, transfer_);
  const int32_t devices = static_cast<int32_t>(state_.topology.devices.size());
  for (const ResourceUse& use : transfer_.uses) {
    if (use.resource < devices) continue;
    ChannelUse& channel = channel_uses_[use.resource - devices];
    if (channel.epoch != load_epoch_) {
      channel = {0, earliest, load_epoch_};
      loaded_.push_back(use.resource - devices);
    }
    channel.occupied += use.occupancy;
    channel.first = std::min(channel.first, earliest);
  }
  return earliest + transfer_.duration;
}

Nanoseconds ConfigurationBound::loaded_until() const {
  Nanoseconds until = 0;
  for (ChannelId channel : loaded_)
    until = std::max(until, channel_uses_[channel].first + channel_uses_[channel].occupied);
  return until;
}

bool ConfigurationBound::transfers_exceed(const Change& change, Nanoseconds limit) {
  const auto& [op, configuration] = change;
  const size_t parts = configuration.devices.size();
  ready_.assign(parts, prefix_->ready);
  for (int i : state_.in_edges[op].indices()) {
    const int e = state_.in_edges[op][i];
    const OperatorId producer = state_.edge(e).producer;
    if (const std::optional<bool> exceed = collectives_exceed(producer, *exchanges_[i], change, limit)) {
      if (*exceed) return true;
      continue;
    }
    const EdgePlan& plan = *state_.plan_of(e, state_.strategy[producer].degrees, configuration.degrees);
    const Vector<DeviceId>& producers = state_.operators[producer].devices;
    begin_loads();
    for (size_t part = 0; part < parts; ++part) {
      const DeviceId device = configuration.devices[part];
      for (int32_t p = plan.consumer_begin[part]; p < plan.consumer_begin[part + 1]; ++p) {
        const BlockPair& pair = (*plan.pairs)[p];
        const Nanoseconds end = forward_end(producer, pair.producer_part);
        const DeviceId source = producers[pair.producer_part];
        ready_[part] = std::max(ready_[part], source == device ? end : add_transfer(source, device, pair.bytes, end));
      }
      if (ready_[part] + behind_ready(static_cast<int>(part), op) > limit) return true;
    }
    if (loaded_until() + least_behind(op) > limit) return true;
  }
  return false;
}

std::optional<bool> ConfigurationBound::collectives_exceed(OperatorId producer, const EdgeExchanges& exchanges,
                                                           const Change& change, Nanoseconds limit) {
  const auto& [op, configuration] = change;
  const Vector<Collective> collectives =
      collectives_of(exchanges, state_.operators[producer].devices, configuration.devices);
  if (collectives.empty()) return std::nullopt;
  for (int number : collectives.indices()) {
    const Exchange& exchange = exchanges.exchanges[number];
    Nanoseconds end = 0;
    for (int part : exchange.producers) end = std::max(end, forward_end(producer, part));
    const Collective& collective = collectives[number];
    state_.costs.communication().collective(collective.kind, collective.holders, collective.bytes, transfer_);
    for (int part : exchange.consumers) {
      ready_[part] = std::max(ready_[part], end + transfer_.duration);
      if (ready_[part] + behind_ready(part, op) > limit) return true;
    }
  }
  return false;
}

}  // namespace ff::delta
