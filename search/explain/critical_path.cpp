#include "search/explain/critical_path.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "common/name_patterns.h"
#include "search/simulator/full.h"
#include "search/simulator/take_task.h"

namespace ff {

std::string_view to_string(Wait wait) {
  switch (wait) {
    case Wait::nothing: return "nothing";
    case Wait::data: return "data";
    case Wait::device: return "device busy";
    case Wait::link: return "link busy";
  }
  return "";
}

namespace {

// The order in which the simulator took them: first in, first out by ready time. In an order of the plan's own a
// device's task also waits for the one before it.
Vector<int> tasks_as_taken(const TaskGraph& graph, const Timeline& timeline, bool fifo_order) {
  Vector<Nanoseconds> time = timeline.ready;
  if (!fifo_order) {
    std::map<DeviceId, Nanoseconds> ended;
    for (const int task : tasks_by_start(graph, timeline)) {
      if (!occupies_device(graph.tasks[task].kind)) continue;
      Nanoseconds& before = ended[graph.tasks[task].device];
      time[task] = std::max(time[task], before);
      before = timeline.end[task];
    }
  }
  Vector<int> taken(graph.tasks.size());
  std::iota(taken.begin(), taken.end(), 0);
  std::sort(taken.begin(), taken.end(), [&](int a, int b) {
    return std::tie(time[a], graph.tasks[a].key) < std::tie(time[b], graph.tasks[b].key);
  });
  return taken;
}

}  // namespace

TimelineCauses::TimelineCauses(const TaskGraph& graph, const TaskCosts& costs, const Timeline& timeline,
                               bool fifo_order)
    : causes_(graph.tasks.size()), slack_(graph.tasks.size()) {
  const Vector<int> taken = tasks_as_taken(graph, timeline, fifo_order);
  Vector<Nanoseconds> free_at(costs.resource_count, 0);
  Vector<int> user(costs.resource_count, -1);
  Vector<Nanoseconds> delays(costs.beside.size());  // of what a device computes next, for its work beside
  int last = -1;
  for (const int task : taken) {
    for (const auto& [resource, occupancy] : costs.uses_of(task)) {
      if (timeline.start[task] > timeline.ready[task] && free_at[resource] == timeline.start[task] &&
          causes_[task].wait != Wait::device)
        causes_[task] = {costs.is_device(resource) ? Wait::device : Wait::link, user[resource], resource};
      user[resource] = task;
    }
    for (const WorkBeside& beside : costs.beside_of(task)) {
      const Nanoseconds free = free_at[beside.device],
                        begin = work_begins(costs, timeline.ready[task], timeline.start[task]);
      delays[&beside - costs.beside.data()] =
          free_behind(free, begin, costs.duration[task], beside.work) - std::max(free, begin);
      if (free <= begin) user[beside.device] = task;  // else what it computes ends later
    }
    take_task(costs, task, timeline.ready[task], free_at);
    for (int32_t s = graph.successor_begin[task]; s < graph.successor_begin[task + 1]; ++s) {
      const int successor = graph.successors[s];
      if (timeline.end[task] == timeline.ready[successor] && timeline.start[successor] == timeline.ready[successor] &&
          causes_[successor].wait == Wait::nothing)
        causes_[successor] = {Wait::data, task, -1};
    }
    if (last < 0 || timeline.end[task] > timeline.end[last]) last = task;
  }
  for (int task = last; task >= 0; task = causes_[task].task) path_.push_back(task);
  std::reverse(path_.begin(), path_.end());
  // The latest start of what uses a resource next.
  Vector<Nanoseconds> next_start(costs.resource_count, std::numeric_limits<Nanoseconds>::max());
  for (auto task = taken.rbegin(); task != taken.rend(); ++task) {
    Nanoseconds latest = timeline.makespan - costs.duration[*task];
    for (int32_t s = graph.successor_begin[*task]; s < graph.successor_begin[*task + 1]; ++s) {
      const int successor = graph.successors[s];
      latest = std::min(latest, timeline.start[successor] + slack_[successor] - costs.duration[*task]);
    }
    for (const ResourceUse& use : costs.uses_of(*task))
      latest = std::min(latest, next_start[use.resource] - use.occupancy);
    for (const WorkBeside& beside : costs.beside_of(*task)) {
      Nanoseconds& next = next_start[beside.device];
      if (next < std::numeric_limits<Nanoseconds>::max()) next -= delays[&beside - costs.beside.data()];
      latest = std::min(latest, next);
    }
    for (const ResourceUse& use : costs.uses_of(*task)) next_start[use.resource] = latest;
    slack_[*task] = latest - timeline.start[*task];
  }
}

std::string subject_name(const TaskGraphBuilder& builder, const TaskGraph& tasks, int number) {
  const Task& task = tasks.tasks[number];
  const auto& operators = builder.graph().operators;
  if (task.op >= 0) return operators[task.op].name;
  if (task.kind == TaskKind::barrier) return "device " + std::to_string(task.device);
  if (task.unit >= 0) return builder.groups()[tasks.units[task.unit].group].name;
  const Edge& edge = builder.edges()[task.edge];
  return operators[edge.producer].name + "->" + operators[edge.consumer].name;
}

std::string without_numbers(const std::string& name) {
  std::string text;
  for (const char letter : name) {
    const bool digit = letter >= '0' && letter <= '9';
    if (!digit) text += letter;
    else if (text.empty() || text.back() != '#') text += '#';
  }
  return text;
}

std::string subject_key(const TaskGraphBuilder& builder, const TaskGraph& tasks, int number) {
  const OperatorId op = tasks.tasks[number].op;
  return without_numbers(subject_name(builder, tasks, number)) +
         (op < 0 ? "" : " " + builder.graph().operators[op].definition->type());
}

namespace {

// In the order in which people count: t9 before t10.
std::string joined_patterns(Vector<std::string> names) {
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return std::pair(a.size(), a) < std::pair(b.size(), b); });
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const Vector<std::string> patterns = name_patterns(names);
  std::string text;
  for (const int p : patterns.indices()) {
    if (p == 2) return text + ", ...";
    text += (p > 0 ? ", " : "") + patterns[p];
  }
  return text;
}

}  // namespace

