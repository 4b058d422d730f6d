// The report of a plan by settings (optimizer/parallelism.h), from some of its devices that stand for all: for large
// plans, of which all devices would take minutes and the memory of a large machine.
#pragma once

#include <optional>
#include <string>

#include "search/cost/kernel_costs.h"
#include "search/optimizer/parallelism.h"
#include "search/problem_files.h"
#include "search/report/summary.h"
#include "search/settings/simulated_settings.h"

namespace ff {

struct SettingsReport {
  SearchReport report;
  TransferBuffers transfer_buffers = TransferBuffers::preallocated;
  Vector<std::string> notes;
};

struct SettingsReportOptions {
  bool compared = true;    // with data parallelism
  std::string trace = "";  // to be written, of the simulated devices and all micro-batches; "": none
  // Memory is that of the simulated order, which a file of such settings has; else of the default order.
  bool as_simulated = false;
  bool chooses_buffers = true;  // on-demand transfer buffers where preallocated ones do not fit; else the file's
};
// Of the plan with the settings of `file`, whose graph is in f32. Nothing where no devices stand for others.
std::optional<SettingsReport> settings_report(Parallelism parallelism, const StrategyFile& file,
                                              const CostOptions& costs, const SettingsReportOptions& options = {});
// The strategy file, for which needs_no_issue_order. `kept` as in write_strategy.
void write_plan(const std::string& out, const StrategyFile& file, const SettingsReport& found, const CostOptions& costs,
                const Json& kept = Json::object());

// Data parallelism with as many micro-batches; nothing where a device would have less than a sample of them.
Vector<Baseline> baselines_of_settings(const Parallelism& parallelism, const StrategyFile& file,
                                       const CostOptions& costs);

// The settings that a strategy file's plan is exactly of, with its order of tasks; nothing where there are none, or an
// issue order of its own. The file as settings_report reads it.
struct PlanOfFile {
  Parallelism parallelism;
  StrategyFile file;
};
std::optional<PlanOfFile> plan_of_file(const StrategyFile& file);
// Has the file this plan's configurations, micro-batches, sharding and overlap? Recomputation may differ.
bool is_plan_of(const ParallelPlan& plan, const StrategyFile& file);
// What such a plan simulates, with the settings of `file`, in its precision where no flag says another.
SimulatedSettings simulated_settings(const Parallelism& completed, const StrategyFile& file, CostOptions costs);
// Its iteration time; of all devices where none stands for another.
Nanoseconds makespan_of_plan(const PlanOfFile& plan, const CostOptions& costs);

// Does a strategy file without an issue order say all of these settings? With several micro-batches by its schedule.
bool needs_no_issue_order(const StrategyFile& file);

}  // namespace ff
