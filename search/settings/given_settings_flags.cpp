#include "search/settings/given_settings_flags.h"

#include "common/command_line.h"

namespace ff {

void add_plan_flags(CLI::App& app, std::string& strategy_file, GivenSettings& given, bool replaces_topology) {
  CLI::Option* strategy =
      app.add_option("--strategy", strategy_file, "strategy file (ffstrategy/1)")->check(file_name());
  CLI::Option* topology =
      app.add_option("--topo", given.topology,
                     replaces_topology ? "topology file to simulate on, instead of that of the strategy"
                                       : "topology file, for --settings");
  CLI::Option* settings =
      app.add_option("--settings", given.settings,
                     "instead of a strategy: tp=8,pp=4,micro_batch=1,sharding=optimizer,recompute=full, ... for the "
                     "transformer of --graph on --topo")
          ->check(not_empty("settings such as tp=8"));
  CLI::Option* megatron = app.add_option("--megatron", given.megatron,
                                         "instead of --settings: arguments of Megatron-LM's pretrain_gpt.py, in one "
                                         "word")
                              ->check(not_empty("arguments such as --tensor-model-parallel-size 8"));
  CLI::Option* torchtitan =
      app.add_option("--torchtitan", given.torchtitan, "instead of --settings: torchtitan's TOML file")
          ->check(file_name());
  CLI::Option* graph = app.add_option("--graph", given.graph, "graph file, for --settings");
  for (CLI::Option* one : {settings, megatron, torchtitan}) {
    one->needs(topology)->needs(graph)->excludes(strategy);
    for (CLI::Option* other : {settings, megatron, torchtitan})
      if (one != other) one->excludes(other);
  }
  CLI::Option* batch =
      app.add_option("--batch", given.batch, "samples of the batch, for --settings; default: the graph's")
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  Vector<CLI::Option*> of_settings = {graph, batch};
  if (!replaces_topology) of_settings.push_back(topology);
  app.final_callback([&app, strategy, settings, megatron, torchtitan, of_settings] {
    const bool by_settings = *settings || *megatron || *torchtitan;
    if (!*strategy && !by_settings)
      throw CLI::ValidationError(app.get_name(), "--strategy, --settings, --megatron or --torchtitan is required");
    for (const CLI::Option* one : of_settings)
      if (*one && !by_settings) throw CLI::ValidationError(one->get_name(), "goes with --settings");
  });
}

}  // namespace ff