std::string joined_names(Vector<std::string> names) {
  const std::string arrow = "->";
  Vector<std::string> producers, consumers;
  for (const std::string& name : names)
    if (const size_t at = name.find(arrow); at != std::string::npos) {
      producers.push_back(name.substr(0, at));
      consumers.push_back(name.substr(at + arrow.size()));
    }
  if (names.empty() || producers.size() < names.size()) return joined_patterns(std::move(names));
  return joined_patterns(std::move(producers)) + arrow + joined_patterns(std::move(consumers));
}

Vector<PathPiece> path_pieces(const TaskGraphBuilder& builder, const TaskGraph& tasks, const TaskCosts& costs,
                              const Timeline& timeline, const TimelineCauses& causes, const LinkKinds& links) {
  Vector<PathPiece> pieces;
  const Vector<int>& path = causes.critical_path();
  for (const int place : path.indices()) {
    const int task = path[place];
    const TaskKind kind = tasks.tasks[task].kind;
    const int link = occupies_device(kind) ? -1 : links.binding_kind(costs, task);
    const std::string name = subject_name(builder, tasks, task);
    std::string key = subject_key(builder, tasks, task);
    if (pieces.empty() || pieces.back().kind != kind || pieces.back().link_kind != link || pieces.back().key != key)
      pieces.push_back(
          {.key = std::move(key), .kind = kind, .link_kind = link, .names = {}, .begin = timeline.start[task]});
    PathPiece& piece = pieces.back();
    if (piece.names.empty() || piece.names.back() != name) piece.names.push_back(name);
    const bool is_last = place + 1 == path.count();
    const Nanoseconds time = (is_last ? timeline.makespan : timeline.start[path[place + 1]]) - timeline.start[task];
    ++piece.tasks;
    piece.time += time;
    const Wait wait = causes.of(task).wait;
    if (wait == Wait::data) piece.after_data += time;
    if (wait == Wait::device) piece.after_device += time;
    if (wait == Wait::link) piece.after_link += time;
  }
  return pieces;
}

Vector<PathPiece> merged_pieces(const Vector<PathPiece>& pieces) {
  std::map<std::tuple<std::string, TaskKind, int>, int> known;
  Vector<PathPiece> merged;
  for (const PathPiece& piece : pieces) {
    const auto [it, added] = known.try_emplace({piece.key, piece.kind, piece.link_kind}, merged.count());
    if (added) {
      merged.push_back(piece);
      continue;
    }
    PathPiece& same = merged[it->second];
    same.names.insert(same.names.end(), piece.names.begin(), piece.names.end());
    same.tasks += piece.tasks;
    same.time += piece.time;
    same.after_data += piece.after_data;
    same.after_device += piece.after_device;
    same.after_link += piece.after_link;
  }
  std::stable_sort(merged.begin(), merged.end(),
                   [](const PathPiece& a, const PathPiece& b) { return a.time > b.time; });
  return merged;
}

}  // namespace ff
