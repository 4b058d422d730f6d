#include "search/optimizer/evaluator.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "common/task_graph/issue_order.h"
#include "search/cost/step_order.h"
#include "search/optimizer/parallelism.h"
#include "search/simulation_room.h"

namespace ff {
namespace {

// Transfer buffers are then the same whether they are preallocated or not, and so are issue orders.
bool moves_nothing(const TaskGraph& tasks) {
  return std::none_of(tasks.tasks.begin(), tasks.tasks.end(),
                      [](const Task& task) { return is_transfer(task.kind) || is_edge_collective(task.kind); });
}

// By operator, as TaskGraphBuilder takes them: what is in front of the first layer is one, and what is behind the last.
Vector<int> sharded_layers(const Problem& problem) {
  if (!problem.kernels.conventions().shards_layers || !shards_gradients(problem.settings.synchronization)) return {};
  Vector<int> result = layer_or_none_of_operators(problem.whole());
  const int layers = *std::max_element(result.begin(), result.end()) + 1;
  if (layers == 0) return {};
  for (auto last = result.rbegin(); last != result.rend() && *last == no_layer; ++last) *last = layers;
  return result;
}

// Of the devices whose tasks are simulated (Replicas::stand_ins).
int64_t parts_of(const Strategy& strategy, const Vector<DeviceId>& stand_ins) {
  int64_t parts = 0;
  for (const Configuration& configuration : strategy)
    parts += std::count_if(configuration.devices.begin(), configuration.devices.end(),
                           [&](DeviceId device) { return stand_ins[device] == device; });
  return parts;
}

}  // namespace

Evaluator::Evaluator(const Problem& problem)
    : problem_(problem), builder_(problem_.whole(), problem.settings, problem.replicas ? problem.replicas->count : 1,
                                  sharded_layers(problem)),
      cost_model_(problem_.whole(), problem.topology, problem.kernels, problem.replicas.get()),
      memory_(builder_, problem.topology.devices.count(), problem.state_buffers, gpus_of(problem.topology),
              problem.kernels.conventions()) {
  for (const DeviceModel& model : problem.topology.models) memory_limited_ = memory_limited_ || model.memory_bytes > 0;
}

double Evaluator::fullness(const Vector<int64_t>& used) const {
  double most = 0;
  for (DeviceId device : used.indices())
    if (const int64_t capacity = problem_.topology.model_of(device).memory_bytes; capacity > 0)
      most = std::max(most, static_cast<double>(used[device]) / static_cast<double>(capacity));
  return most;
}

// Where parts could have many transfers each, by the tasks of one micro-batch.
void Evaluator::expect_room(const Strategy& strategy, const Vector<DeviceId>& devices) const {
  const std::string instead = "fewer devices or micro-batches need less";
  const int64_t parts =
      devices.empty() ? parts_of_iteration(strategy) : parts_of(strategy, problem_.replicas->stand_ins);
  expect_room_for_simulation(parts, instead);
  constexpr int64_t few = 1'000'000;
  const int micro_batches = problem_.settings.micro_batches;
  if (parts < few || micro_batches == 1) return;
  StrategySettings of_one = problem_.settings;
  of_one.micro_batches = 1;
  TaskGraphBuilder builder(problem_.graph, of_one, builder_.replicas());
  const TaskGraph tasks = builder.build(of_one_micro_batch(problem_.whole(), strategy, micro_batches), devices);
  expect_room_for_tasks(micro_batches * tasks.tasks.count(), instead);
}

TaskGraph Evaluator::tasks_of(const Strategy& strategy) {
  const bool all = !problem_.replicas || problem_.replicas->stand_ins.empty();
  const Vector<DeviceId> devices = all ? Vector<DeviceId>() : problem_.replicas->devices_with_tasks();
  expect_room(strategy, devices);
  TaskGraph tasks = builder_.build(strategy, devices);
  order_step(tasks, builder_, strategy, problem_.kernels.conventions());
  return tasks;
}

Vector<TransferBuffers> Evaluator::transfer_buffers() const {
  if (problem_.kernels.conventions().framework_memory) return {TransferBuffers::on_demand};
  return {TransferBuffers::preallocated, TransferBuffers::on_demand};
}

Vector<int> Evaluator::for_buffers(const Strategy& strategy, const TaskGraph& tasks, const IssueOrder& order,
                                   TransferBuffers buffers) const {
  if (buffers == TransferBuffers::preallocated) return order.tasks;
  return order.schedule ? pipeline_issue_order(builder_, tasks, strategy, *order.schedule, buffers)
                        : on_demand_issue_order(tasks, order.tasks);
}

Evaluator::Memory Evaluator::memory(const Strategy& strategy, const TaskGraph& tasks, const IssueOrder& order,
                                    const Deadline& deadline) {
  Memory preallocated{{}, TransferBuffers::preallocated, order.tasks};
  const bool one_plan = moves_nothing(tasks), no_time = deadline.left_s() < slowest_s_;
  const bool may_fit = (one_plan && !no_time) || fullness(memory_.of_parameters(strategy)) <= 1;
  if (!may_fit && no_time) {
    const TransferBuffers buffers = one_plan ? TransferBuffers::preallocated : TransferBuffers::on_demand;
    return {memory_.bytes(strategy), buffers, for_buffers(strategy, tasks, order, buffers), true};
  }
  MemoryModel::Needs needs;
  double at_least = std::numeric_limits<double>::infinity();
  const auto lay_out_preallocated = [&] {
    lay_out(needs.plans);
    preallocated.bytes = needs.bytes();
  };
  if (may_fit && transfer_buffers()[0] == TransferBuffers::preallocated) {
    needs = memory_.needs(strategy, tasks, order.tasks, TransferBuffers::preallocated);
    at_least = fullness(needs.bytes());
    if (one_plan || at_least <= 1) {
      lay_out_preallocated();
      at_least = fullness(preallocated.bytes);
      if (one_plan || at_least <= 1) return preallocated;
    }
  }
  Memory on_demand{{}, TransferBuffers::on_demand, for_buffers(strategy, tasks, order, TransferBuffers::on_demand)};
  on_demand.bytes = memory_.bytes(strategy, tasks, on_demand.order, TransferBuffers::on_demand);
  const double share = fullness(on_demand.bytes);
  if (share < at_least) return on_demand;
  if (preallocated.bytes.empty()) lay_out_preallocated();
  return share < fullness(preallocated.bytes) ? on_demand : preallocated;
}

double Evaluator::exact_fullness(const Strategy& strategy, const TaskGraph& tasks, const IssueOrder& order) {
  constexpr double fits_surely = 0.9;
  double least = std::numeric_limits<double>::infinity();
  for (const TransferBuffers buffers : transfer_buffers()) {
    MemoryModel::Needs needs = memory_.needs(strategy, tasks, for_buffers(strategy, tasks, order, buffers), buffers);
    Vector<int64_t> bytes = needs.bytes();
    if (const double live = fullness(bytes); live > fits_surely && live <= 1) {
      Vector<bool> nearly_full;
      for (const DeviceId device : bytes.indices()) {
        const int64_t capacity = problem_.topology.model_of(device).memory_bytes;
        nearly_full.push_back(capacity > 0 &&
                              static_cast<double>(bytes[device]) > fits_surely * static_cast<double>(capacity));
      }
      lay_out(needs.plans, nearly_full);
      bytes = needs.bytes();
    }
    least = std::min(least, fullness(bytes));
    if (least <= 1 || moves_nothing(tasks)) break;
    look();
  }
  return least;
}

Prediction Evaluator::evaluate(const Strategy& strategy) {
  const auto begin = std::chrono::steady_clock::now();
  const bool fifo = problem_.order == TaskOrder::fifo;
  Details details = fifo ? in_fifo_order(strategy) : simulated_one_forward_one_backward(strategy);
  const Prediction found = with_memory(details);
  slowest_s_ = std::max(slowest_s_, seconds_since(begin));
  if (fifo && keeps_best_ && (!kept_ || better(found, kept_->prediction)))
    kept_ = {strategy, found, std::move(details)};
  return found;
}

void Evaluator::look() const {
  if (watched_ && watched_->ended()) throw GivenUp();
}

Evaluator::Details Evaluator::not_simulated(const Strategy& of_one) {
  Details details;
  const Strategy& strategy = details.strategy = expanded(of_one);
  details.tasks = tasks_of(strategy);
  look();
  details.costs = cost_model_.costs(details.tasks, strategy);
  look();
  return details;
}

Evaluator::Details Evaluator::in_fifo_order(const Strategy& of_one) {
  Details details = not_simulated(of_one);
  details.timeline = simulate_full(details.tasks, details.costs);
  details.makespan_fifo = details.timeline.makespan;
  look();
  return details;
}

Prediction Evaluator::with_memory(const Details& details) {
  const auto& [strategy, tasks, costs, timeline] =
      std::tie(details.strategy, details.tasks, details.costs, details.timeline);
  if (!memory_limited_) return prediction(timeline.makespan, 0);
  constexpr double far_below = 0.5;
  const double estimated = fullness(memory_.bytes(strategy));
  if (estimated < far_below || fullness(memory_.of_parameters()) > 1) return prediction(timeline.makespan, estimated);
  Prediction best = prediction(timeline.makespan, exact_fullness(strategy, tasks, {tasks_by_start(tasks, timeline)}));
  if (best.feasible() || problem_.settings.micro_batches == 1) return best;
  look();
  for (Scheduled& one : one_forward_one_backward(strategy, tasks, costs)) {
    const double share = exact_fullness(strategy, tasks, one.order);
    const Prediction other = prediction(take_in_order(one, tasks, costs).makespan, share);
    if (better(other, best)) best = other;
    if (best.feasible()) break;
    look();
  }
  return best;
}

MicroBatchSchedule Evaluator::micro_batch_schedule(const Strategy& expanded, const TaskGraph& tasks) const {
  return ff::micro_batch_schedule(problem_.whole(), expanded, tasks, problem_.settings.micro_batches,
                                  problem_.topology.devices.count());
}

std::optional<Evaluator::IssueOrder> Evaluator::pipeline_order(const Strategy& expanded, const TaskGraph& tasks) const {
  const Graph& graph = problem_.whole();
  const int micro_batches = problem_.settings.micro_batches;
  std::optional<PipelineSchedule> schedule = PipelineSchedule::of(
      graph, of_one_micro_batch(graph, expanded, micro_batches), micro_batches, problem_.topology.devices.count());
  if (!schedule) return std::nullopt;
  const auto shared = std::make_shared<const PipelineSchedule>(*std::move(schedule));
  return IssueOrder{pipeline_issue_order(builder_, tasks, expanded, *shared), shared};
}

// Those that are tried where no order is fixed.
Vector<Passes> Evaluator::passes() const {
  if (problem_.kernels.conventions().whole_passes) return {Passes::whole};
  return {Passes::whole, Passes::mixed};
}

// The fastest one first.
Vector<Evaluator::Scheduled> Evaluator::one_forward_one_backward(const Strategy& expanded, const TaskGraph& tasks,
                                                                 const TaskCosts& costs) const {
  constexpr TaskOrder which = TaskOrder::one_forward_one_backward;
  if (std::optional<IssueOrder> fixed = pipeline_order(expanded, tasks)) {
    Timeline timeline = simulate_in_order(tasks, costs, fixed->tasks);
    return {{which, *std::move(fixed), std::move(timeline)}};
  }
  const MicroBatchSchedule schedule = micro_batch_schedule(expanded, tasks);
  Vector<Scheduled> found;
  for (const Passes one : passes()) {
    Timeline timeline = schedule_one_forward_one_backward(tasks, costs, schedule, one);
    found.push_back({which, {tasks_by_start(tasks, timeline)}, std::move(timeline)});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Scheduled& a, const Scheduled& b) { return a.timeline.makespan < b.timeline.makespan; });
  return found;
}

