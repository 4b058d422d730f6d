#include "search/report/trace.h"

#include "common/task_graph/issue_order.h"
#include "common/task_graph/sharded_units.h"

namespace ff {

void write_trace(const std::string& path, const Topology& topology, TaskGraphBuilder& builder,
                 const Evaluator::Details& details) {
  Json events = Json::array();
  const auto name_process = [&](int id, const std::string& name) {
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", id}, {"args", {{"name", name}}}});
  };
  const auto name_row = [&](int process, int row, const std::string& name) {
    events.push_back(
        {{"ph", "M"}, {"name", "thread_name"}, {"pid", process}, {"tid", row}, {"args", {{"name", name}}}});
  };
  constexpr int devices = 0, links = 1, parameter_links = 2;
  name_process(devices, "devices");
  name_process(links, "links");
  if (details.costs.separate_parameters) name_process(parameter_links, "links, collectives of parameters");
  for (const DeviceId d : topology.devices.indices()) name_row(devices, d, topology.devices[d].name);
  for (const ChannelId c : topology.channels.indices()) {
    name_row(links, c, topology.channels[c].name);
    if (details.costs.separate_parameters) name_row(parameter_links, c, topology.channels[c].name);
  }
  for (size_t t = 0; t < details.tasks.tasks.size(); ++t) {
    const Task& task = details.tasks.tasks[t];
    for (const ResourceUse& use : details.costs.uses_of(static_cast<int>(t))) {
      const bool device = details.costs.is_device(use.resource);
      Json event = {{"ph", "X"},
                    {"name", task_name(builder, details.tasks, static_cast<int>(t))},
                    {"cat", std::string(to_string(task.kind))},
                    {"pid", device                                             ? devices
                            : details.costs.is_parameter_channel(use.resource) ? parameter_links
                                                                               : links},
                    {"tid", device ? use.resource : details.costs.channel_of(use.resource)},
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
