// ffexec: the command line.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <thread>

#include "common/command_line.h"
#include "common/manual.h"
#include "common/signals.h"
#include "common/version.h"
#include "executor/commands.h"
#include "executor/failures.h"
#include "executor/transport/in_process.h"
#include "executor/transport/mpi/mpi.h"

namespace {

using namespace ff;

volatile std::sig_atomic_t interrupt_requested = 0;  // a signal handler can reach nothing else

void request_interrupt(int signal) {
  interrupt_requested = 1;
  std::signal(signal, SIG_DFL);  // a second one ends the program at once
}

struct Options {
  TrainOptions train;
  bool calibrate = false, json = false;
  double rank_timeout_s = 30;
  std::string out;
};

void declare(CLI::App& app, Options& options) {
  TrainOptions& train = options.train;
  app.set_version_flag("--version", "ffexec " + version_text());
  auto* strategy = app.add_option("--strategy", train.strategy, "strategy file (ffstrategy/1)");
  auto* iterations =
      app.add_option("--iterations", train.iterations, "training iterations (default 10 without --epochs)")
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--backend", train.backend,
                 "kernels: auto, cpu, cuda; auto: cuda where all devices are GPUs and present")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--transport", train.transport,
                 "data exchange: auto, mpi, nccl; auto: nccl between GPUs, mpi where ranks share one")
      ->check(CLI::IsMember({"auto", "mpi", "nccl"}));
  app.add_option("--precision", train.precision,
                 "fp32, tf32 (products on GPUs), bf16 (activations, products); default: the strategy's")
      ->check(CLI::IsMember({"fp32", "tf32", "bf16"}));
  app.add_flag("--share-gpu", train.share_gpu, "allow several ranks of a node on one GPU");
  app.add_flag("--no-cuda-graph", train.no_cuda_graph, "launch every kernel in every iteration, without a CUDA graph");
  auto* data =
      app.add_option("--data", train.data, "directory with one .npy file per graph input (default: synthetic data)");
  app.add_option("--eval", train.eval, "directory with evaluation data, like --data");
  app.add_option("--epochs", train.epochs, "passes over --data")
      ->needs(data)
      ->excludes(iterations)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  OptimizerFlags& optimizer = train.optimizer;
  app.add_option("--optimizer", optimizer.kind, "sgd, adam, adamw (default: the graph's, or sgd)")
      ->check(CLI::IsMember(optimizer_names()));
  app.add_option("--lr", optimizer.learning_rate, "learning rate (default: the graph's; sgd 0.01, adam 0.001)")
      ->check(finite_non_negative());
  app.add_option("--momentum", optimizer.momentum, "momentum of SGD (default: the graph's, or 0)")
      ->check(finite_non_negative());
  app.add_option("--weight-decay", optimizer.weight_decay, "weight decay (default: the graph's; adamw 0.01, else 0)")
      ->check(finite_non_negative());
  app.add_option("--clip-norm", optimizer.clip_norm,
                 "largest norm of all gradients together; 0: any (default: the graph's)")
      ->check(finite_non_negative());
  app.add_option("--seed", train.seed, "seed of parameters, dropout, data and their order (default 0)")
      ->check(whole_number());
  app.add_flag("--verify", train.verify, "run the same iterations on one device and compare");
  auto* save = app.add_option("--save", train.save, "file to write with the trained parameters (safetensors)");
  app.add_option("--save-every", train.save_every, "write them every N iterations too")
      ->needs(save)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--load", train.load, "continue from these parameters (safetensors)");
  app.add_option("--trace", train.trace, "file to write with the last iteration, as a Chrome/Perfetto trace");
  app.add_option("--rank-timeout", options.rank_timeout_s,
                 "end after N seconds without a sign of life from a rank on another host (default 30)")
      ->check(number_between(2, 1e6, "2 to 1e+06"));
  app.add_flag("--json", options.json, "print the result as one JSON object");
  auto* out = app.add_option("--out", options.out, "topology file that --calibrate writes");
  auto* calibrate =
      app.add_flag("--calibrate", options.calibrate, "measure the devices and links of these ranks and hosts")
          ->needs(out)
          ->excludes(strategy);
  out->needs(calibrate);
}

void check(const Options& options) {
  const TrainOptions& train = options.train;
  if (train.strategy.empty() && !options.calibrate) throw CLI::RequiredError("--strategy");
  if (train.backend == "cpu" && train.transport == "nccl")
    throw CLI::ValidationError("--transport nccl", "NCCL is for GPUs: use --backend cuda");
}

// Progress goes to `out`, on rank 0.
TrainContext train_context(std::ostream& out, bool first) {
  TrainContext context;
  context.run.interrupted = [] { return interrupt_requested != 0; };
  context.note = [](const std::string& line) { std::cerr << "ffexec: " << line << std::endl; };
  if (!first) return context;
  context.run.on_not_finite = [note = context.note](int64_t iteration, bool data) {
    note("note: the " + std::string(data ? "data" : "loss") + " of iteration " + std::to_string(iteration) +
         (data ? " has values that are infinite or not numbers"
               : " is infinite or not a number: the learning rate may be too high"));
  };
  context.run.on_progress = [&out, printed = int64_t{0}](int64_t done, int64_t total,
                                                         std::span<const double> losses) mutable {
    if (done * 10 / total <= printed) return;
    printed = done * 10 / total;
    out << "iteration " << done << " of " << total << ": loss " << losses.back() << std::endl;
  };
  context.run.on_epoch = [&out](int64_t epoch, double loss, const std::optional<Evaluation>& evaluation) {
    out << "epoch " << epoch << ": mean loss " << loss;
    if (evaluation) out << ", evaluation loss " << evaluation->loss << ", top-1 " << evaluation->top1 * 100 << " %";
    out << std::endl;
  };
  return context;
}

