#include "search/report/html/measured.h"

#include <algorithm>
#include <cmath>

#include "common/json_file.h"
#include "common/task_graph/issue_order.h"
#include "search/report/html/sections.h"
#include "search/report/html/svg.h"

namespace ff::html {
namespace {

Nanoseconds from_us(double us) { return static_cast<Nanoseconds>(std::llround(us * 1e3)); }

constexpr double most_us = 1e15;

// The names that compute tasks of the strategy and of the trace share.
void expect_same_tasks(const Analysis& analysis, const MeasuredIteration& measured) {
  const TaskGraph& tasks = analysis.details.tasks;
  for (const int task : tasks.tasks.indices())
    if (is_compute(tasks.tasks[task].kind) &&
        !measured.computing.contains(task_name(analysis.evaluator.builder(), tasks, task)))
      throw InputError(measured.path + ": has no task " + task_name(analysis.evaluator.builder(), tasks, task) +
                       ", which this strategy has: is it of another strategy's iteration?");
}

struct Compared {
  std::string name;
  TaskKind kind;
  Vector<std::string> names;
  Nanoseconds predicted = 0, measured = 0;
};

// Computing tasks by operator (alike ones as one) and kind; those whose times differ most first.
Vector<Compared> compared_operators(const Analysis& analysis, const MeasuredIteration& measured) {
  const TaskGraphBuilder& builder = analysis.evaluator.builder();
  const TaskGraph& tasks = analysis.details.tasks;
  std::map<std::pair<std::string, TaskKind>, Compared> found;
  for (const int task : tasks.tasks.indices()) {
    const TaskKind kind = tasks.tasks[task].kind;
    if (!is_compute(kind) && kind != TaskKind::update) continue;
    const auto time = measured.computing.find(task_name(builder, tasks, task));
    if (time == measured.computing.end()) continue;  // an update that an all-reduce did
    const std::string subject = subject_name(builder, tasks, task);
    Compared& row = found[{subject_key(builder, tasks, task), kind}];
    row.kind = kind;
    if (row.names.empty() || row.names.back() != subject) row.names.push_back(subject);
    row.predicted += analysis.details.costs.duration[task];
    row.measured += time->second;
  }
  Vector<Compared> rows;
  for (auto& [key, row] : found) {
    row.name = joined_names(row.names);
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Compared& a, const Compared& b) {
    return std::abs(a.measured - a.predicted) > std::abs(b.measured - b.predicted);
  });
  return rows;
}

struct Bar {
  const char* what;
  Nanoseconds computing, moving, idle;
};

constexpr const char* moving_color = "#e08a2c";

// Two bars per device: what was predicted, and what was measured.
std::string device_bars(const Analysis& analysis, const MeasuredIteration& measured) {
  const Topology& topology = analysis.problem().topology;
  const int count = topology.devices.count(), shown = std::min(count, 16);
  const Vector<DeviceTime> times = device_times(analysis.details, analysis.causes, analysis.links, count);
  const double row = 34, top = 4;
  const Axis axis{230, page_width - 260, ms(std::max(analysis.makespan(), measured.time)), "time in ms"};
  Svg svg(page_width, top + shown * row + Axis::height);
  for (int place = 0; place < shown; ++place) {
    const int device = static_cast<int>(static_cast<int64_t>(place) * count / shown);  // evenly spaced
    const DeviceTime& time = times[device];
    Nanoseconds links = 0;
    for (const Nanoseconds link : time.links) links += link;
    const MeasuredIteration::Rank& rank = measured.ranks[device];
    const Bar bars[] = {{"predicted", time.computing, links, time.others + time.nothing_to_do},
                        {"measured", rank.computing, rank.moving,
                         std::max<Nanoseconds>(0, measured.time - rank.computing - rank.moving)}};
    double y = top + place * row;
    svg.text(142, y + 18, clipped(std::to_string(device) + " " + topology.devices[device].name, 20), Svg::Anchor::end);
    for (const Bar& bar : bars) {
      svg.text(222, y + 11, bar.what, Svg::Anchor::end, "fill:#666");
      double reached = 0;
      const std::pair<const char*, Nanoseconds> parts[] = {
          {computing_color, bar.computing}, {moving_color, bar.moving}, {nothing_color, bar.idle}};
      for (const auto& [color, length] : parts) {
        svg.rectangle(axis.at(reached), y + 1, axis.at(ms(length)) - axis.left, 13, color, time_text(length));
        reached += ms(length);
      }
      y += 15;
    }
  }
  axis.draw(svg, top + shown * row, top + shown * row + 2);
  return legend({{computing_color, "computing"},
                 {moving_color, "moving data, waiting for data"},
                 {nothing_color, "idle, or between tasks"}}) +
         svg.str();
}

}  // namespace

