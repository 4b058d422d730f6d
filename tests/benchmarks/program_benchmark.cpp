// What a rank does to get from a strategy file to its program, in time and memory: reading the file apart from deriving
// the plan. scripts/bench_program.py writes strategies for many devices and runs this for each.
//
//     bench_program STRATEGY [RANK]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "common/errors.h"
#include "common/micro_batches.h"
#include "common/strategy.h"
#include "common/task_graph/issue_order.h"
#include "executor/plan/program_plan.h"

namespace {

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// VmHWM; getrusage() would also count the process that started this one.
double peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::atof(line.c_str() + 6) / 1024;  // from KiB
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: bench_program STRATEGY [RANK]\n");
    return 1;
  }
  try {
    auto begin = std::chrono::steady_clock::now();
    const ff::StrategyFile file = ff::load_strategy(arguments[1]);
    const double reading_ms = milliseconds_since(begin), reading_mb = peak_megabytes();
    const int rank = count > 2 ? std::atoi(arguments[2]) : static_cast<int>(file.topology.devices.size() / 2);
    begin = std::chrono::steady_clock::now();
    ff::TaskGraphBuilder builder(file.graph, file.settings);
    const ff::Strategy strategy = ff::expanded(file);
    const ff::TaskGraph tasks = builder.build(strategy, rank);
    ff::Vector<int> order = ff::order_by_names(builder, tasks, file.issue_order, file.transfer_buffers).order;
    const bool fits = !order.empty();
    if (!fits) order = ff::default_issue_order(builder, tasks, file.transfer_buffers);
    const ff::ProgramPlan plan = ff::plan_program(
        builder, strategy, tasks, order, {.rank = rank, .state_buffers = 1, .transfer_buffers = file.transfer_buffers});
    std::printf(
        "{\"devices\": %zu, \"reading_ms\": %.2f, \"reading_mb\": %.1f, \"deriving_ms\": %.2f, \"peak_mb\": %.1f, "
        "\"tasks\": %zu, \"steps\": %zu, \"own_issue_order\": %s}\n",
        file.topology.devices.size(), reading_ms, reading_mb, milliseconds_since(begin), peak_megabytes(),
        tasks.tasks.size(), plan.steps.size(), fits ? "true" : "false");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
