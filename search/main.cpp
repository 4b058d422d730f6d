// ffsearch: command line only.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "common/command_line.h"
#include "common/signals.h"
#include "search/commands.h"

namespace {

std::atomic<bool> stop_requested{false};

void request_stop(int) {
  if (stop_requested.exchange(true)) _exit(ff::exit_interrupted);  // a second Ctrl-C does not wait
}

void show_progress(const ff::McmcProgress& progress) {
  std::fprintf(
      stderr, "\r%6.1f s  %lld proposals (%.0f/s)  current %s  best %s  accepted %.1f %%   ", progress.elapsed_s,
      static_cast<long long>(progress.proposals),
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

struct Flags {
  ff::CommandOptions options;
  std::string budget, cost = "auto", simulator = "delta", assignments = "all", proposals_from = "mixed",
                      precision = "fp32";
};

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

void add_precision_flag(CLI::App& app, Flags& flags) {
  app.add_option("--precision", flags.precision, "of matrix products and convolutions on GPUs, as ffexec's")
      ->check(CLI::IsMember({"fp32", "tf32"}))
      ->capture_default_str();
}

void add_common_flags(CLI::App& app, Flags& flags) {
  add_precision_flag(app, flags);
  app.add_option("--cost", flags.cost,
                 "where kernel times come from: auto (profile, else measured if this machine has the device, else "
                 "analytic), measure, profile, analytic")
      ->check(CLI::IsMember({"auto", "measure", "profile", "analytic"}))
      ->capture_default_str();
  app.add_option("--profile", flags.options.profiles,
                 "profile file (ffprofile/1) with measured kernel times; may be given once for each device model");
  app.add_flag("--json", flags.options.json, "print one JSON object on stdout and nothing else there");
  app.add_flag("--quiet", flags.options.quiet, "print errors only");
}

void add_graph_flags(CLI::App& app, Flags& flags, bool required) {
  auto* graph = app.add_option("--graph", flags.options.graph, "operator graph (ffgraph/1)");
  auto* topology = app.add_option("--topo", flags.options.topology, "device topology (fftopology/1)");
  if (required) graph->required(), topology->required();
  auto* batch = app.add_option("--batch", flags.options.batch, "batch size, instead of the graph file's")
                    ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  app.add_option("--batch-per-device", flags.options.batch_per_device,
                 "batch size as so many samples for each device of the topology")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32))
      ->excludes(batch);
}

void add_search_flags(CLI::App& app, Flags& flags) {
  app.add_option("--budget", flags.budget, "search for so long (30s, 5m, 1h); 30s unless --proposals is given");
  app.add_option("--proposals", flags.options.search.proposals, "search with so many proposals")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 53));
  app.add_option("--seed", flags.options.search.seed, "seed of all random choices")
      ->check(ff::whole_number())
      ->capture_default_str();
  app.add_option("--chains", flags.options.search.chains, "independent Markov chains")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--init", flags.options.init,
                 "what the chains start from, one after the other; further chains from the last; random is another "
                 "strategy for each, best the best of the "
                 "others. Default: data-parallel,best,random, and the result is never worse than any of the others")
      ->delimiter(',')
      ->check(CLI::IsMember(init_names()));
  app.add_option("--proposals-from", flags.proposals_from,
                 "paper: a random configuration for one operator; mixed: these and others (docs/algorithms.md)")
      ->check(CLI::IsMember({"paper", "mixed"}))
      ->capture_default_str();
  app.add_option("--threads", flags.options.search.threads,
                 "threads that run chains; never changes the result of --proposals")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--simulator", flags.simulator,
                 "delta re-times what a proposal changed, full re-times everything: same result, more slowly")
      ->check(CLI::IsMember({"delta", "full"}))
      ->capture_default_str();
  app.add_option("--beta", flags.options.search.beta,
                 "a strategy slower by the share x is accepted with probability exp(-beta x)")
      ->check(ff::finite_non_negative())
      ->capture_default_str();
}

// Those of a search that compare does not have.
void add_own_search_flags(CLI::App& app, Flags& flags) {
  app.add_option("--algorithm", flags.options.algorithm, algorithms_text())
      ->check(CLI::IsMember(ff::algorithm_names()))
      ->capture_default_str();
  app.add_option("--assignments", flags.assignments,
                 "exhaustive: all, each part on any device; consecutive, part p on device first + p")
      ->check(CLI::IsMember({"all", "consecutive"}))
      ->capture_default_str();
  app.add_flag("--check-local", flags.options.check_local,
               "go on until no strategy is better that differs in one operator; with mcmc and placement");
  app.add_option("--out", flags.options.out, "strategy file to write")->capture_default_str();
  app.add_option("--trace", flags.options.trace, "write the simulated iteration as a Chrome/Perfetto trace");
  app.add_option("--report", flags.options.report, "write the result (as --json prints it) to a file");
}

// Flags that would have no effect are mistakes.
void check_flags_that_go_together(const CLI::App& app, const Flags& flags) {
  for (const CLI::App* command : app.get_subcommands())
    for (const CLI::Option* option : app.get_options())
      if (option->count() > 0)
        throw CLI::ValidationError(option->get_name(),
                                   "stands before \"" + command->get_name() + "\", expected behind it");
  if (!app.get_subcommands().empty()) return;
  const std::string& algorithm = flags.options.algorithm;
  const bool chains = algorithm == "mcmc" || algorithm == "placement";
  for (const char* flag : {"--check-local", "--init"})
    if (!chains && app.count(flag) > 0) throw CLI::ValidationError(flag, "goes with --algorithm mcmc or placement");
  if (algorithm != "exhaustive" && app.count("--assignments") > 0)
    throw CLI::ValidationError("--assignments", "goes with --algorithm exhaustive");
}

