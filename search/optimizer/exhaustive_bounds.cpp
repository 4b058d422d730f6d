#include "search/optimizer/exhaustive_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ff {

Nanoseconds one_machine_bound(Vector<MachineTask>& tasks) {
  std::sort(tasks.begin(), tasks.end(), [](const MachineTask& a, const MachineTask& b) { return a.head < b.head; });
  const auto shorter_tail = [](const MachineTask& a, const MachineTask& b) { return a.tail < b.tail; };
  static thread_local Vector<MachineTask> ready;
  ready.clear();
  Nanoseconds now = 0, longest = 0;
  size_t next = 0;
  while (next < tasks.size() || !ready.empty()) {
    if (ready.empty()) now = std::max(now, tasks[next].head);
    for (; next < tasks.size() && tasks[next].head <= now; ++next) {
      ready.push_back(tasks[next]);
      std::push_heap(ready.begin(), ready.end(), shorter_tail);
    }
    std::pop_heap(ready.begin(), ready.end(), shorter_tail);
    MachineTask& task = ready.back();
    if (next < tasks.size() && tasks[next].head < now + task.work) {  // until the next one is ready
      task.work -= tasks[next].head - now;
      now = tasks[next].head;
      std::push_heap(ready.begin(), ready.end(), shorter_tail);
      continue;
    }
    now += task.work;
    longest = std::max(longest, now + task.tail);
    ready.pop_back();
  }
  return longest;
}

Nanoseconds spread_bound(Vector<OpenTask>& tasks, int devices) {
  std::sort(tasks.begin(), tasks.end(), [](const OpenTask& a, const OpenTask& b) { return a.head > b.head; });
  double work = 0, longest = 0;
  for (const OpenTask& task : tasks) {
    work += task.work;
    longest = std::max(longest, static_cast<double>(task.head) + work / devices);
  }
  // times are whole; sums may have been rounded up
  return static_cast<Nanoseconds>(std::ceil(longest * (1 - 1e-12) - 1e-6));
}

ExhaustiveBounds::ExhaustiveBounds(ExhaustiveSpace& space)
    : space_(space), tables_(space.graph().operators.size()), groups_of_(space.graph().operators.size()),
      open_updates_(space.builder().groups().size()) {
  in_position_.resize(space.edges().size());
  out_position_.resize(space.edges().size());
  for (size_t op = 0; op < tables_.size(); ++op) {
    for (size_t i = 0; i < space.in_edges()[op].size(); ++i) in_position_[space.in_edges()[op][i]] = i;
    for (size_t i = 0; i < space.out_edges()[op].size(); ++i) out_position_[space.out_edges()[op][i]] = i;
  }
  const Vector<ParameterGroup>& groups = space.builder().groups();
  for (size_t g = 0; g < groups.size(); ++g)
    if (groups[g].trained)
      for (OperatorId op : groups[g].operators) groups_of_[op].push_back(static_cast<int>(g));
  for (OperatorId op = 0; op < static_cast<OperatorId>(tables_.size()); ++op) lay_out(op);
}

const Choice& ExhaustiveBounds::representative(OperatorId op, int32_t orbit) const {
  const OperatorChoices& choices = space_.choices(op);
  return choices.choices[choices.representative[orbit]];
}

Nanoseconds ExhaustiveBounds::forward_time(OperatorId op, const Choice& choice, int part) const {
  return space_.choices(op).degrees[choice.degrees].forward[space_.model_of(choice.devices[part])][part];
}

Nanoseconds ExhaustiveBounds::backward_time(OperatorId op, const Choice& choice, int part) const {
  return space_.choices(op).degrees[choice.degrees].backward[space_.model_of(choice.devices[part])][part];
}

// ---- what never changes ----

void ExhaustiveBounds::lay_out(OperatorId op) {
  Table& table = tables_[op];
  table.entries.resize(space_.choices(op).representative.size());
  for (size_t orbit = 0; orbit < table.entries.size(); ++orbit) {
    const Choice& choice = representative(op, static_cast<int32_t>(orbit));
    Entry& entry = table.entries[orbit];
    lay_out_updates(op, choice, entry);
  }
}