MeasuredIteration load_measured_iteration(const std::string& path, int device_count) {
  MeasuredIteration measured;
  measured.path = path;
  measured.ranks.resize(device_count);
  const JsonPlace file = read_json_file(path);
  file.expect_object();
  double first_us = most_us, last_us = 0;
  for (const JsonPlace& event : file.at("traceEvents").items()) {
    event.expect_object();
    if (event.at("ph").as_string() != "X") continue;
    const int64_t rank = event.at("pid").as_integer(0, INT32_MAX);
    if (rank >= device_count)
      event.fail("is of rank " + std::to_string(rank) + ", the strategy has " + std::to_string(device_count) +
                 " devices");
    const std::string activity = event.at("cat").as_string();
    if (activity == "transfer") continue;  // shown in a separate row
    const double begin_us = event.at("ts").as_number(-most_us, most_us), us = event.at("dur").as_number(0, most_us);
    first_us = std::min(first_us, begin_us);
    last_us = std::max(last_us, begin_us + us);
    if (activity == "compute" || activity == "update") {
      measured.ranks[rank].computing += from_us(us);
      measured.computing[event.at("name").as_string()] += from_us(us);
    } else if (activity == "copy" || activity == "wait" || activity == "send" || activity == "receive" ||
               activity == "all-reduce") {
      measured.ranks[rank].moving += from_us(us);
    } else {
      event.at("cat").fail("is \"" + activity + "\", which is nothing that ffexec does: a trace that ffexec --trace " +
                           "wrote is needed");
    }
  }
  if (last_us <= first_us) throw InputError(path + ": has no tasks: a trace that ffexec --trace wrote is needed");
  measured.time = from_us(last_us - first_us);
  return measured;
}

std::string measured_text(Nanoseconds predicted, Nanoseconds measured) {
  const double error = 100 * (static_cast<double>(predicted) / static_cast<double>(measured) - 1);
  return "measured " + time_text(measured) + ", predicted " + time_text(predicted) + " (" + (error < 0 ? "" : "+") +
         fixed(error, 1) + "\u00a0%)";
}

std::string measured_section(const Analysis& analysis, const MeasuredIteration& measured) {
  expect_same_tasks(analysis, measured);
  Vector<Vector<std::string>> rows = {{"operators", "task", "predicted", "measured", "measured / predicted"}};
  const Vector<Compared> compared = compared_operators(analysis, measured);
  for (const int c : compared.indices()) {
    if (c == 12) break;
    const Compared& row = compared[c];
    rows.push_back(
        {escaped(clipped(row.name, 60)), std::string(to_string(row.kind)), time_text(row.predicted),
         time_text(row.measured),
         row.predicted == 0 ? "" : fixed(static_cast<double>(row.measured) / static_cast<double>(row.predicted), 2)});
  }
  return "<h2>Predicted and measured</h2>\n<p>One iteration, as ffexec traced it: " +
         escaped(measured_text(analysis.makespan(), measured.time)) +
         ". Iterations differ from each other: this is one, not their median.</p>\n" + device_bars(analysis, measured) +
         "<p>Computing on all devices, by operator; the largest differences first:</p>\n" + table(rows, {2, 3, 4});
}

}  // namespace ff::html
