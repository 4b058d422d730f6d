#include "search/report/trace.h"

#include "common/task_graph/issue_order.h"
#include "common/task_graph/sharded_units.h"

namespace ff {

void write_trace(const std::string& path, const Topology& topology, TaskGraphBuilder& builder,
                 const Evaluator::Details& details) {
  const int32_t device_count = static_cast<int32_t>(topology.devices.size());
  Json events = Json::array();
  const auto name_process = [&](int id, const std::string& name) {
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", id}, {"args", {{"name", name}}}});
  };
  const auto name_row = [&](int process, int row, const std::string& name) {
    events.push_back(
        {{"ph", "M"}, {"name", "thread_name"}, {"pid", process}, {"tid", row}, {"args", {{"name", name}}}});
  };
  name_process(0, "devices");
  name_process(1, "links");
  for (int32_t d = 0; d < device_count; ++d) name_row(0, d, topology.devices[d].name);
  for (size_t c = 0; c < topology.channels.size(); ++c) name_row(1, static_cast<int>(c), topology.channels[c].name);
  for (size_t t = 0; t < details.tasks.tasks.size(); ++t) {
    const Task& task = details.tasks.tasks[t];
    for (const ResourceUse& use : details.costs.uses_of(static_cast<int>(t))) {
      const bool device = use.resource < device_count;
      Json event = {{"ph", "X"},
                    {"name", task_name(builder, details.tasks, static_cast<int>(t))},
                    {"cat", std::string(to_string(task.kind))},
                    {"pid", device ? 0 : 1},
                    {"tid", device ? use.resource : use.resource - device_count},
                    {"ts", to_us(details.timeline.start[t])},
                    {"dur", to_us(use.occupancy)}};
      if (task.bytes > 0) event["args"]["bytes"] = task.bytes;
      if (const int number = micro_batch_of_task(builder, details.strategy, task); number >= 0)
        event["args"]["micro_batch"] = number;
      events.push_back(std::move(event));
    }
  }
  write_file_atomically(path, Json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump() + "\n");
}

}  // namespace ff
