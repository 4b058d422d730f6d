// ffsearch: command line only.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <system_error>

#include "common/command_line.h"
#include "common/manual.h"
#include "common/signals.h"
#include "common/version.h"
#include "search/commands.h"
#include "search/discovery/discover.h"
#include "search/explain_flags.h"
#include "search/import/command.h"
#include "search/import/flags.h"
#include "search/optimizer/mcmc/simulation_check.h"
#include "search/report/summary.h"

namespace {

std::atomic<bool> stop_requested{false};

void request_stop(int) {
  if (stop_requested.exchange(true)) _exit(ff::exit_interrupted);  // a second Ctrl-C does not wait
}

void show_progress(const ff::SearchProgress& progress) {
  const std::string devices = progress.devices > 0 ? std::to_string(progress.devices) + " devices:  " : "";
  std::fprintf(
      stderr, "\r%s%6.1f s  %lld proposals (%.0f/s)  current %s  best %s  accepted %.1f %%   ", devices.c_str(),
      progress.elapsed_s, static_cast<long long>(progress.proposals),
      static_cast<double>(progress.proposals) / std::max(progress.elapsed_s, 1e-9),
      ff::time_text(progress.current).c_str(), ff::time_text(progress.best).c_str(),
      100.0 * static_cast<double>(progress.accepted) / static_cast<double>(std::max<int64_t>(progress.proposals, 1)));
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
               const ff::Vector<std::pair<std::string, Value>>& words, const std::string& description) {
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
  app.add_option_function<std::string>(flag, read, description)->check(CLI::IsMember(names))->default_str(otherwise);
}

// What --algorithm takes, a line each.
std::string algorithms_text() {
  std::string text = "how to find the strategy:";
  for (const ff::Algorithm& algorithm : ff::algorithms()) text += "\n" + algorithm.name + ": " + algorithm.summary;
  return text + "\n";
}

ff::Vector<std::string> init_names() {
  ff::Vector<std::string> names = ff::cheap_algorithm_names();
  names.insert(names.end(), {"best", "random"});
  return names;
}

// What the flags say: each command's options, and what is for printing alone.
struct Options {
  ff::SearchOptions search;
  ff::SimulateOptions simulate;
  ff::CompareOptions compare;
  ff::ExplainOptions explain;
  ff::DiffOptions diff;
  ff::ProfileOptions profile;
  ff::ImportOptions onnx;
  ff::TopologyOptions topology;
  std::string budget;
  bool json = false, quiet = false;
};

void add_graph_flags(CLI::App& app, ff::ProblemFiles& files, bool required) {
  auto* graph = app.add_option("--graph", files.graph, "operator graph (ffgraph/1)");
  auto* topology = app.add_option("--topo", files.topology, "device topology (fftopology/1)");
  if (required) graph->required(), topology->required();
  auto* batch = app.add_option("--batch", files.batch, "batch size, instead of the graph file's")
                    ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  app.add_option("--batch-per-device", files.batch_per_device,
                 "batch size as so many samples for each device of the topology")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32))
      ->excludes(batch);
}

void add_precision_flag(CLI::App& app, ff::Precision& precision) {
  using enum ff::Precision;
  add_words<ff::Precision>(app, "--precision", precision, {{"fp32", fp32}, {"tf32", tf32}},
                           "of matrix products and convolutions on GPUs, as ffexec's");
}

void add_common_flags(CLI::App& app, ff::CostOptions& costs, Options& options) {
  using enum ff::CostMode;
  add_precision_flag(app, costs.precision);
  add_words<ff::CostMode>(
      app, "--cost", costs.mode,
      {{"auto", automatic}, {"measure", measure}, {"profile", profile}, {"analytic", analytic}},
      "where kernel times come from: auto (profile, else measured if this machine has the device, else "
      "analytic), measure, profile, analytic");
  app.add_option("--profile", costs.profiles,
                 "profile file (ffprofile/1) with measured kernel times, may be given once for each device model; of a "
                 "directory, the file MODEL.json of each device model of the topology");
  app.add_flag("--json", options.json, "print one JSON object on stdout and nothing else there");
  app.add_flag("--quiet", options.quiet, "print errors only");
}