void ExhaustiveBounds::lay_out_updates(OperatorId op, const Choice& choice, Entry& entry) {
  const Graph& graph = space_.graph();
  Strategy strategy(graph.operators.size());
  strategy[op] = space_.configuration(op, choice);
  const OperatorDefinition& definition = *graph.operators[op].definition;
  for (int g : groups_of_[op]) {
    const ParameterGroup& group = space_.builder().groups()[g];
    if (!shared(g)) {
      for (UnitBound& unit : units(g, strategy)) {
        Nanoseconds longest = 0;
        for (const auto& [device, time] : unit.updates) {
          entry.update_work += time;
          longest = std::max(longest, time);
        }
        if (graph.operators[op].has_backward)
          for (const auto& [user, part] : unit.contributors) {
            Nanoseconds& tail = entry.update_tail[part];
            tail = std::max(tail, unit.all_reduce + longest);
          }
        entry.units.push_back(std::move(unit));
      }
      continue;
    }
    // Whatever the other operators do, each device updates at least the blocks that its parts of this operator hold.
    Vector<double>& updates = entry.shared_updates[g];
    updates.assign(space_.device_count(), 0);
    for (ParameterId parameter : group.parameters)
      for (const auto& [user, which] : graph.parameters[parameter].uses) {
        if (user != op) continue;
        Vector<std::pair<int, Block>> held;
        for (int part = 0; part < choice.parts; ++part) {
          const std::pair<int, Block> block(
              choice.devices[part], definition.parameter_block(which, definition.part(strategy[op].degrees, part)));
          // blocks are equal or disjoint
          const bool known = std::any_of(held.begin(), held.end(), [&](const auto& other) {
            return other.first == block.first && !intersect(other.second, block.second).empty();
          });
          if (known) continue;
          held.push_back(block);
          updates[block.first] += static_cast<double>(block.second.volume() * element_bytes) *
                                  space_.update_ns_per_byte(space_.model_of(block.first));
        }
      }
    for (int part = 0; part < choice.parts; ++part) {
      const size_t device = static_cast<size_t>(choice.devices[part]);
      const Nanoseconds least = space_.least_update(space_.model_of(static_cast<int>(device)));
      updates[device] = std::max(updates[device], static_cast<double>(least));
      if (graph.operators[op].has_backward) {
        Nanoseconds& tail = entry.update_tail[part];
        tail = std::max(tail, least);
      }
    }
  }
}

Vector<UnitBound> ExhaustiveBounds::units(int g, const Strategy& strategy) {
  const auto pieces = space_.builder().pieces(g, strategy);
  Vector<UnitBound> result;
  for (const SynchronizationUnit& unit : synchronization_units(g, *pieces, strategy)) {
    UnitBound& bound = result.emplace_back();
    for (DeviceId holder : unit.holders) bound.holders |= 1u << holder;
    bound.contributors = contributors_of(unit);
    if (unit.holders.size() > 1) bound.all_reduce = space_.least_all_reduce(bound.holders, unit.bytes);
    const Vector<int64_t> sums = gradient_sum_bytes(unit, space_.graph(), strategy);
    for (size_t h = 0; h < unit.holders.size(); ++h) {
      const int model = space_.model_of(unit.holders[h]);
      bound.updates.emplace_back(unit.holders[h],
                                 space_.costs().update_ns(unit.bytes, model) + space_.costs().copy_ns(sums[h], model));
    }
  }
  return result;
}

double ExhaustiveBounds::shared_update(OperatorId op, const Choice& choice, int group, int device) const {
  const Choice& known = representative(op, choice.orbit);
  for (size_t part = 0; part < static_cast<size_t>(choice.parts); ++part)
    if (choice.devices[part] == device) return entry(op, choice.orbit).shared_updates.at(group)[known.devices[part]];
  return 0;
}

