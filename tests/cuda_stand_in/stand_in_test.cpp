// What the stand-in for CUDA finds: each fault once, and the right version of it.
#include <cublas_v2.h>
#include <cudnn.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "tests/cuda_stand_in/wrong_kernels.h"
#include "tests/support/cuda_stand_in/streams.h"

namespace {

struct Device {
  Device() {
    cuda_stand_in::forget_failure();
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    source = floats(64);
    destination = floats(64);
    std::vector<float> values(64);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
    REQUIRE(cudaMemcpyAsync(source, values.data(), 256, cudaMemcpyHostToDevice, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  }
  ~Device() { cuda_stand_in::forget_failure(); }

  float* floats(size_t count) {
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, count * sizeof(float)) == cudaSuccess);
    return static_cast<float*>(memory);
  }
  std::vector<float> read(const float* memory, size_t count) {
    std::vector<float> values(count);
    REQUIRE(cudaMemcpyAsync(values.data(), memory, count * sizeof(float), cudaMemcpyDeviceToHost, stream) ==
            cudaSuccess);
    return values;
  }
  // What synchronizing reports; "no error" or the fault.
  std::string outcome(cudaError_t launched = cudaSuccess) {
    return cudaGetErrorString(launched != cudaSuccess ? launched : cudaStreamSynchronize(stream));
  }

  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t event = nullptr;
  float *source = nullptr, *destination = nullptr;
};

const std::string good = "no error";

}  // namespace

TEST_CASE("shared memory that threads exchange needs a barrier") {
  Device device;
  CHECK(device.outcome(reverse(device.stream, device.source, device.destination, true)) == good);
  CHECK(device.read(device.destination, 64)[0] == 64);
  CHECK_THAT(device.outcome(reverse(device.stream, device.source, device.destination, false)),
             Catch::Contains("shared memory that"));
}

TEST_CASE("shared memory that was never written is not read") {
  Device device;
  CHECK_THAT(device.outcome(read_unwritten_shared(device.stream, device.destination)),
             Catch::Contains("reads shared memory that was never written in this block (block 0, thread 0 0 0)"));
}

TEST_CASE("a barrier is reached by all threads") {
  Device device;
  CHECK_THAT(device.outcome(diverge(device.stream, device.destination)),
             Catch::Contains("waits at a barrier that only 32 of 64 threads reach"));
  INFO("the failure stays, as on a GPU");
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 4) == cudaErrorLaunchFailure);
}

TEST_CASE("a shuffle has all its lanes") {
  Device device;
  CHECK(device.outcome(shuffle(device.stream, device.destination, 32)) == good);
  CHECK(device.read(device.destination, 1)[0] == 31 * 32 / 2);
  CHECK_THAT(device.outcome(shuffle(device.stream, device.destination, 31)),
             Catch::Contains("lane 31, which has ended"));
}

TEST_CASE("a shuffle reads lanes of its mask") {
  Device device;
  CHECK_THAT(device.outcome(shuffle(device.stream, device.destination, 16, 0xffffu)),
             Catch::Contains("reads a lane of its warp that is not in the mask"));
}

TEST_CASE("kernels stay within live device memory") {
  Device device;
  CHECK(device.outcome(write(device.stream, device.destination, 0, 64)) == good);
  SECTION("after the end") {
    CHECK_THAT(device.outcome(write(device.stream, device.destination, 1, 64)),
               Catch::Contains("4 bytes out of bounds, from byte 256 of an allocation of 256 bytes"));
  }
  SECTION("before the begin") {
    CHECK_THAT(device.outcome(write(device.stream, device.destination, -1, 1)), Catch::Contains("out of bounds"));
  }
  SECTION("after it was freed") {
    cudaFree(device.destination);
    CHECK_THAT(device.outcome(write(device.stream, device.destination, 0, 1)), Catch::Contains("after it was freed"));
  }
  SECTION("not the host's") {
    float value = 0;
    CHECK_THAT(device.outcome(write(device.stream, &value, 0, 1)), Catch::Contains("writes host memory"));
  }
  SECTION("pinned memory is the device's too") {
    void* pinned = nullptr;
    REQUIRE(cudaHostAlloc(&pinned, 4, cudaHostAllocMapped) == cudaSuccess);
    CHECK(device.outcome(write(device.stream, static_cast<float*>(pinned), 0, 1)) == good);
    CHECK(*static_cast<float*>(pinned) == 1);
  }
}