Timeline Evaluator::take_in_order(Scheduled& scheduled, const TaskGraph& tasks, const TaskCosts& costs) {
  return scheduled.order.schedule ? std::move(scheduled.timeline)
                                  : simulate_in_order(tasks, costs, scheduled.order.tasks);
}

Prediction Evaluator::estimate(const Strategy& of_one, double memory_scale) {
  const Details details = problem_.order == TaskOrder::one_forward_one_backward
                              ? simulated_one_forward_one_backward(of_one)
                              : in_fifo_order(of_one);
  return prediction(details.timeline.makespan,
                    memory_limited_ ? memory_scale * fullness(memory_.bytes(details.strategy)) : 0);
}

Evaluator::Details Evaluator::simulated(const Strategy& of_one) {
  const bool known = kept_ && kept_->strategy == of_one;
  Details details = known ? std::move(kept_->details) : in_fifo_order(of_one);
  if (known) kept_.reset();
  details.sources = cost_model_.count_sources(details.strategy);
  return details;
}

Evaluator::Details Evaluator::simulated_one_forward_one_backward(const Strategy& of_one) {
  Details details = not_simulated(of_one);
  Scheduled fastest = std::move(one_forward_one_backward(details.strategy, details.tasks, details.costs)[0]);
  details.timeline = take_in_order(fastest, details.tasks, details.costs);
  details.order = std::move(fastest.order.tasks);
  details.schedule = std::move(fastest.order.schedule);
  details.fifo_order = false;
  details.task_order = TaskOrder::one_forward_one_backward;
  return details;
}