CLI::Option* add_html_flag(CLI::App& app, std::string& html) {
  return app.add_option("--html", html, "write a report for people: one HTML file that needs nothing else")
      ->check(ff::file_name());
}

void add_background_flag(CLI::App& app, ff::Vector<std::string>& background) {
  app.add_option("--background", background,
                 "strategy file of a job that runs on the same devices all the while; may be given several times: "
                 "plans are for what such jobs leave, and what these lose is said (docs/background.md)")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
}

constexpr const char* synchronization_text =
    "how devices with the same parameters get the same new values: all-reduce of the gradients, behind which each "
    "updates its own; or by an owner, the device of the first part with them, which gathers gradients, updates and "
    "sends the values back behind all else, as FlexFlow's published simulator has it";
const ff::Vector<std::pair<std::string, ff::Synchronization>> synchronizations = {
    {"all-reduce", ff::Synchronization::all_reduce}, {"owner", ff::Synchronization::owner}};

void add_synchronization_flag(CLI::App& app, ff::Synchronization& synchronization) {
  add_words<ff::Synchronization>(app, "--synchronization", synchronization, synchronizations, synchronization_text);
}

const std::map<std::string, ff::TaskOrder> task_orders{{"ready", ff::TaskOrder::ready},
                                                       {"critical-path", ff::TaskOrder::critical_path},
                                                       {"latest-start", ff::TaskOrder::latest_start},
                                                       {"best", ff::TaskOrder::best}};

void add_search_flags(CLI::App& app, ff::AlgorithmSettings& settings, ff::ProblemFiles& files, Options& options) {
  ff::McmcSettings& search = settings.search;
  app.add_option("--annotations", files.annotations,
                 "what is decided already (ffannotations/1): splits, replication, devices of operators and tensors; "
                 "propagate completes them, every algorithm keeps to them or says that it cannot");
  app.add_option(
      "--budget", options.budget,
      "search for so long (30s, 5m, 1h), less where nothing better turns up; without it and --proposals until "
      "nothing better is to be expected, two minutes at most");
  app.add_option("--proposals", search.proposals, "search with so many proposals")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 53));
  app.add_option("--seed", search.seed, "seed of all random choices")->check(ff::whole_number())->capture_default_str();
  app.add_option("--chains", search.chains,
                 "Markov chains that compete, or, with --proposals-from paper or mixed, do not know of each other")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--init", settings.init,
                 "what the chains start from, one after the other; further chains from the last; random is another "
                 "strategy for each, best the best of the "
                 "others. Default: data-parallel,best,random, and the result is never worse than any of the others")
      ->delimiter(',')
      ->check(CLI::IsMember(init_names()));
  add_words<ff::ProposalKind>(
      app, "--proposals-from", search.proposals_from,
      {{"structured", ff::ProposalKind::structured},
       {"paper", ff::ProposalKind::paper},
       {"mixed", ff::ProposalKind::mixed}},
      "structured: changes of operators that belong together, by chains that compete; paper: a random configuration "
      "for one operator; mixed: these and others; with both, chains do not know of each other (docs/algorithms.md)");
  app.add_option(
         "--threads", settings.threads,
         "threads that run chains, and beyond these look at several proposals of one; never changes the result of "
         "--proposals. Default: as many as there are processors, at most one for each chain, and fewer where there "
         "are more than 128 devices, for memory")
      ->check(CLI::Range(1, 1024));
  app.add_option_function<std::string>(
         "--task-order", [&settings](const std::string& word) { settings.task_order = task_orders.at(word); },
         "of what is found, in which each device runs its tasks: ready, as they become ready; critical-path, of those "
         "that are ready the one with the longest path behind it; latest-start, the one that a schedule from the end "
         "backwards begins first; best, whichever is fastest. Default: best with mcmc, "
         "else ready")
      ->check(CLI::IsMember(task_orders));
  add_words<ff::SimulatorKind>(
      app, "--simulator", search.simulator,
      {{"delta", ff::SimulatorKind::delta}, {"full", ff::SimulatorKind::full}, {"checked", ff::SimulatorKind::checked}},
      "delta re-times what a proposal changed; full re-times everything: same result, more slowly; checked compares "
      "each answer of delta with slower simulations and ends with exit code 3 at the first difference");
  app.add_option("--beta", search.beta,
                 "a strategy slower by the share x is accepted with probability exp(-beta x); 2000 with structured "
                 "proposals, 500 with others")
      ->check(ff::finite_non_negative());
}

