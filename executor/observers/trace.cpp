#include "executor/observers/trace.h"

#include <algorithm>
#include <map>

#include "executor/transport/control_data.h"

namespace ff {
namespace {

struct RankEvents {
  std::string host;
  Vector<Event> events;
};

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
  for (const std::string& host : transport.gather(transport.host())) ranks.push_back({host, {}});
  const Vector<std::string> all = transport.gather(to_bytes(events));
  for (size_t r = 0; r < all.size(); ++r) ranks[r].events = from_bytes<Event>(all[r]);
  if (transport.rank() != 0) return "";
  int64_t zero_ns = INT64_MAX;
  for (const RankEvents& rank : ranks)
    if (!rank.events.empty()) zero_ns = std::min(zero_ns, first_begin(rank) - clock_offset_ns(rank, ranks[0]));
  Json list = Json::array();
  std::map<int, double> sent_us;                  // by transfer task: when its sender started it
  std::map<int, std::pair<int, double>> arrived;  // by transfer task: receiver, time
  for (int r = 0; r < static_cast<int>(ranks.size()); ++r) {
    list.push_back(row_name("process_name", r, 0, "rank " + std::to_string(r) + " (" + device_names[r] + ")"));
    list.push_back(row_name("thread_name", r, 0, "tasks"));
    list.push_back(row_name("thread_name", r, 1, "received transfers"));
    const int64_t offset_ns = zero_ns + clock_offset_ns(ranks[r], ranks[0]);
    for (const Event& event : ranks[r].events) {
      const double begin_us = static_cast<double>(event.begin_ns - offset_ns) * 1e-3;
      const double end_us = static_cast<double>(event.end_ns - offset_ns) * 1e-3;
      if (is_transfer(program.tasks().tasks[event.task].kind)) {
        if (event.activity == Activity::send) sent_us[event.task] = begin_us;
        if (event.activity == Activity::wait) arrived[event.task] = {r, end_us};
      }
      list.push_back(
          complete_event(program.task_name(event.task), category(event.activity), r, 0, begin_us, end_us - begin_us));
    }
  }
  for (const auto& [task, arrival] : arrived)
    if (const auto sent = sent_us.find(task); sent != sent_us.end() && sent->second <= arrival.second) {
      Json event = complete_event(program.task_name(task), "transfer", arrival.first, 1, sent->second,
                                  arrival.second - sent->second);
      event["args"] = {{"from", program.tasks().tasks[task].device}, {"bytes", program.tasks().tasks[task].bytes}};
      list.push_back(std::move(event));
    }
  return Json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(list)}}.dump() + "\n";
}

}  // namespace ff