// The order that is the faster one: with so many further micro-batches, where all orders repeat themselves. Nothing
// where more micro-batches could be in flight than there are.
std::optional<Evaluator::ScheduledOfSome> Evaluator::one_forward_one_backward(const Details& details,
                                                                              const Vector<int32_t>& micro_batches,
                                                                              int further) const {
  const auto& [strategy, tasks, costs] = std::tie(details.strategy, details.tasks, details.costs);
  if (std::optional<IssueOrder> fixed = pipeline_order(strategy, tasks)) {
    if (fixed->schedule->chunks() == 1 && fixed->schedule->stages() >= problem_.settings.micro_batches)
      return std::nullopt;
    return ScheduledOfSome{.order = *std::move(fixed), .repeats = true};
  }
  const MicroBatchSchedule schedule = micro_batch_schedule(strategy, tasks);
  if (*std::max_element(schedule.in_flight.begin(), schedule.in_flight.end()) == problem_.settings.micro_batches)
    return std::nullopt;
  Vector<ScheduledOfSome> orders;
  for (const Passes one : passes()) {
    RepetitionWatch watch(micro_batches);
    const Timeline timeline = schedule_one_forward_one_backward(tasks, costs, schedule, one, &watch);
    const std::optional<Repetition> repetition = watch.found(tasks, Dependencies(tasks), timeline);
    const bool repeats = repetition && further % repetition->micro_batches == 0;
    orders.push_back(
        {{tasks_by_start(tasks, timeline)}, timeline.makespan, repeats ? repetition->time_of(further) : 0, repeats});
  }
  const bool all_repeat =
      std::all_of(orders.begin(), orders.end(), [](const ScheduledOfSome& one) { return one.repeats; });
  const auto time = [&](const ScheduledOfSome& one) { return one.makespan + (all_repeat ? one.of_further : 0); };
  ScheduledOfSome& fastest =
      *std::min_element(orders.begin(), orders.end(),
                        [&](const ScheduledOfSome& a, const ScheduledOfSome& b) { return time(a) < time(b); });
  fastest.repeats = all_repeat;
  return std::move(fastest);
}

