#include "executor/observers/trace.h"

#include <algorithm>
#include <map>
#include <set>

#include "common/task_graph/sharded_units.h"
#include "executor/transport/control_data.h"

namespace ff {
namespace {

// A task of a rank's program; other ranks do not know of it.
struct TracedTask {
  std::string name;
  bool transfer;
  DeviceId from;
  int64_t bytes;
  int micro_batch;  // -1: of none
};

struct RankEvents {
  std::string host;
  Vector<Event> events;
  std::map<int, TracedTask> tasks;  // of the events
};

std::string tasks_as_text(const Program& program, const Vector<Event>& events) {
  std::set<int> tasks;
  for (const Event& event : events) tasks.insert(event.task);
  Json list = Json::array();
  for (const int index : tasks) {
    const Task& task = program.tasks().tasks[index];
    list.push_back({index, program.task_name(index), is_transfer(task.kind), task.device, task.bytes,
                    micro_batch_of_task(program.builder(), program.strategy(), task)});
  }
  return list.dump();
}

std::map<int, TracedTask> tasks_from_text(const std::string& text) {
  std::map<int, TracedTask> tasks;
  for (const Json& task : Json::parse(text))
    tasks[task[0].get<int>()] = {task[1].get<std::string>(), task[2].get<bool>(), task[3].get<DeviceId>(),
                                 task[4].get<int64_t>(), task[5].get<int>()};
  return tasks;
}

const char* category(Activity activity) {
  switch (activity) {
    case Activity::compute: return "compute";
    case Activity::copy: return "copy";
    case Activity::wait: return "wait";
    case Activity::send: return "send";
    case Activity::receive: return "receive";
    case Activity::all_reduce: return "all-reduce";
    case Activity::update: return "update";
  }
  return "";
}

int64_t first_begin(const RankEvents& rank) { return rank.events.empty() ? 0 : rank.events[0].begin_ns; }

// Clocks of one host agree; on another host the iteration's begin is taken to be rank 0's.
int64_t clock_offset_ns(const RankEvents& rank, const RankEvents& rank0) {
  return rank.host == rank0.host ? 0 : first_begin(rank) - first_begin(rank0);
}

Json complete_event(const std::string& name, const std::string& category, int rank, int thread, double begin_us,
                    double duration_us) {
  return {{"name", name},  {"cat", category}, {"ph", "X"},         {"pid", rank},
          {"tid", thread}, {"ts", begin_us},  {"dur", duration_us}};
}

Json row_name(const char* what, int rank, int thread, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::string gather_trace(const Program& program, const Vector<Event>& events, const Vector<std::string>& device_names) {
  Transport& transport = program.transport();
  Vector<RankEvents> ranks;
  for (const std::string& host : transport.gather(transport.host())) ranks.push_back({host, {}, {}});
  const Vector<std::string> all = transport.gather(to_bytes(events));
  for (size_t r = 0; r < all.size(); ++r) ranks[r].events = from_bytes<Event>(all[r]);
  const Vector<std::string> tasks = transport.gather(tasks_as_text(program, events));
  for (size_t r = 0; r < tasks.size(); ++r) ranks[r].tasks = tasks_from_text(tasks[r]);
  if (transport.rank() != 0) return "";
  int64_t zero_ns = INT64_MAX;
  for (const RankEvents& rank : ranks)
    if (!rank.events.empty()) zero_ns = std::min(zero_ns, first_begin(rank) - clock_offset_ns(rank, ranks[0]));
  Json list = Json::array();
  struct Arrival {
    int receiver;
    double us;
    TracedTask task;
  };
  std::map<std::string, double> sent_us;   // by name of the transfer: when its sender started it
  std::map<std::string, Arrival> arrived;  // likewise
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    list.push_back(row_name("process_name", r, 0, "rank " + std::to_string(r) + " (" + device_names[r] + ")"));
    list.push_back(row_name("thread_name", r, 0, "tasks"));
    list.push_back(row_name("thread_name", r, 1, "received transfers"));
    const int64_t offset_ns = zero_ns + clock_offset_ns(ranks[r], ranks[0]);
    for (const Event& event : ranks[r].events) {
      const double begin_us = static_cast<double>(event.begin_ns - offset_ns) * 1e-3;
      const double end_us = static_cast<double>(event.end_ns - offset_ns) * 1e-3;
      const TracedTask& task = ranks[r].tasks.at(event.task);
      if (task.transfer && event.activity == Activity::send) sent_us[task.name] = begin_us;
      if (task.transfer && event.activity == Activity::wait) arrived[task.name] = {r, end_us, task};
      Json drawn = complete_event(task.name, category(event.activity), r, 0, begin_us, end_us - begin_us);
      if (task.micro_batch >= 0) drawn["args"] = {{"micro_batch", task.micro_batch}};
      list.push_back(std::move(drawn));
    }
  }
  for (const auto& [name, arrival] : arrived)
    if (const auto sent = sent_us.find(name); sent != sent_us.end() && sent->second <= arrival.us) {
      Json event = complete_event(name, "transfer", arrival.receiver, 1, sent->second, arrival.us - sent->second);
      event["args"] = {{"from", arrival.task.from}, {"bytes", arrival.task.bytes}};
      list.push_back(std::move(event));
    }
  return Json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(list)}}.dump() + "\n";
}

}  // namespace ff
