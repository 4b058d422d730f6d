// The oracle of the search: what would an iteration under this strategy take?
#pragma once

#include <exception>
#include <optional>

#include "common/micro_batches.h"
#include "common/task_graph/pipeline_schedule.h"
#include "search/cost/memory.h"
#include "search/cost/task_costs.h"
#include "search/optimizer/prediction.h"
#include "search/optimizer/problem.h"
#include "search/optimizer/search_control.h"
#include "search/simulator/task_order.h"

namespace ff {

// An evaluation that a watch gave up.
class GivenUp : public std::exception {
 public:
  const char* what() const noexcept override { return "an evaluation was given up"; }
};

// Not thread-safe: one a thread.
class Evaluator {
 public:
  explicit Evaluator(const Problem& problem);

  // Memory is exact, in the order in which the simulator starts the tasks and with the transfer buffers that fit;
  // estimated where the estimate is far below what there is, or parameters alone exceed it. Where several micro-batches
  // exceed memory in FIFO order, though their parameters do not, the prediction is that of 1F1B, if this needs less.
  // In 1F1B from the start where that is the problem's order.
  Prediction evaluate(const Strategy& strategy);
  // While a watch lives, `evaluate` looks between its steps (task graph, costs, timeline, memory) whether the search
  // has ended, and then throws GivenUp. For strategies that a search can do without.
  class Watch {
   public:
    Watch(Evaluator& evaluator, const SearchControl& control) : evaluator_(evaluator) { evaluator.watched_ = &control; }
    ~Watch() { evaluator_.watched_ = nullptr; }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Evaluator& evaluator_;
  };
  // From now on the simulation of the best strategy that `evaluate` sees is kept, so that `details` of that strategy
  // does not simulate it again: of a large network this takes seconds. It needs the memory of one task graph.
  void keep_best() { keeps_best_ = true; }
  // For chains, which multiply the estimate of memory with a factor of their own.
  Prediction estimate(const Strategy& strategy, double memory_scale);

  // Everything about one strategy, for reports.
  struct Details {
    Strategy strategy;  // with the parts of all micro-batches (common/micro_batches.h), as the tasks are
    TaskGraph tasks;
    TaskCosts costs;
    Timeline timeline;
    Vector<int> order;             // of all tasks: an issue order
    Vector<int64_t> memory_bytes;  // by device: what the executor allocates in this order, with these buffers
    bool memory_is_estimated = false;
    TransferBuffers transfer_buffers = TransferBuffers::preallocated;
    CostCounts sources;
    Nanoseconds makespan_fifo = 0;                     // with devices that run tasks as these become ready (paper, A3)
    bool fifo_order = true;                            // the timeline is that one; else `order` is simulated
    TaskOrder task_order = TaskOrder::fifo;            // which one that is; best: that of a file
    std::shared_ptr<const PipelineSchedule> schedule;  // of the order, where it is pipeline_issue_order
    std::optional<Repetition> repetition;              // of further micro-batches
  };
  // Without memory: in FIFO order, without an order; in 1F1B order, without its sources and the makespan in FIFO order.
  Details simulated(const Strategy& strategy);
  Details simulated_one_forward_one_backward(const Strategy& strategy);
  // Likewise of the micro-batches here, of which `all` has more, with the durations that tasks have among all, and
  // whether further ones repeat the last ones. `of_two`: the task graph of two; the problem has more. A makespan of 0:
  // there are too few for it.
  Details simulated_one_forward_one_backward(const Strategy& strategy, Evaluator& all, const TaskGraph& of_two);
  TaskGraph tasks(const Strategy& strategy) { return tasks_of(expanded(strategy)); }
  // The details' order, which is one for preallocated buffers, as it is with these.
  Vector<int> issue_order(const Details& details, TransferBuffers buffers) const {
    return for_buffers(details.strategy, details.tasks, {details.order, details.schedule}, buffers);
  }
  // Memory is that of the order in which the simulator starts the tasks, with on-demand transfer buffers where it
  // does not fit with preallocated ones. TaskOrder::best: no further order is tried after the deadline. Where there is
  // less time left than an evaluation takes, the memory of what exceeds a device's by its parameters alone is estimated
  // (cost/memory.h).
  Details details(const Strategy& strategy, TaskOrder order = TaskOrder::fifo, const Deadline& deadline = {});
  // As the executor runs it: with the file's buffers and its issue order, or the default one where that does not fit.
  Details details_of_file(const StrategyFile& file);
  // The timeline of a strategy file with this order. It is another one than as tasks become ready, even in that order,
  // where transfers keep devices busy (simulate_in_order).
  static void follow_order(Details& details);