const EdgeCopies& ExhaustiveBounds::consumer_copies(int edge, int32_t orbit) const {
  return entry(space_.edges()[edge].edge.consumer, orbit).in[in_position_[edge]];
}

const EdgeCopies& ExhaustiveBounds::producer_copies(int edge, int32_t orbit) const {
  return entry(space_.edges()[edge].edge.producer, orbit).out[out_position_[edge]];
}

void ExhaustiveBounds::cross(int edge, const Choice& producer, const Choice& consumer, Crossing& crossing) const {
  const bool gradient = space_.edges()[edge].gradient;
  const int devices = space_.device_count();
  crossing.count = 0;
  crossing.input_copies.fill(0);
  crossing.packing.fill(0);
  crossing.gradient_packing.fill(0);
  crossing.gradients.fill({});
  for (const PairDelay& pair : space_.pairs(edge, producer, consumer)) {
    const size_t p = static_cast<size_t>(pair.producer_part), q = static_cast<size_t>(pair.consumer_part);
    const int source = producer.devices[p], destination = consumer.devices[q];
    const bool local = source == destination;
    crossing.pairs[crossing.count++] = {pair.producer_part, pair.consumer_part,
                                        pair.delay[source * devices + destination],
                                        gradient ? pair.delay[destination * devices + source] : 0};
    const EdgeCopy forward = edge_copy(pair, local, Direction::forward);
    if (forward.source == BlockUse::packed) crossing.packing[p] += pair.bytes;
    if (forward.destination == BlockUse::packed) crossing.input_copies[q] += pair.bytes;
    if (!gradient) continue;
    const EdgeCopy backward = edge_copy(pair, local, Direction::backward);
    if (backward.source == BlockUse::packed) crossing.gradient_packing[q] += pair.bytes;
    crossing.gradients[p].add(pair.bytes, backward.destination);
  }
}

// ---- the tables ----

void ExhaustiveBounds::start_tables() {
  for (OperatorId op = 0; op < static_cast<OperatorId>(tables_.size()); ++op) {
    Table& table = tables_[op];
    table.alive.assign(table.entries.size(), true);
    for (size_t orbit = 0; orbit < table.entries.size(); ++orbit) {
      const Choice& choice = representative(op, static_cast<int32_t>(orbit));
      Entry& entry = table.entries[orbit];
      entry.in.assign(space_.in_edges()[op].size(), {});
      entry.out.assign(space_.out_edges()[op].size(), {});
      entry.tail = entry.update_tail;
      entry.head.fill(0);
      entry.forward_tail.fill(0);
      for (Parts& row : entry.round_trip) row.fill(no_path);
      for (int part = 0; part < choice.parts; ++part) {
        const size_t p = static_cast<size_t>(part);
        if (space_.graph().operators[op].has_backward) entry.round_trip[p][p] = 0;
      }
      finish(op, choice, entry);
    }
  }
}

// Sums and longest paths over the entry itself.
void ExhaustiveBounds::finish(OperatorId op, const Choice& choice, Entry& entry) {
  const bool has_backward = space_.graph().operators[op].has_backward;
  entry.forward_work = entry.backward_work = 0;
  for (int part = 0; part < choice.parts; ++part) {
    const size_t p = static_cast<size_t>(part);
    entry.input_copies[p] = entry.packing[p] = entry.gradient_packing[p] = entry.gradient_sums[p] = 0;
    for (const EdgeCopies& copies : entry.in) {
      entry.input_copies[p] += copies.forward[p];
      entry.gradient_packing[p] += copies.backward[p];
    }
    for (const EdgeCopies& copies : entry.out) {
      entry.packing[p] += copies.forward[p];
      entry.gradient_sums[p] += copies.backward[p];
    }
    const Nanoseconds forward = least_forward(op, choice, entry, part);
    entry.head[p] = std::max(entry.head[p], forward);
    entry.forward_work += forward;
    if (has_backward) entry.backward_work += least_backward(op, choice, entry, part);
  }
  if (!has_backward) return;
  for (int part = 0; part < choice.parts; ++part)
    for (int back = 0; back < choice.parts; ++back) {
      const size_t p = static_cast<size_t>(part), b = static_cast<size_t>(back);
      entry.forward_tail[p] = std::max(
          entry.forward_tail[p], entry.round_trip[p][b] + least_backward(op, choice, entry, back) + entry.tail[b]);
    }
}