TEST_CASE("device memory that was never written is not read") {
  Device device;
  CHECK_THAT(device.outcome(copy(device.stream, device.destination, device.source)),
             Catch::Contains("reads device memory that was never written"));
}

TEST_CASE("threads do not write one place at once, but atomically") {
  Device device;
  SECTION("one place") {
    CHECK_THAT(device.outcome(write_same_place(device.stream, device.destination)),
               Catch::Contains("wrong_kernels.cu") && Catch::Contains("writes device memory that thread"));
    return;
  }
  int* const sum = reinterpret_cast<int*>(device.destination);
  REQUIRE(cudaMemsetAsync(sum, 0, 4, device.stream) == cudaSuccess);
  SECTION("atomic") {
    CHECK(device.outcome(add(device.stream, sum, true)) == good);
    const float bits = device.read(device.destination, 1)[0];
    int count = 0;
    std::memcpy(&count, &bits, sizeof count);
    CHECK(count == 64);
  }
  SECTION("not atomic") {
    CHECK_THAT(device.outcome(add(device.stream, sum, false)), Catch::Contains("without a barrier between the two"));
  }
}

TEST_CASE("loads are aligned") {
  Device device;
  CHECK_THAT(device.outcome(read_misaligned(device.stream, reinterpret_cast<char*>(device.source),
                                            reinterpret_cast<double*>(device.destination))),
             Catch::Contains("reads a misaligned address"));
}

TEST_CASE("a warp multiplies matrices") {
  Device device;
  float *const source = device.floats(128), *const destination = device.floats(256);
  const auto product = [&](float one, MatrixFault fault, bool rounded) {
    std::vector<float> values(128);
    for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? one : static_cast<float>(i % 7);
    REQUIRE(cudaMemcpyAsync(source, values.data(), 512, cudaMemcpyHostToDevice, device.stream) == cudaSuccess);
    return device.outcome(multiply(device.stream, source, destination, fault, rounded));
  };
  const auto expected = [](float one, int row, int column) {
    const auto at = [&](int i) { return i % 3 == 0 ? one : static_cast<float>(i % 7); };
    float sum = 0;
    for (int k = 0; k < 8; ++k) sum += at(8 * row + k) * at(16 * k + column);
    return sum;
  };
  const auto equals = [&](float one) {
    const std::vector<float> found = device.read(destination, 256);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 16; ++column)
        if (found[static_cast<size_t>(16 * row + column)] != expected(one, row, column)) return false;
    return true;
  };
  SECTION("right") {
    CHECK(product(1.5f, MatrixFault::none, false) == good);
    CHECK(equals(1.5f));
    INFO("ten bits of mantissa: cut off, or rounded before");
    const float step = 1.0f / 1024, more = 1 + 0.75f * step;
    CHECK(product(more, MatrixFault::none, false) == good);
    CHECK(equals(1));
    CHECK(product(more, MatrixFault::none, true) == good);
    CHECK(equals(1 + step));
  }
  SECTION("without a synchronization of the warp") {
    CHECK_THAT(product(1, MatrixFault::no_synchronization, false), Catch::Contains("reads shared memory that thread"));
  }
  SECTION("a lane is missing") {
    CHECK_THAT(product(1, MatrixFault::lane_missing, false), Catch::Contains("lane 7, which has ended"));
  }
  SECTION("misaligned") {
    CHECK_THAT(product(1, MatrixFault::misaligned, false), Catch::Contains("not aligned to 32 bytes"));
  }
  SECTION("different places") {
    CHECK_THAT(product(1, MatrixFault::different_places, false),
               Catch::Contains("accesses another matrix than the first lane") && Catch::Contains("thread 7 0 0"));
  }
}