// Those of a search that compare does not have.
void add_own_search_flags(CLI::App& app, ff::SearchOptions& search) {
  using ff::exhaustive::Assignments;
  app.add_option("--algorithm", search.algorithm, algorithms_text())
      ->check(CLI::IsMember(ff::algorithm_names()))
      ->capture_default_str();
  add_words<Assignments>(app, "--assignments", search.settings.assignments,
                         {{"all", Assignments::all}, {"consecutive", Assignments::consecutive}},
                         "exhaustive: all, each part on any device; consecutive, part p on device first + p");
  app.add_flag("--check-local", search.settings.check_local,
               "go on until no strategy is better that differs in one operator; with mcmc and placement");
  app.add_option("--out", search.out, "strategy file to write")->check(ff::file_name())->capture_default_str();
  app.add_option("--trace", search.trace, "write the simulated iteration as a Chrome/Perfetto trace")
      ->check(ff::file_name());
  app.add_option("--report", search.report, "write the result (as --json prints it) to a file")->check(ff::file_name());
  add_html_flag(app, search.html);
  add_background_flag(app, search.background);
}

void add_topology_command(CLI::App& app, Options& options) {
  CLI::App* topology = app.add_subcommand("topology", "what this machine is, or a cluster of such machines");
  topology->add_option("--out", options.topology.out, "topology file to write (fftopology/1)")
      ->required()
      ->check(ff::file_name());
  topology->add_option("--nodes", options.topology.nodes, "so many machines, joined by a network")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  topology
      ->add_option("--network-gb-per-s", options.topology.network_gb_per_s,
                   "rate of each network adapter, or of a machine without one, in 1e9 bytes a second; default: as the "
                   "adapters say")
      ->check(CLI::Range(1e-4, 1e12));
  topology->add_option("--hwloc-xml", options.topology.hwloc_xml,
                       "another machine, as lstopo FILE.xml recorded it there, instead of this one");
  topology
      ->add_option("--cpu-ranks", options.topology.cpu_ranks,
                   "devices of a machine without GPUs; default: one for each NUMA node")
      ->check(CLI::Range(1, 4096));
  topology->add_flag("--json", options.json, "print the topology on stdout");
  topology->add_flag("--quiet", options.quiet, "print errors only");
}