// The copies of this edge are known, those of the tasks' other edges at their least. Round trips, heads and tails end
// where a task begins or has ended, so that each task of a path is counted once, with all of its copies.
void ExhaustiveBounds::pass(int edge, const Choice& producer, const Entry& before, const Choice& consumer,
                            const Entry& after, Passage& passage) {
  const Edge& ends = space_.edges()[edge].edge;
  const bool gradient = space_.edges()[edge].gradient;
  Crossing crossing;
  cross(edge, producer, consumer, crossing);
  const size_t producers = static_cast<size_t>(producer.parts), consumers = static_cast<size_t>(consumer.parts);
  const EdgeCopies& producer_known = before.out[out_position_[edge]];
  const EdgeCopies& consumer_known = after.in[in_position_[edge]];
  passage.producer.forward = crossing.packing;
  passage.consumer.forward = crossing.input_copies;
  passage.consumer.backward = crossing.gradient_packing;
  for (size_t p = 0; p < producers; ++p) passage.producer.backward[p] = crossing.gradients[p].copied_bytes();
  Parts forward, backward;  // of the consumer's tasks; and of the producer's backward tasks
  // [producer part][consumer part]: until the consumer's backward task has ended
  Array<Parts, most_parts> to_back;
  for (size_t q = 0; q < consumers; ++q) {
    const int64_t other_inputs = after.input_copies[q] - consumer_known.forward[q];
    forward[q] = forward_time(ends.consumer, consumer, static_cast<int>(q)) +
                 copy_time(ends.consumer, consumer, static_cast<int>(q), other_inputs + crossing.input_copies[q],
                           after.packing[q]);
    passage.head[q] = no_path;
    passage.tail[q] = no_path;
  }
  passage.longest = 0;
  for (size_t p = 0; p < producers; ++p) {
    passage.forward_tail[p] = no_path;
    passage.round_trip[p].fill(no_path);
    to_back[p].fill(no_path);
  }
  for (int i = 0; i < crossing.count; ++i) {
    const Crossing::Pair& pair = crossing.pairs[i];
    const size_t p = static_cast<size_t>(pair.producer_part), q = static_cast<size_t>(pair.consumer_part);
    passage.head[q] = std::max(passage.head[q], before.head[p] + pair.forward + forward[q]);
    passage.forward_tail[p] = std::max(passage.forward_tail[p], pair.forward + forward[q] + after.forward_tail[q]);
    if (gradient)
      for (size_t back = 0; back < consumers; ++back)
        to_back[p][back] = std::max(to_back[p][back], pair.forward + forward[q] + after.round_trip[q][back]);
  }
  for (size_t p = 0; p < producers; ++p)
    passage.longest = std::max(passage.longest, before.head[p] + passage.forward_tail[p]);
  if (!gradient) return;
  for (size_t q = 0; q < consumers; ++q) {
    const int64_t other_packing = after.gradient_packing[q] - consumer_known.backward[q];
    backward[q] = backward_time(ends.consumer, consumer, static_cast<int>(q)) +
                  copy_time(ends.consumer, consumer, static_cast<int>(q), after.gradient_sums[q],
                            other_packing + crossing.gradient_packing[q]);
  }
  Parts sum_up;  // the producer's backward tasks
  for (size_t p = 0; p < producers; ++p) {
    const int64_t other_sums = before.gradient_sums[p] - producer_known.backward[p];
    sum_up[p] = backward_time(ends.producer, producer, static_cast<int>(p)) +
                copy_time(ends.producer, producer, static_cast<int>(p), other_sums + passage.producer.backward[p],
                          before.gradient_packing[p]);
  }
  for (int i = 0; i < crossing.count; ++i) {
    const Crossing::Pair& pair = crossing.pairs[i];
    const size_t back = static_cast<size_t>(pair.producer_part), q = static_cast<size_t>(pair.consumer_part);
    passage.tail[q] = std::max(passage.tail[q], pair.backward + sum_up[back] + before.tail[back]);
    for (size_t p = 0; p < producers; ++p)
      passage.round_trip[p][back] = std::max(passage.round_trip[p][back], to_back[p][q] + backward[q] + pair.backward);
  }
  for (size_t p = 0; p < producers; ++p)
    for (size_t back = 0; back < producers; ++back)
      passage.longest =
          std::max(passage.longest, before.head[p] + passage.round_trip[p][back] + sum_up[back] + before.tail[back]);
}

