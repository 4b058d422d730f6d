// Random strategies on GPUs against one GPU, with any number of ranks on one GPU:
//   test_gpu_ranks threads [N]            N (1, 2 and 4 without it) ranks as threads, transfers staged through pinned memory
//   mpirun -n N test_gpu_ranks mpi        processes, staged transfers over MPI
//   mpirun -n N test_gpu_ranks nccl       processes, NCCL. Ranks that share a GPU present themselves as different hosts (NCCL_HOSTID)
// --cases C (100), --seed S (0); --cuda-graph: five iterations, the last three as a CUDA graph.
// Exit codes: 0 all agree, 1 some do not, 77 skipped: no GPU.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "executor/cuda/iteration_graph.h"
#include "executor/device_choice.h"
#include "executor/transport/in_process.h"
#include "executor/transport/mpi.h"
#include "executor/transport/nccl.h"
#include "executor/transport/staging.h"
#include "tests/support/executor/equivalence.h"

namespace {

using namespace ff;

// Convolutions by Winograd's algorithm are off by more than sums in another order.
constexpr double tolerance = 1e-3;

struct Options {
  std::string transport;
  int ranks = 0;
  unsigned cases = 100, seed = 0;
  bool cuda_graph = false;
  int iterations() const { return cuda_graph ? 5 : 2; }
};

EquivalenceOutcome train_alone(const StrategyFile& file, Backend& backend, const Options& options) {
  EquivalenceOutcome outcome;
  run_in_process(1, [&](Transport& transport) { outcome = train_for_comparison(file, backend, transport, {}, options.iterations()); });
  return outcome;
}

EquivalenceOutcome train_on_rank(const StrategyFile& file, CudaBackend& backend, Transport& transport, const Options& options) {
  const auto use_graph = [&](Program& program) {
    if (options.cuda_graph) program.use_graph(make_iteration_graph(backend));
  };
  return train_for_comparison(file, backend, transport, use_graph, options.iterations());
}

// On rank 0: 1 when the case fails.
int report(const EquivalenceCase& one, const EquivalenceOutcome& found, CudaBackend& backend, const Options& options) {
  const std::string text = differences(found, train_alone(one.one_device, backend, options), tolerance);
  if (!text.empty()) std::cout << one.text << "\n" << text << std::endl;
  return text.empty() ? 0 : 1;
}

int run_threads(const Options& options, int ranks) {
  int failed = 0;
  for (unsigned c = 0; c < options.cases; ++c) {
    const EquivalenceCase one = random_case(options.seed + c, ranks);
    run_in_process(ranks, [&](Transport& host) {
      const auto backend = make_cuda_backend(0);
      const auto staging = make_staging_transport(host, *backend);
      // A single rank has nothing to stage, and may be recorded.
      const EquivalenceOutcome found = train_on_rank(one.split, *backend, ranks == 1 ? host : *staging, options);
      if (host.rank() == 0) failed += report(one, found, *backend, options);
    });
  }
  std::cout << "threads, " << ranks << " ranks on one GPU: " << options.cases - static_cast<unsigned>(failed) << " of " << options.cases
            << " cases agree with one device" << std::endl;
  return failed;
}

int run_processes(const Options& options, Transport& host) {
  const GpusSeen seen = look_for_gpus(host.place());
  if (options.transport == "nccl" && host.place().local_size > seen.count) {
    setenv("NCCL_HOSTID", ("rank-" + std::to_string(host.rank())).c_str(), 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
  }
  const DeviceChoice choice = choose_device({"cuda", options.transport, true, true}, seen, host);
  const auto backend = make_cuda_backend(choice.gpu);
  const auto transport = choice.nccl ? make_nccl_transport(host, *backend) : make_staging_transport(host, *backend);
  int failed = 0;
  for (unsigned c = 0; c < options.cases; ++c) {
    const EquivalenceCase one = random_case(options.seed + c, host.size());
    const EquivalenceOutcome found = train_on_rank(one.split, *backend, host.size() == 1 ? host : *transport, options);
    if (host.rank() == 0) failed += report(one, found, *backend, options);
  }
  if (host.rank() == 0)
    std::cout << transport->name() << ", " << host.size() << " ranks: " << options.cases - static_cast<unsigned>(failed) << " of " << options.cases
              << " cases agree with one device" << std::endl;
  return host.broadcast(std::string(1, failed ? 'x' : '.')) == "x";
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
  for (int ranks : options.ranks > 0 ? std::vector<int>{options.ranks} : std::vector<int>{1, 2, 4}) failed += run_threads(options, ranks);
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Random strategies on GPUs against one GPU.");
  app.add_option("transport", options.transport, "threads, mpi or nccl")->required()->check(CLI::IsMember({"threads", "mpi", "nccl"}));
  app.add_option("ranks", options.ranks, "of threads");
  app.add_option("--cases", options.cases, "random networks");
  app.add_option("--seed", options.seed, "of the first one");
  app.add_flag("--cuda-graph", options.cuda_graph, "record iterations");
  CLI11_PARSE(app, argc, argv);
  std::unique_ptr<Transport> host;
  try {
    if (options.transport != "threads") host = make_mpi_transport();
    return run(options, host.get());
  } catch (const std::exception& error) {
    std::cerr << "test_gpu_ranks: " << (host ? "rank " + std::to_string(host->rank()) + ": " : "") << error.what() << std::endl;
    if (host && host->size() > 1) host->abort(1);
    return 1;
  }
}
