// Replaces the other files here in a build without CUDA.
#include "common/errors.h"
#include "executor/cuda/bus_id.h"
#include "executor/cuda/device_clock.h"
#include "executor/cuda/iteration_graph.h"

namespace ff {
namespace {

[[noreturn]] void fail() { throw MachineError("no GPU: this program was built without CUDA"); }

}  // namespace

std::string cuda_bus_id(int) { fail(); }
std::unique_ptr<Clock> make_device_clock(CudaBackend&) { fail(); }
std::unique_ptr<IterationGraph> make_iteration_graph(CudaBackend&) { fail(); }

}  // namespace ff
