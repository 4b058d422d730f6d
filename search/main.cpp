// ffsearch: command line only.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <sstream>
#include <system_error>

#include "common/command_line.h"
#include "common/manual.h"
#include "common/sharding.h"
#include "common/version.h"
#include "search/commands.h"
#include "search/discovery/discover.h"
#include "search/discovery/presets.h"
#include "search/explain_flags.h"
#include "search/import/command.h"
#include "search/import/flags.h"
#include "search/interruption.h"
#include "search/optimizer/mcmc/simulation_check.h"
#include "search/plan_command.h"
#include "search/report/summary.h"
#include "search/settings/given_settings_flags.h"

namespace {

void show_progress(const ff::SearchProgress& progress) {
  const std::string devices = progress.devices > 0 ? std::to_string(progress.devices) + " devices:  " : "";
  std::fprintf(
      stderr, "\r%s%6.1f s  %lld proposals (%.0f/s)  current %s  best %s  accepted %.1f %%   ", devices.c_str(),
      progress.elapsed_s, static_cast<long long>(progress.proposals),
      static_cast<double>(progress.proposals) / std::max(progress.elapsed_s, 1e-9),
      ff::time_text(progress.current).c_str(), ff::time_text(progress.best).c_str(),
      100.0 * static_cast<double>(progress.accepted) / static_cast<double>(std::max<int64_t>(progress.proposals, 1)));
}

void show_settings_progress(const ff::SettingsSearchProgress& progress) {
  std::fprintf(stderr, "\r%6.1f s  %lld shapes estimated  %lld settings simulated  best %s   ", progress.elapsed_s,
               static_cast<long long>(progress.estimated), static_cast<long long>(progress.simulated),
               progress.best > 0 ? ff::time_text(progress.best).c_str() : "none fits");
}

// "30s", "5m", "1h", "250ms", or plain seconds.
double parse_duration(const std::string& text) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  const double scale = unit.empty() || unit == "s" ? 1
                       : unit == "ms"              ? 1e-3
                       : unit == "m"               ? 60
                       : unit == "h"               ? 3600
                                                   : 0;
  if (used == 0 || scale == 0 || !(value > 0) || !std::isfinite(value * scale))
    throw CLI::ValidationError("--budget", "found \"" + text + "\", expected a time such as 30s, 5m or 1h");
  return value * scale;
}

// A flag whose values are words, each for a value of an enumeration. What `value` holds is the default.
template <typename Value>
void add_words(CLI::App& app, const std::string& flag, Value& value,
               const ff::Vector<std::pair<std::string, Value>>& words, const std::string& description,
               const ff::Vector<ff::Renamed>& renamed = {}) {
  ff::Vector<std::string> names;
  std::string otherwise;
  for (const auto& [word, meaning] : words) {
    names.push_back(word);
    if (meaning == value) otherwise = word;
  }
  const auto read = [&value, words](const std::string& found) {
    for (const auto& [word, meaning] : words)
      if (word == found) value = meaning;
  };
  app.add_option_function<std::string>(flag, read, description)
      ->check(ff::renamed_words(renamed))
      ->check(CLI::IsMember(names))
      ->default_str(otherwise);
}

// The end of --help of a search: what --algorithm takes, in lines of at most 100 letters.
std::string algorithms_text() {
  std::string text = "Algorithms (docs/algorithms.md): ", line = text;
  for (const ff::Algorithm& algorithm : ff::algorithms()) {
    const std::string word = (&algorithm == &ff::algorithms().front() ? "" : ", ") + algorithm.name;
    if (line.size() + word.size() > 100) {
      text += ",\n  " + algorithm.name;
      line = "  " + algorithm.name;
    } else {
      text += word;
      line += word;
    }
  }
  return text + "\n";
}

ff::Vector<std::string> init_names() {
  ff::Vector<std::string> names = ff::heuristic_baseline_names();
  names.insert(names.end(), {"best", "random"});
  return names;
}

// What the flags say: each command's options, and what is for printing alone.
struct Options {
  ff::SearchOptions search;
  ff::SimulateOptions simulate;
  ff::CompareOptions compare;
  ff::EditOptions edit;
  ff::ExportOptions exported;
  ff::ExplainOptions explain;
  ff::DiffOptions diff;
  ff::ProfileOptions profile;
  ff::PlanOptions plan;
  ff::ImportOptions onnx;
  ff::TopologyOptions topology;
  std::string budget;
  bool json = false, quiet = false;
};

