#include "search/optimizer/exhaustive/bounds.h"

#include <algorithm>
#include <limits>

namespace ff::exhaustive {

Bounds::Bounds(Space& space)
    : space_(space), tables_(space.graph().operators.size()), groups_of_(space.graph().operators.size()),
      open_updates_(space.builder().groups().size()) {
  in_position_.resize(space.edges().size());
  out_position_.resize(space.edges().size());
  for (OperatorId op : tables_.indices()) {
    for (int i : space.in_edges()[op].indices()) in_position_[space.in_edges()[op][i]] = i;
    for (int i : space.out_edges()[op].indices()) out_position_[space.out_edges()[op][i]] = i;
  }
  const Vector<ParameterGroup>& groups = space.builder().groups();
  for (int g : groups.indices())
    if (groups[g].trained)
      for (OperatorId op : groups[g].operators) groups_of_[op].push_back(g);
  for (OperatorId op : tables_.indices()) {
    tables_[op].entries.resize(space.choices(op).representative.size());
    for (int orbit : tables_[op].entries.indices())
      lay_out_updates(op, representative(op, orbit), tables_[op].entries[orbit]);
  }
}

const Choice& Bounds::representative(OperatorId op, int32_t orbit) const {
  const OperatorChoices& choices = space_.choices(op);
  return choices.choices[choices.representative[orbit]];
}

Nanoseconds Bounds::forward_time(OperatorId op, const Choice& choice, int part) const {
  return space_.choices(op).degrees[choice.degrees].forward[space_.model_of(choice.devices[part])][part];
}

Nanoseconds Bounds::backward_time(OperatorId op, const Choice& choice, int part) const {
  return space_.choices(op).degrees[choice.degrees].backward[space_.model_of(choice.devices[part])][part];
}

// ---- what never changes ----

void Bounds::lay_out_updates(OperatorId op, const Choice& choice, Entry& entry) {
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
          raise_to(longest, time);
        }
        if (graph.operators[op].has_backward)
          for (const auto& [user, part] : unit.contributors) {
            raise_to(entry.update_tail[part], unit.all_reduce + longest);
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
      const int device = choice.devices[part];
      const Nanoseconds least = space_.least_update(space_.model_of(device));
      updates[device] = std::max(updates[device], static_cast<double>(least));
      if (graph.operators[op].has_backward) {
        raise_to(entry.update_tail[part], least);
      }
    }
  }
}

Vector<UnitBound> Bounds::units(int g, const Strategy& strategy) {
  const auto pieces = space_.builder().pieces(g, strategy);
  Vector<UnitBound> result;
  for (const SynchronizationUnit& unit : synchronization_units(g, *pieces, strategy, Synchronization::all_reduce)) {
    UnitBound& bound = result.emplace_back();
    for (DeviceId holder : unit.holders) bound.holders |= 1u << holder;
    bound.contributors = contributors_of(unit);
    if (unit.holders.size() > 1)
      bound.all_reduce = space_.least_collective(CollectiveKind::all_reduce, bound.holders, unit.bytes);
    const Vector<int64_t> sums = gradient_sum_bytes(unit, space_.graph(), strategy);
    for (int h : unit.holders.indices()) {
      const int model = space_.model_of(unit.holders[h]);
      bound.updates.emplace_back(unit.holders[h],
                                 space_.costs().update_ns(unit.bytes, model) + space_.costs().copy_ns(sums[h], model));
    }
  }
  return result;
}

double Bounds::shared_update(OperatorId op, const Choice& choice, int group, int device) const {
  const Choice& known = representative(op, choice.orbit);
  for (int part = 0; part < choice.parts; ++part)
    if (choice.devices[part] == device) return entry(op, choice.orbit).shared_updates.at(group)[known.devices[part]];
  return 0;
}

const EdgeCopies& Bounds::consumer_copies(int edge, int32_t orbit) const {
  return entry(space_.edges()[edge].edge.consumer, orbit).in[in_position_[edge]];
}

const EdgeCopies& Bounds::producer_copies(int edge, int32_t orbit) const {
  return entry(space_.edges()[edge].edge.producer, orbit).out[out_position_[edge]];
}

