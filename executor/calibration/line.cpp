#include "executor/calibration/line.h"

#include <algorithm>
#include <cmath>

namespace ff {
namespace {

struct Sums {
  double one = 0, x = 0, xx = 0, y = 0, xy = 0;
  void add(const TimedSize& time) {
    const double weight = 1 / (time.us * time.us), bytes = static_cast<double>(time.bytes);
    one += weight;
    x += weight * bytes;
    xx += weight * bytes * bytes;
    y += weight * time.us;
    xy += weight * bytes * time.us;
  }
  double us_per_byte() const { return (one * xy - x * y) / (one * xx - x * x); }
};

double marginal_us_per_byte(const TimedSize& small, const TimedSize& large) {
  return (large.us - small.us) / static_cast<double>(large.bytes - small.bytes);
}

}  // namespace

Line fit_line(const Vector<TimedSize>& times, int64_t span) {
  constexpr double fastest_gb_per_s = 1e3;  // where the time does not grow with the size
  Sums all, large;
  for (const TimedSize& time : times) {
    all.add(time);
    if (time.bytes >= times.back().bytes / span) large.add(time);
  }
  double us_per_byte = std::max(large.us_per_byte(), 1e-3 / fastest_gb_per_s);
  const double fastest =
      std::min_element(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.us < b.us; })->us;
  const double latency = std::max((all.y - us_per_byte * all.x) / all.one, fastest);
  // With the latency pushed up, the rate that fits best is another one.
  us_per_byte = std::max((large.xy - latency * large.x) / large.xx, 1e-3 / fastest_gb_per_s);
  return {latency, 1e-3 / us_per_byte};
}

bool rate_is_constant(const Vector<TimedSize>& times) {
  constexpr double tolerance = 0.05;
  const size_t count = times.size();
  if (count < 3) return false;
  const double before = marginal_us_per_byte(times[count - 3], times[count - 2]);
  const double last = marginal_us_per_byte(times[count - 2], times[count - 1]);
  return last > 0 && std::abs(last - before) < tolerance * last;
}

Deviation largest_deviation(const Line& line, const Vector<TimedSize>& times) {
  Deviation largest;
  for (const TimedSize& time : times)
    if (const double relative = line.us(time.bytes) / time.us - 1; std::abs(relative) >= std::abs(largest.relative))
      largest = {time, relative};
  return largest;
}

}  // namespace ff
