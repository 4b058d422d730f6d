#include "search/simulator/repetition.h"

#include <algorithm>
#include <unordered_map>

#include "common/task_graph/sharded_units.h"

namespace ff {

// Compares the states in which micro-batches begin.
class RepetitionSearch {
 public:
  RepetitionSearch(const RepetitionWatch& watch, const TaskGraph& tasks, const Dependencies& dependencies,
                   const Timeline& timeline)
      : watch_(watch), tasks_(tasks), dependencies_(dependencies), timeline_(timeline),
        tasks_of_(watch.begins_.count()) {
    for (const int task : tasks.tasks.indices())
      if (const int k = watch.micro_batch_[task]; k < 0) others_.push_back(task);
      else if (k < tasks_of_.count()) tasks_of_[k].push_back(task);
    for (Vector<int>& of_one : tasks_of_)
      std::sort(of_one.begin(), of_one.end(), [&](int a, int b) { return tasks.tasks[a].key < tasks.tasks[b].key; });
  }

  // Do all micro-batches have the same tasks?
  bool alike() const {
    const auto same = [&](int a, int b) { return prefix_of(tasks_.tasks[a].key) == prefix_of(tasks_.tasks[b].key); };
    return std::all_of(tasks_of_.begin(), tasks_of_.end(), [&](const Vector<int>& of_one) {
      return std::equal(of_one.begin(), of_one.end(), tasks_of_[0].begin(), tasks_of_[0].end(), same);
    });
  }

  // Does the last micro-batch begin as the one so many before it?
  bool repeats(int shift) const {
    const int last = tasks_of_.count() - 1;
    const Begin &a = watch_.begins_[last - shift], &b = watch_.begins_[last];
    if (b.taken - a.taken != shift * tasks_of_[0].count()) return false;
    for (const int resource : a.free_at.indices())
      if (std::max<Nanoseconds>(a.free_at[resource] - a.time, 0) !=
          std::max<Nanoseconds>(b.free_at[resource] - b.time, 0))
        return false;
    if (!std::all_of(others_.begin(), others_.end(), [&](int task) { return no_matter(task, a, b); })) return false;
    for (int k = 0; k <= last; ++k)
      for (const int place : tasks_of_[k].indices()) {
        const int task = tasks_of_[k][place];
        if (k < shift && (!taken(task, b) || matters(task, b))) return false;
        if (k + shift > last ? taken(task, a) : !same(task, a, tasks_of_[k + shift][place], b)) return false;
      }
    return true;
  }

 private:
  using Begin = RepetitionWatch::Begin;

  bool taken(int task, const Begin& at) const {
    const int32_t place = watch_.taken_[task];
    return place != RepetitionWatch::not_taken && place < at.taken;
  }

  // Of a task that was taken: is it a matter for what comes when it ends? Not where it has ended, and all of a
  // micro-batch that waited for it was taken.
  bool matters(int task, const Begin& at) const {
    if (timeline_.end[task] > at.time) return true;
    for (int32_t s = dependencies_.successor_begin[task]; s < dependencies_.successor_begin[task + 1]; ++s) {
      const int next = dependencies_.successors[s];
      if (watch_.micro_batch_[next] >= 0 && !taken(next, at)) return true;
    }
    return false;
  }

  // Of a task of no micro-batch.
  bool no_matter(int task, const Begin& a, const Begin& b) const {
    return taken(task, a) ? timeline_.end[task] <= a.time : !taken(task, b);
  }

  bool same(int first, const Begin& a, int second, const Begin& b) const {
    if (taken(first, a) != taken(second, b)) return false;
    if (!taken(first, a) || (!matters(first, a) && !matters(second, b))) return true;
    return timeline_.end[first] - a.time == timeline_.end[second] - b.time;
  }

  const RepetitionWatch& watch_;
  const TaskGraph& tasks_;
  const Dependencies& dependencies_;
  const Timeline& timeline_;
  Vector<Vector<int>> tasks_of_;  // [micro-batch], by key
  Vector<int> others_;
};

std::optional<Repetition> RepetitionWatch::found(const TaskGraph& tasks, const Dependencies& dependencies,
                                                 const Timeline& timeline) const {
  const int32_t count = 1 + *std::max_element(micro_batch_.begin(), micro_batch_.end());
  if (count < 2 || begins_.count() != count) return std::nullopt;
  const RepetitionSearch search(*this, tasks, dependencies, timeline);
  if (!search.alike()) return std::nullopt;
  for (int shift = 1; shift < count; ++shift)
    if (search.repeats(shift)) return Repetition{shift, begins_[count - 1].time - begins_[count - 1 - shift].time};
  return std::nullopt;
}

Vector<int32_t> micro_batches_of_tasks(const TaskGraphBuilder& builder, const Strategy& strategy,
                                       const TaskGraph& tasks) {
  if (builder.micro_batches() == 1) return Vector<int32_t>(tasks.tasks.size(), -1);
  Vector<ShardRounds> rounds;
  for (const int group : builder.groups().indices()) rounds.push_back(shard_rounds(builder, group));
  // Where an operator at one end is computed once for all micro-batches, the block is of the other end's.
  const auto between = [&](int e, int32_t producer_part, int32_t consumer_part) {
    const Edge& edge = builder.edges()[e];
    return std::max(micro_batch_of_part(builder, strategy, edge.producer, producer_part),
                    micro_batch_of_part(builder, strategy, edge.consumer, consumer_part));
  };
  const auto micro_batch_of = [&](const Task& task) {
    if (is_compute(task.kind)) return micro_batch_of_part(builder, strategy, task.op, task.part);
    if (task.pair) return between(task.edge, task.pair->producer_part, task.pair->consumer_part);
    if (is_edge_collective(task.kind)) {
      const Exchange& exchange = tasks.collectives[task.collective].exchange();
      return between(task.edge, exchange.producers[0], exchange.consumers[0]);
    }
    if (is_reduction(task.kind))
      return micro_batch_of_part(builder, strategy, task.op, tasks.reductions[task.reduction].parts[0]);
    if (!is_parameter_collective(task.kind) || rounds[tasks.units[task.unit].group].rounds == 1) return -1;
    if (task.kind == TaskKind::synchronization) return task.round;
    return task.before_op >= 0 ? task.round / 2 : -1;  // of updated shards, in the end
  };
  Vector<int32_t> result;
  result.reserve(tasks.tasks.size());
  for (const Task& task : tasks.tasks) result.push_back(micro_batch_of(task));
  return result;
}

bool copy_for_all(TaskGraph& tasks, const Vector<int32_t>& micro_batch, const FurtherMicroBatches& micro_batches) {
  std::unordered_map<TaskKey, int64_t> copied_for_two;
  for (const Task& task : micro_batches.of_two.tasks)
    if (occupies_device(task.kind)) copied_for_two.emplace(task.key, task.copy_bytes);
  for (const int t : tasks.tasks.indices()) {
    Task& task = tasks.tasks[t];
    if (micro_batch[t] >= 0 || !occupies_device(task.kind)) continue;
    const auto two = copied_for_two.find(task.key);
    if (two == copied_for_two.end()) return false;
    const int64_t more = task.copy_bytes - two->second;
    if (more % (micro_batches.few - 2) != 0) return false;
    task.copy_bytes += more / (micro_batches.few - 2) * micro_batches.further;
  }
  return true;
}

}  // namespace ff
