#include "search/report/html/sections.h"

#include <algorithm>
#include <map>

#include "common/number_ranges.h"
#include "common/readable.h"
#include "search/explain/decisions.h"

namespace ff::html {
namespace {

constexpr const char* update_color = "#7fa8cf";
constexpr const char* others_color = "#c9c9c9";

struct Part {
  std::string name, color;
  double value;
};

// One bar of parts, with its axis.
std::string stacked_bar(const Vector<Part>& parts, double most, const std::string& unit, double mark = 0) {
  const Axis axis{10, page_width - 40, std::max(most, 1e-9), unit};
  Svg svg(page_width, 40 + Axis::height);
  double reached = 0;
  for (const Part& part : parts) {
    svg.rectangle(axis.at(reached), 8, axis.at(reached + part.value) - axis.at(reached), 24, part.color,
                  part.name + ": " + fixed(part.value, 3));
    reached += part.value;
  }
  if (mark > 0) svg.line(axis.at(mark), 2, axis.at(mark), 38, "#c0392b", true);
  axis.draw(svg, 36, 38);
  Vector<LegendEntry> entries;
  for (const Part& part : parts)
    if (part.value > 0) entries.push_back({part.color, part.name});
  return legend(entries) + svg.str();
}

// What takes most of the critical path.
std::string bottleneck(const Analysis& analysis) {
  const Binding& bound = analysis.bound;
  const auto most = std::max_element(bound.links.begin(), bound.links.end());
  const Nanoseconds link = most == bound.links.end() ? 0 : *most, computing = bound.computing + bound.updates;
  const std::string link_text = link == 0 ? ""
                                          : "the links " + analysis.links.names()[most - bound.links.begin()] + " (" +
                                                percent(fraction(link, analysis.makespan())) + ")";
  const std::string computing_text = "computing (" + percent(fraction(computing, analysis.makespan())) + ")";
  std::string text = "Bottleneck: ";
  if (link > computing) text += link_text + ", then " + computing_text;
  else text += computing_text + (link == 0 ? "" : ", then " + link_text);
  text += ", as fractions of the critical path.";
  if (analysis.peak.fullness() > 0.9 && analysis.peak.fullness() <= 1)
    text += " Memory is nearly full: the fullest device uses " + percent(analysis.peak.fullness()) + " of it.";
  return text;
}

}  // namespace

Vector<LegendEntry> link_legend(const Analysis& analysis, const std::string& prefix) {
  Vector<bool> used(analysis.links.names().size(), false);
  for (const int task : analysis.details.tasks.tasks.indices())
    if (const int kind = analysis.links.binding_kind(analysis.details.costs, task); kind >= 0) used[kind] = true;
  Vector<LegendEntry> entries;
  for (const int kind : used.indices())
    if (used[kind]) entries.push_back({link_color(kind), prefix + analysis.links.names()[kind]});
  return entries;
}

std::string link_color(int link_kind) {
  static const Vector<std::string> colors = {"#e08a2c", "#b5432f", "#8e5ea2", "#4f9d69", "#a0822b", "#c76b98"};
  return link_kind < 0 ? computing_color : colors[link_kind % colors.count()];
}

std::string percent(double fraction) {
  return fixed(100 * fraction, fraction < 0.1 ? 1 : 0) + "\u00a0%";
}  // no line ends in front of %

namespace {

// What the plan decides for the network as a whole, where it is not the default.
std::string settings_sentence(const Problem& problem, const SearchReport& report) {
  std::string text;
  const auto add = [&](const std::string& setting) { text += (text.empty() ? " Settings: " : ", ") + setting; };
  if (report.micro_batches > 1)
    add(std::to_string(report.micro_batches) + " micro-batches" +
        (report.fifo_order ? "" : " in " + report.task_order + " order"));
  if (report.sharding != "none") add("sharding " + report.sharding);
  if (!report.overlaps_reductions) add("gradients reduced after backward");
  for (const int p : report.recompute.indices()) add((p == 0 ? "recomputation of " : "") + report.recompute[p]);
  if (report.precision != Precision::fp32) add("precision " + std::string(to_string(report.precision)));
  if (const auto& optimizer = problem.whole().optimizer; optimizer && optimizer->kind != OptimizerKind::sgd)
    add("optimizer " + std::string(to_string(optimizer->kind)));
  return text.empty() ? "" : text + ".";
}

}  // namespace

std::string verdict(const Analysis& analysis, const SearchReport& report) {
  const Problem& problem = analysis.problem();
  const double seconds = ms(analysis.makespan()) / 1e3;
  const double used = fraction_of_peak(problem, analysis.details.strategy, analysis.makespan());
  std::string text = "One training iteration of " + problem.graph.name + " with batch " +
                     std::to_string(problem.whole().batch_size) + " on " + problem.topology.name + " (" +
                     std::to_string(problem.topology.devices.size()) + " devices) is predicted to take " +
                     time_text(analysis.makespan()) + ": " +
                     fixed(static_cast<double>(problem.whole().batch_size) / seconds, 1) + " samples/s, " +
                     percent(used) + " of the devices' peak arithmetic";
  if (report.lower_bound > 0)
    text += ", " + fixed(fraction(analysis.makespan(), report.lower_bound), 2) +
            " times the lower bound that no plan can beat (" + time_text(report.lower_bound) + ")";
  text += ". " + bottleneck(analysis);
  const MemoryPeak& peak = analysis.peak;
  if (peak.fullness() > 1)
    text += " The plan exceeds device memory: device " + std::to_string(peak.device) + " needs " +
            bytes_text(peak.needed) + " of " + bytes_text(peak.capacity) + ".";
  else if (peak.capacity > 0)
    text += " The fullest device needs " + bytes_text(peak.needed) + " of " + bytes_text(peak.capacity) + " of memory.";
  text += settings_sentence(problem, report);
  return "<p class=\"verdict\">" + escaped(text) + "</p>\n";
}

namespace {

constexpr int most_groups = 80;

struct DimensionStyle {
  DimensionKind kind;
  const char *letter, *name, *color;
};
constexpr DimensionStyle dimension_styles[] = {
    {DimensionKind::sample, "S", "sample", "#3b6ea5"},
    {DimensionKind::attribute, "A", "attribute (length, height, ...)", "#4f9d69"},
    {DimensionKind::parameter, "P", "parameter (channel, head, ...)", "#e08a2c"},
    {DimensionKind::reduction, "R", "reduction (partial sums)", "#8e5ea2"}};

void draw_group(Svg& svg, double y, const Graph& graph, const Decision& group, int device_count) {
  const Operator& op = graph.operators[group.operators[0]];
  const std::string count = group.operators.size() > 1 ? " x" + std::to_string(group.operators.size()) : "";
  svg.text(4, y + 13, clipped(group.name, 44) + count);
  svg.text(330, y + 13, clipped(op.definition->type(), 22), Svg::Anchor::start, "fill:#666");
  double x = 470;
  for (const DimensionStyle& style : dimension_styles) {
    int64_t degree = 1;
    for (const int d : op.definition->dimensions().indices())
      if (op.definition->dimensions()[d].kind == style.kind) degree *= group.from.degrees[d];
    if (degree > 1) {
      svg.rectangle(x, y + 1, 56, 16, style.color, style.name + std::string(" ") + std::to_string(degree));
      svg.text(x + 28, y + 13, style.letter + std::string(" ") + std::to_string(degree), Svg::Anchor::middle,
               "fill:#fff");
    }
    x += 60;
  }
  const double left = 730, width = page_width - left - 10, each = width / device_count;
  svg.rectangle(left, y + 2, width, 14, nothing_color);
  Vector<int> parts(device_count, 0);
  for (const DeviceId device : group.from.devices) ++parts[device];
  for (int device = 0; device < device_count;) {
    int end = device + 1;
    while (end < device_count && parts[end] == parts[device]) ++end;
    if (parts[device] > 0)
      svg.rectangle(left + device * each, y + 2, (end - device) * each, 14, "#555",
                    std::to_string(parts[device]) + " part(s) on each of devices " + std::to_string(device) + " to " +
                        std::to_string(end - 1));
    device = end;
  }
}

}  // namespace

std::string plan_section(const Analysis& analysis) {
  const Graph& graph = analysis.problem().graph;
  const int device_count = analysis.problem().topology.devices.count();
  const Vector<Decision> groups = differences(graph, analysis.strategy, Strategy(analysis.strategy.size()));
  const int shown = std::min(groups.count(), most_groups);
  const double top = 24, row = 20;
  Svg svg(page_width, top + shown * row + Axis::height);
  svg.text(4, 14, "operators", Svg::Anchor::start, "font-weight:bold");
  svg.text(330, 14, "type", Svg::Anchor::start, "font-weight:bold");
  svg.text(470, 14, "number of parts by dimension", Svg::Anchor::start, "font-weight:bold");
  svg.text(730, 14, "on devices", Svg::Anchor::start, "font-weight:bold");
  for (int g = 0; g < shown; ++g) draw_group(svg, top + g * row, graph, groups[g], device_count);
  Axis{730, page_width - 740, static_cast<double>(device_count), "device (number)", 1}.draw(svg, top + shown * row,
                                                                                            top + shown * row + 2);
  Vector<LegendEntry> entries;
  for (const DimensionStyle& style : dimension_styles)
    entries.push_back({style.color, std::string(style.letter) + ": " + style.name});
  return "<h2>The plan</h2>\n<p class=\"note\">Repeated layers with the same configuration are one line, with "
         "their number after x. An operator without a coloured box is not split.</p>\n" +
         legend(entries) + svg.str() +
         (shown < groups.count() ? "<p class=\"note\">The first " + std::to_string(shown) + " of " +
                                       std::to_string(groups.count()) + " groups.</p>\n"
                                 : "");
}

std::string path_section(const Analysis& analysis) {
  Vector<Part> parts = {{"forward and backward", computing_color, ms(analysis.bound.computing)},
                        {"updates", update_color, ms(analysis.bound.updates)}};
  for (const int kind : analysis.bound.links.indices())
    parts.push_back(
        {"transfers over " + analysis.links.names()[kind], link_color(kind), ms(analysis.bound.links[kind])});
  Vector<Vector<std::string>> rows = {{"operators", "task", "over", "time", "fraction", "tasks"}};
  const Vector<PathPiece> merged = merged_pieces(analysis.pieces);
  for (const int p : merged.indices()) {
    if (p == 12) break;
    const PathPiece& piece = merged[p];
    rows.push_back({escaped(clipped(joined_names(piece.names), 60)), std::string(to_string(piece.kind)),
                    piece.link_kind < 0 ? "" : escaped(analysis.links.names()[piece.link_kind]), time_text(piece.time),
                    percent(fraction(piece.time, analysis.makespan())), std::to_string(piece.tasks)});
  }
  return "<h2>The critical path</h2>\n<p class=\"note\">The chain of tasks that determines the iteration time: each "
         "task starts when the one before it allows. A shorter iteration needs a shorter critical path.</p>\n" +
         stacked_bar(parts, ms(analysis.makespan()), "time in ms") + "<p>Its longest pieces:</p>\n" +
         table(rows, {3, 4, 5});
}

namespace {

constexpr const char* forward_color = "#6f9fd0";
constexpr const char* backward_color = "#2f5f93";

std::string task_color(const Analysis& analysis, int task) {
  const TaskKind kind = analysis.details.tasks.tasks[task].kind;
  if (is_compute(kind)) return direction_of(kind) == Direction::forward ? forward_color : backward_color;
  if (occupies_device(kind)) return "#9a9a9a";
  return link_color(analysis.links.binding_kind(analysis.details.costs, task));
}

// How much later a task could begin without making the iteration longer, in steps of its fraction of the iteration.
struct SlackStep {
  double most;
  const char *color, *name;
};
constexpr SlackStep slack_steps[] = {{0, "#d62728", "bar below: no slack, a delay makes the iteration longer"},
                                     {0.01, "#ee9c50", "bar below: slack of up to 1\u00a0% of the iteration"},
                                     {0.1, "#f3d98b", "up to 10\u00a0%"},
                                     {1, "#dcdcdc", "more"}};

int slack_step(const Analysis& analysis, int task) {
  const double slack = fraction(analysis.causes.slack(task), analysis.makespan());
  int step = 0;
  while (step < 3 && slack > slack_steps[step].most) ++step;
  return step;
}

// Rectangles of one resource; what is too near to be told apart is one.
void draw_uses(Svg& svg, const Axis& axis, double y, const Analysis& analysis, int resource) {
  struct Mark {
    Nanoseconds begin, end;
    std::string color;
    int step;           // of slack
    Nanoseconds slack;  // the least
  };
  const Evaluator::Details& details = analysis.details;
  Vector<Mark> marks;
  for (const int task : details.tasks.tasks.indices())
    for (const ResourceUse& use : details.costs.uses_of(task))
      if (use.resource == resource)
        marks.push_back({details.timeline.start[task], details.timeline.start[task] + use.occupancy,
                         task_color(analysis, task), slack_step(analysis, task), analysis.causes.slack(task)});
  std::sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) { return a.begin < b.begin; });
  const Nanoseconds pixel = static_cast<Nanoseconds>(1e6 * axis.most / axis.width / 2);
  for (int m = 0; m < marks.count();) {
    Mark mark = marks[m++];
    while (m < marks.count() && marks[m].color == mark.color && marks[m].step == mark.step &&
           marks[m].begin - mark.end < pixel) {
      mark.slack = std::min(mark.slack, marks[m].slack);
      mark.end = std::max(mark.end, marks[m++].end);
    }
    const double left = axis.at(ms(mark.begin)), width = axis.at(ms(mark.end)) - left;
    svg.rectangle(left, y, width, 16, mark.color);
    svg.rectangle(left, y + 17, width, 4, slack_steps[mark.step].color, "slack " + time_text(mark.slack));
  }
}

