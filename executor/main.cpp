// ffexec: the command line. Everything else is in the library.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <thread>

#include "common/command_line.h"
#include "common/signals.h"
#include "executor/calibrate.h"
#include "executor/checkpoint.h"
#include "executor/device_choice.h"
#include "executor/report.h"
#include "executor/trace.h"
#include "executor/trainer.h"
#include "executor/transport/mpi.h"
#include "executor/transport/nccl.h"
#include "executor/transport/staging.h"
#include "executor/verify.h"

namespace {

using namespace ff;

volatile std::sig_atomic_t interrupt_requested = 0;  // a signal handler can reach nothing else

void request_interrupt(int signal) {
  interrupt_requested = 1;
  std::signal(signal, SIG_DFL);  // a second one ends the program at once
}

struct Options {
  std::string strategy, backend = "auto", transport = "auto", precision = "fp32", data, eval, save, load, trace, out;
  int64_t iterations = 0, epochs = 0;
  double lr = 0.01, momentum = 0, weight_decay = 0;
  uint64_t seed = 0;
  bool verify = false, json = false, calibrate = false, share_gpu = false, no_cuda_graph = false;
};

void declare(CLI::App& app, Options& options) {
  app.set_version_flag("--version", std::string("ffexec ") + FF_VERSION);
  auto* strategy = app.add_option("--strategy", options.strategy, "strategy file (ffstrategy/1) to train with");
  auto* iterations =
      app.add_option("--iterations", options.iterations, "training iterations (default 10 without --epochs)")
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--backend", options.backend,
                 "kernels (default auto: cuda where the strategy's devices are GPUs and every rank has one)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--transport", options.transport,
                 "how ranks exchange data (default auto: nccl between GPUs, mpi where ranks share one)")
      ->check(CLI::IsMember({"auto", "mpi", "nccl"}));
  app.add_option("--precision", options.precision, "of matrix products and convolutions on GPUs (default fp32)")
      ->check(CLI::IsMember({"fp32", "tf32"}));
  app.add_flag("--share-gpu", options.share_gpu, "let several ranks of a node use one GPU");
  app.add_flag("--no-cuda-graph", options.no_cuda_graph,
               "submit every kernel in every iteration instead of recording one iteration");
  auto* data = app.add_option("--data", options.data,
                              "directory with one .npy file for each graph input (default: synthetic data)");
  app.add_option("--eval", options.eval, "directory of evaluation data, like --data");
  app.add_option("--epochs", options.epochs, "passes over --data")
      ->needs(data)
      ->excludes(iterations)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  app.add_option("--lr", options.lr, "learning rate (default 0.01)")->check(finite_non_negative());
  app.add_option("--momentum", options.momentum, "of SGD (default 0)")->check(finite_non_negative());
  app.add_option("--weight-decay", options.weight_decay, "of SGD (default 0)")->check(finite_non_negative());
  app.add_option("--seed", options.seed, "of parameters, dropout, data and their order (default 0)")
      ->check(whole_number());
  app.add_flag("--verify", options.verify, "run the same iterations on one device and compare");
  app.add_option("--save", options.save, "write the trained parameters (safetensors)");
  app.add_option("--load", options.load, "begin with these parameters (safetensors)");
  app.add_option("--trace", options.trace, "write what ran in the last iteration (Chrome trace, Perfetto)");
  app.add_flag("--json", options.json, "print one JSON object");
  auto* out = app.add_option("--out", options.out, "topology file that --calibrate writes");
  auto* calibrate = app.add_flag("--calibrate", options.calibrate, "measure this machine's devices and links")
                        ->needs(out)
                        ->excludes(strategy);
  out->needs(calibrate);
}

std::string where(const Transport& transport) {
  return transport.size() == 1 ? "" : "rank " + std::to_string(transport.rank()) + " on " + transport.host() + ": ";
}

// An exception as an exit code and a message.
std::pair<int, std::string> describe_current_exception() {
  try {
    throw;
  } catch (const InputError& error) {
    return {exit_input, error.what()};
  } catch (const std::bad_alloc&) {
    return {exit_machine, "out of memory"};
  } catch (const std::exception& error) {
    return {exit_machine, error.what()};
  }
}