void add_graph_flags(CLI::App& app, ff::ProblemFiles& files, bool required) {
  auto* graph = app.add_option("--graph", files.graph, "operator graph file (ffgraph/1)");
  auto* topology = app.add_option("--topo", files.topology, "device topology file (fftopology/1)");
  if (required) graph->required(), topology->required();
  auto* batch = app.add_option("--batch", files.batch, "batch size, instead of that of the graph file")
                    ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  app.add_option("--batch-per-device", files.batch_per_device, "batch size in samples per device of the topology")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32))
      ->excludes(batch);
}

void add_precision_flag(CLI::App& app, std::optional<ff::Precision>& precision) {
  app.add_option_function<std::string>(
         "--precision", [&precision](const std::string& name) { precision = ff::precision_of(name); },
         "fp32, tf32 (products on GPUs), bf16 (activations, products); default: the strategy's, or fp32")
      ->check(CLI::IsMember({"fp32", "tf32", "bf16"}));
}

void add_common_flags(CLI::App& app, ff::CostOptions& costs, Options& options) {
  using enum ff::CostMode;
  add_precision_flag(app, costs.precision);
  add_words<ff::CostMode>(app, "--cost", costs.mode,
                          {{"auto", automatic}, {"measure", measure}, {"profile", profile}, {"analytic", analytic}},
                          "kernel times: auto (profile, else measured, else analytic), measure, profile, analytic");
  app.add_option("--profile", costs.profiles,
                 "profile file (ffprofile/1) of a device model, or a directory of MODEL.json; may repeat");
  app.add_option("--optimizer", costs.optimizer.kind, "sgd, adam, adamw; default: the graph file's, or sgd")
      ->check(CLI::IsMember(ff::optimizer_names()));
  app.add_option("--momentum", costs.optimizer.momentum, "momentum of SGD; default: the graph file's, or 0")
      ->check(ff::finite_non_negative());
  app.add_flag("--json", options.json, "print the result as one JSON object");
  app.add_flag("--quiet", options.quiet, "print errors only");
}

CLI::Option* add_html_flag(CLI::App& app, std::string& html) {
  return app.add_option("--html", html, "write an HTML report, one self-contained file")->check(ff::file_name());
}

void add_background_flag(CLI::App& app, ff::Vector<std::string>& background) {
  app.add_option("--background", background,
                 "strategy file of a co-located job: plan for the capacity that it leaves; may repeat")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
}

const std::string synchronization_text = "of gradients: all-reduce, parameter-server";
const ff::Vector<std::pair<std::string, ff::Synchronization>> synchronizations = {
    {"all-reduce", ff::Synchronization::all_reduce}, {"parameter-server", ff::Synchronization::parameter_server}};
const ff::Vector<ff::Renamed> renamed_synchronizations = {{"owner", "parameter-server"}};

const std::string recompute_text = "operators to compute again before backward: PATTERN,..., full, none";

ff::Vector<std::string> read_recomputation(const std::string& text) {
  if (text == "auto")
    throw CLI::ValidationError("--recompute", "auto is for a search; expected PATTERN,..., full, none");
  return text == "none" ? ff::Vector<std::string>() : ff::split_patterns(text);
}

const std::string sharding_text =
    "of state: none, optimizer (ZeRO-1), gradients (too, ZeRO-2), parameters (too, ZeRO-3), or PATTERN=WORD,...";

// CLI11 calls in the order of the flags here: --synchronization is known.
void read_sharding(ff::StrategySettings& settings, const std::string& text) {
  try {
    ff::set_sharding(settings, text);
  } catch (const ff::InputError& error) {
    throw CLI::ValidationError("--sharding", error.what());
  }
}