// Devices that the critical path runs through longest, and channels likewise.
Vector<int> shown_resources(const Analysis& analysis, bool devices, int most) {
  const TaskCosts& costs = analysis.details.costs;
  Vector<Nanoseconds> time(costs.resource_count, 0);
  for (const int task : analysis.causes.critical_path())
    for (const ResourceUse& use : costs.uses_of(task)) time[use.resource] += use.occupancy;
  Vector<int> resources;
  for (const int resource : time.indices())
    if (costs.is_device(resource) == devices && (devices || time[resource] > 0)) resources.push_back(resource);
  std::stable_sort(resources.begin(), resources.end(), [&](int a, int b) { return time[a] > time[b]; });
  if (resources.count() > most) resources.resize(most);
  std::sort(resources.begin(), resources.end());
  return resources;
}

std::string resource_name(const Topology& topology, const TaskCosts& costs, int resource) {
  if (costs.is_device(resource)) return "device " + std::to_string(resource) + " " + topology.devices[resource].name;
  return topology.channel_name(costs.channel_of(resource)) +
         (costs.is_parameter_channel(resource) ? ", parameters" : "");
}

}  // namespace

std::string timeline_section(const Analysis& analysis) {
  const Topology& topology = analysis.problem().topology;
  Vector<int> resources = shown_resources(analysis, true, 4);
  const Vector<int> channels = shown_resources(analysis, false, 4);
  resources.insert(resources.end(), channels.begin(), channels.end());
  const double row = 28, top = 6;
  const Axis axis{230, page_width - 260, ms(analysis.makespan()), "time in ms"};
  Svg svg(page_width, top + resources.count() * row + Axis::height);
  const double bottom = top + resources.count() * row;
  axis.draw(svg, top, bottom);
  for (const int r : resources.indices()) {
    svg.text(222, top + r * row + 13, clipped(resource_name(topology, analysis.details.costs, resources[r]), 36),
             Svg::Anchor::end);
    draw_uses(svg, axis, top + r * row, analysis, resources[r]);
  }
  Vector<LegendEntry> entries = {{forward_color, "forward"}, {backward_color, "backward"}, {"#9a9a9a", "update"}};
  for (const LegendEntry& entry : link_legend(analysis, "transfers over ")) entries.push_back(entry);
  for (const SlackStep& step : slack_steps) entries.push_back({step.color, step.name});
  return "<h2>Timeline</h2>\n<p class=\"note\">The devices and links that the critical path runs through longest."
         "</p>\n" +
         legend(entries) + svg.str();
}