// Runs something that needs no other rank on all ranks. When any of them fails, all return the exit code of the first
// one, and rank 0 has printed its message, once.
template <typename Function>
int run_together(Transport& transport, Function function) {
  std::pair<int, std::string> mine{exit_done, ""};
  try {
    function();
  } catch (...) {
    mine = describe_current_exception();
  }
  int code = exit_done;
  const Vector<std::string> all =
      transport.gather(static_cast<char>(mine.first) + where(transport) + '\0' + mine.second);
  size_t failed = 0;
  for (const std::string& one : all) failed += one[0] != exit_done;
  for (const std::string& one : all) {
    if (one[0] == exit_done) continue;
    code = one[0];
    const size_t split = one.find('\0', 1);
    std::cerr << "ffexec: " << (failed == all.size() ? "" : one.substr(1, split - 1)) << one.substr(split + 1)
              << std::endl;
    break;
  }
  return transport.broadcast(std::string(1, static_cast<char>(code)))[0];
}

StrategyFile load_fitting_strategy(const Options& options, int ranks) {
  StrategyFile file = load_strategy(options.strategy);
  const size_t devices = file.topology.devices.size();
  if (devices == static_cast<size_t>(ranks)) return file;
  std::string names;
  for (size_t d = 0; d < devices && d < 4; ++d) names += (d ? ", " : "") + file.topology.devices[d].name;
  if (devices > 4) names += ", ...";
  throw InputError(options.strategy + " is for " + std::to_string(devices) +
                   (devices == 1 ? " device (" : " devices (") + names + "), started with " + std::to_string(ranks) +
                   (ranks == 1 ? " rank" : " ranks") + ": use mpirun -n " + std::to_string(devices));
}

// What a training run needs, loaded on every rank before the ranks depend on each other.
struct Inputs {
  std::unique_ptr<StrategyFile> file;
  std::unique_ptr<DataSource> data, evaluation;
  std::unique_ptr<Checkpoint> initial;
};

// Rank 0 writes all files: what it could not write is told before the work.
void check_outputs(const Options& options, const Transport& transport) {
  if (transport.rank() > 0) return;
  Vector<std::string> read{options.strategy};
  for (const std::string& path : {options.save, options.trace})
    for (const std::string& folder : {options.data, options.eval})
      if (const std::filesystem::path file = std::filesystem::path(folder) / std::filesystem::path(path).filename();
          !path.empty() && !folder.empty() && file.extension() == ".npy" && std::filesystem::exists(file))
        read.push_back(file);
  expect_all_writable({options.save, options.trace, options.out}, read);
  expect_all_writable({options.trace}, {options.load});  // --save may go on with the checkpoint that --load read
}

Inputs load_inputs(const Options& options, int ranks) {
  Inputs inputs;
  inputs.file = std::make_unique<StrategyFile>(load_fitting_strategy(options, ranks));
  const Graph& graph = inputs.file->graph;
  inputs.data =
      options.data.empty() ? synthetic_data(graph, options.seed) : npy_data(graph, options.data, graph.batch_size);
  if (!options.eval.empty()) inputs.evaluation = npy_data(graph, options.eval, 1);
  if (!options.load.empty()) inputs.initial = std::make_unique<Checkpoint>(load_checkpoint(options.load, graph));
  return inputs;
}

void print_progress_to(std::ostream& out, RunSettings& settings) {
  auto printed = std::make_shared<int64_t>(0);
  settings.on_progress = [&out, printed](int64_t done, int64_t total, std::span<const double> losses) {
    if (done * 10 / total <= *printed) return;
    *printed = done * 10 / total;
    out << "iteration " << done << " of " << total << ": loss " << losses.back() << std::endl;
  };
  settings.on_epoch = [&out](int64_t epoch, double loss, const std::optional<Evaluation>& evaluation) {
    out << "epoch " << epoch << ": mean loss " << loss;
    if (evaluation) out << ", evaluation loss " << evaluation->loss << ", top-1 " << evaluation->top1 * 100 << " %";
    out << std::endl;
  };
}

Vector<std::string> device_names(const StrategyFile& file) {
  Vector<std::string> names;
  for (const Device& device : file.topology.devices) names.push_back(device.name);
  return names;
}

DeviceRequest device_request(const Options& options, const StrategyFile& file) {
  const auto& devices = file.topology.devices;
  const bool gpus =
      std::all_of(devices.begin(), devices.end(), [](const Device& device) { return device.kind == DeviceKind::gpu; });
  return {options.backend, options.transport, options.share_gpu, gpus};
}

