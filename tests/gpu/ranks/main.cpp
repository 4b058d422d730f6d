// Random strategies on GPUs against one GPU, with any number of ranks on one GPU:
//   test_gpu_ranks threads [N]            N (1, 2 and 4 without it) ranks as threads, transfers staged through pinned
//                                         memory
//   mpirun -n N test_gpu_ranks mpi        processes, staged transfers over MPI
//   mpirun -n N test_gpu_ranks nccl       processes, NCCL. Ranks that share a GPU present themselves as different hosts
//                                         (NCCL_HOSTID)
// --cases C, --seed S, --seconds T: fewer cases when the time is up; without them by the environment
// (tests/gpu/random_cases.h). --cuda-graph: five iterations, the last three as a CUDA graph. Exit codes: 0 all agree,
// 1 some do not, 77 skipped: no GPU.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "executor/device_choice.h"
#include "executor/observers/iteration_recorder.h"
#include "executor/transport/in_process.h"
#include "executor/transport/mpi/mpi.h"
#include "executor/transport/nccl.h"
#include "executor/transport/staging.h"
#include "tests/gpu/random_cases.h"
#include "tests/support/executor/equivalence.h"

namespace {

using namespace ff;

// Convolutions by Winograd's algorithm are off by more than sums in another order.
constexpr double tolerance = 1e-3;

struct Options {
  std::string transport;
  int ranks = 0;
  unsigned cases = static_cast<unsigned>(random_cases::number_from("FF_GPU_TEST_CASES", 100));
  unsigned seed = random_cases::first_seed();
  double seconds = random_cases::seconds();
  bool cuda_graph = false;
  int iterations() const { return cuda_graph ? 5 : 2; }
};

EquivalenceOutcome train_alone(const StrategyFile& file, Backend& backend, const Options& options) {
  EquivalenceOutcome outcome;
  run_in_process(1, [&](Transport& transport) {
    outcome = train_for_comparison(file, backend, transport, {}, options.iterations());
  });
  return outcome;
}

struct Recording {
  bool used = false;
  std::string failure;
};

// What became of the recording, kept longer than the program.
class RecordingReporter : public Observer {
 public:
  RecordingReporter(const IterationRecorder& recorder, Recording& recording)
      : recorder_(recorder), recording_(recording) {}
  void end() override { recording_ = {recorder_.recorded(), recorder_.failure()}; }

 private:
  const IterationRecorder& recorder_;
  Recording& recording_;
};

EquivalenceOutcome train_on_rank(const StrategyFile& file, CudaBackend& backend, Transport& transport,
                                 const Options& options, Recording& recording) {
  const auto use_graph = [&](Program& program) {
    if (!options.cuda_graph) return;
    const IterationRecorder& recorder =
        program.attach(std::make_unique<IterationRecorder>(program, make_iteration_graph(backend)));
    program.attach(std::make_unique<RecordingReporter>(recorder, recording));
  };
  return train_for_comparison(file, backend, transport, use_graph, options.iterations());
}

// All ranks call. The number of cases that fail, on rank 0; the others return 0.
int run_cases(const Options& options, CudaBackend& backend, Transport& transport) {
  const auto begin = std::chrono::steady_clock::now();
  unsigned done = 0, failed = 0;
  for (bool go_on = true; done < options.cases && go_on; ++done) {
    EquivalenceCase one = random_case(options.seed + done, transport.size());
    if (options.cuda_graph)  // which records one step for all iterations
      for (StrategyFile* file : {&one.one_device, &one.split}) set_optimizer(file->graph, {0.05, 0.9, 0.01});
    if (transport.rank() == 0) std::cerr << "seed " << options.seed + done << std::endl;  // where it is, should it hang
    Recording recording;
    const EquivalenceOutcome found = train_on_rank(one.split, backend, transport, options, recording);
    if (transport.rank() == 0) {
      std::string text = differences(found, train_alone(one.one_device, backend, options), tolerance);
      if (options.cuda_graph && !recording.used) text += "no CUDA graph: " + recording.failure + "\n";
      if (!text.empty()) std::cout << one.text << "\n" << text << std::endl;
      failed += !text.empty();
    }
    const bool in_time = std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(options.seconds);
    go_on = transport.broadcast(in_time ? "+" : "-") == "+";
  }
  if (transport.rank() != 0) return 0;
  std::cout << transport.name() << ", " << transport.size() << (transport.size() == 1 ? " rank" : " ranks")
            << (options.cuda_graph ? ", CUDA graph" : "") << ": " << done - failed << " of " << done
            << " cases agree with one device" << (done < options.cases ? "; the time was up" : "") << std::endl;
  return static_cast<int>(failed);
}

int run_threads(const Options& options, int ranks) {
  int failed = 0;
  run_in_process(ranks, [&](Transport& host) {
    const auto backend = make_cuda_backend(0);
    const auto staging = make_staging_transport(host, *backend);
    // A single rank has nothing to stage, and may be recorded.
    const int mine = run_cases(options, *backend, ranks == 1 ? host : *staging);
    if (host.rank() == 0) failed = mine;
  });
  return failed;
}

int run_processes(const Options& options, Transport& host) {
  const GpusSeen seen = look_for_gpus(host.place());
  if (options.transport == "nccl" && host.place().local_size > seen.count) {
    setenv("NCCL_HOSTID", ("rank-" + std::to_string(host.rank())).c_str(), 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_NET", "Socket", 0);
    setenv("NCCL_MNNVL_ENABLE", "0", 0);  // NVLink between hosts, which these are not
  }
  const DeviceChoice choice = choose_device({"cuda", options.transport, true, true}, seen, host);
  const auto backend = make_cuda_backend(choice.gpu);
  const auto transport =
      choice.nccl ? make_nccl_transport(host, *backend, options.cuda_graph) : make_staging_transport(host, *backend);
  const int failed = run_cases(options, *backend, host.size() == 1 ? host : *transport);
  return host.broadcast(failed ? "x" : ".") == "x";
}

int run(const Options& options, Transport* host) {
  try {
    cuda_device_count();
  } catch (const MachineError& error) {
    if (!host || host->rank() == 0) std::cout << "skipped: " << error.what() << std::endl;
    return 77;
  }
  if (host) return run_processes(options, *host) ? 1 : 0;
  int failed = 0;
  for (int ranks : options.ranks > 0 ? Vector<int>{options.ranks} : Vector<int>{1, 2, 4})
    failed += run_threads(options, ranks);
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Random strategies on GPUs against one GPU.");
  app.add_option("transport", options.transport, "threads, mpi or nccl")
      ->required()
      ->check(CLI::IsMember({"threads", "mpi", "nccl"}));
  app.add_option("ranks", options.ranks, "of threads");
  app.add_option("--cases", options.cases, "random networks");
  app.add_option("--seed", options.seed, "of the first one");
  app.add_option("--seconds", options.seconds, "time for each number of ranks");
  app.add_flag("--cuda-graph", options.cuda_graph, "record iterations");
  CLI11_PARSE(app, argc, argv);
  std::unique_ptr<Transport> host;
  try {
    if (options.transport != "threads") host = make_mpi_transport();
    return run(options, host.get());
  } catch (const std::exception& error) {
    std::cerr << "test_gpu_ranks: " << (host ? "rank " + std::to_string(host->rank()) + ": " : "") << error.what()
              << std::endl;
    if (host && host->size() > 1) host->abort(1);
    return 1;
  }
}