void ExhaustiveBounds::extend_from_producers(OperatorId op, int32_t orbit) {
  const Choice& choice = representative(op, orbit);
  Entry& entry = tables_[op].entries[orbit];
  const size_t parts = static_cast<size_t>(choice.parts);
  Passage passage;
  for (int e : space_.in_edges()[op]) {
    const EdgeChoices& edge = space_.edges()[e];
    const OperatorId producer = edge.edge.producer;
    Parts head, tail;
    EdgeCopies copies;
    copies.forward.fill(std::numeric_limits<int64_t>::max());
    copies.backward = copies.forward;
    head.fill(std::numeric_limits<Nanoseconds>::max());
    tail.fill(std::numeric_limits<Nanoseconds>::max());
    bool possible = false;
    for (const Choice& other : space_.choices(producer).choices) {
      if (!alive(producer, other.orbit)) continue;
      pass(e, other, this->entry(producer, other.orbit), choice, entry, passage);
      if (passage.longest >= limit_) continue;
      possible = true;
      for (size_t q = 0; q < parts; ++q) {
        head[q] = std::min(head[q], passage.head[q]);
        tail[q] = std::min(tail[q], passage.tail[q]);
        copies.forward[q] = std::min(copies.forward[q], passage.consumer.forward[q]);
        copies.backward[q] = std::min(copies.backward[q], passage.consumer.backward[q]);
      }
    }
    if (!possible) {
      tables_[op].alive[orbit] = false;
      return;
    }
    entry.in[in_position_[e]] = copies;
    for (size_t q = 0; q < parts; ++q) {
      entry.head[q] = std::max(entry.head[q], head[q]);
      if (edge.gradient) entry.tail[q] = std::max(entry.tail[q], tail[q]);
    }
  }
  finish(op, choice, entry);
}

void ExhaustiveBounds::extend_from_consumers(OperatorId op, int32_t orbit) {
  const Choice& choice = representative(op, orbit);
  Entry& entry = tables_[op].entries[orbit];
  const size_t parts = static_cast<size_t>(choice.parts);
  Passage passage;
  for (int e : space_.out_edges()[op]) {
    const EdgeChoices& edge = space_.edges()[e];
    const OperatorId consumer = edge.edge.consumer;
    Parts forward_tail;
    Array<Parts, most_parts> round_trip;
    EdgeCopies copies;
    copies.forward.fill(std::numeric_limits<int64_t>::max());
    copies.backward = copies.forward;
    forward_tail.fill(std::numeric_limits<Nanoseconds>::max());
    round_trip.fill(forward_tail);
    bool possible = false;
    for (const Choice& other : space_.choices(consumer).choices) {
      if (!alive(consumer, other.orbit)) continue;
      pass(e, choice, entry, other, this->entry(consumer, other.orbit), passage);
      if (passage.longest >= limit_) continue;
      possible = true;
      for (size_t p = 0; p < parts; ++p) {
        forward_tail[p] = std::min(forward_tail[p], passage.forward_tail[p]);
        copies.forward[p] = std::min(copies.forward[p], passage.producer.forward[p]);
        copies.backward[p] = std::min(copies.backward[p], passage.producer.backward[p]);
        for (size_t back = 0; back < parts; ++back)
          round_trip[p][back] = std::min(round_trip[p][back], passage.round_trip[p][back]);
      }
    }
    if (!possible) {
      tables_[op].alive[orbit] = false;
      return;
    }
    entry.out[out_position_[e]] = copies;
    for (size_t p = 0; p < parts; ++p) {
      entry.forward_tail[p] = std::max(entry.forward_tail[p], forward_tail[p]);
      if (!edge.gradient) continue;
      for (size_t back = 0; back < parts; ++back)
        entry.round_trip[p][back] = std::max(entry.round_trip[p][back], round_trip[p][back]);
    }
  }
  finish(op, choice, entry);
}