void Bounds::cross(int edge, const Choice& producer, const Choice& consumer, Crossing& crossing) const {
  const bool gradient = space_.edges()[edge].gradient;
  const int devices = space_.device_count();
  crossing.count = 0;
  crossing.input_copies.fill(0);
  crossing.packing.fill(0);
  crossing.gradient_packing.fill(0);
  crossing.gradients.fill({});
  struct {
    Crossing& crossing;
    void assembled(int32_t part, int64_t bytes) { crossing.input_copies[part] += bytes; }
    void packed(int32_t part, int64_t bytes) { crossing.packing[part] += bytes; }
    void packed_gradient(int32_t part, int64_t bytes) { crossing.gradient_packing[part] += bytes; }
    void contributes(int32_t part, int64_t bytes, BlockUse use) { crossing.gradients[part].add(bytes, use); }
  } copies{crossing};
  if (const EdgeExchanges& exchanges = space_.exchanges(edge, producer, consumer);
      !exchanges.exchanges.empty() && cross_by_collectives(exchanges, gradient, producer, consumer, crossing))
    return;
  for (const PairDelay& pair : space_.pairs(edge, producer, consumer)) {
    const int p = pair.producer_part, q = pair.consumer_part;
    const int source = producer.devices[p], destination = consumer.devices[q];
    crossing.pairs[crossing.count++] = {pair.producer_part, pair.consumer_part,
                                        pair.delay[source * devices + destination],
                                        gradient ? pair.delay[destination * devices + source] : 0};
    count_copies(pair, source == destination, gradient, copies);
  }
}

// A collective takes as long for every pair of its parts. False where the edge has transfers.
bool Bounds::cross_by_collectives(const EdgeExchanges& edge, bool gradient, const Choice& producer,
                                  const Choice& consumer, Crossing& crossing) const {
  const auto devices_of = [](const Choice& choice) {
    return Vector<DeviceId>(choice.devices.begin(), choice.devices.begin() + choice.parts);
  };
  const Vector<Collective> collectives = collectives_of(edge, devices_of(producer), devices_of(consumer));
  if (collectives.empty()) return false;
  EdgeCopyBytes copies;
  copies.set(edge, collectives, gradient);
  for (int p = 0; p < producer.parts; ++p) {
    crossing.packing[p] = copies.packed[p];
    crossing.gradients[p] = copies.gradients[p];
  }
  for (int q = 0; q < consumer.parts; ++q) {
    crossing.input_copies[q] = copies.assembled[q];
    crossing.gradient_packing[q] = copies.packed_gradient[q];
  }
  for (int number : collectives.indices()) {
    const Collective& collective = collectives[number];
    uint32_t holders = 0;
    for (DeviceId holder : collective.holders) holders |= uint32_t{1} << holder;
    const Nanoseconds forward = space_.least_collective(collective.kind, holders, collective.bytes);
    const Nanoseconds backward =
        gradient ? space_.least_collective(reversed(collective.kind), holders, collective.bytes) : 0;
    for (int32_t q : edge.exchanges[number].consumers)
      for (int32_t p : edge.exchanges[number].producers) crossing.pairs[crossing.count++] = {p, q, forward, backward};
  }
  return true;
}

// ---- the tables ----

void Bounds::start_tables() {
  for (OperatorId op : tables_.indices()) {
    Table& table = tables_[op];
    table.alive.assign(table.entries.size(), true);
    for (int orbit : table.entries.indices()) {
      const Choice& choice = representative(op, orbit);
      Entry& entry = table.entries[orbit];
      entry.in.assign(space_.in_edges()[op].size(), {});
      entry.out.assign(space_.out_edges()[op].size(), {});
      entry.tail = entry.update_tail;
      entry.head.fill(0);
      entry.forward_tail.fill(0);
      for (Parts& row : entry.round_trip) row.fill(no_path);
      if (space_.graph().operators[op].has_backward)
        for (int part = 0; part < choice.parts; ++part) entry.round_trip[part][part] = 0;
      finish(op, choice, entry);
    }
  }
}

