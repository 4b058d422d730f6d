// What the kernels of one CUDA backend share: the device, its stream, the libraries' handles, scratch memory and the
// record of faults.
#pragma once

#include <map>
#include <string>

#include "common/kernels/cuda/check.h"
#include "common/kernels/cuda/cuda_backend.h"
#include "common/vector.h"

namespace ff::cuda {

// A kernel found an index out of range. Lies in host memory that the device writes; the first fault stays until it has
// been reported.
struct Fault {
  int raised = 0;  // number of the operator's name, from 1; 0: no fault
  int found = 0, limit = 0;
};

// How one pass of a convolution is best computed here (see convolution.h); kept by geometry, since the same ones come
// back again and again.
struct ConvolutionChoice {
  enum class Method { none, product, channels_last, channels_first };
  Method method = Method::none;
  int algorithm = 0;  // cuDNN's, of the pass
  cudnnMathType_t math = CUDNN_FMA_MATH;
  int64_t workspace_bytes = 0;
  bool deterministic = true;  // the same bits in every run
};

class Context {
 public:
  Context(int device, Precision precision);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // CUDA's current device belongs to the calling thread, and a backend may be made in one thread and used in another.
  void use() const { FF_CHECK(cudaSetDevice(device)); }

  // Memory that a kernel may use while it runs, shared by all kernels of the stream. Asked for when a kernel is made,
  // in the largest size that it will use at once. It grows by being allocated anew; memory given out before stays
  // valid, for graphs that were captured with it.
  void reserve_scratch(int64_t bytes) const;
  char* scratch() const { return scratch_.empty() ? nullptr : scratch_.back().first; }
  int64_t scratch_bytes() const;

  // Number of an operator's name for Fault::raised.
  int fault_number(const std::string& operator_name, const std::string& what) const;
  Fault* fault() const { return fault_; }
  void report_fault() const;  // throws InputError if there is one; call when the stream is idle

  // Where kernels find the iteration's number: null, and the argument counts; or, while a graph is being captured, this
  // memory.
  const int64_t* iteration_memory() const;
  void set_iteration(int64_t iteration) const;

  cublasComputeType_t compute_type() const {
    return precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  }

  int device;
  Precision precision;
  int multiprocessors = 1;
  bool has_tf32 = false;  // tensor cores that multiply in TF32: compute capability 8.0 and newer
  cudaStream_t stream = nullptr;
  cublasHandle_t blas = nullptr;
  cudnnHandle_t dnn = nullptr;
  mutable std::map<std::string, ConvolutionChoice> convolutions;

 private:
  mutable Vector<std::pair<char*, int64_t>> scratch_;  // the last one is in use
  mutable Vector<std::string> fault_names_;
  Fault* fault_ = nullptr;
  int64_t* iteration_ = nullptr;
  void* blas_workspace_ = nullptr;
};

// Device memory that a kernel owns.
template <class Element>
class Memory {
 public:
  Memory() = default;
  Memory(const Context& context, int64_t elements) : device_(context.device), elements_(elements) {
    if (elements <= 0) return;
    context.use();
    FF_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<size_t>(bytes())));
  }
  ~Memory() { free(); }
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }

  Element* data() const { return data_; }
  int64_t size() const { return elements_; }
  int64_t bytes() const { return elements_ * static_cast<int64_t>(sizeof(Element)); }

 private:
  void swap(Memory& other) {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(elements_, other.elements_);
  }
  void free() {  // errors are those of earlier work, which is reported elsewhere
    if (!data_) return;
    cudaSetDevice(device_);
    cudaFree(data_);
  }

  int device_ = 0;
  Element* data_ = nullptr;
  int64_t elements_ = 0;
};

// Pieces of the scratch memory, one after the other. First made without memory, to learn how much is needed.
class ScratchPieces {
 public:
  explicit ScratchPieces(char* base = nullptr) : base_(base) {}
  template <class Element = float>
  Element* take(int64_t elements) {
    constexpr int64_t alignment = 256;
    Element* piece = base_ ? reinterpret_cast<Element*>(base_ + taken_) : nullptr;
    taken_ += (elements * static_cast<int64_t>(sizeof(Element)) + alignment - 1) / alignment * alignment;
    return piece;
  }
  int64_t taken() const { return taken_; }

 private:
  char* base_;
  int64_t taken_ = 0;
};

}  // namespace ff::cuda