namespace {

// Devices whose bars are equal, as one row.
struct DeviceRow {
  std::string name;
  Vector<Nanoseconds> lengths;  // of the bar's parts
  Vector<int64_t> devices;
};

constexpr int most_single_rows = 16;  // above, devices with equal bars are one row
constexpr int most_rows = 64;

// Lengths in tenths of a per cent of the iteration, so that what looks alike is equal.
Vector<DeviceRow> device_rows(const Analysis& analysis, const Vector<Vector<Nanoseconds>>& bars) {
  const Topology& topology = analysis.problem().topology;
  Vector<DeviceRow> rows;
  std::map<Vector<int64_t>, int> known;
  for (const int device : bars.indices()) {
    Vector<int64_t> key;
    for (const Nanoseconds length : bars[device])
      key.push_back(static_cast<int64_t>(1000 * fraction(length, analysis.makespan()) + 0.5));
    if (bars.count() <= most_single_rows) key.push_back(device);
    const auto [at, added] = known.try_emplace(std::move(key), rows.count());
    if (added) rows.push_back({topology.devices[device].name, bars[device], {}});
    rows[at->second].devices.push_back(device);
  }
  for (DeviceRow& row : rows)
    row.name = row.devices.size() == 1 ? std::to_string(row.devices[0]) + " " + row.name
                                       : std::to_string(row.devices.size()) + " devices: " + number_ranges(row.devices);
  return rows;
}

}  // namespace

