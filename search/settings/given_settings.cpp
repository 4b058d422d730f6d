#include "search/settings/given_settings.h"

namespace ff {
namespace {

// What --settings, --megatron or --torchtitan say.
FrameworkArguments arguments_of(const GivenSettings& given, const Graph& graph, int devices) {
  if (!given.megatron.empty()) return parse_megatron_arguments(given.megatron, graph, devices);
  if (!given.torchtitan.empty()) return load_torchtitan_file(given.torchtitan, graph, devices);
  try {
    return {.parallelism = parse_parallelism(given.settings), .precision = precision_of_settings(given.settings)};
  } catch (const InputError& error) {
    throw InputError(std::string("--settings: ") + error.what());
  }
}

}  // namespace

PlanOfSettings plan_of_settings(const GivenSettings& given) {
  ProblemFiles files{given.graph, given.topology, given.batch, 0, ""};
  GraphAndTopology loaded = load_files(files, {});
  FrameworkArguments arguments = arguments_of(given, loaded.graph, loaded.topology.devices.count());
  if (arguments.batch > 0 && given.batch > 0 && arguments.batch != given.batch)
    throw InputError("--batch " + std::to_string(given.batch) + ": the framework's arguments have a batch of " +
                     std::to_string(arguments.batch));
  if (arguments.batch > 0) loaded.graph = with_batch_size(loaded.graph, arguments.batch, given.graph);
  try {
    ParallelPlan plan = plan_of(arguments.parallelism, loaded.graph, loaded.topology);
    check_shard_group(arguments.parallelism);
    check_rounds(arguments.parallelism, loaded.graph.batch_size);
    return {{std::move(loaded.graph),
             std::move(loaded.topology),
             std::move(plan.strategy),
             {},
             Json::object(),
             false,
             {},
             TransferBuffers::preallocated,
             std::move(plan.settings)},
            std::move(arguments)};
  } catch (const InputError& error) {
    const char* const flag = !given.megatron.empty() ? "--megatron: " : "--settings: ";
    throw InputError((given.torchtitan.empty() ? flag : given.torchtitan + ": ") + error.what());
  }
}

CostOptions with_arguments(CostOptions costs, const FrameworkArguments& arguments, int64_t batch) {
  costs.conventions = conventions_of(arguments.parallelism, batch);
  if (!costs.precision) costs.precision = arguments.precision;
  if (!costs.optimizer.any() && !arguments.optimizer.empty()) {
    costs.optimizer.kind = arguments.optimizer;
    if (arguments.momentum > 0) costs.optimizer.momentum = arguments.momentum;
  }
  return costs;
}

void note_arguments(const FrameworkArguments& arguments, Json& json, Vector<std::string>& notes) {
  for (const std::string& note : arguments.notes) notes.push_back(note);
  if (arguments.ignored.empty()) return;
  json["ignored_arguments"] = arguments.ignored;
  std::string text = "ignored, as they change neither shapes nor places:";
  for (const std::string& flag : arguments.ignored) text += " " + flag;
  notes.push_back(text);
}

}  // namespace ff