void add_commands(CLI::App& app, Options& options) {
  app.set_version_flag("--version", "ffsearch " + ff::version_text());
  add_graph_flags(app, options.search.files, false);
  add_common_flags(app, options.search.costs, options);
  add_synchronization_flag(app, options.search.synchronization);
  add_search_flags(app, options.search.settings, options.search.files, options);
  add_own_search_flags(app, options.search);

  CLI::App* simulate = app.add_subcommand("simulate", "what would this strategy take?");
  simulate->add_option("--strategy", options.simulate.strategy, "strategy file (ffstrategy/1)")->required();
  simulate->add_option("--topo", options.simulate.topology, "topology to simulate on, instead of the strategy's own");
  const auto read_synchronization = [&options](const std::string& found) {
    for (const auto& [word, meaning] : synchronizations)
      if (word == found) options.simulate.synchronization = meaning;
  };
  simulate
      ->add_option_function<std::string>("--synchronization", read_synchronization,
                                         std::string("instead of the strategy's own: ") + synchronization_text)
      ->check(CLI::IsMember({"all-reduce", "owner"}));
  simulate->add_option("--out", options.simulate.out, "write the strategy with the new issue order and prediction")
      ->check(ff::file_name());
  simulate->add_option("--trace", options.simulate.trace, "write the simulated iteration as a Chrome/Perfetto trace")
      ->check(ff::file_name());
  CLI::Option* html = add_html_flag(*simulate, options.simulate.html);
  add_background_flag(*simulate, options.simulate.background);
  simulate
      ->add_option("--measured", options.simulate.measured,
                   "what one iteration took, as ffexec --trace wrote it, for the report to show beside the prediction")
      ->needs(html);
  add_common_flags(*simulate, options.simulate.costs, options);

  ff::add_explain_commands(app, options.explain, options.diff, [&options](CLI::App& command, ff::CostOptions& costs) {
    add_common_flags(command, costs, options);
  });

  CLI::App* compare = app.add_subcommand("compare", "every algorithm side by side");
  add_graph_flags(*compare, options.compare.files, true);
  add_common_flags(*compare, options.compare.costs, options);
  add_synchronization_flag(*compare, options.compare.synchronization);
  add_search_flags(*compare, options.compare.settings, options.compare.files, options);
  add_html_flag(*compare, options.compare.html);
  add_background_flag(*compare, options.compare.background);

  CLI::App* profile = app.add_subcommand("profile", "measure every kernel that a search could ask for");
  add_graph_flags(*profile, options.profile.files, true);
  profile
      ->add_option("--out", options.profile.out,
                   "profile file to write; what it holds already is kept and not measured again")
      ->required()
      ->check(ff::file_name());
  profile->add_option("--device-model", options.profile.device_model,
                      "which of the topology's device models to measure, where this machine has several");
  add_precision_flag(*profile, options.profile.precision);
  profile->add_flag("--quiet", options.quiet, "print errors only");
  CLI::App* onnx = app.add_subcommand("import", "an ONNX model as an operator graph");
  ff::add_import_flags(*onnx, options.onnx);
  onnx->add_flag("--json", options.json, "print one JSON object on stdout and nothing else there");
  onnx->add_flag("--quiet", options.quiet, "print errors only");
  add_topology_command(app, options);
  app.require_subcommand(0, 1);
}

void read_budget(const CLI::App& app, const std::string& budget, ff::McmcSettings& search) {
  if (app.count("--budget") > 0) search.budget_s = parse_duration(budget);
}

// Flags that would have no effect are mistakes.
void check_flags_that_go_together(const CLI::App& app, const ff::SearchOptions& search) {
  for (const CLI::App* command : app.get_subcommands())
    for (const CLI::Option* option : app.get_options())
      if (option->count() > 0)
        throw CLI::ValidationError(option->get_name(),
                                   "stands before \"" + command->get_name() + "\", expected behind it");
  if (!app.get_subcommands().empty()) return;
  const std::string& algorithm = search.algorithm;
  const bool chains = algorithm == "mcmc" || algorithm == "placement";
  for (const char* flag : {"--check-local", "--init"})
    if (!chains && app.count(flag) > 0) throw CLI::ValidationError(flag, "goes with --algorithm mcmc or placement");
  if (algorithm != "exhaustive" && app.count("--assignments") > 0)
    throw CLI::ValidationError("--assignments", "goes with --algorithm exhaustive");
}

