#include "executor/calibration/processor_work.h"

#include <algorithm>

#include "executor/calibration/calibration_kernel.h"
#include "executor/calibration/values.h"

namespace ff {
namespace {

constexpr int work_tag = 1;

// Kernels that run while messages are on their way.
class KernelsDuringMessages {
 public:
  KernelsDuringMessages(Backend& backend, Transport& transport, int peer, int64_t rows, int64_t bytes)
      : transport_(transport), peer_(peer), bytes_(bytes), kernel_(CalibrationKernel::product(backend, rows)),
        out_(bytes / 4), in_(bytes / 4) {
    time_us([&] { compute(2); });
  }

  int kernels_in(double us) {
    constexpr int some = 5;
    return std::max(1, static_cast<int>(us / time_us([&] { compute(some); }) * some));
  }

  // How much longer `kernels` take while a message goes each way than alone, in us; median of `rounds`.
  double longer_us(int kernels, int rounds) {
    Vector<double> longer;
    for (int round = 0; round < rounds; ++round) {
      exchange(4, [] {});  // both begin
      const double alone = time_us([&] { compute(kernels); });
      exchange(4, [] {});
      exchange(bytes_, [&] { longer.push_back(time_us([&] { compute(kernels); }) - alone); });
    }
    return std::max(0.0, median(longer));
  }

  // How much longer a kernel takes with a message each way, waited for after it, in us, than on the slower of both
  // ranks alone, which the other one waits for.
  double longer_with_each_us(int kernels, int rounds) {
    Vector<double> longer;
    for (int round = 0; round < rounds; ++round) {
      exchange(4, [] {});
      const double alone = time_us([&] { compute(kernels); });
      out_[0] = static_cast<float>(alone);
      exchange(4, [] {});
      const double slower = std::max(alone, static_cast<double>(in_[0]));
      const double with_messages = time_us([&] {
        for (int i = 0; i < kernels; ++i) exchange(bytes_, [&] { compute(1); });
      });
      longer.push_back((with_messages - slower) / kernels);
    }
    return std::max(0.0, median(longer));
  }

 private:
  void compute(int kernels) {
    for (int i = 0; i < kernels; ++i) {
      kernel_.run();
      transport_.poll();  // as a program does
    }
  }
  template <typename Function>
  void exchange(int64_t bytes, const Function& meanwhile) {
    Request receive = transport_.receive(in_.data(), bytes, peer_, work_tag);
    Request send = transport_.send(out_.data(), bytes, peer_, work_tag);
    meanwhile();
    transport_.wait(send);
    transport_.wait(receive);
  }

  Transport& transport_;
  const int peer_;
  const int64_t bytes_;
  CalibrationKernel kernel_;
  Vector<float> out_, in_;
};

}  // namespace

ProcessorWork measure_processor_work(Backend& backend, Transport& transport, int peer, double gb_per_s) {
  constexpr double exchange_us = 40e3, kernels_us = 3 * exchange_us;  // the messages end first, although they slow down
  constexpr int rounds = 7, short_messages = 200;
  const int64_t bytes =
      std::clamp<int64_t>(static_cast<int64_t>(gb_per_s * 1e3 * exchange_us), 64 << 10, 64 << 20) / 4 * 4;
  constexpr int64_t few_rows = 16, few_bytes = 1 << 10;
  KernelsDuringMessages with_short(backend, transport, peer, few_rows, few_bytes);
  const double each_us = with_short.longer_with_each_us(short_messages, rounds);
  if (gb_per_s <= 0) return {each_us / 2, 0};
  KernelsDuringMessages with_long(backend, transport, peer, 128, bytes);
  const double long_us = with_long.longer_us(with_long.kernels_in(kernels_us), rounds);
  return {each_us / 2, long_us * 1e3 / static_cast<double>(2 * bytes)};
}

}  // namespace ff
