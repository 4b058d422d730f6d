// What takes the place of the CUDA backend in a build without CUDA.
#include "common/errors.h"
#include "common/kernels/cuda/cuda_backend.h"

namespace ff {
namespace {

[[noreturn]] void fail() { throw MachineError("no GPU: this program was built without CUDA"); }

}  // namespace

bool built_with_cuda() { return false; }
int cuda_device_count() { fail(); }
std::unique_ptr<CudaBackend> make_cuda_backend(int, Precision) { fail(); }
CudaDescription describe_cuda_device(int) { fail(); }

}  // namespace ff