// Sums and longest paths over the entry itself.
void Bounds::finish(OperatorId op, const Choice& choice, Entry& entry) {
  const bool has_backward = space_.graph().operators[op].has_backward;
  entry.forward_work = entry.backward_work = 0;
  for (int part = 0; part < choice.parts; ++part) {
    entry.input_copies[part] = entry.packing[part] = entry.gradient_packing[part] = entry.gradient_sums[part] = 0;
    for (const EdgeCopies& copies : entry.in) {
      entry.input_copies[part] += copies.forward[part];
      entry.gradient_packing[part] += copies.backward[part];
    }
    for (const EdgeCopies& copies : entry.out) {
      entry.packing[part] += copies.forward[part];
      entry.gradient_sums[part] += copies.backward[part];
    }
    const Nanoseconds forward = least_forward(op, choice, entry, part);
    raise_to(entry.head[part], forward);
    entry.forward_work += forward;
    if (has_backward) entry.backward_work += least_backward(op, choice, entry, part);
  }
  if (!has_backward) return;
  for (int part = 0; part < choice.parts; ++part)
    for (int back = 0; back < choice.parts; ++back)
      raise_to(entry.forward_tail[part],
               entry.round_trip[part][back] + least_backward(op, choice, entry, back) + entry.tail[back]);
}

// The copies of this edge are known, those of the tasks' other edges at their least. Round trips, heads and tails end
// where a task begins or has ended, so that each task of a path is counted once, with all of its copies.
void Bounds::pass(const Ends& ends, Passage& passage) {
  const auto& [edge, producer, before, consumer, after] = ends;
  const OperatorId op = space_.edges()[edge].edge.consumer;
  const bool gradient = space_.edges()[edge].gradient;
  Crossing crossing;
  cross(edge, producer, consumer, crossing);
  const EdgeCopies& known = after.in[in_position_[edge]];
  passage.producer.forward = crossing.packing;
  passage.consumer.forward = crossing.input_copies;
  passage.consumer.backward = crossing.gradient_packing;
  Parts forward;  // durations of the consumer's tasks
  for (int q = 0; q < consumer.parts; ++q) {
    const int64_t other_inputs = after.input_copies[q] - known.forward[q];
    forward[q] = forward_time(op, consumer, q) + copy_time(op, Direction::forward, consumer, q,
                                                           other_inputs + crossing.input_copies[q], after.packing[q]);
    passage.head[q] = no_path;
    passage.tail[q] = no_path;
  }
  // [producer part][consumer part]: until the consumer's backward task has ended
  Array<Parts, most_parts> to_back;
  for (int p = 0; p < producer.parts; ++p) {
    passage.producer.backward[p] = crossing.gradients[p].copied_bytes();
    passage.forward_tail[p] = no_path;
    passage.round_trip[p].fill(no_path);
    to_back[p].fill(no_path);
  }
  for (const Crossing::Pair& pair : crossing) {
    const int p = pair.producer_part, q = pair.consumer_part;
    raise_to(passage.head[q], before.head[p] + pair.forward + forward[q]);
    raise_to(passage.forward_tail[p], pair.forward + forward[q] + after.forward_tail[q]);
    if (gradient)
      for (int back = 0; back < consumer.parts; ++back)
        raise_to(to_back[p][back], pair.forward + forward[q] + after.round_trip[q][back]);
  }
  passage.longest = 0;
  for (int p = 0; p < producer.parts; ++p) raise_to(passage.longest, before.head[p] + passage.forward_tail[p]);
  if (gradient) pass_gradient(ends, crossing, to_back, passage);
}

void Bounds::pass_gradient(const Ends& ends, const Crossing& crossing, const Array<Parts, most_parts>& to_back,
                           Passage& passage) {
  const auto& [edge, producer, before, consumer, after] = ends;
  const Edge& operators = space_.edges()[edge].edge;
  const EdgeCopies& producer_known = before.out[out_position_[edge]];
  const EdgeCopies& consumer_known = after.in[in_position_[edge]];
  Parts backward;  // durations of the consumer's tasks
  for (int q = 0; q < consumer.parts; ++q) {
    const int64_t other_packing = after.gradient_packing[q] - consumer_known.backward[q];
    backward[q] = backward_time(operators.consumer, consumer, q) +
                  copy_time(operators.consumer, Direction::backward, consumer, q, after.gradient_sums[q],
                            other_packing + crossing.gradient_packing[q]);
  }
  Parts sum_up;  // durations of the producer's tasks
  for (int p = 0; p < producer.parts; ++p) {
    const int64_t other_sums = before.gradient_sums[p] - producer_known.backward[p];
    sum_up[p] = backward_time(operators.producer, producer, p) +
                copy_time(operators.producer, Direction::backward, producer, p,
                          other_sums + passage.producer.backward[p], before.gradient_packing[p]);
  }
  for (const Crossing::Pair& pair : crossing) {
    const int back = pair.producer_part, q = pair.consumer_part;
    raise_to(passage.tail[q], pair.backward + sum_up[back] + before.tail[back]);
    for (int p = 0; p < producer.parts; ++p)
      raise_to(passage.round_trip[p][back], to_back[p][q] + backward[q] + pair.backward);
  }
  for (int p = 0; p < producer.parts; ++p)
    for (int back = 0; back < producer.parts; ++back)
      raise_to(passage.longest, before.head[p] + passage.round_trip[p][back] + sum_up[back] + before.tail[back]);
}