std::string devices_section(const Analysis& analysis) {
  const int count = analysis.problem().topology.devices.count();
  const Vector<DeviceTime> times = device_times(analysis.details, analysis.causes, analysis.links, count);
  Vector<std::string> colors = {computing_color};
  for (const int kind : times[0].links.indices()) colors.push_back(link_color(kind));
  colors.insert(colors.end(), {others_color, nothing_color});
  Vector<Vector<Nanoseconds>> bars;
  for (const DeviceTime& time : times) {
    bars.push_back({time.computing});
    bars.back().insert(bars.back().end(), time.links.begin(), time.links.end());
    bars.back().insert(bars.back().end(), {time.others, time.nothing_to_do});
  }
  const Vector<DeviceRow> rows = device_rows(analysis, bars);
  const int shown = std::min(rows.count(), most_rows);
  const double row = shown > 16 ? 13 : 20, top = 4;
  const Axis axis{210, page_width - 240, ms(analysis.makespan()), "time in ms"};
  Svg svg(page_width, top + shown * row + Axis::height);
  for (int place = 0; place < shown; ++place) {
    const DeviceRow& shown_row = rows[static_cast<int>(static_cast<int64_t>(place) * rows.count() / shown)];
    const double y = top + place * row;
    svg.text(202, y + row - 3, clipped(shown_row.name, 32), Svg::Anchor::end);
    Nanoseconds reached = 0;
    for (const int part : shown_row.lengths.indices()) {
      const Nanoseconds length = shown_row.lengths[part];
      if (length > 0)
        svg.rectangle(axis.at(ms(reached)), y + 1, axis.at(ms(length)) - axis.left, row - 2, colors[part],
                      time_text(length));
      reached += length;
    }
  }
  axis.draw(svg, top + shown * row, top + shown * row + 2);
  Vector<LegendEntry> entries = {{computing_color, "computing"}};
  for (const LegendEntry& entry : link_legend(analysis, "waiting for data over ")) entries.push_back(entry);
  entries.push_back({others_color, "idle: waiting for another device to compute"});
  entries.push_back({nothing_color, "idle: before its first and after its last task"});
  std::string note;
  if (rows.count() < count) note = "Devices with equal times, to 0.1\u00a0% of the iteration, are one row. ";
  if (shown < rows.count())
    note += std::to_string(shown) + " of " + std::to_string(rows.count()) + " rows, evenly spaced.";
  return "<h2>What each device does</h2>\n" + legend(entries) + svg.str() +
         (note.empty() ? "" : "<p class=\"note\">" + note + "</p>\n");
}