// `choose`, `decided`: where auto is stored, and that another value was given; null where the command does not have
// them.
void add_strategy_flags(CLI::App& app, ff::StrategySettings& strategy, ff::SettingsChoice* choose,
                        ff::DecidedSettings* decided) {
  add_words<ff::Synchronization>(app, "--synchronization", strategy.synchronization, synchronizations,
                                 synchronization_text, renamed_synchronizations);
  const std::string automatic = choose ? ", auto" : "";
  const auto read_shards = [&strategy, choose, decided](const std::string& text) {
    const bool is_auto = choose && text == "auto";
    if (is_auto) choose->sharding = true;
    if (decided) decided->sharding = !is_auto;
    ff::StrategySettings sharded = strategy;
    read_sharding(sharded, is_auto ? "optimizer" : text);
    if (!is_auto) strategy = sharded;
  };
  app.add_option_function<std::string>("--sharding", read_shards, sharding_text + automatic);
  const auto read = [&strategy, choose, decided](const std::string& text) {
    if (decided) decided->recompute = text != "auto";
    if (choose && text == "auto") choose->recompute = true;
    else strategy.recompute = read_recomputation(text);
  };
  app.add_option_function<std::string>("--recompute", read, recompute_text + automatic);
}

// `automatic`, `decided`: where auto is stored, and that a number was given; null where the command does not have them.
void add_micro_batches_flag(CLI::App& app, int& micro_batches, bool* automatic, bool* decided) {
  const auto read = [&micro_batches, automatic, decided](const std::string& text) {
    if (decided) *decided = text != "auto";
    if (automatic && text == "auto") *automatic = true;
    else micro_batches = std::stoi(text);
  };
  const auto check = [automatic](const std::string& text) {
    constexpr int most = 1 << 20;
    const bool number = !text.empty() && text.size() < 8 && text.find_first_not_of("0123456789") == std::string::npos;
    if ((automatic && text == "auto") || (number && std::stoi(text) >= 1 && std::stoi(text) <= most))
      return std::string();
    return "found \"" + text + "\", expected " + (automatic ? "auto or " : "") + "a number from 1 to " +
           std::to_string(most);
  };
  app.add_option_function<std::string>(
         "--micro-batches", read,
         std::string("number of equal pieces of the batch, trained in turn") +
             (automatic ? ", or auto (default 1; mcmc for transformers: auto)" : " (default 1)"))
      ->check(CLI::Validator(check, ""));
}

const std::map<std::string, ff::TaskOrder> schedules{{"auto", ff::TaskOrder::best},
                                                     {"fifo", ff::TaskOrder::fifo},
                                                     {"critical-path", ff::TaskOrder::critical_path},
                                                     {"latest-start", ff::TaskOrder::latest_start},
                                                     {"1f1b", ff::TaskOrder::one_forward_one_backward}};

void add_search_flags(CLI::App& app, ff::AlgorithmSettings& settings, ff::ProblemFiles& files, Options& options) {
  ff::McmcSettings& search = settings.search;
  app.add_option("--annotations", files.annotations, "decisions that every plan keeps (ffannotations/1)");
  app.add_option("--budget", options.budget,
                 "search time, such as 30s, 5m, 1h, including the baselines; default: until no progress, at most 2m "
                 "(transformers: 3.5m)");
  app.add_option("--proposals", search.proposals, "number of proposals, instead of a time")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 53));
  app.add_option("--seed", search.seed, "seed of the random choices")->check(ff::whole_number())->capture_default_str();
  app.add_option("--chains", search.chains, "number of Markov chains")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--init", settings.init,
                 "starting strategies of the chains: baselines, best, random; default best,data-parallel,random")
      ->delimiter(',')
      ->check(CLI::IsMember(init_names()));
  add_words<ff::ProposalKind>(app, "--proposals-from", search.proposals_from,
                              {{"structured", ff::ProposalKind::structured},
                               {"paper", ff::ProposalKind::paper},
                               {"mixed", ff::ProposalKind::mixed}},
                              "kind of proposals: structured, paper, mixed");
  app.add_option("--threads", settings.threads,
                 "number of threads; default: as many as processors, at most one per chain")
      ->check(CLI::Range(1, 1024));
  app.add_option_function<std::string>(
         "--schedule", [&settings](const std::string& word) { settings.task_order = schedules.at(word); },
         "order of a device's tasks: auto, fifo, critical-path, latest-start, 1f1b; default: auto with mcmc, else fifo "
         "(1f1b with micro-batches)")
      ->check(ff::renamed_words({{"ready", "fifo"}, {"best", "auto"}}))
      ->check([](const std::string& word) {
        return word != "interleaved" ? ""
                                     : "interleaved pipelines are plans with several chunks of layers per device "
                                       "(--algorithm pipeline chooses them); their order is 1f1b";
      })
      ->check(CLI::IsMember(schedules));
  ff::add_renamed_flag(app, "--task-order", "--schedule");
  add_words<ff::SimulatorKind>(
      app, "--simulator", search.simulator,
      {{"delta", ff::SimulatorKind::delta}, {"full", ff::SimulatorKind::full}, {"checked", ff::SimulatorKind::checked}},
      "simulation of proposals: delta, full (same result, slower), checked (delta, compared)");
  app.add_option("--beta", search.beta,
                 "a strategy slower by x is accepted with probability exp(-beta x); default: 2000 structured, else 500")
      ->check(ff::finite_non_negative());
}

