// A pipeline as people draw it: devices down, time across, the numbers of micro-batches in the boxes.
#include <algorithm>
#include <map>
#include <tuple>

#include "common/micro_batches.h"
#include "common/number_ranges.h"
#include "common/readable.h"
#include "search/report/html/sections.h"

namespace ff::html {
namespace {

enum class PipelinePhase : uint8_t { forward, recompute, backward };
constexpr const char* phase_colors[] = {"#9fc3e8", "#c9b3dd", "#2f5f93"};
constexpr const char* update_tail_color = "#9a9a9a";

// What a device computes without a pause: of one micro-batch, in one phase. -1: of all micro-batches, the update.
struct PipelineBox {
  Nanoseconds begin, end;
  int micro_batch;
  PipelinePhase phase;
  auto key() const { return std::tuple(begin, end, micro_batch, static_cast<int>(phase)); }
};

PipelinePhase phase_of(TaskKind kind) {
  if (kind == TaskKind::recompute) return PipelinePhase::recompute;
  return direction_of(kind) == Direction::forward ? PipelinePhase::forward : PipelinePhase::backward;
}

// By device; neighbours that belong together are one where less than `pause` is between them.
Vector<Vector<PipelineBox>> pipeline_boxes(const Analysis& analysis, Nanoseconds pause) {
  const Evaluator::Details& details = analysis.details;
  const Graph& graph = analysis.problem().whole();
  const int micro_batches = analysis.problem().settings.micro_batches;
  Vector<Vector<PipelineBox>> boxes(analysis.problem().topology.devices.size());
  for (const int t : details.tasks.tasks.indices()) {
    const Task& task = details.tasks.tasks[t];
    if (!occupies_device(task.kind) || task.kind == TaskKind::barrier) continue;
    int micro_batch = -1;
    if (is_compute(task.kind)) {
      const OperatorDefinition& definition = *graph.operators[task.op].definition;
      const int64_t parts = analysis.strategy[task.op].parts() * (has_micro_batches(definition) ? micro_batches : 1);
      micro_batch = micro_batch_of(definition, parts, task.part, micro_batches);
      if (micro_batch < 0) continue;  // a table of positions, and the like: next to nothing
    }
    const Nanoseconds begin = details.timeline.start[t];
    boxes[task.device].push_back({begin, details.timeline.end[t], micro_batch, phase_of(task.kind)});
  }
  for (Vector<PipelineBox>& of_device : boxes) {
    std::sort(of_device.begin(), of_device.end(),
              [](const PipelineBox& a, const PipelineBox& b) { return a.key() < b.key(); });
    Vector<PipelineBox> joined;
    for (const PipelineBox& box : of_device)
      if (!joined.empty() && joined.back().micro_batch == box.micro_batch && joined.back().phase == box.phase &&
          box.begin - joined.back().end <= pause)
        joined.back().end = std::max(joined.back().end, box.end);
      else joined.push_back(box);
    of_device = std::move(joined);
  }
  return boxes;
}

struct PipelineRow {
  Vector<int64_t> devices;  // that do the same at the same time
  const Vector<PipelineBox>* boxes;
};

Vector<PipelineRow> pipeline_rows(const Vector<Vector<PipelineBox>>& boxes) {
  Vector<PipelineRow> rows;
  std::map<Vector<std::tuple<Nanoseconds, Nanoseconds, int, int>>, int> known;
  for (const int device : boxes.indices()) {
    Vector<std::tuple<Nanoseconds, Nanoseconds, int, int>> keys;
    for (const PipelineBox& box : boxes[device]) keys.push_back(box.key());
    const auto [at, added] = known.try_emplace(std::move(keys), rows.count());
    if (added) rows.push_back({{}, &boxes[device]});
    rows[at->second].devices.push_back(device);
  }
  return rows;
}

double idle_share(const PipelineRow& row, Nanoseconds makespan) {
  Nanoseconds busy = 0;
  for (const PipelineBox& box : *row.boxes) busy += box.end - box.begin;
  return 1 - fraction(busy, makespan);
}

}  // namespace

std::string pipeline_section(const Analysis& analysis) {
  if (analysis.problem().settings.micro_batches < 2) return "";
  constexpr int most_pipeline_rows = 32;
  const double row = 26, top = 4, letter = 6.5;
  const Axis axis{210, page_width - 300, ms(analysis.makespan()), "time in ms"};
  const auto pixel = static_cast<Nanoseconds>(1e6 * axis.most / axis.width);
  const Vector<Vector<PipelineBox>> boxes = pipeline_boxes(analysis, pixel);
  const Vector<PipelineRow> rows = pipeline_rows(boxes);
  const int shown = std::min(rows.count(), most_pipeline_rows);
  const double bottom = top + shown * row;
  Svg svg(page_width, bottom + Axis::height);
  axis.draw(svg, top, bottom);
  bool recomputes = false;
  for (int place = 0; place < shown; ++place) {
    const PipelineRow& one = rows[static_cast<int>(static_cast<int64_t>(place) * rows.count() / shown)];
    const double y = top + place * row;
    const std::string name = (one.devices.size() == 1 ? "device " : "devices ") + number_ranges(one.devices);
    svg.text(202, y + 16, clipped(name, 32), Svg::Anchor::end);
    svg.rectangle(axis.left, y + 2, axis.width, row - 4, nothing_color);
    for (const PipelineBox& box : *one.boxes) {
      const double left = axis.at(ms(box.begin)), width = axis.at(ms(box.end)) - left;
      const bool update = box.micro_batch < 0, dark = box.phase == PipelinePhase::backward;
      const std::string number = std::to_string(box.micro_batch + 1);
      recomputes = recomputes || (box.phase == PipelinePhase::recompute && !update);
      svg.rectangle(left, y + 2, std::max(0.5, width - 1), row - 4,
                    update ? update_tail_color : phase_colors[static_cast<int>(box.phase)],
                    (update ? "" : "micro-batch " + number + ", ") + time_text(box.end - box.begin));
      if (!update && width >= letter * static_cast<double>(number.size()) + 2)
        svg.text(left + (width - 1) / 2, y + 17, number, Svg::Anchor::middle, dark ? "fill:#fff" : "");
    }
    svg.text(axis.left + axis.width + 8, y + 16, "idle " + percent(idle_share(one, analysis.makespan())));
  }
  Vector<LegendEntry> entries = {{phase_colors[0], "forward"}};
  if (recomputes) entries.push_back({phase_colors[1], "recomputation"});
  for (const LegendEntry& entry : {LegendEntry{phase_colors[2], "backward"}, LegendEntry{update_tail_color, "update"},
                                   LegendEntry{nothing_color, "idle: bubbles"}})
    entries.push_back(entry);
  return "<h2>The pipeline</h2>\n<p class=\"note\">The numbers are those of the micro-batches, of which " +
         std::to_string(analysis.problem().settings.micro_batches) +
         " pass through the devices. Devices that do the same at the same time are one row" +
         (shown < rows.count()
              ? "; " + std::to_string(shown) + " of " + std::to_string(rows.count()) + " rows are shown"
              : "") +
         ".</p>\n" + legend(entries) + svg.str();
}

}  // namespace ff::html
