#include "executor/calibration/link_measurement.h"

#include <algorithm>

#include "executor/calibration/values.h"

namespace ff {
namespace {

constexpr int tag = 1;

class LinkMeasurement {
 public:
  LinkMeasurement(Transport& transport, int peer, GroupId group, bool one_host)
      : transport_(transport), peer_(peer), group_(group), one_host_(one_host), first_(transport.rank() < peer) {}

  LinkRates run() {
    const auto there_and_back = [&](int64_t bytes, int repetition) { exchange(bytes, repetition, !first_); };
    const auto both_ways = [&](int64_t bytes, int repetition) { exchange(bytes, repetition, false); };
    const auto all_reduce = [&](int64_t bytes, int repetition) {
      Request request = transport_.all_reduce(group_, place(out_, bytes, repetition), bytes / 4, tag);
      transport_.wait(request);
    };
    LinkRates rates{};
    rates.message = measure_line(there_and_back, 0.5, 1);
    const int64_t large = std::max(int64_t{1} << 20, rates.message.largest_bytes);
    rates.both_ways_gb_per_s = static_cast<double>(large) * 1e-3 /
                               std::max(1e-3, measure_us(both_ways, large) - rates.message.line.latency_us);
    // Among 2 ranks an all-reduce takes 2 latencies, and each hop carries 2 (k-1)/k = 1 times its bytes.
    rates.all_reduce = measure_line(all_reduce, 1, 2);
    return rates;
  }

 private:
  static constexpr int64_t smallest = 256, constant_from = 4 << 20, largest = 64 << 20;  // bytes of a message
  static constexpr int64_t largest_on_one_host = 16 << 20;
  static constexpr double enough_us = 1e6;  // one operation of this size is the last

  // The receive of the answer is posted first, as programs do.
  void exchange(int64_t bytes, int repetition, bool answer) {
    Request receive = transport_.receive(place(in_, bytes, repetition), bytes, peer_, tag);
    if (answer) transport_.wait(receive);
    Request send = transport_.send(place(out_, bytes, repetition), bytes, peer_, tag);
    transport_.wait(send);
    transport_.wait(receive);
  }

  // Messages go through other memory each time, as a program's do.
  static float* place(Vector<float>& buffer, int64_t bytes, int repetition) {
    const int64_t room = std::max<int64_t>(2 * bytes, 16 << 20);
    if (static_cast<int64_t>(buffer.size()) * 4 < room) buffer.resize(static_cast<size_t>(room / 4));
    return buffer.data() + static_cast<int64_t>(repetition) * bytes % (room - bytes + 4) / 4;
  }

  // What the first rank says, so that both go on alike.
  double agreed(double value) {
    float shared = first_ ? static_cast<float>(value) : 0.0f;
    Request request = transport_.all_reduce(group_, &shared, 1, tag);
    transport_.wait(request);
    return static_cast<double>(shared);
  }

  // Median of the operation's time.
  template <typename Operation>
  double measure_us(Operation operation, int64_t bytes) {
    const auto timed = [&](int repetition) { return time_us([&] { operation(bytes, repetition); }); };
    timed(0);
    const double once_us = agreed(timed(1));
    constexpr double total_us = 0.4e6;
    const int repetitions = static_cast<int>(std::clamp<double>(total_us / once_us, 3,
                                                                bytes < 64 << 10  ? 400
                                                                : bytes < 1 << 20 ? 50
                                                                                  : 9));
    Vector<double> times;
    for (int i = 0; i < repetitions; ++i) times.push_back(timed(i + 2));
    return agreed(median(times));
  }

  // `share` of the operation's time goes to `latencies` latencies and the bytes.
  template <typename Operation>
  MeasuredLine measure_line(Operation operation, double share, double latencies) {
    MeasuredLine measured{};
    Vector<TimedSize> times;
    for (int64_t size = smallest; size <= (one_host_ ? largest_on_one_host : largest); size *= 4) {
      times.push_back({size, share * measure_us(operation, size)});
      measured.constant = rate_is_constant(times);
      if (!one_host_ && size >= constant_from && (measured.constant || times.back().us > enough_us)) break;
    }
    constexpr int64_t all_sizes = int64_t{1} << 40, large_sizes = 4;
    measured.line = fit_line(times, one_host_ ? all_sizes : large_sizes);
    measured.deviation = largest_deviation(measured.line, times);
    measured.largest_bytes = times.back().bytes;
    measured.line.latency_us /= latencies;
    return measured;
  }

  Transport& transport_;
  const int peer_;
  const GroupId group_;
  const bool one_host_, first_;
  Vector<float> out_, in_;
};

}  // namespace

LinkRates measure_link(Transport& transport, int peer, GroupId group, bool one_host) {
  return LinkMeasurement(transport, peer, group, one_host).run();
}

double measure_at_once_us(Transport& transport, bool active, int destination, int source, int64_t bytes) {
  Vector<float> out(active ? bytes / 4 : 0), in(out.size());
  Vector<double> slowest;
  constexpr int repetitions = 5;
  for (int i = 0; i <= repetitions; ++i) {  // the first warms up
    transport.barrier();
    double us = time_us([&] {
      if (!active) return;
      Request receive = transport.receive(in.data(), bytes, source, tag);
      Request send = transport.send(out.data(), bytes, destination, tag);
      transport.wait(send);
      transport.wait(receive);
    });
    for (const std::string& one : transport.gather(to_bytes(Vector<double>{us})))
      us = std::max(us, from_bytes<double>(one)[0]);
    us = from_bytes<double>(transport.broadcast(to_bytes(Vector<double>{us})))[0];
    if (i > 0) slowest.push_back(us);
  }
  return median(slowest);
}

}  // namespace ff