// Those of a search that compare does not have.
void add_own_search_flags(CLI::App& app, ff::SearchOptions& search) {
  using ff::exhaustive::Assignments;
  app.add_option("--algorithm", search.algorithm, "search algorithm or baseline; the list is below")
      ->check(CLI::IsMember(ff::algorithm_names()))
      ->capture_default_str();
  add_words<Assignments>(app, "--assignments", search.settings.assignments,
                         {{"all", Assignments::all}, {"consecutive", Assignments::consecutive}},
                         "devices that exhaustive search tries: all, consecutive");
  app.add_flag("--check-local", search.settings.check_local,
               "go on to a local optimum: no change of one operator is better");
  app.add_option("--out", search.out, "strategy file to write")->check(ff::file_name())->capture_default_str();
  app.add_option("--trace", search.trace, "file to write with the simulated iteration, as a Chrome/Perfetto trace")
      ->check(ff::file_name());
  app.add_option("--report", search.report, "file to write with the result, as --json prints it")
      ->check(ff::file_name());
  add_html_flag(app, search.html);
  add_background_flag(app, search.background);
}

std::string preset_list() {
  std::string list;
  for (const std::string& name : ff::discovery::preset_names()) list += (list.empty() ? "" : ", ") + name;
  return list;
}

void add_topology_command(CLI::App& app, Options& options) {
  CLI::App* topology =
      app.add_subcommand("topology", "describe this machine, or a cluster of such machines, as a topology file");
  topology->add_option("--out", options.topology.out, "topology file to write (fftopology/1)")
      ->required()
      ->check(ff::file_name());
  topology->add_option("--nodes", options.topology.nodes, "number of machines, joined by a network")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  topology
      ->add_option("--network-gb-per-s", options.topology.network_gb_per_s,
                   "rate of each network adapter, 1e9 bytes per second; default: as the adapters report")
      ->check(ff::number_between(1e-4, 1e12, "0.0001 to 1e+12"));
  auto* preset =
      topology->add_option("--preset", options.topology.preset, "known machine, instead of this one: " + preset_list());
  topology->add_option("--gpus-per-node", options.topology.gpus_per_node, "GPUs of a machine of the preset; default: 8")
      ->check(CLI::Range(1, 4096))
      ->needs(preset);
  topology
      ->add_option("--hwloc-xml", options.topology.hwloc_xml,
                   "describe the machine that lstopo FILE.xml recorded, instead of this one")
      ->excludes(preset);
  topology
      ->add_option("--cpu-ranks", options.topology.cpu_ranks,
                   "devices of a machine without GPUs; default: one per NUMA node")
      ->check(CLI::Range(1, 4096))
      ->excludes(preset);
  topology->add_flag("--json", options.json, "print the topology as JSON");
  topology->add_flag("--quiet", options.quiet, "print errors only");
}

void add_plan_command(CLI::App& app, Options& options) {
  CLI::App* plan = app.add_subcommand("plan", "find the best settings of a transformer on many devices");
  add_graph_flags(*plan, options.plan.files, true);
  plan->add_option("--settings", options.plan.settings, "what every plan has: tp=8,recompute=full, ...");
  plan->add_option("--top", options.plan.top, "number of plans to find, the fastest first")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  plan->add_option_function<std::string>(
      "--budget", [&options](const std::string& text) { options.plan.budget_s = parse_duration(text); },
      "search time, such as 30s, 5m, 1h; default: until nothing better is to be expected");
  plan->add_option("--for", options.plan.framework, "print the arguments of megatron, torchtitan or deepspeed")
      ->check(CLI::IsMember({"megatron", "torchtitan", "deepspeed"}));
  plan->add_option("--why", options.plan.why, "the best of each value of a setting: tp, or of one: tp=4; may repeat");
  plan->add_flag("--stages", options.plan.stages, "what the devices of each stage of the best plan do, and how long");
  plan->add_option("--what-if", options.plan.what_if,
                   "predict the best plans under a change: link network bandwidth x2, memory x0.5, batch N, device D "
                   "x0.5; may repeat");
  plan->add_flag("--largest-batch", options.plan.largest_batch, "the largest batch with which the best plan fits");
  plan->add_option("--out", options.plan.out, "strategy file to write, of the best plan, after all plans are printed")
      ->check(ff::file_name());
  add_common_flags(*plan, options.plan.costs, options);
}