TEST_CASE("a warp multiplies matrices of bf16 that it copied asynchronously") {
  Device device;
  float *const source = device.floats(128), *const destination = device.floats(128);
  const auto at = [](int row, int column) { return static_cast<float>((16 * row + column) % 7 - 2); };
  std::vector<uint16_t> values;
  for (int i = 0; i < 256; ++i)
    values.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(at(i / 16, i % 16)) >> 16));
  REQUIRE(cudaMemcpyAsync(source, values.data(), 512, cudaMemcpyHostToDevice, device.stream) == cudaSuccess);
  const auto product = [&](Bf16Fault fault) {
    return device.outcome(multiply_bf16(device.stream, source, destination, fault));
  };
  SECTION("right") {
    CHECK(product(Bf16Fault::none) == good);
    const std::vector<float> found = device.read(destination, 128);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        float sum = 0;
        for (int k = 0; k < 16; ++k) sum += at(row, k) * at(k, column);
        CHECK(found[static_cast<size_t>(8 * row + column)] == sum);
      }
  }
  SECTION("without waiting for the copies") {
    CHECK(product(Bf16Fault::no_wait) == good);
    CHECK(std::isnan(device.read(destination, 128)[0]));
  }
  SECTION("without a synchronization of the warp") {
    CHECK_THAT(product(Bf16Fault::no_synchronization), Catch::Contains("reads shared memory that thread"));
  }
  SECTION("a lane is missing") {
    CHECK_THAT(product(Bf16Fault::lane_missing), Catch::Contains("lane 7, which has ended"));
  }
  SECTION("misaligned") {
    CHECK_THAT(product(Bf16Fault::misaligned), Catch::Contains("loads a row of a matrix that is misaligned"));
  }
}

TEST_CASE("a launch keeps the limits of compute capability 7.5") {
  Device device;
  CHECK(write(device.stream, device.destination, 0, 1025) == cudaErrorInvalidConfiguration);
  CHECK(write(device.stream, device.destination, 0, 0) == cudaErrorInvalidConfiguration);
}

// Whether the host is stopped that writes there.
static bool is_closed(float* memory) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    *static_cast<volatile float*>(memory) = 1;
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

TEST_CASE("the host cannot touch device memory") {
  Device device;
  CHECK(is_closed(device.source));
  // Protection changes by pieces of 2 MiB: of an allocation in several of them, and of one that was freed.
  constexpr int64_t many = 3 << 20;
  float* const large = device.floats(many);
  CHECK(copy(device.stream, device.source, large + many - 64) == cudaSuccess);
  CHECK(device.read(large + many - 64, 64)[63] == 64);
  for (const int64_t at : {int64_t{0}, many / 2, many - 1}) CHECK(is_closed(large + at));
  CHECK(cudaFree(large) == cudaSuccess);
  CHECK(write(device.stream, device.destination, 0, 64) == cudaSuccess);
  CHECK(cudaStreamSynchronize(device.stream) == cudaSuccess);
  for (const int64_t at : {int64_t{0}, many / 2, many - 1}) CHECK(is_closed(large + at));
}

// Copies `source` to `middle` on one stream, and on from there on another one. How often that is found to be wrong.
static int faults_of_two_streams(bool with_event) {
  int faults = 0;
  for (int i = 0; i < 40; ++i) {
    Device device;
    float* const middle = device.floats(64);
    REQUIRE(copy(device.stream, device.source, middle) == cudaSuccess);
    if (with_event) {
      REQUIRE(cudaEventRecord(device.event, device.stream) == cudaSuccess);
      REQUIRE(cudaStreamWaitEvent(device.other, device.event) == cudaSuccess);
    }
    REQUIRE(copy(device.other, middle, device.destination) == cudaSuccess);
    if (cudaStreamSynchronize(device.other) != cudaSuccess) {
      ++faults;
      CHECK_THAT(cuda_stand_in::what_failed(), Catch::Contains("never written"));
    } else {
      CHECK(cudaStreamSynchronize(device.stream) == cudaSuccess);
      CHECK(device.read(device.destination, 64)[63] == 64);
    }
  }
  return faults;
}