// Where several ranks fail alike, the lowest one prints and ends the others before their turn comes: mpirun sends them
// SIGTERM, and SIGKILL a second later.
void wait_for_turn_to_fail(int rank) {
  if (rank == 0) return;
  const auto milliseconds = [&] { return 500 + 20 * std::min(rank, 40) + (interrupt_requested != 0 ? 1500 : 0); };
  for (int waited = 0; waited < milliseconds(); waited += 10)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void print(const CommandResult& result, bool json) {
  if (json) std::cout << result.json.dump(2) << std::endl;
  else std::cout << result.text << std::flush;
  if (!result.failure.empty()) std::cerr << "ffexec: " << result.failure << std::endl;
  if (!std::cout) throw MachineError("cannot write to standard output");
}

int run(const Options& options, Transport& transport) {
  const bool first = transport.rank() == 0;
  try {
    transport.watch_ranks(options.rank_timeout_s);
    const TrainContext context = train_context(options.json ? std::cerr : std::cout, first);
    const CommandResult result = options.calibrate ? run_calibrate(options.train, options.out, context, transport)
                                                   : run_train(options.train, context, transport);
    if (first) print(result, options.json);
    transport.barrier();  // the others end when everything is said
    return result.exit_code;
  } catch (const CommonFailure& failure) {
    if (first) std::cerr << "ffexec: " << failure.what() << std::endl;
    return failure.exit_code;
  } catch (...) {
    const auto [exit_code, message] = describe_current_exception();
    wait_for_turn_to_fail(transport.rank());
    const std::string where = rank_and_host(transport);
    const std::string prefix =
        message.find(where) == std::string::npos ? where : "";  // transports say where themselves
    std::cerr << "ffexec: " + prefix + message + "\n" << std::flush;
    if (transport.size() > 1) transport.abort(exit_code);  // the others may wait for this rank
    return exit_code;
  }
}

// Did mpirun, srun or the like start this process, as one rank of several perhaps? Open MPI, PMIx and PMI (MPICH,
// Slurm) tell the rank. Else it is alone and needs no MPI, which takes a third of a second to start a daemon, and now
// and then crashes at the end (Open MPI 4.1, github.com/open-mpi/ompi/issues/10117).
bool is_started_as_rank() {
  constexpr const char* variables[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD"};
  return std::any_of(std::begin(variables), std::end(variables),
                     [](const char* variable) { return std::getenv(variable) != nullptr; });
}

// Help and mistakes in the command line, printed by one rank.
int print_parse_result(const CLI::App& app, const CLI::ParseError& error, const Transport& transport) {
  const bool mistake = error.get_exit_code() != static_cast<int>(CLI::ExitCodes::Success);
  if (transport.rank() == 0) app.exit(error);
  return mistake ? exit_usage : exit_done;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("trains the network of a strategy file with its strategy: mpirun -n N ffexec --strategy s.json",
               "ffexec");
  const Vector<std::pair<std::string, Vector<std::string>>> groups = {
      {"Problem", {"strategy", "data", "eval", "load", "calibrate"}},
      {"Training",
       {"iterations", "epochs", "optimizer", "lr", "momentum", "weight-decay", "clip-norm", "seed", "verify"}},
      {"Machine", {"backend", "transport", "precision", "share-gpu", "no-cuda-graph", "rank-timeout"}},
      {"Output", {}}};
  Vector<std::string> group_names;
  for (const auto& [name, flags] : groups) group_names.push_back(name);
  app.formatter(std::make_shared<HelpFormatter>(group_names));
  declare(app, options);
  set_help_groups(app, groups);
  app.footer(exit_codes_text());
  if (const auto text = describe_command_line(app, argc, argv)) {
    std::cout << *text;
    return exit_done;
  }
  int exit_code = exit_done;
  const auto parse_and_run = [&](Transport& transport) {
    try {
      app.parse(argc, argv);
      check(options);
    } catch (const CLI::ParseError& error) {
      exit_code = print_parse_result(app, error, transport);
      return;
    }
    // mpirun passes SIGUSR1 on as well, but without ending the ranks, and their output, a second later.
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) handle_signal(signal, request_interrupt);
    std::signal(SIGXFSZ, SIG_IGN);  // a file beyond "ulimit -f" is an error of its write
    exit_code = run(options, transport);
  };
  if (!is_started_as_rank()) {
    run_in_process(1, parse_and_run);
    return exit_code;
  }
  std::unique_ptr<Transport> transport;
  try {
    transport = make_mpi_transport();
  } catch (const std::exception& error) {
    std::cerr << "ffexec: " << error.what() << std::endl;
    return exit_machine;
  }
  parse_and_run(*transport);
  return exit_code;
}