  // The prediction for a makespan and the fraction that is needed of the fullest device's memory.
  static Prediction prediction(Nanoseconds makespan, double fullness) {
    return {makespan, static_cast<double>(makespan) * cost_factor(fullness), fullness};
  }
  // In the details' own order, with all of their memory.
  Prediction prediction(const Details& details) const {
    return prediction(details.timeline.makespan, fullness(details.memory_bytes));
  }
  // What is needed of the fullest device's memory, as a fraction of it.
  double fullness(const Vector<int64_t>& bytes) const;
  Vector<int64_t> estimated_memory(const Strategy& strategy) { return memory_.bytes(expanded(strategy)); }  // by device
  bool memory_limited() const { return memory_limited_; }
  // Those that come into question, in the order in which they are tried. Frameworks allocate what they receive when
  // they receive it.
  Vector<TransferBuffers> transfer_buffers() const;
  // A cost is its makespan times this.
  static double cost_factor(double fullness) { return fullness > 1 ? 1 + fullness : 1; }

  // With the parts of all micro-batches: what task graphs, costs and memory are of. All else takes strategies as they
  // are searched and written, of one micro-batch.
  Strategy expanded(const Strategy& strategy) const {
    return ff::expanded(problem_.whole(), strategy, problem_.settings.micro_batches);
  }
  Vector<Change> expanded(const Vector<Change>& changes) const {
    return ff::expanded(problem_.whole(), changes, problem_.settings.micro_batches);
  }

  const Problem& problem() const { return problem_; }
  TaskGraphBuilder& builder() { return builder_; }
  // The longest that evaluate has taken so far: without a watch nothing cuts it short.
  double slowest_s() const { return slowest_s_; }
  double slowest_details_s() const { return slowest_details_s_; }  // likewise
  TaskCostModel& cost_model() { return cost_model_; }
  MemoryModel& memory_model() { return memory_; }

 private:
  struct Memory {
    Vector<int64_t> bytes;  // by device: what the executor allocates
    TransferBuffers buffers;
    Vector<int> order;  // for them
    bool is_estimated = false;
  };
  // An issue order for preallocated transfer buffers; and of which pipeline it is, if any.
  struct IssueOrder {
    Vector<int> tasks;
    std::shared_ptr<const PipelineSchedule> schedule = {};
  };
  Details not_simulated(const Strategy& strategy);  // tasks and costs
  // Of expanded strategies. Transfer buffers are on demand where parameters alone exceed a device's memory.
  Memory memory(const Strategy& strategy, const TaskGraph& tasks, const IssueOrder& order, const Deadline& deadline);
  // The same as a fraction of the fullest device's; where that is below nine tenths, of what lives at once.
  double exact_fullness(const Strategy& strategy, const TaskGraph& tasks, const IssueOrder& order);
  Vector<int> for_buffers(const Strategy& strategy, const TaskGraph& tasks, const IssueOrder& order,
                          TransferBuffers buffers) const;

  // The strategy and what `evaluate` found out about it.
  struct Kept {
    Strategy strategy;
    Prediction prediction;
    Details details;
  };
  Details in_fifo_order(const Strategy& strategy);
  Prediction with_memory(const Details& details);
  // Of an expanded strategy: of all devices, or of those that stand for all (search/cost/replicas.h).
  TaskGraph tasks_of(const Strategy& strategy);
  void expect_room(const Strategy& expanded, const Vector<DeviceId>& devices) const;  // empty: all
  void look() const;                                                                  // at what is watched
  MicroBatchSchedule micro_batch_schedule(const Strategy& expanded, const TaskGraph& tasks) const;
  // Where the order is fixed: then it is the order of 1F1B.
  std::optional<IssueOrder> pipeline_order(const Strategy& expanded, const TaskGraph& tasks) const;
  Vector<Passes> passes() const;
  // An order of tasks, and a timeline: of a pipeline in this order, else that of the list scheduling that found it.
  struct Scheduled {
    TaskOrder which;
    IssueOrder order;
    Timeline timeline;
  };
  // In its order; takes its timeline where it is that.
  static Timeline take_in_order(Scheduled& scheduled, const TaskGraph& tasks, const TaskCosts& costs);
  Vector<Scheduled> one_forward_one_backward(const Strategy& expanded, const TaskGraph& tasks,
                                             const TaskCosts& costs) const;
  struct ScheduledOfSome {
    IssueOrder order;
    Nanoseconds makespan = 0, of_further = 0;  // of further micro-batches, if it repeats
    bool repeats = false;  // and so do the others that are tried: then it is the fastest of all micro-batches
  };
  std::optional<ScheduledOfSome> one_forward_one_backward(const Details& details, const Vector<int32_t>& micro_batches,
                                                          int further) const;
  Vector<Scheduled> other_orders(const Details& details, TaskOrder order, const Deadline& deadline) const;

  Problem problem_;
  const SearchControl* watched_ = nullptr;
  double slowest_s_ = 0, slowest_details_s_ = 0;
  bool keeps_best_ = false;
  std::optional<Kept> kept_;
  TaskGraphBuilder builder_;
  TaskCostModel cost_model_;
  MemoryModel memory_;
  bool memory_limited_ = false;
};

}  // namespace ff