// The flags that are words of a list, as the values they stand for.
void read_words(Flags& flags) {
  flags.options.assignments = flags.assignments == "all" ? ff::Assignments::all : ff::Assignments::consecutive;
  flags.options.search.simulator = flags.simulator == "full" ? ff::SimulatorKind::full : ff::SimulatorKind::delta;
  flags.options.search.proposals_from =
      flags.proposals_from == "mixed" ? ff::ProposalKind::mixed : ff::ProposalKind::paper;
  flags.options.precision = flags.precision == "tf32" ? ff::Precision::tf32 : ff::Precision::fp32;
  flags.options.cost = flags.cost == "measure"    ? ff::CostMode::measure
                       : flags.cost == "profile"  ? ff::CostMode::profile
                       : flags.cost == "analytic" ? ff::CostMode::analytic
                                                  : ff::CostMode::automatic;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"ffsearch finds a fast parallelization strategy for training a DNN on given devices."};
  app.set_version_flag("--version", std::string("ffsearch ") + FF_VERSION);
  Flags flags;
  add_graph_flags(app, flags, false);
  add_common_flags(app, flags);
  add_search_flags(app, flags);
  add_own_search_flags(app, flags);

  CLI::App* simulate = app.add_subcommand("simulate", "what would this strategy take?");
  simulate->add_option("--strategy", flags.options.strategy, "strategy file (ffstrategy/1)")->required();
  simulate->add_option("--topo", flags.options.topology, "topology to simulate on, instead of the strategy's own");
  simulate->add_option("--out", flags.options.simulate_out,
                       "write the strategy with the new issue order and prediction");
  simulate->add_option("--trace", flags.options.trace, "write the simulated iteration as a Chrome/Perfetto trace");
  add_common_flags(*simulate, flags);

  CLI::App* compare = app.add_subcommand("compare", "every algorithm side by side");
  add_graph_flags(*compare, flags, true);
  add_common_flags(*compare, flags);
  add_search_flags(*compare, flags);

  CLI::App* profile = app.add_subcommand("profile", "measure every kernel that a search could ask for");
  add_graph_flags(*profile, flags, true);
  profile
      ->add_option("--out", flags.options.profile_out,
                   "profile file to write; what it holds already is kept and not measured again")
      ->required();
  profile->add_option("--device-model", flags.options.device_model,
                      "which of the topology's device models to measure, where this machine has several");
  add_precision_flag(*profile, flags);
  profile->add_flag("--quiet", flags.options.quiet, "print errors only");
  app.require_subcommand(0, 1);

  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty() && (flags.options.graph.empty() || flags.options.topology.empty()))
      throw CLI::RequiredError(flags.options.graph.empty() ? "--graph" : "--topo");
    if (app.count("--budget") + compare->count("--budget") > 0)
      flags.options.search.budget_s = parse_duration(flags.budget);
    else if (flags.options.search.proposals == 0) flags.options.search.budget_s = 30;
    check_flags_that_go_together(app, flags);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ff::exit_done : ff::exit_usage;
  }
  read_words(flags);

  for (const int signal : {SIGINT, SIGTERM}) ff::handle_signal(signal, request_stop);
  ff::CommandContext context{stop_requested, {}, {}, isatty(STDERR_FILENO) == 1 && !flags.options.quiet};
  if (context.interactive) {
    context.search_progress = show_progress;
    context.measure_progress = [](int64_t done, int64_t all, const std::string& what) {
      std::fprintf(stderr, "\rmeasuring kernels  %lld of %lld  %-60.60s", static_cast<long long>(done),
                   static_cast<long long>(all), what.c_str());
    };
  }

  try {
    ff::CommandResult result;
    if (simulate->parsed()) result = ff::run_simulate(flags.options, context);
    else if (compare->parsed()) result = ff::run_compare(flags.options, context);
    else if (profile->parsed()) result = ff::run_profile(flags.options, context);
    else result = ff::run_search(flags.options, context);
    if (context.interactive) std::fputs("\r\033[K", stderr);
    if (flags.options.json) std::cout << result.json.dump() << std::endl;
    else if (!flags.options.quiet) std::cout << result.text << std::flush;
    if (!std::cout) throw ff::MachineError("cannot write to standard output");
    return stop_requested ? ff::exit_interrupted : ff::exit_done;
  } catch (const ff::InputError& error) {
    std::cerr << "ffsearch: " << error.what() << std::endl;
    return ff::exit_input;
  } catch (const ff::MachineError& error) {
    std::cerr << "ffsearch: " << error.what() << std::endl;
    return stop_requested ? ff::exit_interrupted : ff::exit_machine;
  } catch (const std::bad_alloc&) {
    std::cerr << "ffsearch: out of memory" << std::endl;
    return ff::exit_machine;
  } catch (const std::exception& error) {
    std::cerr << "ffsearch: " << error.what() << std::endl;
    return ff::exit_machine;
  }
}