void Bounds::extend(OperatorId op, int32_t orbit, Side side) {
  const Choice& choice = representative(op, orbit);
  Entry& entry = tables_[op].entries[orbit];
  const bool behind = side == Side::producers;  // this operator is the consumer
  const auto keep_least = [&](Parts& least, const Parts& other) {
    for (int part = 0; part < choice.parts; ++part) least[part] = std::min(least[part], other[part]);
  };
  const auto raise_all = [&](Parts& entries, const Parts& least) {
    for (int part = 0; part < choice.parts; ++part) raise_to(entries[part], least[part]);
  };
  Passage passage;
  for (int e : (behind ? space_.in_edges() : space_.out_edges())[op]) {
    const EdgeChoices& edge = space_.edges()[e];
    const OperatorId neighbour = behind ? edge.edge.producer : edge.edge.consumer;
    Parts head, tail, forward_tail;
    Array<Parts, most_parts> round_trip;
    EdgeCopies copies;
    for (Parts* least : {&head, &tail, &forward_tail, &copies.forward, &copies.backward})
      least->fill(std::numeric_limits<int64_t>::max());
    round_trip.fill(head);
    bool possible = false;
    for (const Choice& other : space_.choices(neighbour).choices) {
      if (!alive(neighbour, other.orbit)) continue;
      const Entry& there = this->entry(neighbour, other.orbit);
      if (behind) pass({e, other, there, choice, entry}, passage);
      else pass({e, choice, entry, other, there}, passage);
      if (passage.longest >= limit_) continue;
      possible = true;
      const EdgeCopies& own = behind ? passage.consumer : passage.producer;
      keep_least(copies.forward, own.forward);
      keep_least(copies.backward, own.backward);
      if (behind) {
        keep_least(head, passage.head);
        keep_least(tail, passage.tail);
      } else {
        keep_least(forward_tail, passage.forward_tail);
        for (int part = 0; part < choice.parts; ++part) keep_least(round_trip[part], passage.round_trip[part]);
      }
    }
    if (!possible) {
      tables_[op].alive[orbit] = false;
      return;
    }
    if (behind) {
      entry.in[in_position_[e]] = copies;
      raise_all(entry.head, head);
      if (edge.gradient) raise_all(entry.tail, tail);
    } else {
      entry.out[out_position_[e]] = copies;
      raise_all(entry.forward_tail, forward_tail);
      if (edge.gradient)
        for (int part = 0; part < choice.parts; ++part) raise_all(entry.round_trip[part], round_trip[part]);
    }
  }
  finish(op, choice, entry);
}

// ---- striking out ----

bool Bounds::any_alive(OperatorId op) const {
  const Vector<bool>& alive = tables_[op].alive;
  return std::find(alive.begin(), alive.end(), true) != alive.end();
}