TEST_CASE("streams keep the order of events, and no other one") {
  CHECK(faults_of_two_streams(true) == 0);
  CHECK(faults_of_two_streams(false) > 5);
}

TEST_CASE("a graph holds what was recorded, and runs it again") {
  Device device;
  REQUIRE(cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  REQUIRE(cudaEventRecord(device.event, device.stream) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(device.other, device.event) == cudaSuccess);
  REQUIRE(reverse(device.other, device.source, device.destination, true) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  SECTION("streams are joined") {
    REQUIRE(cudaEventRecord(device.event, device.other) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(device.stream, device.event) == cudaSuccess);
    REQUIRE(copy(device.stream, device.destination, device.source) == cudaSuccess);
    CHECK(cudaEventQuery(device.event) == cudaErrorCapturedEvent);
    REQUIRE(cudaStreamEndCapture(device.stream, &graph) == cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    for (float first : {64.0f, 1.0f, 64.0f}) {  // reversed each time
      REQUIRE(cudaGraphLaunch(executable, device.stream) == cudaSuccess);
      CHECK(device.read(device.source, 64)[0] == first);
    }
  }
  SECTION("a stream that is not joined") {
    CHECK(cudaStreamEndCapture(device.stream, &graph) == cudaErrorStreamCaptureUnjoined);
  }
  SECTION("what cannot be recorded ends the recording") {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, 4) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(device.stream, &graph) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("waiting ends the recording") {
    CHECK(cudaStreamSynchronize(device.stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(device.stream, &graph) == cudaErrorStreamCaptureInvalidated);
  }
  (void)cudaGetLastError();
}

TEST_CASE("cuBLAS checks strides and memory") {
  Device device;
  cublasHandle_t handle = nullptr;
  REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasSetStream(handle, device.stream) == CUBLAS_STATUS_SUCCESS);
  const float one = 1, none = 0;
  const auto product = [&](int64_t m, int64_t a_stride) {
    return cublasGemmEx_64(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, 2, 4, &one, device.source, CUDA_R_32F, a_stride,
                           device.source, CUDA_R_32F, 4, &none, device.destination, CUDA_R_32F, m, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT);
  };
  CHECK(product(2, 4) == CUBLAS_STATUS_SUCCESS);
  CHECK(device.read(device.destination, 4) == std::vector<float>{30, 70, 70, 174});
  CHECK(product(2, 3) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(product(20, 4) == CUBLAS_STATUS_SUCCESS);
  CHECK_THAT(device.outcome(),
             Catch::Contains("a reads 16 bytes out of bounds, from byte 256 of an allocation of 256 bytes"));
}

TEST_CASE("cuDNN checks the workspace") {
  Device device;
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t tensor = nullptr;
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  cudnnCreate(&handle);
  cudnnSetStream(handle, device.stream);
  cudnnCreateTensorDescriptor(&tensor);
  cudnnCreateFilterDescriptor(&filter);
  cudnnCreateConvolutionDescriptor(&convolution);
  cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 2, 2);
  cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 1, 1, 1, 1);
  cudnnSetConvolution2dDescriptor(convolution, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
  const float one = 1, none = 0;
  const auto forward = [&](size_t workspace_bytes) {
    return cudnnConvolutionForward(handle, &one, tensor, device.source, filter, device.source, convolution,
                                   CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, device.floats(100),
                                   workspace_bytes, &none, tensor, device.destination);
  };
  CHECK(forward(0) == CUDNN_STATUS_BAD_PARAM);
  char why[100];
  cudnnGetLastErrorString(why, sizeof why);
  CHECK(std::string(why) == "the workspace is too small");
  CHECK(forward(400) == CUDNN_STATUS_SUCCESS);
  CHECK(device.read(device.destination, 4) == std::vector<float>{1, 2, 3, 4});
  cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 1, 1, 1, 1);
  CHECK(forward(400) == CUDNN_STATUS_NOT_SUPPORTED);
}

// So many ranks, each a process, call what `run` says; what the parent's rank, 0, ended with.
template <class Run>
static std::string outcome_of_ranks(int ranks, const Run& run) {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<pid_t> children;
  int rank = 0;
  while (rank == 0 && static_cast<int>(children.size()) + 1 < ranks) {
    const pid_t child = fork();
    if (child == 0) rank = static_cast<int>(children.size()) + 1;
    else children.push_back(child);
  }
  setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);
  std::string outcome;
  {
    Device device;
    ncclComm_t world = nullptr, second = nullptr;
    ncclCommInitRank(&world, ranks, id, rank);
    ncclCommSplit(world, 0, rank, &second, nullptr);
    run(device, rank, world, second);
    cudaEventRecord(device.event, device.stream);
    cudaStreamWaitEvent(device.other, device.event);
    cudaEventRecord(device.event, device.other);
    ncclResult_t state = ncclSuccess;
    cudaError_t status = cudaErrorNotReady;
    while (status == cudaErrorNotReady && state == ncclSuccess) {
      status = cudaEventQuery(device.event);
      ncclCommGetAsyncError(world, &state);
    }
    outcome = state != ncclSuccess ? ncclGetLastError(nullptr) : cudaGetErrorString(status);
    if (state == ncclSuccess && status == cudaSuccess)
      outcome += " " + std::to_string(static_cast<int>(device.read(device.destination, 1)[0]));
    ncclCommAbort(second);
    ncclCommAbort(world);
  }
  if (rank > 0) _exit(0);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  return outcome;
}
template <class Run>
static std::string two_ranks(const Run& run) {
  return outcome_of_ranks(2, run);
}

TEST_CASE("NCCL: ranks that call in the same order agree") {
  CHECK(two_ranks([](Device& device, int, ncclComm_t world, ncclComm_t second) {
          ncclAllReduce(device.source, device.destination, 64, ncclFloat32, ncclSum, world, device.stream);
          ncclAllReduce(device.destination, device.destination, 64, ncclFloat32, ncclSum, second, device.stream);
        }) == "no error 4");
}

// Rank 0 waits for rank 1 in both directions. When it has taken what rank 1 sent, whom it waits for stays the same;
// rank 1, which has not looked since, must not conclude that all wait for ever.
TEST_CASE("NCCL: a rank that has not seen yet that its data was taken is not in a circle") {
  for (int round = 0; round < 10; ++round)
    CHECK(outcome_of_ranks(3, [](Device& device, int rank, ncclComm_t world, ncclComm_t) {
            const auto send = [&](int to) { ncclSend(device.source, 64, ncclFloat32, to, world, device.stream); };
            const auto receive = [&](int from) {
              ncclRecv(device.destination, 64, ncclFloat32, from, world, device.stream);
            };
            if (rank == 0) {
              ncclGroupStart();
              receive(1);
              send(1);
              ncclRecv(device.floats(64), 64, ncclFloat32, 2, world, device.stream);
              ncclGroupEnd();
            } else if (rank == 1) {
              std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the others wait for it
              send(0), receive(0), receive(2);
            } else {
              send(1), send(0);
            }
          }) == "no error 1");
}

TEST_CASE("NCCL: two communicators in another order on one rank block each other, which is found") {
  CHECK_THAT(two_ranks([](Device& device, int rank, ncclComm_t world, ncclComm_t second) {
               const ncclComm_t order[] = {rank == 0 ? world : second, rank == 0 ? second : world};
               for (ncclComm_t communicator : order)
                 ncclAllReduce(device.source, device.destination, 64, ncclFloat32, ncclSum, communicator,
                               device.stream);
             }),
             Catch::StartsWith("deadlock: rank 0 in all-reduce of 256 bytes among ranks 0 1; rank 1 in all-reduce"));
}

TEST_CASE("NCCL: messages of other sizes, and calls of other kinds, are found") {
  CHECK_THAT(two_ranks([](Device& device, int rank, ncclComm_t world, ncclComm_t) {
               if (rank == 0) ncclRecv(device.destination, 32, ncclFloat32, 1, world, device.stream);
               else ncclSend(device.source, 64, ncclFloat32, 0, world, device.stream);
             }),
             Catch::Contains("expected \"message of 128 bytes root 0\", rank 1 has \"message of 256 bytes root 0\""));
}