// ---- striking out ----

bool ExhaustiveBounds::any_alive(OperatorId op) const {
  const Vector<bool>& alive = tables_[op].alive;
  return std::find(alive.begin(), alive.end(), true) != alive.end();
}

void ExhaustiveBounds::sum_up_work() {
  constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();
  for (OpenTask& update : open_updates_) update = {never, 0};
  for (OperatorId op = 0; op < static_cast<OperatorId>(tables_.size()); ++op) {
    Table& table = tables_[op];
    const bool has_backward = space_.graph().operators[op].has_backward, statistics = space_.choices(op).statistics;
    Nanoseconds forward = never, backward = never, end = never, forward_work = never, backward_work = never,
                update_work = never;
    std::map<int, double> least;
    for (size_t orbit = 0; orbit < table.entries.size(); ++orbit) {
      if (!table.alive[orbit]) continue;
      const Entry& entry = table.entries[orbit];
      const Choice& choice = representative(op, static_cast<int32_t>(orbit));
      forward_work = std::min(forward_work, entry.forward_work);
      backward_work = std::min(backward_work, entry.backward_work);
      update_work = std::min(update_work, entry.update_work);
      for (int part = 0; part < choice.parts; ++part) {
        const Nanoseconds start = statistics ? 0 : entry.head[part] - least_forward(op, choice, entry, part);
        forward = std::min(forward, start);
        const Nanoseconds ready = has_backward ? backward_ready(entry, choice, part) : 0;
        if (has_backward) backward = std::min(backward, ready);
        end = std::min(end, has_backward ? ready + least_backward(op, choice, entry, part) : entry.head[part]);
      }
      for (const auto& [group, updates] : entry.shared_updates) {
        double sum = 0;
        for (double update : updates) sum += update;
        double& known = least.try_emplace(group, std::numeric_limits<double>::max()).first->second;
        known = std::min(known, sum);
      }
    }
    table.open.clear();
    if (forward_work == never) continue;  // nothing is alive
    table.open.push_back({forward, static_cast<double>(forward_work)});
    if (has_backward) table.open.push_back({backward, static_cast<double>(backward_work)});
    if (update_work > 0) table.open.push_back({end, static_cast<double>(update_work)});
    table.least_work = static_cast<double>(forward_work + backward_work + update_work);
    for (const auto& [group, sum] : least) {
      OpenTask& update = open_updates_[group];
      update = {std::min(update.head, end), std::max(update.work, sum)};
    }
  }
}

Nanoseconds ExhaustiveBounds::backward_ready(const Entry& entry, const Choice& choice, int part) const {
  Nanoseconds ready = 0;
  for (size_t from = 0; from < static_cast<size_t>(choice.parts); ++from)
    ready = std::max(ready, entry.head[from] + entry.round_trip[from][part]);
  return ready;
}