void add_search_command(CLI::App& app, Options& options) {
  add_graph_flags(app, options.search.files, false);
  add_common_flags(app, options.search.costs, options);
  add_strategy_flags(app, options.search.strategy, &options.search.choose, &options.search.decided);
  add_micro_batches_flag(app, options.search.strategy.micro_batches, &options.search.choose.micro_batches,
                         &options.search.decided.micro_batches);
  add_search_flags(app, options.search.settings, options.search.files, options);
  add_own_search_flags(app, options.search);
}

// What is said instead of what the strategy says.
void add_replaced_settings_flags(CLI::App& simulate, ff::SimulateOptions& options) {
  const std::string otherwise = "; default: that of the strategy";
  simulate.add_option_function<std::string>(
      "--recompute", [&options](const std::string& text) { options.recompute = read_recomputation(text); },
      recompute_text + otherwise);
  simulate.add_option("--sharding", options.sharding, sharding_text + otherwise);
  const auto read_synchronization = [&options](const std::string& found) {
    for (const auto& [word, meaning] : synchronizations)
      if (word == found) options.synchronization = meaning;
  };
  simulate
      .add_option_function<std::string>("--synchronization", read_synchronization, synchronization_text + otherwise)
      ->check(ff::renamed_words(renamed_synchronizations))
      ->check(CLI::IsMember({"all-reduce", "parameter-server"}));
}

void add_simulate_command(CLI::App& app, Options& options) {
  CLI::App* simulate = app.add_subcommand("simulate", "predict the iteration time of a strategy");
  ff::add_plan_flags(*simulate, options.simulate.strategy, options.simulate.given, /*replaces_topology=*/true);
  add_replaced_settings_flags(*simulate, options.simulate);
  simulate->add_option("--out", options.simulate.out, "strategy file to write, with the new issue order and prediction")
      ->check(ff::file_name());
  simulate
      ->add_option("--trace", options.simulate.trace,
                   "file to write with the simulated iteration, as a Chrome/Perfetto trace")
      ->check(ff::file_name());
  simulate->add_flag("--explain-costs", options.simulate.explain_costs,
                     "print for each kind of kernel where its time comes from");
  CLI::Option* html = add_html_flag(*simulate, options.simulate.html);
  add_background_flag(*simulate, options.simulate.background);
  simulate
      ->add_option("--measured", options.simulate.measured,
                   "trace of ffexec --trace, for --html to compare with the prediction")
      ->needs(html);
  add_common_flags(*simulate, options.simulate.costs, options);
}

void add_edit_command(CLI::App& app, Options& options) {
  CLI::App* edit = app.add_subcommand("edit", "change configurations of a strategy and predict the result");
  edit->add_option("edits", options.edit.edits,
                   "'OPERATORS: SPLIT on DEVICES', as in 'fc1: sample 4 x channel 2 on 0-7'; DEVICES: numbers or "
                   "names; may repeat")
      ->required();
  edit->add_option("--strategy", options.edit.strategy, "strategy file (ffstrategy/1)")->required();
  edit->add_option("--out", options.edit.out, "strategy file to write");
  add_common_flags(*edit, options.edit.costs, options);
}

void add_export_command(CLI::App& app, Options& options) {
  CLI::App* exported = app.add_subcommand("export", "the nearest settings of a training framework");
  exported->add_option("--strategy", options.exported.strategy, "strategy file (ffstrategy/1)")->required();
  exported->add_option("--for", options.exported.framework, "megatron, torchtitan or deepspeed")
      ->required()
      ->check(CLI::IsMember({"megatron", "torchtitan", "deepspeed"}));
  add_common_flags(*exported, options.exported.costs, options);
}

