// Why an iteration takes as long as it does: what each task of a simulated timeline waits for, and the chain of these
// waits that ends with the last task.
#pragma once

#include <string>

#include "common/task_graph/task_graph.h"
#include "search/explain/link_kinds.h"
#include "search/simulator/timeline.h"

namespace ff {

// A task starts when the last of three things has happened: its data is there, its device is free, its links are.
enum class Wait : uint8_t { nothing, data, device, link };
std::string_view to_string(Wait wait);

struct Cause {
  Wait wait = Wait::nothing;
  int32_t task = -1;      // that brought the data, or occupied the device or link until then
  int32_t resource = -1;  // device or link: which (numbers as in duration.h)
};

// Follows tasks in the order in which the simulator took them. By task.
class TimelineCauses {
 public:
  // fifo_order: devices take tasks as these become ready; else in an order of the plan's own, in which they start.
  TimelineCauses(const TaskGraph& tasks, const TaskCosts& costs, const Timeline& timeline, bool fifo_order);

  const Cause& of(int task) const { return causes_[task]; }
  // How much later the task could start without making the iteration longer, if every resource kept its order of tasks.
  Nanoseconds slack(int task) const { return slack_[task]; }
  // From a task that starts at 0 to one that ends last. Each begins when the one before it lets it begin, so that the
  // times between their starts add up to the iteration.
  const Vector<int>& critical_path() const { return path_; }

 private:
  Vector<Cause> causes_;
  Vector<Nanoseconds> slack_;
  Vector<int> path_;
};

// What people call the work of a task: its operator, the two ends of its edge, its parameters.
std::string subject_name(const TaskGraphBuilder& builder, const TaskGraph& tasks, int task);
// Names with their numbers taken out: layers that repeat have the same.
std::string without_numbers(const std::string& name);
// Equal for tasks of operators that have the same name, but for numbers, and type; of edges and parameters by name.
std::string subject_key(const TaskGraphBuilder& builder, const TaskGraph& tasks, int task);
// "layer[0-23].norm"; several patterns with commas, and "..." where there are more than two.
std::string joined_names(Vector<std::string> names);

// Consecutive tasks of the path with the same subject_key and kind.
struct PathPiece {
  std::string key;
  TaskKind kind;
  int link_kind = -1;  // what moves data: the kind of the link that it occupies longest
  Vector<std::string> names;
  int64_t tasks = 0;
  Nanoseconds begin = 0, time = 0;  // of the path
  // How much of the time is of tasks that began when ...
  Nanoseconds after_data = 0, after_device = 0, after_link = 0;
};
Vector<PathPiece> path_pieces(const TaskGraphBuilder& builder, const TaskGraph& tasks, const TaskCosts& costs,
                              const Timeline& timeline, const TimelineCauses& causes, const LinkKinds& links);
// The same, wherever on the path; the longest first.
Vector<PathPiece> merged_pieces(const Vector<PathPiece>& pieces);

}  // namespace ff
