#include "search/optimizer/exhaustive/partial.h"

#include <algorithm>

namespace ff::exhaustive {

PartialBounds::PartialBounds(Bounds& bounds)
    : bounds_(bounds), space_(bounds.space()), choices_(space_.graph().operators.size()), fixed_(choices_.size()),
      crossings_(space_.edges().size()), groups_(space_.builder().groups().size()),
      machine_tasks_(space_.device_count()), packing_(choices_.size()), gradient_packing_(choices_.size()),
      input_copies_(choices_.size()), gradient_copies_(choices_.size()), gradients_(space_.graph().tensors.size()) {
  is_fixed_.resize(choices_.size());
  groups_of_.resize(choices_.size());
  for (int g : groups_.indices())
    for (OperatorId op : space_.builder().groups()[g].operators) groups_of_[op].push_back(g);
}

bool PartialBounds::crossed(int edge) const {
  const Edge& ends = space_.edges()[edge].edge;
  return fixed(ends.producer) && fixed(ends.consumer);
}

void PartialBounds::push(OperatorId op, const Choice& choice) {
  order_.push_back(op);
  topological_.insert(std::lower_bound(topological_.begin(), topological_.end(), op), op);
  is_fixed_[op] = true;
  choices_[op] = choice;
  for (int g : groups_of_[op]) ++groups_[g].fixed;
  const auto cross = [&](int e) {
    if (!crossed(e)) return;
    const Edge& ends = space_.edges()[e].edge;
    bounds_.cross(e, (*this)[ends.producer], (*this)[ends.consumer], crossings_[e]);
  };
  for (int e : space_.in_edges()[op]) cross(e);
  for (int e : space_.out_edges()[op]) cross(e);
}

void PartialBounds::pop() {
  const OperatorId op = order_.back();
  order_.pop_back();
  topological_.erase(std::lower_bound(topological_.begin(), topological_.end(), op));
  is_fixed_[op] = false;
  for (int g : groups_of_[op]) --groups_[g].fixed;
}

Strategy PartialBounds::strategy() const {
  Strategy strategy(choices_.size());
  for (OperatorId op : topological_) strategy[op] = space_.configuration(op, (*this)[op]);
  return strategy;
}

const Vector<UnitBound>& PartialBounds::units(int g) {
  Group& group = groups_[g];
  Vector<int32_t> key;
  for (OperatorId op : space_.builder().groups()[g].operators) {
    const Choice& choice = (*this)[op];
    int32_t packed = 0;
    for (int part = 0; part < choice.parts; ++part) packed = packed * 8 + choice.devices[part];
    key.push_back(choice.degrees);
    key.push_back(packed);
  }
  const auto it = group.cache.find(key);
  if (it != group.cache.end()) return it->second;
  if (group.cache.size() > 100000) group.cache.clear();
  return group.cache.emplace(std::move(key), bounds_.units(g, strategy())).first->second;
}

// Because of neighbours that are open: the least.
void PartialBounds::add_open_copies(OperatorId op) {
  const int32_t orbit = choices_[op].orbit;
  for (int e : space_.in_edges()[op]) {
    if (crossed(e)) continue;
    const EdgeCopies& copies = bounds_.consumer_copies(e, orbit);
    for (int part = 0; part < choices_[op].parts; ++part) {
      input_copies_[op][part] += copies.forward[part];
      gradient_packing_[op][part] += copies.backward[part];
    }
  }
  for (int e : space_.out_edges()[op]) {
    if (crossed(e)) continue;
    const EdgeCopies& copies = bounds_.producer_copies(e, orbit);
    for (int part = 0; part < choices_[op].parts; ++part) {
      packing_[op][part] += copies.forward[part];
      gradient_copies_[op][part] += copies.backward[part];
    }
  }
}

void PartialBounds::find_durations() {
  const Graph& graph = space_.graph();
  for (OperatorId op : topological_) {
    packing_[op].fill(0);
    gradient_packing_[op].fill(0);
    input_copies_[op].fill(0);
    gradient_copies_[op].fill(0);
    for (TensorId tensor : graph.operators[op].outputs) gradients_[tensor].fill({});
  }
  for (OperatorId op : topological_) {
    for (int e : space_.in_edges()[op]) {
      if (!crossed(e)) continue;
      const Edge& edge = space_.edges()[e].edge;
      const Crossing& crossing = crossings_[e];
      for (int part = 0; part < most_parts; ++part) {
        packing_[edge.producer][part] += crossing.packing[part];
        input_copies_[op][part] += crossing.input_copies[part];
        gradient_packing_[op][part] += crossing.gradient_packing[part];
        gradients_[edge.tensor][part].add(crossing.gradients[part]);
      }
    }
  }
  for (OperatorId op : topological_) add_open_copies(op);
  for (OperatorId op : topological_) {
    const Choice& choice = choices_[op];
    for (int part = 0; part < choice.parts; ++part) {
      fixed_[op].forward[part] =
          bounds_.forward_time(op, choice, part) +
          bounds_.copy_time(op, Direction::forward, choice, part, input_copies_[op][part], packing_[op][part]);
      if (!graph.operators[op].has_backward) continue;
      int64_t sums = gradient_copies_[op][part];
      for (TensorId tensor : graph.operators[op].outputs) sums += gradients_[tensor][part].copied_bytes();
      fixed_[op].backward[part] =
          bounds_.backward_time(op, choice, part) +
          bounds_.copy_time(op, Direction::backward, choice, part, sums, gradient_packing_[op][part]);
    }
  }
}

void PartialBounds::find_ends() {
  const Graph& graph = space_.graph();
  for (OperatorId op : topological_) {
    Fixed& here = fixed_[op];
    Parts ready{};
    for (int e : space_.in_edges()[op]) {
      if (!crossed(e)) continue;
      const Fixed& producer = fixed_[space_.edges()[e].edge.producer];
      const Crossing& crossing = crossings_[e];
      for (const Crossing::Pair& pair : crossing) {
        raise_to(ready[pair.consumer_part], producer.forward_end[pair.producer_part] + pair.forward);
      }
    }
    for (int p = 0; p < (*this)[op].parts; ++p) {
      here.forward_end[p] = std::max(ready[p] + here.forward[p], bounds_.head(op, (*this)[op].orbit, p));
      here.forward_ready[p] =
          space_.has_statistics(op, (*this)[op], Direction::forward) ? ready[p] : here.forward_end[p] - here.forward[p];
    }
  }
  for (auto it = topological_.rbegin(); it != topological_.rend(); ++it) {
    const OperatorId op = *it;
    if (!graph.operators[op].has_backward) continue;
    Fixed& here = fixed_[op];
    const Choice& choice = (*this)[op];
    Parts ready{};
    for (int back = 0; back < choice.parts; ++back)
      for (int part = 0; part < choice.parts; ++part)
        raise_to(ready[back], here.forward_end[part] + bounds_.round_trip(op, choice.orbit, part, back));
    for (int e : space_.out_edges()[op]) {
      const EdgeChoices& edge = space_.edges()[e];
      if (!fixed(edge.edge.consumer) || !edge.gradient) continue;
      const Fixed& consumer = fixed_[edge.edge.consumer];
      const Crossing& crossing = crossings_[e];
      for (const Crossing::Pair& pair : crossing) {
        raise_to(ready[pair.producer_part], consumer.backward_end[pair.consumer_part] + pair.backward);
      }
    }
    for (int p = 0; p < choice.parts; ++p) here.backward_end[p] = ready[p] + here.backward[p];
  }
}

void PartialBounds::find_tails() {
  find_update_tails();
  find_backward_tails();
  find_forward_tails();
}

void PartialBounds::find_update_tails() {
  complete_.clear();
  for (OperatorId op : topological_) fixed_[op].update_tail.fill(0);
  for (int g : groups_.indices()) {
    if (!space_.builder().groups()[g].trained || groups_[g].fixed < space_.builder().groups()[g].operators.size())
      continue;
    complete_.push_back(&units(g));
    for (const UnitBound& unit : *complete_.back()) {
      Nanoseconds longest = 0;
      for (const auto& [device, time] : unit.updates) raise_to(longest, time);
      for (const auto& [op, part] : unit.contributors) {
        raise_to(fixed_[op].update_tail[part], unit.all_reduce + longest);
      }
    }
  }
}

void PartialBounds::find_backward_tails() {
  for (OperatorId op : topological_) {
    if (!space_.graph().operators[op].has_backward) continue;
    Fixed& here = fixed_[op];
    const Choice& choice = (*this)[op];
    for (int part = 0; part < choice.parts; ++part)
      here.tail[part] = std::max(bounds_.tail(op, choice.orbit, part), here.update_tail[part]);
    for (int e : space_.in_edges()[op]) {
      const EdgeChoices& edge = space_.edges()[e];
      if (!edge.gradient || !fixed(edge.edge.producer)) continue;
      const Fixed& producer = fixed_[edge.edge.producer];
      const Crossing& crossing = crossings_[e];
      for (const Crossing::Pair& pair : crossing) {
        const int p = pair.producer_part;
        raise_to(here.tail[pair.consumer_part], pair.backward + producer.backward[p] + producer.tail[p]);
      }
    }
  }
}

void PartialBounds::find_forward_tails() {
  for (auto it = topological_.rbegin(); it != topological_.rend(); ++it) {
    const OperatorId op = *it;
    Fixed& here = fixed_[op];
    const Choice& choice = (*this)[op];
    for (int part = 0; part < choice.parts; ++part) {
      here.forward_tail[part] = bounds_.forward_tail(op, choice.orbit, part);
      if (!space_.graph().operators[op].has_backward) {
        raise_to(here.forward_tail[part], here.update_tail[part]);
        continue;
      }
      for (int back = 0; back < choice.parts; ++back)
        raise_to(here.forward_tail[part],
                 bounds_.round_trip(op, choice.orbit, part, back) + here.backward[back] + here.tail[back]);
    }
    for (int e : space_.out_edges()[op]) {
      const EdgeChoices& edge = space_.edges()[e];
      if (!fixed(edge.edge.consumer)) continue;
      const Fixed& consumer = fixed_[edge.edge.consumer];
      const Crossing& crossing = crossings_[e];
      for (const Crossing::Pair& pair : crossing) {
        const int q = pair.consumer_part;
        raise_to(here.forward_tail[pair.producer_part], pair.forward + consumer.forward[q] + consumer.forward_tail[q]);
      }
    }
  }
}

Nanoseconds PartialBounds::machine_bound(Nanoseconds longest, Nanoseconds enough) {
  const Graph& graph = space_.graph();
  for (Vector<MachineTask>& tasks : machine_tasks_) tasks.clear();
  released_.clear();
  const auto add = [&](int device, Nanoseconds head, Nanoseconds time, Nanoseconds tail) {
    machine_tasks_[device].push_back({head, time, tail});
    released_.push_back({head, static_cast<double>(time)});
  };
  for (OperatorId op : topological_) {
    const Fixed& here = fixed_[op];
    const Choice& choice = (*this)[op];
    for (int p = 0; p < choice.parts; ++p) {
      add(choice.devices[p], here.forward_ready[p], here.forward[p], here.forward_tail[p]);
      if (graph.operators[op].has_backward)
        add(choice.devices[p], here.backward_end[p] - here.backward[p], here.backward[p], here.tail[p]);
    }
  }
  for (const Vector<UnitBound>* units : complete_)
    for (const UnitBound& unit : *units) {
      Nanoseconds ready = 0;
      for (const auto& [op, part] : unit.contributors) raise_to(ready, end_of(op, part));
      for (const auto& [device, time] : unit.updates) add(device, ready + unit.all_reduce, time, 0);
    }
  for (OperatorId op : choices_.indices())
    if (!fixed(op))
      for (const OpenTask& task : bounds_.open_tasks(op)) released_.push_back(task);
  add_partly_fixed_groups();
  raise_to(longest, spread_bound(released_, space_.device_count()));
  for (Vector<MachineTask>& tasks : machine_tasks_) {
    if (longest >= enough) return longest;
    raise_to(longest, one_machine_bound(tasks));
  }
  return longest;
}

Nanoseconds PartialBounds::end_of(OperatorId op, int part) const {
  const Fixed& here = fixed_[op];
  return (space_.graph().operators[op].has_backward ? here.backward_end : here.forward_end)[part];
}

// Each device updates at least what the fixed operator with the most there holds.
void PartialBounds::add_partly_fixed_groups() {
  for (int g : groups_.indices()) {
    const ParameterGroup& group = space_.builder().groups()[g];
    if (!group.trained || !bounds_.shared(g) || groups_[g].fixed == group.operators.size()) continue;
    double sum = 0;
    Nanoseconds first = INT64_MAX;
    for (int device = 0; device < space_.device_count() && groups_[g].fixed > 0; ++device) {
      double most = 0;
      Nanoseconds head = 0;
      for (OperatorId op : group.operators) {
        if (!fixed(op)) continue;
        const double updates = bounds_.shared_update(op, (*this)[op], g, device);
        if (updates <= most) continue;
        most = updates;
        head = INT64_MAX;
        for (int part = 0; part < (*this)[op].parts; ++part)
          if ((*this)[op].devices[part] == device) head = std::min(head, end_of(op, part));
      }
      if (most <= 0) continue;
      sum += most;
      first = std::min(first, head);
      machine_tasks_[device].push_back({head, static_cast<Nanoseconds>(most), 0});
      released_.push_back({head, most});
    }
    const OpenTask& least = bounds_.open_update(g);
    if (least.work > sum) released_.push_back({std::min(first, least.head), least.work - sum});
  }
}

Nanoseconds PartialBounds::evaluate(Nanoseconds enough) {
  find_durations();
  find_ends();
  find_tails();
  Nanoseconds longest = 0;
  for (OperatorId op : topological_)
    for (int p = 0; p < (*this)[op].parts; ++p)
      raise_to(longest, fixed_[op].forward_end[p] + fixed_[op].forward_tail[p]);
  return longest >= enough ? longest : machine_bound(longest, enough);
}

Nanoseconds PartialBounds::glance(OperatorId op, const Choice& choice) {
  Nanoseconds longest = 0;
  Crossing crossing;
  for (int e : space_.in_edges()[op]) {
    const EdgeChoices& edge = space_.edges()[e];
    if (!fixed(edge.edge.producer)) continue;
    const Choice& producer = (*this)[edge.edge.producer];
    const Fixed& before = fixed_[edge.edge.producer];
    bounds_.cross(e, producer, choice, crossing);
    Parts at_back;
    at_back.fill(no_path);
    for (const Crossing::Pair& pair : crossing) {
      const int q = pair.consumer_part;
      const Nanoseconds end = before.forward_end[pair.producer_part] + pair.forward +
                              bounds_.forward_time(op, choice, q) +
                              bounds_.copy_time(choice, q, crossing.input_copies[q]);
      raise_to(longest, end + bounds_.forward_tail(op, choice.orbit, q));
      if (edge.gradient)
        for (int back = 0; back < choice.parts; ++back)
          raise_to(at_back[back], end + bounds_.round_trip(op, choice.orbit, q, back));
    }
    if (!edge.gradient) continue;
    for (const Crossing::Pair& pair : crossing) {
      const int q = pair.consumer_part, p = pair.producer_part;
      raise_to(longest, at_back[q] + bounds_.backward_time(op, choice, pair.consumer_part) +
                            bounds_.copy_time(choice, pair.consumer_part, crossing.gradient_packing[q]) +
                            pair.backward + before.backward[p] + before.tail[p]);
    }
  }
  return longest;
}

}  // namespace ff::exhaustive