Nanoseconds ExhaustiveBounds::bound(OperatorId op, int32_t orbit) {
  const Choice& choice = representative(op, orbit);
  const Entry& entry = this->entry(op, orbit);
  const bool has_backward = space_.graph().operators[op].has_backward;
  Nanoseconds longest = 0;
  Vector<Vector<MachineTask>> machines(space_.device_count());
  Parts back_ready;
  for (int part = 0; part < choice.parts; ++part) {
    const size_t p = static_cast<size_t>(part), device = static_cast<size_t>(choice.devices[p]);
    longest = std::max(longest, entry.head[p] + entry.forward_tail[p]);
    const Nanoseconds forward = least_forward(op, choice, entry, part);
    machines[device].push_back(
        {space_.choices(op).statistics ? 0 : entry.head[p] - forward, forward, entry.forward_tail[p]});
    if (!has_backward) continue;
    back_ready[p] = backward_ready(entry, choice, part);
    machines[device].push_back({back_ready[p], least_backward(op, choice, entry, part), entry.tail[p]});
  }
  for (size_t device = 0; device < machines.size(); ++device) {
    Nanoseconds first_end = std::numeric_limits<Nanoseconds>::max();
    for (int part = 0; part < choice.parts; ++part)
      if (static_cast<size_t>(choice.devices[part]) == device)
        first_end = std::min(
            first_end, has_backward ? back_ready[part] + least_backward(op, choice, entry, part) : entry.head[part]);
    for (const auto& [group, updates] : entry.shared_updates)
      if (updates[device] > 0) machines[device].push_back({first_end, static_cast<Nanoseconds>(updates[device]), 0});
  }
  for (const UnitBound& unit : entry.units) {
    Nanoseconds ready = 0;
    for (const auto& [user, part] : unit.contributors)
      ready =
          std::max(ready, has_backward ? back_ready[part] + least_backward(op, choice, entry, part) : entry.head[part]);
    for (const auto& [device, time] : unit.updates) machines[device].push_back({ready + unit.all_reduce, time, 0});
  }
  released_.clear();
  for (const Vector<MachineTask>& machine : machines)
    for (const MachineTask& task : machine) released_.push_back({task.head, static_cast<double>(task.work)});
  for (OperatorId other = 0; other < static_cast<OperatorId>(tables_.size()); ++other)
    if (other != op) released_.insert(released_.end(), open_tasks(other).begin(), open_tasks(other).end());
  for (size_t group = 0; group < open_updates_.size(); ++group) {
    double known = 0;
    if (const auto it = entry.shared_updates.find(static_cast<int>(group)); it != entry.shared_updates.end())
      for (double updates : it->second) known += updates;
    if (open_updates_[group].work > known)
      released_.push_back({open_updates_[group].head, open_updates_[group].work - known});
  }
  longest = std::max(longest, spread_bound(released_, space_.device_count()));
  for (Vector<MachineTask>& machine : machines) longest = std::max(longest, one_machine_bound(machine));
  return longest;
}

bool ExhaustiveBounds::strike(OperatorId op, int32_t orbit, bool& changed) {
  if (!alive(op, orbit) || bound(op, orbit) < limit_) return alive(op, orbit);
  tables_[op].alive[orbit] = false;
  changed = true;
  return false;
}

bool ExhaustiveBounds::reduce(Nanoseconds limit, const std::function<bool()>& stop) {
  limit_ = limit;
  start_tables();
  const OperatorId count = static_cast<OperatorId>(tables_.size());
  for (bool changed = true; changed && !stop();) {
    changed = false;
    const auto sweep = [&](OperatorId op, bool from_producers) {
      sum_up_work();
      for (int32_t orbit = 0; orbit < static_cast<int32_t>(tables_[op].entries.size()) && !stop(); ++orbit) {
        if (!strike(op, orbit, changed)) continue;
        if (from_producers) extend_from_producers(op, orbit);
        else extend_from_consumers(op, orbit);
        if (!alive(op, orbit)) changed = true;
        strike(op, orbit, changed);
      }
      return any_alive(op);
    };
    for (OperatorId op = 0; op < count; ++op)
      if (!sweep(op, true) && !stop()) return false;
    for (OperatorId op = count - 1; op >= 0; --op)
      if (!sweep(op, false) && !stop()) return false;
  }
  return true;
}

}  // namespace ff
