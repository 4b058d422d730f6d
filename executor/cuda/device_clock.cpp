#include "executor/cuda/device_clock.h"

#include "common/kernels/cuda/check.h"

namespace ff {
namespace {

class CudaDeviceClock : public DeviceClock {
 public:
  explicit CudaDeviceClock(CudaBackend& backend) : backend_(backend) {}
  ~CudaDeviceClock() override {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  void begin() override {
    backend_.use_device();
    used_ = 0;
    record();
  }
  void mark() override { record(); }

  Vector<int64_t> times_ns() override {
    Vector<int64_t> times;
    for (size_t i = 1; i < used_; ++i) {
      float ms = 0;
      FF_CHECK(cudaEventElapsedTime(&ms, events_[0], events_[i]));
      times.push_back(static_cast<int64_t>(static_cast<double>(ms) * 1e6));
    }
    return times;
  }

 private:
  void record() {
    if (used_ == events_.size()) {
      cudaEvent_t event = nullptr;
      FF_CHECK(cudaEventCreate(&event));
      events_.push_back(event);
    }
    FF_CHECK(cudaEventRecord(events_[used_++], static_cast<cudaStream_t>(backend_.stream())));
  }

  CudaBackend& backend_;
  Vector<cudaEvent_t> events_;  // [0]: begin
  size_t used_ = 0;
};

}  // namespace

std::unique_ptr<DeviceClock> make_device_clock(CudaBackend& backend) {
  return std::make_unique<CudaDeviceClock>(backend);
}

}  // namespace ff