Evaluator::Details Evaluator::simulated_one_forward_one_backward(const Strategy& of_one, Evaluator& all,
                                                                 const TaskGraph& of_two) {
  Details details;
  details.strategy = expanded(of_one);
  details.tasks = tasks_of(details.strategy);
  const int count = problem_.settings.micro_batches, further = all.problem_.settings.micro_batches - count;
  const Vector<int32_t> micro_batches = micro_batches_of_tasks(builder_, details.strategy, details.tasks);
  if (!copy_for_all(details.tasks, micro_batches, {count, further, of_two})) return details;
  // The first parts of an operator are those of the same micro-batches. Some kernels read the whole batch.
  details.costs = all.cost_model_.costs(details.tasks, all.expanded(of_one));
  std::optional<ScheduledOfSome> scheduled = one_forward_one_backward(details, micro_batches, further);
  if (!scheduled) return details;
  details.order = std::move(scheduled->order.tasks);
  details.schedule = std::move(scheduled->order.schedule);
  RepetitionWatch watch(micro_batches);
  std::tie(details.timeline, details.repetition) =
      simulate_in_order(details.tasks, details.costs, details.order, &watch);
  // Another order may be the faster one of all.
  if (!scheduled->repeats || (details.repetition && further % details.repetition->micro_batches != 0))
    details.repetition.reset();
  details.fifo_order = false;
  details.task_order = TaskOrder::one_forward_one_backward;
  return details;
}

// Those that are to be tried, the fastest first.
Vector<Evaluator::Scheduled> Evaluator::other_orders(const Details& details, TaskOrder order,
                                                     const Deadline& deadline) const {
  const TaskGraph& tasks = details.tasks;
  const TaskCosts& costs = details.costs;
  const auto has_time = [&] { return !deadline.passed(); };
  Vector<Scheduled> orders;
  const auto add = [&](TaskOrder which, Timeline timeline) {
    orders.push_back({which, {tasks_by_start(tasks, timeline)}, std::move(timeline)});
  };
  const bool all = order == TaskOrder::best;
  if (order == TaskOrder::critical_path || (all && has_time()))
    add(TaskOrder::critical_path, schedule_by_critical_path(tasks, costs, details.timeline));
  if (order == TaskOrder::latest_start || (all && has_time()))
    add(TaskOrder::latest_start, schedule_by_latest_start(tasks, costs, details.timeline));
  if (all && !orders.empty() && has_time())
    add(TaskOrder::latest_start, schedule_by_latest_start(tasks, costs, orders[0].timeline));
  if (order == TaskOrder::one_forward_one_backward || (all && problem_.settings.micro_batches > 1 && has_time()))
    for (Scheduled& one : one_forward_one_backward(details.strategy, tasks, costs)) orders.push_back(std::move(one));
  std::stable_sort(orders.begin(), orders.end(),
                   [](const Scheduled& a, const Scheduled& b) { return a.timeline.makespan < b.timeline.makespan; });
  return orders;
}