void add_compare_command(CLI::App& app, Options& options) {
  CLI::App* compare = app.add_subcommand("compare", "run every algorithm and compare the results");
  add_graph_flags(*compare, options.compare.files, true);
  add_common_flags(*compare, options.compare.costs, options);
  add_strategy_flags(*compare, options.compare.strategy, nullptr, nullptr);
  add_micro_batches_flag(*compare, options.compare.strategy.micro_batches, nullptr, nullptr);
  add_search_flags(*compare, options.compare.settings, options.compare.files, options);
  add_html_flag(*compare, options.compare.html);
  add_background_flag(*compare, options.compare.background);
}

void add_profile_command(CLI::App& app, Options& options) {
  CLI::App* profile = app.add_subcommand("profile", "measure the kernel times that a search needs");
  add_graph_flags(*profile, options.profile.files, true);
  profile
      ->add_option("--out", options.profile.out, "profile file to write; its entries are kept and not measured again")
      ->required()
      ->check(ff::file_name());
  profile->add_option("--device-model", options.profile.device_model,
                      "device model of the topology to measure, where this machine has several");
  add_precision_flag(*profile, options.profile.precision);
  profile->add_flag("--quiet", options.quiet, "print errors only");
}

void add_import_command(CLI::App& app, Options& options) {
  CLI::App* onnx = app.add_subcommand("import", "make an operator graph of an ONNX model or a config.json");
  ff::add_import_flags(*onnx, options.onnx);
  onnx->add_flag("--json", options.json, "print one JSON object on stdout and nothing else there");
  onnx->add_flag("--quiet", options.quiet, "print errors only");
}

void add_commands(CLI::App& app, Options& options) {
  app.set_version_flag("--version", "ffsearch " + ff::version_text());
  add_search_command(app, options);
  add_simulate_command(app, options);
  add_plan_command(app, options);
  add_edit_command(app, options);
  add_export_command(app, options);
  ff::add_explain_commands(app, options.explain, options.diff, [&options](CLI::App& command, ff::CostOptions& costs) {
    add_common_flags(command, costs, options);
  });
  add_compare_command(app, options);
  add_profile_command(app, options);
  add_import_command(app, options);
  add_topology_command(app, options);
  app.require_subcommand(0, 1);
}

void read_budget(const CLI::App& app, const std::string& budget, ff::McmcSettings& search) {
  if (app.count("--budget") > 0) search.budget_s = parse_duration(budget);
}

// What is given instead of a strategy file says itself what these flags replace.
void check_replaced_settings(const CLI::App& simulate) {
  for (const std::string given : {"--settings", "--megatron", "--torchtitan"})
    for (const std::string key : {"recompute", "sharding"})
      if (simulate.count(given) > 0 && simulate.count("--" + key) > 0)
        throw CLI::ValidationError(
            "--" + key, "goes with --strategy; " + (given == "--settings" ? "give " + key + "=... among the settings"
                                                                          : "give it in " + given));
}

// Flags that would have no effect are mistakes.
void check_flags_that_go_together(const CLI::App& app, const ff::SearchOptions& search) {
  for (const CLI::App* command : app.get_subcommands())
    for (const CLI::Option* option : app.get_options())
      if (option->count() > 0)
        throw CLI::ValidationError(option->get_name(),
                                   "stands before \"" + command->get_name() + "\", expected after it");
  if (app.got_subcommand("simulate")) check_replaced_settings(*app.get_subcommand("simulate"));
  if (!app.get_subcommands().empty()) return;
  const std::string& algorithm = search.algorithm;
  const bool chains = algorithm == "mcmc" || algorithm == "placement";
  for (const char* flag : {"--check-local", "--init"})
    if (!chains && app.count(flag) > 0) throw CLI::ValidationError(flag, "goes with --algorithm mcmc or placement");
  if (algorithm != "exhaustive" && app.count("--assignments") > 0)
    throw CLI::ValidationError("--assignments", "goes with --algorithm exhaustive");
}

void print_note(const std::string& note, const Options& options) {
  if (!options.quiet) std::cerr << "ffsearch: note: " << note << std::endl;
}

void print(const ff::CommandResult& result, const Options& options) {
  for (const std::string& note : result.notes) print_note(note, options);
  if (options.json) std::cout << result.json.dump() << std::endl;
  else if (!options.quiet) std::cout << result.text << std::flush;
  if (!std::cout) throw ff::MachineError("cannot write to standard output");
}