std::string memory_section(const Analysis& analysis) {
  static const Vector<std::string> colors = {"#3b6ea5", "#4f9d69", "#e08a2c", "#b5432f", "#8e5ea2",
                                             "#a0822b", "#c76b98", "#7fa8cf", "#5b8c85", "#bbb"};
  const MemoryPeak& peak = analysis.peak;
  // Where most of the memory is free, what is used fills the chart.
  const bool mostly_free = peak.capacity == 0 || peak.fullness() < 0.2;
  const double scale = peak.needed < 1000000000 && mostly_free ? 1e6 : 1e9;
  const std::string unit = std::string("memory in ") + (scale < 1e9 ? "MB" : "GB");
  Vector<Part> parts;
  for (const int k : peak.kinds.indices())
    parts.push_back({peak.kinds[k].name, colors[k % colors.count()], static_cast<double>(peak.kinds[k].bytes) / scale});
  const double capacity = static_cast<double>(peak.capacity) / scale;
  std::string text = "Device " + std::to_string(peak.device) + " (" +
                     analysis.problem().topology.devices[peak.device].name + ") is the fullest: it needs " +
                     bytes_text(peak.needed);
  if (peak.capacity > 0)
    text += " of " + bytes_text(peak.capacity) +
            (peak.needed <= peak.capacity ? ", which leaves " + bytes_text(peak.capacity - peak.needed)
                                          : ": " + bytes_text(peak.needed - peak.capacity) + " too much");
  text += ". The peak is during " + (peak.task.empty() ? "the end of the iteration" : peak.task) + ".";
  Vector<Vector<std::string>> kinds = {{"in memory at the peak", "bytes"}},
                              largest = {{"largest temporary buffers", "bytes"}};
  for (const MemoryItem& item : peak.kinds)
    if (item.bytes > 0) kinds.push_back({escaped(item.name), bytes_text(item.bytes)});
  for (const int i : peak.largest.indices())
    if (i < 8) largest.push_back({escaped(clipped(peak.largest[i].name, 80)), bytes_text(peak.largest[i].bytes)});
  return "<h2>Memory</h2>\n<p>" + escaped(text) + "</p>\n" +
         (mostly_free ? stacked_bar(parts, 1.02 * static_cast<double>(peak.needed) / scale, unit)
                      : stacked_bar(parts, 1.02 * std::max(capacity, static_cast<double>(peak.needed) / scale),
                                    unit + " (dashed: what the device has)", capacity)) +
         table(kinds, {1}) + table(largest, {1});
}

