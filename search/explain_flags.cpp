#include "search/explain_flags.h"

#include "search/explain/what_if.h"
#include "search/settings/given_settings_flags.h"

namespace ff {
namespace {

void add_limit(CLI::App& app, int& limit) {
  app.add_option("--limit", limit, "lines of each table")->check(CLI::Range(1, 1000000))->capture_default_str();
}

void add_micro_batches(CLI::App& app, int& count) {
  app.add_option("--micro-batches", count,
                 "simulate so many of the plan's micro-batches; default: all, of large plans some")
      ->check(CLI::Range(1, 1000000));
}

}  // namespace

void add_explain_commands(CLI::App& app, ExplainOptions& explain, DiffOptions& diff,
                          const std::function<void(CLI::App&, CostOptions&)>& add_cost_flags) {
  CLI::App* why = app.add_subcommand("explain", "show the critical path, decisions and memory of a strategy");
  add_plan_flags(*why, explain.strategy, explain.given, /*replaces_topology=*/false);
  std::string forms = "Forms of --what-if:";
  for (const std::string& form : what_if_forms()) forms += "\n  " + form;
  why->footer(forms);
  why->add_option("--what-if", explain.settings.what_if, "predict under a change; the forms are below; may repeat")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  add_micro_batches(*why, explain.micro_batches);
  add_limit(*why, explain.settings.limit);
  add_cost_flags(*why, explain.costs);

  CLI::App* difference = app.add_subcommand("diff", "show how two strategies differ and what each difference changes");
  difference->add_option("a", diff.a, "strategy file (ffstrategy/1)")->required();
  difference->add_option("b", diff.b, "another strategy file of the same graph and number of devices")->required();
  add_micro_batches(*difference, diff.micro_batches);
  add_limit(*difference, diff.limit);
  add_cost_flags(*difference, diff.costs);
}

}  // namespace ff