// A rank's device, and what it exchanges data with.
struct Machine {
  std::unique_ptr<Backend> backend;
  CudaBackend* cuda = nullptr;  // the backend, if it is a GPU's
  std::unique_ptr<Transport> device_transport;
  Transport* transport = nullptr;
  std::string text;  // for people
};

Machine make_machine(const Options& options, const StrategyFile& file, const DeviceChoice& choice, Transport& host) {
  Machine machine;
  machine.transport = &host;
  if (!choice.cuda) {
    machine.backend = make_cpu_backend(file.topology.model_of(host.rank()).cores);
    machine.text = "CPU";
    return machine;
  }
  auto backend = make_cuda_backend(choice.gpu, options.precision == "tf32" ? Precision::tf32 : Precision::fp32);
  machine.cuda = backend.get();
  machine.backend = std::move(backend);
  if (choice.nccl) machine.device_transport = make_nccl_transport(host, *machine.cuda);
  else if (host.size() > 1) machine.device_transport = make_staging_transport(host, *machine.cuda);
  if (machine.device_transport) machine.transport = machine.device_transport.get();
  machine.text = describe_cuda_device(choice.gpu).name + ", " + options.precision;
  if (host.size() > 1) machine.text += choice.nccl ? ", NCCL " + nccl_version() : ", MPI through the host's memory";
  return machine;
}

// Where this rank's program runs on a GPU. Returns what the user should know.
std::string use_gpu(const Options& options, const Machine& machine, Program& program) {
  if (!machine.cuda) return "";
  program.use_clock(make_device_clock(*machine.cuda));
  if (options.no_cuda_graph) return "";
  if (machine.device_transport && !machine.device_transport->ordered())
    return "no CUDA graph: transfers through the host's memory cannot be part of one";
  if (!options.trace.empty()) return "no CUDA graph: --trace times every task";
  program.use_graph(make_iteration_graph(*machine.cuda));
  return "";
}

int train(const Options& options, const Inputs& inputs, const DeviceChoice& choice, Transport& host) {
  const StrategyFile& file = *inputs.file;
  const bool first = host.rank() == 0;
  const Machine machine = make_machine(options, file, choice, host);
  Transport& transport = *machine.transport;
  const TrainerSettings trainer_settings{
      {static_cast<float>(options.lr), static_cast<float>(options.momentum), static_cast<float>(options.weight_decay)},
      options.seed};
  Trainer trainer(file, *machine.backend, transport, trainer_settings);
  for (const std::string& note : {choice.note, use_gpu(options, machine, trainer.program())})
    if (first && !note.empty()) std::cerr << "ffexec: note: " << note << std::endl;
  if (inputs.initial) restore(trainer, *inputs.initial);
  Vector<Event> events;
  RunSettings settings;
  settings.iterations = options.iterations > 0 ? options.iterations : 10;
  settings.epochs = options.epochs;
  settings.data = inputs.data.get();
  settings.shuffle = !options.data.empty();
  settings.evaluation = inputs.evaluation.get();
  settings.events = options.trace.empty() ? nullptr : &events;
  settings.interrupted = [] { return interrupt_requested != 0; };
  if (first) print_progress_to(options.json ? std::cerr : std::cout, settings);
  if (first && trainer.program().own_issue_order && !file.issue_order.empty())
    std::cerr << "ffexec: " << options.strategy
              << ": the issue order does not fit the configurations; using the default order" << std::endl;

  const RunResult result = run_training(trainer, settings);
  if (first && !trainer.program().graph_failure().empty())
    std::cerr << "ffexec: note: no CUDA graph: " << trainer.program().graph_failure() << std::endl;

  HostTensors weights, velocities;
  if (options.verify || !options.save.empty()) weights = gather_parameters(trainer.program(), ParameterData::weight);
  if (!options.save.empty()) velocities = gather_parameters(trainer.program(), ParameterData::velocity);
  if (first && !options.save.empty()) save_checkpoint(options.save, file.graph, {weights, std::move(velocities)});
  if (!options.trace.empty()) {
    const std::string trace = gather_trace(trainer.program(), events, device_names(file));
    if (first) write_file_atomically(options.trace, trace);
  }
  std::optional<Verification> verification;
  if (first && options.verify)
    verification = verify(file, *machine.backend, trainer_settings, settings, result, inputs.initial.get(), weights);
  int code = result.interrupted ? exit_interrupted : exit_done;
  if (first) {
    if (options.json) {
      Json summary = summary_json(file, result, verification);
      summary["backend"] = machine.backend->name();
      summary["transport"] = transport.name();
      if (machine.cuda) summary["cuda_graph"] = trainer.program().uses_graph();
      std::cout << summary.dump(2) << std::endl;
    } else {
      std::cout << summary_text(file, result, verification);
      if (machine.cuda)
        std::cout << "device      " << machine.text << (trainer.program().uses_graph() ? ", CUDA graph" : "")
                  << std::endl;
    }
    if (verification && !verification->passed()) {
      std::cerr << "ffexec: verification failed: " << verification->worst << " differs from the one-device run by "
                << verification->max_relative_error << " (relative), expected at most " << verification->tolerance
                << ", or 10 times the " << verification->rounding_error
                << " that one unit in the last place of the weights makes" << std::endl;
      code = exit_input;
    }
  }
  if (first && !std::cout.flush()) throw MachineError("cannot write to standard output");
  return transport.broadcast(std::string(1, static_cast<char>(code)))[0] & 0xFF;
}

