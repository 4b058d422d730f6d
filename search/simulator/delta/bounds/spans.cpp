#include "search/simulator/delta/bounds/spans.h"

#include <algorithm>
#include <limits>

#include "search/simulator/delta/bounds/paths.h"

namespace ff::delta {

Spans::Spans(const StrategyState& state)
    : state_(state), source_count_(2 * state.count() + 1), behind_(source_count_), before_(4 * state.count()),
      of_source_(source_count_), with_stage_(4 * state.count()), change_of_stage_(4 * state.count(), -1) {
  find_behind();
  const auto first_stage = [&](Direction direction, OperatorId op) {
    return stage_of(direction, op, state.may_have_statistics[op] != 0);
  };
  for (OperatorId op = 0; op < state.count(); ++op) {
    for (Direction direction : directions)
      if (state.may_have_statistics[op])
        before_[stage_of(direction, op, true)].push_back(stage_of(direction, op, false));
    Vector<int>&forward = before_[stage_of(Direction::forward, op, false)],
    &backward = before_[stage_of(Direction::backward, op, false)];
    if (state.has_backward(op)) forward.push_back(first_stage(Direction::backward, op));
    for (int e : state.out_edges[op])
      if (state.every_part_is_read[e]) forward.push_back(first_stage(Direction::forward, state.edge(e).consumer));
    for (int e : state.in_edges[op])
      if (state.edge_has_gradient[e] && state.every_part_reads[e])
        backward.push_back(first_stage(Direction::backward, state.edge(e).producer));
  }
}

// The first stages after each source, in an order in which each comes after all that it waits for: forward by
// operator, then backward in reverse.
void Spans::find_behind() {
  const int count = state_.count();
  if (std::none_of(state_.may_have_statistics.begin(), state_.may_have_statistics.end(),
                   [](uint8_t may) { return may != 0; }))
    return;
  Vector<uint8_t> reached;  // [source]
  for (int source = 0; source < source_count_; ++source) {
    const OperatorId first = source / 2;
    const bool all = source == source_count_ - 1, from_backward = !all && source % 2 != 0;
    if (!all && (!state_.may_have_statistics[first] || (from_backward && !state_.has_backward(first)))) continue;
    reached.assign(source_count_, 0);
    Vector<int>& behind = behind_[source];
    const auto reach = [&](Direction direction, OperatorId op) {
      reached[source_of(direction, op)] = 1;
      if (state_.may_have_statistics[op] && source_of(direction, op) != source)
        behind.push_back(stage_of(direction, op, true));
      behind.push_back(stage_of(direction, op, false));
    };
    const auto is_behind = [&](Direction direction, OperatorId op) {
      if (all || source_of(direction, op) == source) return true;
      if (direction == Direction::forward) {
        for (int e : state_.in_edges[op])
          if (state_.every_part_reads[e] && reached[source_of(Direction::forward, state_.edge(e).producer)])
            return true;
        return false;
      }
      if (reached[source_of(Direction::forward, op)]) return true;
      for (int e : state_.out_edges[op])
        if (state_.edge_has_gradient[e] && state_.every_part_is_read[e] &&
            reached[source_of(Direction::backward, state_.edge(e).consumer)])
          return true;
      return false;
    };
    if (!from_backward)
      for (OperatorId op = all ? 0 : first; op < count && behind.size() < stages_looked_at; ++op)
        if (is_behind(Direction::forward, op)) reach(Direction::forward, op);
    for (OperatorId op = from_backward ? first : count - 1; op >= 0 && behind.size() < stages_looked_at; --op)
      if (state_.has_backward(op) && is_behind(Direction::backward, op)) reach(Direction::backward, op);
  }
}

Nanoseconds Spans::behind_source(int source, const OperatorPaths& paths) const {
  Nanoseconds behind = 0;
  for (int s = of_source_[source].first; s < of_source_[source].second; ++s) {
    Nanoseconds least = std::numeric_limits<Nanoseconds>::max();
    for (int stage : spans_[s].last) least = std::min(least, paths.behind[stage]);
    behind = std::max(behind, spans_[s].longest + least);
  }
  return behind;
}

void Spans::choose(OperatorPaths& paths) {
  spans_.clear();
  for (auto& spans : with_stage_) spans.clear();
  std::fill(of_source_.begin(), of_source_.end(), std::pair{0, 0});
  const auto choose_behind = [&](Direction direction, OperatorId op) {
    if (!paths.has_joint_reduction[direction][op]) return;
    choose_from(source_of(direction, op), paths);
    paths.set_behind(direction, op, *this);
  };
  for (OperatorId op = 0; op < state_.count(); ++op) {
    paths.connect_backward(state_, op, *this);
    choose_behind(Direction::backward, op);
  }
  for (OperatorId op = state_.count(); op-- > 0;) {
    paths.connect_forward(state_, op, *this);
    choose_behind(Direction::forward, op);
  }
  choose_from(source_count_ - 1, paths);
  changed_of_span_.assign(spans_.size(), -1);
}

// The sets of the stages with the longest paths after them, from one to all of them: those with the largest bounds.
void Spans::choose_from(int source, const OperatorPaths& paths) {
  Vector<int> stages = behind_[source];
  std::stable_sort(stages.begin(), stages.end(), [&](int a, int b) { return paths.behind[a] > paths.behind[b]; });
  Vector<Nanoseconds> work(state_.topology.devices.size(), 0);
  Nanoseconds longest = 0;
  Vector<std::pair<Nanoseconds, int>> bounds;  // of so many of the stages
  for (int i : stages.indices()) {
    add_stage(stages[i], work, longest);
    bounds.push_back({longest + paths.behind[stages[i]], i + 1});
  }
  const size_t kept = std::min(spans_kept, bounds.size());
  std::partial_sort(bounds.begin(), bounds.begin() + static_cast<int64_t>(kept), bounds.end(), std::greater<>());
  of_source_[source].first = spans_.count();
  Vector<uint8_t> contained(with_stage_.size(), 0);
  for (size_t k = 0; k < kept; ++k) {
    const int number = spans_.count();
    Span& span = spans_.emplace_back();
    span.work.assign(state_.topology.devices.size(), 0);
    span.stages.assign(stages.begin(), stages.begin() + bounds[k].second);
    for (int stage : span.stages) {
      add_stage(stage, span.work, span.longest);
      with_stage_[stage].push_back(number);
      contained[stage] = 1;
    }
    for (int stage : span.stages) {
      const Vector<int>& next = before_[stage];
      if (std::none_of(next.begin(), next.end(), [&](int other) { return contained[other] != 0; }))
        span.last.push_back(stage);
    }
    for (int stage : span.stages) contained[stage] = 0;
  }
  of_source_[source].second = spans_.count();
}

void Spans::add_stage(int stage, Vector<Nanoseconds>& work, Nanoseconds& longest) const {
  const OperatorTasks& tasks = state_.tasks[stage / 4];
  const Direction direction = directions[stage / 2 % 2];
  const bool statistics = stage % 2 == 0;
  if (statistics && tasks.statistics[direction].empty()) return;
  for (size_t part = 0; part < tasks.parts.size(); ++part) {
    Nanoseconds& of_device = work[tasks.parts[part].device];
    of_device += statistics ? tasks.statistics[direction][part] : tasks.parts[part].duration[direction];
    longest = std::max(longest, of_device);
  }
}

void Spans::begin_change() {
  for (const StageChange& change : changes_) change_of_stage_[change.stage] = -1;
  for (const Changed& changed : changed_) changed_of_span_[changed.span] = -1;
  changes_.clear();
  changed_.clear();
}

Nanoseconds* Spans::change_of(int stage) {
  if (with_stage_[stage].empty()) return nullptr;
  if (change_of_stage_[stage] < 0) {
    change_of_stage_[stage] = static_cast<int>(changes_.size());
    StageChange& change = changes_.add();
    change.stage = stage;
    change.more.assign(state_.topology.devices.size(), 0);
  }
  return changes_[static_cast<size_t>(change_of_stage_[stage])].more.data();
}

void Spans::end_change() {
  for (const StageChange& change : changes_) {
    if (std::all_of(change.more.begin(), change.more.end(), [](Nanoseconds more) { return more == 0; })) continue;
    for (int s : with_stage_[change.stage]) {
      if (changed_of_span_[s] < 0) {
        changed_of_span_[s] = static_cast<int>(changed_.size());
        Changed& changed = changed_.add();
        changed.span = s;
        changed.longest_before = spans_[s].longest;
        changed.work = spans_[s].work;
      }
      Vector<Nanoseconds>& work = changed_[static_cast<size_t>(changed_of_span_[s])].work;
      for (size_t device = 0; device < work.size(); ++device) work[device] += change.more[device];
    }
  }
  for (const Changed& changed : changed_)
    spans_[changed.span].longest = *std::max_element(changed.work.begin(), changed.work.end());
}

void Spans::apply() {
  for (Changed& changed : changed_) std::swap(spans_[changed.span].work, changed.work);
  begin_change();
}

void Spans::undo() {
  for (const Changed& changed : changed_) spans_[changed.span].longest = changed.longest_before;
  begin_change();
}

}  // namespace ff::delta
