#include "executor/cuda/device_clock.h"

#include "common/kernels/cuda/check.h"

namespace ff {
namespace {

class DeviceClock : public Clock {
 public:
  explicit DeviceClock(CudaBackend& backend) : backend_(backend) {}
  ~DeviceClock() override {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  void begin() override {
    backend_.use_device();
    used_ = 0;
    record();
  }
  void mark() override { record(); }

  const Vector<int64_t>& times_ns() override {
    times_ns_.clear();
    for (size_t i = 1; i < used_; ++i) {
      float ms = 0;
      FF_CHECK(cudaEventElapsedTime(&ms, events_[0], events_[i]));
      times_ns_.push_back(static_cast<int64_t>(static_cast<double>(ms) * 1e6));
    }
    return times_ns_;
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
  Vector<int64_t> times_ns_;
};

}  // namespace

std::unique_ptr<Clock> make_device_clock(CudaBackend& backend) { return std::make_unique<DeviceClock>(backend); }

}  // namespace ff
