#include "search/report/trace.h"

#include <functional>
#include <string_view>

#include "common/task_graph/issue_order.h"
#include "common/task_graph/sharded_units.h"

namespace ff {
namespace {

// The events of a trace, written one after the other: a large plan has tens of millions.
class EventWriter {
 public:
  using Write = std::function<void(std::string_view)>;
  explicit EventWriter(const Write& write) : write_(write) { text_ = R"({"displayTimeUnit":"ms","traceEvents":[)"; }
  void add(const Json& event) {
    constexpr size_t at_once = 1 << 20;
    if (any_) text_ += ',';
    text_ += event.dump();
    any_ = true;
    if (text_.size() >= at_once) flush();
  }
  void finish() {
    text_ += "]}\n";
    flush();
  }

 private:
  void flush() {
    write_(text_);
    text_.clear();
  }
  const Write& write_;
  std::string text_;
  bool any_ = false;
};

// "node0.gpu0", with how many other devices it was simulated for; "" where another one was simulated for it.
std::string row_name(const Problem& problem, DeviceId device) {
  const std::string& name = problem.topology.devices[device].name;
  if (!problem.replicas) return name;
  const int64_t others = problem.replicas->count * problem.replicas->devices_alike(device) - 1;
  if (others < 0) return "";
  return others == 0 ? name : name + " and " + std::to_string(others) + " that do the same";
}

}  // namespace

void write_trace(const std::string& path, Evaluator& evaluator, const Evaluator::Details& details) {
  constexpr int devices = 0, links = 1, parameter_links = 2;
  const Topology& topology = evaluator.problem().topology;
  TaskGraphBuilder& builder = evaluator.builder();
  write_file_atomically(path, [&](const auto& write) {
    EventWriter events(write);
    const auto name_process = [&](int id, const std::string& name) {
      events.add({{"ph", "M"}, {"name", "process_name"}, {"pid", id}, {"args", {{"name", name}}}});
    };
    const auto name_row = [&](int process, int row, const std::string& name) {
      events.add({{"ph", "M"}, {"name", "thread_name"}, {"pid", process}, {"tid", row}, {"args", {{"name", name}}}});
    };
    name_process(devices, "devices");
    name_process(links, "links");
    if (details.costs.separate_parameters) name_process(parameter_links, "links, collectives of parameters");
    for (const DeviceId d : topology.devices.indices())
      if (const std::string name = row_name(evaluator.problem(), d); !name.empty()) name_row(devices, d, name);
    for (const ChannelId c : topology.channels.indices()) {
      name_row(links, c, topology.channel_name(c));
      if (details.costs.separate_parameters) name_row(parameter_links, c, topology.channel_name(c));
    }
    for (const int t : details.tasks.tasks.indices()) {
      const Task& task = details.tasks.tasks[t];
      for (const ResourceUse& use : details.costs.uses_of(t)) {
        const bool device = details.costs.is_device(use.resource);
        const bool of_parameters = !device && details.costs.is_parameter_channel(use.resource);
        Json event = {{"ph", "X"},
                      {"name", task_name(builder, details.tasks, t)},
                      {"cat", std::string(to_string(task.kind))},
                      {"pid", device          ? devices
                              : of_parameters ? parameter_links
                                              : links},
                      {"tid", device ? use.resource : details.costs.channel_of(use.resource)},
                      {"ts", to_us(details.timeline.start[t])},
                      {"dur", to_us(use.occupancy)}};
        if (task.bytes > 0) event["args"]["bytes"] = task.bytes;
        if (const int number = micro_batch_of_task(builder, details.strategy, task); number >= 0)
          event["args"]["micro_batch"] = number;
        events.add(event);
      }
    }
    events.finish();
  });
}

}  // namespace ff
