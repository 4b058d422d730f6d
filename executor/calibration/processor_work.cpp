#include "executor/calibration/processor_work.h"

#include <algorithm>
#include <chrono>

#include "executor/calibration/calibration_kernel.h"

namespace ff {
namespace {

constexpr int tag = 1;
using Clock = std::chrono::steady_clock;

double median(Vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

double measure_processor_ns_per_byte(Backend& backend, Transport& transport, int peer, double gb_per_s) {
  constexpr double exchange_us = 40e3, kernels_us = 3 * exchange_us;  // the messages end first, although they slow down
  constexpr int rounds = 7;
  const int64_t bytes =
      std::clamp<int64_t>(static_cast<int64_t>(gb_per_s * 1e3 * exchange_us), 64 << 10, 64 << 20) / 4 * 4;
  Vector<float> out(bytes / 4), in(bytes / 4);
  CalibrationKernel kernel = CalibrationKernel::product(backend, 128);
  const auto time_us = [&](int kernels) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kernels; ++i) {
      kernel.run();
      transport.poll();  // as a program does
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  };
  time_us(2);
  const int kernels = std::max(1, static_cast<int>(kernels_us / time_us(5) * 5));
  const auto exchange = [&](int64_t size, const auto& meanwhile) {
    Request receive = transport.receive(in.data(), size, peer, tag), send = transport.send(out.data(), size, peer, tag);
    meanwhile();
    transport.wait(send);
    transport.wait(receive);
  };
  Vector<double> longer_us;
  for (int round = 0; round < rounds; ++round) {
    exchange(4, [] {});  // both begin
    const double alone = time_us(kernels);
    exchange(4, [] {});
    exchange(bytes, [&] { longer_us.push_back(time_us(kernels) - alone); });
  }
  return std::max(0.0, median(longer_us)) * 1e3 / static_cast<double>(2 * bytes);
}

}  // namespace ff