void Bounds::sum_up_work() {
  constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();
  for (OpenTask& update : open_updates_) update = {never, 0};
  for (OperatorId op : tables_.indices()) {
    Table& table = tables_[op];
    const bool has_backward = space_.graph().operators[op].has_backward;
    Nanoseconds forward = never, backward = never, end = never, forward_work = never, backward_work = never,
                update_work = never;
    std::map<int, double> least;
    for (int orbit : table.entries.indices()) {
      if (!table.alive[orbit]) continue;
      const Entry& entry = table.entries[orbit];
      const Choice& choice = representative(op, orbit);
      const bool statistics = space_.has_statistics(op, choice, Direction::forward);
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

Nanoseconds Bounds::backward_ready(const Entry& entry, const Choice& choice, int part) const {
  Nanoseconds ready = 0;
  for (int from = 0; from < choice.parts; ++from) raise_to(ready, entry.head[from] + entry.round_trip[from][part]);
  return ready;
}

Nanoseconds Bounds::bound(OperatorId op, int32_t orbit) {
  const Choice& choice = representative(op, orbit);
  const Entry& entry = this->entry(op, orbit);
  const bool has_backward = space_.graph().operators[op].has_backward;
  Nanoseconds longest = 0;
  Vector<Vector<MachineTask>> machines(space_.device_count());
  Parts back_ready;
  for (int part = 0; part < choice.parts; ++part) {
    Vector<MachineTask>& machine = machines[choice.devices[part]];
    raise_to(longest, entry.head[part] + entry.forward_tail[part]);
    const Nanoseconds forward = least_forward(op, choice, entry, part);
    machine.push_back({space_.has_statistics(op, choice, Direction::forward) ? 0 : entry.head[part] - forward, forward,
                       entry.forward_tail[part]});
    if (!has_backward) continue;
    back_ready[part] = backward_ready(entry, choice, part);
    machine.push_back({back_ready[part], least_backward(op, choice, entry, part), entry.tail[part]});
  }
  for (DeviceId device : machines.indices()) {
    Nanoseconds first_end = std::numeric_limits<Nanoseconds>::max();
    for (int part = 0; part < choice.parts; ++part)
      if (choice.devices[part] == device)
        first_end = std::min(
            first_end, has_backward ? back_ready[part] + least_backward(op, choice, entry, part) : entry.head[part]);
    for (const auto& [group, updates] : entry.shared_updates)
      if (updates[device] > 0) machines[device].push_back({first_end, static_cast<Nanoseconds>(updates[device]), 0});
  }
  for (const UnitBound& unit : entry.units) {
    Nanoseconds ready = 0;
    for (const auto& [user, part] : unit.contributors)
      raise_to(ready, has_backward ? back_ready[part] + least_backward(op, choice, entry, part) : entry.head[part]);
    for (const auto& [device, time] : unit.updates) machines[device].push_back({ready + unit.all_reduce, time, 0});
  }
  released_.clear();
  for (const Vector<MachineTask>& machine : machines)
    for (const MachineTask& task : machine) released_.push_back({task.head, static_cast<double>(task.work)});
  for (OperatorId other : tables_.indices())
    if (other != op) released_.insert(released_.end(), open_tasks(other).begin(), open_tasks(other).end());
  for (int group : open_updates_.indices()) {
    double known = 0;
    if (const auto it = entry.shared_updates.find(group); it != entry.shared_updates.end())
      for (double updates : it->second) known += updates;
    if (open_updates_[group].work > known)
      released_.push_back({open_updates_[group].head, open_updates_[group].work - known});
  }
  raise_to(longest, spread_bound(released_, space_.device_count()));
  for (Vector<MachineTask>& machine : machines) raise_to(longest, one_machine_bound(machine));
  return longest;
}

void Bounds::strike_out(OperatorId op, int32_t orbit) {
  if (bound(op, orbit) >= limit_) tables_[op].alive[orbit] = false;
}

bool Bounds::reduce(Nanoseconds limit, const std::function<bool()>& stop) {
  limit_ = limit;
  start_tables();
  for (bool changed = true; changed && !stop();) {
    changed = false;
    const auto sweep = [&](OperatorId op, Side side) {
      sum_up_work();
      for (int orbit = 0; orbit < tables_[op].entries.count() && !stop(); ++orbit) {
        if (!alive(op, orbit)) continue;
        strike_out(op, orbit);
        if (alive(op, orbit)) extend(op, orbit, side);
        if (alive(op, orbit)) strike_out(op, orbit);
        changed = changed || !alive(op, orbit);
      }
      return any_alive(op) || stop();
    };
    for (OperatorId op : tables_.indices())
      if (!sweep(op, Side::producers)) return false;
    for (OperatorId op = tables_.count() - 1; op >= 0; --op)
      if (!sweep(op, Side::consumers)) return false;
  }
  return true;
}

}  // namespace ff::exhaustive
