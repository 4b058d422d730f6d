#include "search/explain_flags.h"

#include "search/explain/what_if.h"

namespace ff {
namespace {

void add_limit(CLI::App& app, int& limit) {
  app.add_option("--limit", limit, "lines of each table; --json has all")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
}

}  // namespace

void add_explain_commands(CLI::App& app, ExplainOptions& explain, DiffOptions& diff,
                          const std::function<void(CLI::App&, CostOptions&)>& add_cost_flags) {
  CLI::App* why = app.add_subcommand("explain", "why does this strategy take as long as it does?");
  why->add_option("--strategy", explain.strategy, "strategy file (ffstrategy/1)")->required();
  std::string forms = "what the same strategy would take then; may be given several times:";
  for (const std::string& form : what_if_forms()) forms += "\n" + form;
  why->add_option("--what-if", explain.settings.what_if, forms)->take_all()->expected(1)->allow_extra_args(false);
  add_limit(*why, explain.settings.limit);
  add_cost_flags(*why, explain.costs);

  CLI::App* difference = app.add_subcommand("diff", "how do two strategies differ, and which differences matter?");
  difference->add_option("a", diff.a, "strategy file (ffstrategy/1)")->required();
  difference->add_option("b", diff.b, "another one, of the same graph and as many devices")->required();
  add_limit(*difference, diff.limit);
  add_cost_flags(*difference, diff.costs);
}

}  // namespace ff