// Runs the command and prints its result.
void run(const CLI::App& app, const Options& options) {
  for (const int signal : {SIGINT, SIGTERM}) ff::handle_signal(signal, request_stop);
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond "ulimit -f" is an error of its write
  const bool interactive = isatty(STDERR_FILENO) == 1 && !options.quiet;
  ff::CommandContext context{stop_requested, {}, {}};
  if (interactive) {
    context.search_progress = show_progress;
    context.measure_progress = [](int64_t done, int64_t all, const std::string& what) {
      std::fprintf(stderr, "\rmeasuring kernels  %lld of %lld  %-60.60s", static_cast<long long>(done),
                   static_cast<long long>(all), what.c_str());
    };
  }
  ff::CommandResult result;
  if (app.got_subcommand("simulate")) result = ff::run_simulate(options.simulate);
  else if (app.got_subcommand("explain")) result = ff::run_explain(options.explain);
  else if (app.got_subcommand("diff")) result = ff::run_diff(options.diff);
  else if (app.got_subcommand("compare")) result = ff::run_compare(options.compare, context);
  else if (app.got_subcommand("import")) result = ff::run_import(options.onnx);
  else if (app.got_subcommand("profile")) result = ff::run_profile(options.profile, context);
  else if (app.got_subcommand("topology")) result = ff::run_topology(options.topology);
  else result = ff::run_search(options.search, context);
  if (interactive) std::fputs("\r\033[K", stderr);
  for (const std::string& note : result.notes)
    if (!options.quiet) std::cerr << "ffsearch: note: " << note << std::endl;
  if (options.json) std::cout << result.json.dump() << std::endl;
  else if (!options.quiet) std::cout << result.text << std::flush;
  if (!std::cout) throw ff::MachineError("cannot write to standard output");
}

constexpr const char* out_of_memory_text =
    "ffsearch: out of memory: this problem needs more than this process may have (ulimit -v, control group); fewer "
    "--threads, --chains or devices need less\n";

// Memory that is given back when there is no more, so that what is thrown then can be handled: destructors of JSON
// values allocate. Where this does not do, the message is all that is left.
std::atomic<char*> reserve{nullptr};

void handle_out_of_memory() {
  if (char* bytes = reserve.exchange(nullptr)) {
    delete[] bytes;
    throw std::bad_alloc();
  }
  if (write(STDERR_FILENO, out_of_memory_text, std::strlen(out_of_memory_text)) < 0) {  // nobody reads it
  }
  _exit(ff::exit_machine);
}

void keep_reserve() {
  constexpr size_t bytes = size_t{4} << 20;
  reserve = new char[bytes];
  std::set_new_handler(handle_out_of_memory);
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

}  // namespace

int main(int argc, char** argv) {
  keep_reserve();
  CLI::App app{"finds a fast parallelization strategy for training a DNN on given devices", "ffsearch"};
  Options options;
  add_commands(app, options);
  app.footer(ff::exit_codes_text());
  if (const auto text = ff::describe_command_line(app, argc, argv)) {
    std::cout << *text;
    return ff::exit_done;
  }
  try {
    app.parse(argc, argv);
    const ff::ProblemFiles& files = options.search.files;
    if (app.get_subcommands().empty() && (files.graph.empty() || files.topology.empty()))
      throw CLI::RequiredError(files.graph.empty() ? "--graph" : "--topo");
    if (app.got_subcommand("compare"))
      read_budget(*app.get_subcommand("compare"), options.budget, options.compare.settings.search);
    else read_budget(app, options.budget, options.search.settings.search);
    check_flags_that_go_together(app, options.search);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ff::exit_done : ff::exit_usage;
  }
  try {
    run(app, options);
    return stop_requested ? ff::exit_interrupted : ff::exit_done;
  } catch (const ff::InputError& error) {
    std::cerr << "ffsearch: " << error.what() << std::endl;
    return ff::exit_input;
  } catch (const ff::SimulationDisagreement& error) {
    std::cerr << "ffsearch: " << error.what() << write_disagreement(error) << std::endl;
    return ff::exit_machine;
  } catch (const ff::MachineError& error) {
    std::cerr << "ffsearch: " << error.what() << std::endl;
    return stop_requested ? ff::exit_interrupted : ff::exit_machine;
  } catch (const std::bad_alloc&) {
    std::cerr << out_of_memory_text;
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