// Runs the command and prints its result.
void run(const CLI::App& app, const Options& options, const std::atomic<bool>& stop, ff::BestKnown& best_known) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond "ulimit -f" is an error of its write
  const bool interactive = isatty(STDERR_FILENO) == 1 && !options.quiet;
  ff::CommandContext context{stop, best_known, {}, {}, {}};
  if (interactive) {
    context.search_progress = show_progress;
    context.settings_progress = show_settings_progress;
    context.measure_progress = [](int64_t done, int64_t all, const std::string& what) {
      std::fprintf(stderr, "\rmeasuring kernels  %lld of %lld  %-60.60s", static_cast<long long>(done),
                   static_cast<long long>(all), what.c_str());
    };
  }
  ff::CommandResult result;
  if (app.got_subcommand("simulate")) result = ff::run_simulate(options.simulate);
  else if (app.got_subcommand("plan")) result = ff::run_plan(options.plan, context);
  else if (app.got_subcommand("edit")) result = ff::run_edit(options.edit);
  else if (app.got_subcommand("export")) result = ff::run_export(options.exported);
  else if (app.got_subcommand("explain")) result = ff::run_explain(options.explain);
  else if (app.got_subcommand("diff")) result = ff::run_diff(options.diff);
  else if (app.got_subcommand("compare")) result = ff::run_compare(options.compare, context);
  else if (app.got_subcommand("import")) result = ff::run_import(options.onnx);
  else if (app.got_subcommand("profile")) result = ff::run_profile(options.profile, context);
  else if (app.got_subcommand("topology")) result = ff::run_topology(options.topology);
  else result = ff::run_search(options.search, context);
  if (interactive) std::fputs("\r\033[K", stderr);
  print(result, options);
  if (app.got_subcommand("plan") && !options.plan.out.empty()) {
    for (const std::string& note : ff::write_best_plan(options.plan, result)) print_note(note, options);
    if (!options.json && !options.quiet) std::cout << "written to " << options.plan.out << std::endl;
  }
}

constexpr const char* out_of_memory_text =
    "ffsearch: out of memory: this problem needs more than this process may have (ulimit -v, control group); fewer "
    "--threads, --chains or devices need less\n";

// Once, however many threads find that there is none.
void say_out_of_memory() {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  if (write(STDERR_FILENO, out_of_memory_text, std::strlen(out_of_memory_text)) < 0) {  // nobody reads it
  }
}

// Memory that is given back when there is no more, so that what is thrown then can be handled: destructors of JSON
// values allocate. Where this does not do, the message is all that is left.
std::atomic<char*> reserve{nullptr};

void handle_out_of_memory() {
  if (char* bytes = reserve.exchange(nullptr)) {
    delete[] bytes;
    throw std::bad_alloc();
  }
  say_out_of_memory();
  _exit(ff::exit_machine);
}

void keep_reserve() {
  constexpr size_t bytes = size_t{4} << 20;
  reserve = new char[bytes];
  std::set_new_handler(handle_out_of_memory);
}

// Each evaluation of a large plan allocates gigabytes and frees them: pages that are kept need no second fault.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

// Pages of 2 MB for a quarter of the machine's memory, where the kernel gives them on request only (Ubuntu's default):
// fewer faults and fewer misses of the TLB. The heap grows at once, without a page of it being touched, and keeps what
// is freed. Not under a limit of memory, which the address space would count against.
void ask_for_huge_pages() {
#if defined(__GLIBC__) && defined(MADV_HUGEPAGE)
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA})
    if (rlimit limit{}; getrlimit(resource, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) / 4 * page;
  void* const room = std::malloc(bytes);
  if (!room) return;
  void* begin = room;
  size_t left = bytes;
  if (std::align(page, page, begin, left)) madvise(begin, left / page * page, MADV_HUGEPAGE);
  std::free(room);
#endif
}

// Of --simulator checked: what repeats the wrong answer.
std::string write_disagreement(const ff::SimulationDisagreement& error) {
  constexpr const char *before = "checked-before.json", *proposed = "checked-proposed.json";
  try {
    ff::write_json_file(before, error.before);
    ff::write_json_file(proposed, error.proposed);
  } catch (const std::exception& failure) {
    return std::string("; the strategies could not be written: ") + failure.what();
  }
  return std::string("; the strategy before the change is written to ") + before + ", with it to " + proposed;
}