namespace {

Vector<std::string> use_cells(const CommunicationUse& use) {
  return {std::to_string(use.count), bytes_text(use.bytes), time_text(use.busy), time_text(use.exposed),
          time_text(std::max<Nanoseconds>(0, use.busy - use.exposed))};
}

}  // namespace

std::string communication_section(const Analysis& analysis) {
  const Communication found =
      communication(analysis.evaluator.builder(), analysis.details, analysis.pieces, analysis.links);
  if (found.by_kind.empty()) return "<h2>Communication</h2>\n<p>No data moves between devices.</p>\n";
  Nanoseconds most = 1;
  for (const auto& [key, use] : found.by_kind) most = std::max(most, use.busy);
  const double row = 22, top = 4;
  const int count = static_cast<int>(found.by_kind.size());
  const Axis axis{280, page_width - 310, ms(most), "time in ms"};
  Svg svg(page_width, top + count * row + Axis::height);
  Vector<Vector<std::string>> rows = {{"what", "over", "number", "bytes", "active", "exposed", "hidden"}};
  Vector<Vector<std::string>> layers = {{"layer", "number", "bytes", "active", "exposed", "hidden"}};
  int r = 0;
  for (const auto& [key, use] : found.by_kind) {
    const std::string link = analysis.links.names()[key.second], kind(to_string(key.first));
    const double y = top + row * r++, exposed = axis.at(ms(use.exposed)) - axis.left;
    svg.text(272, y + 15, clipped(kind + " over " + link, 46), Svg::Anchor::end);
    svg.rectangle(axis.left, y + 2, axis.at(ms(use.busy)) - axis.left, row - 4, "#d9d9d9", "active");
    if (use.exposed > 0) svg.rectangle(axis.left, y + 2, exposed, row - 4, link_color(key.second), "exposed");
    Vector<std::string> cells = {kind, escaped(link)};
    for (std::string& cell : use_cells(use)) cells.push_back(std::move(cell));
    rows.push_back(std::move(cells));
  }
  axis.draw(svg, top + count * row, top + count * row + 2);
  for (const int l : found.by_layer.indices()) {
    if (l == 12) break;
    Vector<std::string> cells = {escaped(clipped(found.by_layer[l].name, 60))};
    for (std::string& cell : use_cells(found.by_layer[l].use)) cells.push_back(std::move(cell));
    layers.push_back(std::move(cells));
  }
  Vector<LegendEntry> entries = link_legend(analysis, "exposed, over ");
  entries.push_back({"#d9d9d9", "hidden"});
  return "<h2>Communication</h2>\n<p class=\"note\">Time in which at least one transfer of the kind is active. "
         "Exposed: on the critical path. Hidden: the rest, which overlaps with computation or other transfers.</p>\n" +
         legend(entries) + svg.str() + table(rows, {2, 3, 4, 5, 6}) + "<p>By layer, the most exposed first:</p>\n" +
         table(layers, {1, 2, 3, 4, 5});
}

}  // namespace ff::html