int calibrate_machine(const Options& options, Transport& transport) {
  const int cores = cores_per_rank(transport);
  const auto backend = make_cpu_backend(cores);
  const Json topology = calibrate(*backend, transport, cores);
  if (transport.rank() == 0) {
    write_json_file(options.out, topology);
    if (options.json) std::cout << topology.dump(2) << std::endl;
    else
      std::cout << options.out << ": " << transport.size() << (transport.size() == 1 ? " device\n" : " devices\n")
                << std::flush;
  }
  transport.barrier();
  return exit_done;
}

// Where several ranks fail alike, the lowest one prints and ends the others before their turn comes: mpirun sends them
// SIGTERM, and SIGKILL a second later.
void wait_for_turn_to_fail(int rank) {
  if (rank == 0) return;
  const auto milliseconds = [&] { return 500 + 20 * std::min(rank, 40) + (interrupt_requested != 0 ? 1500 : 0); };
  for (int waited = 0; waited < milliseconds(); waited += 10)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

int run(const Options& options, Transport& transport) {
  Inputs inputs;
  DeviceChoice choice;
  int code = run_together(transport, [&] {
    check_outputs(options, transport);
    if (!options.calibrate) inputs = load_inputs(options, transport.size());
  });
  if (code == exit_done && !options.calibrate)
    code = run_together(transport, [&] {
      choice = choose_device(device_request(options, *inputs.file), look_for_gpus(transport.place()), transport);
    });
  if (code != exit_done) return code;
  try {
    return options.calibrate ? calibrate_machine(options, transport) : train(options, inputs, choice, transport);
  } catch (...) {
    const auto [failure, message] = describe_current_exception();
    wait_for_turn_to_fail(transport.rank());
    // transports say where themselves
    const std::string prefix = message.find(where(transport)) == std::string::npos ? where(transport) : "";
    std::cerr << "ffexec: " + prefix + message + "\n" << std::flush;
    if (transport.size() > 1) transport.abort(failure);  // the others may wait for this rank
    return failure;
  }
}

// Help and mistakes in the command line, printed by one rank.
int print_parse_result(const CLI::App& app, const CLI::ParseError& error, const Transport& transport) {
  const bool mistake = error.get_exit_code() != static_cast<int>(CLI::ExitCodes::Success);
  if (transport.rank() == 0) app.exit(error);
  return mistake ? exit_usage : exit_done;
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<Transport> transport;
  try {
    transport = make_mpi_transport();
  } catch (const std::exception& error) {
    std::cerr << "ffexec: " << error.what() << std::endl;
    return exit_machine;
  }
  Options options;
  CLI::App app("Trains the network of a strategy file with its strategy: mpirun -n N ffexec --strategy s.json",
               "ffexec");
  declare(app, options);
  try {
    app.parse(argc, argv);
    if (options.strategy.empty() && !options.calibrate) throw CLI::RequiredError("--strategy");
    if (options.backend == "cpu" && options.transport == "nccl")
      throw CLI::ValidationError("--transport nccl", "NCCL is for GPUs: use --backend cuda");
    if (options.calibrate && (options.backend == "cuda" || options.transport == "nccl"))
      throw CLI::ValidationError(
          "--calibrate", "measures CPUs alone; topologies/ has GPUs, and ffsearch profile measures their kernels");
  } catch (const CLI::ParseError& error) {
    return print_parse_result(app, error, *transport);
  }
  for (const int signal : {SIGINT, SIGTERM}) handle_signal(signal, request_interrupt);
  return run(options, *transport);
}