// Of --help: which flags stand together. Those of no other group are about the output.
const ff::Vector<std::pair<std::string, ff::Vector<std::string>>> help_groups = {
    {"Problem",
     {"graph",
      "topo",
      "strategy",
      "settings",
      "sequence",
      "batch",
      "batch-per-device",
      "annotations",
      "background",
      "synchronization",
      "sharding",
      "recompute",
      "micro-batches",
      "nodes",
      "network-gb-per-s",
      "preset",
      "gpus-per-node",
      "hwloc-xml",
      "cpu-ranks",
      "size",
      "loss",
      "loss-weights",
      "like",
      "trained",
      "frozen",
      "what-if",
      "device-model",
      "measured"}},
    {"Search",
     {"algorithm", "budget", "proposals", "seed", "chains", "init", "proposals-from", "threads", "schedule",
      "simulator", "beta", "assignments", "check-local", "top"}},
    {"Costs", {"cost", "profile", "precision", "optimizer", "momentum"}},
    {"Output", {}}};

void declare(CLI::App& app, Options& options) {
  ff::Vector<std::string> group_names;
  for (const auto& [name, flags] : help_groups) group_names.push_back(name);
  app.formatter(std::make_shared<ff::HelpFormatter>(group_names));  // the commands' too
  add_commands(app, options);
  ff::set_help_groups(app, help_groups);
  app.footer(algorithms_text() + ff::exit_codes_text());
}

// Throws CLI::ParseError, also where flags do not go together.
void read_command_line(CLI::App& app, Options& options, int count, char** arguments) {
  app.parse(count, arguments);
  const ff::ProblemFiles& files = options.search.files;
  if (app.get_subcommands().empty() && (files.graph.empty() || files.topology.empty()))
    throw CLI::RequiredError(files.graph.empty() ? "--graph" : "--topo");
  if (app.got_subcommand("compare"))
    read_budget(*app.get_subcommand("compare"), options.budget, options.compare.settings.search);
  else read_budget(app, options.budget, options.search.settings.search);
  check_flags_that_go_together(app, options.search);
}

// What the first Ctrl-C finds: a search writes its best strategy, other commands have none.
void tell_what_is_written(const CLI::App& app, const Options& options, ff::BestKnown& best_known) {
  if (app.got_subcommand("profile"))
    best_known.nothing_to_write("while measuring kernels; " + options.profile.out +
                                " has those that were measured until two seconds before");
  else if (!app.get_subcommands().empty()) best_known.nothing_to_write("");
}

// Runs the command; what fails is said here. The exit code.
int run_and_report(const CLI::App& app, const Options& options, ff::BestKnown& best_known) {
  const std::atomic<bool>& stop_requested = ff::handle_interruption(best_known);
  try {
    run(app, options, stop_requested, best_known);
    return stop_requested ? ff::exit_interrupted : ff::exit_done;
  } catch (const ff::InputError& error) {
    std::cerr << "ffsearch: " << error.what() << std::endl;
    return stop_requested ? ff::exit_interrupted : ff::exit_input;
  } catch (const ff::SimulationDisagreement& error) {
    std::cerr << "ffsearch: " << error.what() << write_disagreement(error) << std::endl;
    return ff::exit_machine;
  } catch (const ff::MachineError& error) {
    std::cerr << "ffsearch: " << error.what() << std::endl;
    return stop_requested ? ff::exit_interrupted : ff::exit_machine;
  } catch (const std::bad_alloc&) {
    say_out_of_memory();
    return ff::exit_machine;
  } catch (const std::system_error& error) {
    std::cerr << "ffsearch: the system refused a thread or a lock: " << error.what()
              << "; use fewer --threads or raise the limit (ulimit -u, ulimit -v)" << std::endl;
    return ff::exit_machine;
  } catch (const std::exception& error) {
    std::cerr << "ffsearch: " << error.what() << std::endl;
    return ff::exit_machine;
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  ask_for_huge_pages();
  keep_reserve();
  CLI::App app{"finds a fast parallelization strategy for training a DNN on given devices", "ffsearch"};
  Options options;
  declare(app, options);
  if (const auto text = ff::describe_command_line(app, argc, argv)) {
    std::cout << *text;
    return ff::exit_done;
  }
  try {
    read_command_line(app, options, argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ff::exit_done : ff::exit_usage;
  }
  static ff::BestKnown best_known;  // for as long as the process lasts
  tell_what_is_written(app, options, best_known);
  return run_and_report(app, options, best_known);
}
