#include "search/report/html/analysis.h"

#include <algorithm>

namespace ff::html {
namespace {

// Adds what [from, until) in front of a task is: back along the chain of what each task waits for.
void explain_gap(int task, Nanoseconds from, Nanoseconds until, const Evaluator::Details& details,
                 const TimelineCauses& causes, const LinkKinds& links, DeviceTime& time) {
  while (until > from) {
    const int before = causes.of(task).task;
    if (before < 0) {
      time.nothing_to_do += until - from;
      return;
    }
    const Nanoseconds begin = std::max(from, details.timeline.start[before]);
    if (begin < until) {
      const int link = links.binding_kind(details.costs, before);
      if (occupies_device(details.tasks.tasks[before].kind) || link < 0) time.others += until - begin;
      else time.links[link] += until - begin;
      until = begin;
    }
    task = before;
  }
}

}  // namespace

Vector<DeviceTime> device_times(const Evaluator::Details& details, const TimelineCauses& causes, const LinkKinds& links,
                                int device_count) {
  struct Use {
    Nanoseconds begin, end;
    int task;
  };
  Vector<Vector<Use>> uses(device_count);
  for (const int task : details.tasks.tasks.indices())
    for (const ResourceUse& use : details.costs.uses_of(task))
      if (use.resource < device_count)
        uses[use.resource].push_back(
            {details.timeline.start[task], details.timeline.start[task] + use.occupancy, task});
  Vector<DeviceTime> times(device_count);
  for (const DeviceId device : uses.indices()) {
    DeviceTime& time = times[device];
    time.links.assign(links.names().size(), 0);
    std::sort(uses[device].begin(), uses[device].end(), [](const Use& a, const Use& b) { return a.begin < b.begin; });
    Nanoseconds reached = 0;
    for (const Use& use : uses[device]) {
      explain_gap(use.task, reached, use.begin, details, causes, links, time);
      const Nanoseconds length = use.end - std::max(reached, use.begin);
      const int link = links.binding_kind(details.costs, use.task);
      if (occupies_device(details.tasks.tasks[use.task].kind) || link < 0) time.computing += length;
      else time.links[link] += length;
      reached = use.end;
    }
    time.nothing_to_do += details.timeline.makespan - reached;
  }
  return times;
}

namespace {

using Intervals = Vector<std::pair<Nanoseconds, Nanoseconds>>;

Nanoseconds covered(Intervals& intervals) {
  std::sort(intervals.begin(), intervals.end());
  Nanoseconds sum = 0, reached = 0;
  for (const auto& [begin, end] : intervals) {
    if (end <= reached) continue;
    sum += end - std::max(begin, reached);
    reached = end;
  }
  return sum;
}

}  // namespace

Communication communication(const TaskGraphBuilder& builder, const Evaluator::Details& details,
                            const Vector<PathPiece>& pieces, const LinkKinds& links) {
  Communication result;
  struct Found {
    CommunicationUse use;
    Intervals intervals;
    Vector<std::string> names;
  };
  std::map<std::pair<TaskKind, int>, Found> kinds;
  std::map<std::string, Found> layers;
  for (const int t : details.tasks.tasks.indices()) {
    const Task& task = details.tasks.tasks[t];
    const int link = occupies_device(task.kind) ? -1 : links.binding_kind(details.costs, t);
    if (link < 0) continue;
    const std::string name = subject_name(builder, details.tasks, t);
    Found& layer = layers[subject_key(builder, details.tasks, t)];
    if (layer.names.empty() || layer.names.back() != name) layer.names.push_back(name);
    for (Found* found : {&kinds[{task.kind, link}], &layer}) {
      ++found->use.count;
      found->use.bytes += task.bytes;
      found->intervals.emplace_back(details.timeline.start[t], details.timeline.end[t]);
    }
  }
  for (const PathPiece& piece : pieces) {
    if (piece.link_kind < 0) continue;
    kinds[{piece.kind, piece.link_kind}].use.exposed += piece.time;
    layers[piece.key].use.exposed += piece.time;
  }
  for (auto& [key, found] : kinds) {
    found.use.busy = covered(found.intervals);
    result.by_kind[key] = found.use;
  }
  for (auto& [key, found] : layers) {
    found.use.busy = covered(found.intervals);
    result.by_layer.push_back({joined_names(std::move(found.names)), found.use});
  }
  std::stable_sort(result.by_layer.begin(), result.by_layer.end(), [](const auto& a, const auto& b) {
    return std::pair(a.use.exposed, a.use.busy) > std::pair(b.use.exposed, b.use.busy);
  });
  return result;
}

Binding binding(const Vector<PathPiece>& pieces, const LinkKinds& links) {
  Binding result;
  result.links.assign(links.names().size(), 0);
  for (const PathPiece& piece : pieces)
    if (piece.link_kind >= 0) result.links[piece.link_kind] += piece.time;
    else if (!is_compute(piece.kind)) result.updates += piece.time;
    else result.computing += piece.time;
  return result;
}

double fraction_of_peak(const Problem& problem, const Strategy& expanded, Nanoseconds makespan) {
  double operations = 0, peak = 0;
  for (const OperatorId id : problem.whole().operator_ids()) {
    const Operator& op = problem.whole().operators[id];
    bool input_gradients = false;
    for (const int input : op.inputs.indices()) input_gradients |= problem.whole().input_has_gradient(id, input);
    for (int64_t p = 0; p < expanded[id].parts(); ++p) {
      const Block part = op.definition->part(expanded[id].degrees, p);
      operations += op.definition->forward_work(part).flops;
      if (op.has_backward) operations += op.definition->backward_work(part, input_gradients).flops;
    }
  }
  const Precision precision = problem.kernels.precision();
  const auto peak_of = [&](const DeviceModel& model) {
    const double products = precision == Precision::tf32   ? model.peak_tf32_tflops
                            : precision == Precision::bf16 ? model.peak_bf16_tflops
                                                           : 0;
    return products > 0 ? products : model.peak_tflops;
  };
  for (const DeviceId device : problem.topology.devices.indices())
    peak += peak_of(problem.topology.model_of(device)) * 1e12;
  return operations / (peak * static_cast<double>(makespan) / 1e9);
}

Analysis::Analysis(Evaluator& an_evaluator, const Strategy& a_strategy, const Evaluator::Details& some_details)
    : evaluator(an_evaluator), strategy(a_strategy), details(some_details), links(evaluator.problem().topology),
      causes(details.tasks, details.costs, details.timeline, details.fifo_order),
      pieces(path_pieces(evaluator.builder(), details.tasks, details.costs, details.timeline, causes, links)),
      peak(memory_peak(evaluator, details)), bound(binding(pieces, links)) {}

}  // namespace ff::html