void Evaluator::follow_order(Details& details) {
  if (!details.fifo_order || !transfers_keep_devices_busy(details.tasks, details.costs)) return;
  Timeline timeline = simulate_in_order(details.tasks, details.costs, details.order);
  details.fifo_order = timeline.start == details.timeline.start;
  details.timeline = std::move(timeline);
}

Evaluator::Details Evaluator::details(const Strategy& strategy, TaskOrder order, const Deadline& deadline) {
  const auto begin = std::chrono::steady_clock::now();
  Details details = simulated(strategy);
  const Vector<int> ready_order = tasks_by_start(details.tasks, details.timeline);
  Nanoseconds to_beat = details.makespan_fifo;
  if (order == TaskOrder::best && transfers_keep_devices_busy(details.tasks, details.costs))
    to_beat = simulate_in_order(details.tasks, details.costs, ready_order).makespan;
  const auto keep = [&](Memory memory) {
    details.memory_bytes = std::move(memory.bytes);
    details.memory_is_estimated = memory.is_estimated;
    details.transfer_buffers = memory.buffers;
    details.order = std::move(memory.order);
  };
  // Micro-batches in FIFO order may exceed memory where few in flight fit.
  std::optional<Memory> fifo;
  if (order == TaskOrder::best && problem_.settings.micro_batches > 1)
    fifo = memory(details.strategy, details.tasks, {ready_order}, deadline);
  const bool fifo_fits = !fifo || fullness(fifo->bytes) <= 1;
  Vector<Scheduled> others = other_orders(details, order, deadline);
  for (Scheduled& other : others) {
    const bool asked_for = order != TaskOrder::best;
    if (!(asked_for && other.order.schedule) && same_on_devices(details.tasks, ready_order, other.order.tasks))
      continue;
    Timeline timeline = take_in_order(other, details.tasks, details.costs);
    // Less would hardly be seen, and the order in which tasks become ready is written in fewer lines.
    constexpr double worth_it = 0.995;
    if (!asked_for && fifo_fits && static_cast<double>(timeline.makespan) >= worth_it * static_cast<double>(to_beat))
      continue;
    keep(memory(details.strategy, details.tasks, other.order, deadline));
    const bool other_may_fit = !asked_for || &other != &others.back();
    if (other_may_fit && fullness(details.memory_bytes) > 1) continue;
    details.timeline = std::move(timeline);
    details.fifo_order = false;
    details.task_order = other.which;
    details.schedule = other.order.schedule;
    break;
  }
  if (details.fifo_order)
    keep(fifo ? *std::move(fifo) : memory(details.strategy, details.tasks, {ready_order}, deadline));
  slowest_details_s_ = std::max(slowest_details_s_, seconds_since(begin));
  return details;
}

Evaluator::Details Evaluator::details_of_file(const StrategyFile& file) {
  Details details = simulated(file.strategy);
  const TransferBuffers buffers = details.transfer_buffers = file.transfer_buffers;
  if (std::optional<IssueOrder> fixed; file.settings.schedule == Schedule::one_forward_one_backward &&
                                       (fixed = pipeline_order(details.strategy, details.tasks))) {
    details.order = for_buffers(details.strategy, details.tasks, *fixed, buffers);
    if (!is_allowed(details.tasks, details.order))
      throw InputError("the schedule 1f1b does not fit the tasks of this strategy");
    details.schedule = std::move(fixed->schedule);
    details.fifo_order = false;
    details.task_order = TaskOrder::one_forward_one_backward;
    details.timeline = simulate_in_order(details.tasks, details.costs, details.order);
  } else if (details.order = issue_order_from_names(builder_, details.tasks, file.issue_order, buffers);
             file.issue_order.empty() || details.order.empty()) {
    details.order = default_issue_order(builder_, details.tasks, buffers);
  } else if (!same_on_devices(details.tasks, tasks_by_start(details.tasks, details.timeline), details.order)) {
    details.fifo_order = false;
    details.task_order = TaskOrder::best;
    details.timeline = simulate_in_order(details.tasks, details.costs, details.order);
  } else {
    follow_order(details);
  }
  details.memory_bytes = memory_.bytes(details.strategy, details.tasks, details.order, buffers);
  return details;
}

}  // namespace ff
