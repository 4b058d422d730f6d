#include "executor/calibration/line.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

namespace ff {
namespace {

// Sizes of 256 B, 1 KiB, ... up to `largest`, with the time of each.
Vector<TimedSize> timed(int64_t largest, const std::function<double(double bytes)>& us) {
  Vector<TimedSize> times;
  for (int64_t bytes = 256; bytes <= largest; bytes *= 4) times.push_back({bytes, us(static_cast<double>(bytes))});
  return times;
}

constexpr int64_t all_sizes = int64_t{1} << 40;

// 1 Gb/s whose token bucket lets 64 KiB pass at once: these go at 5 GB/s, all beyond at 0.119 GB/s.
double token_bucket_us(double bytes) {
  constexpr double burst = 64 << 10;
  return 20 + std::min(bytes, burst) / 5e3 + std::max(0.0, bytes - burst) / 119;
}

}  // namespace

TEST_CASE("a straight line is found as it is, whatever the span") {
  const Vector<TimedSize> times = timed(16 << 20, [](double bytes) { return 20 + bytes / 1250; });
  for (const int64_t span : {int64_t{4}, all_sizes}) {
    const Line line = fit_line(times, span);
    CHECK(line.latency_us == Approx(20.2048));  // the fastest message's time, of 256 B
    CHECK(line.gb_per_s == Approx(1.25).epsilon(0.03));
    CHECK(std::abs(largest_deviation(line, times).relative) < 0.02);
  }
  CHECK(rate_is_constant(times));
}

TEST_CASE("what a token bucket lets pass at once does not set the rate of large messages") {
  const Vector<TimedSize> times = timed(16 << 20, token_bucket_us);
  const Line line = fit_line(times, 4);
  CHECK(line.gb_per_s == Approx(0.119).epsilon(0.03));
  // All sizes counted alike make it faster than any long message is.
  CHECK(fit_line(times, all_sizes).gb_per_s > 1.3 * 0.119);
  // The line is most wrong where the bucket ends: 33 us measured, 557 by the line.
  const Deviation deviation = largest_deviation(line, times);
  CHECK(deviation.at.bytes == 64 << 10);
  CHECK(deviation.relative > 5);
}

TEST_CASE("a rate is constant when another step in size adds as much a byte as the last") {
  CHECK_FALSE(rate_is_constant(timed(1 << 10, token_bucket_us)));    // two sizes tell nothing
  CHECK_FALSE(rate_is_constant(timed(256 << 10, token_bucket_us)));  // the bucket is within the last step
  CHECK(rate_is_constant(timed(4 << 20, token_bucket_us)));
  CHECK_FALSE(rate_is_constant(timed(4 << 20, [](double bytes) { return 20 + bytes * bytes; })));
  CHECK_FALSE(rate_is_constant(timed(4 << 20, [](double) { return 20; })));  // it does not grow at all
}

TEST_CASE("a time that does not grow with the size has a finite rate") {
  const Line line = fit_line(timed(1 << 20, [](double) { return 20; }), all_sizes);
  CHECK(line.latency_us == Approx(20));
  CHECK(line.gb_per_s <= 1e3 * 1.001);
}

}  // namespace ff
