#include "executor/calibration/link_measurement.h"

#include <algorithm>

#include "executor/calibration/values.h"
#include "executor/program/buffer.h"

namespace ff {
namespace {

constexpr int tag = 1;

// Memory of a backend, in which messages move on from one to the next, as a program's do.
class Messages {
 public:
  explicit Messages(Backend& backend) : backend_(backend), memory_(allocate_buffer(backend, 0, false)) {}
  float* place(int64_t bytes, int64_t repetition) {
    const int64_t room = std::max<int64_t>(2 * bytes, 16 << 20);
    if (room_ < room) {
      memory_.reset();  // first: there may not be room for both
      memory_ = allocate_buffer(backend_, room / 4, true);
      room_ = room;
    }
    return memory_.get() + repetition * bytes % (room - bytes + 4) / 4;
  }

 private:
  Backend& backend_;
  Buffer memory_;
  int64_t room_ = 0;
};

class LinkMeasurement {
 public:
  LinkMeasurement(Backend& backend, Transport& transport, int peer, const PairGroups& groups, bool one_host)
      : transport_(transport), peer_(peer), groups_(groups), one_host_(one_host), first_(transport.rank() < peer),
        out_(backend), in_(backend) {}

  LinkRates run() {
    const auto there_and_back = [&](int64_t bytes, int64_t repetition) {
      exchange(bytes, repetition, first_ ? Turn::first : Turn::answer);
    };
    const auto both_ways = [&](int64_t bytes, int64_t repetition) { exchange(bytes, repetition, Turn::together); };
    const auto all_reduce = [&](int64_t bytes, int64_t repetition) {
      Request request = transport_.all_reduce(groups_.of_transport, out_.place(bytes, repetition), bytes / 4, tag);
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

  enum class Turn : uint8_t { first, answer, together };

  // The receive is posted first, as programs do; over an ordered transport in the order in which they happen.
  void exchange(int64_t bytes, int64_t repetition, Turn turn) {
    Request receive, send;
    const auto start_receive = [&] { receive = transport_.receive(in_.place(bytes, repetition), bytes, peer_, tag); };
    const auto start_send = [&] { send = transport_.send(out_.place(bytes, repetition), bytes, peer_, tag); };
    if (transport_.ordered() && turn == Turn::first) {
      start_send();
      start_receive();
    } else {
      if (turn == Turn::together) transport_.begin_group();
      start_receive();
      if (turn == Turn::answer) transport_.wait(receive);
      start_send();
      if (turn == Turn::together) transport_.end_group();
    }
    transport_.wait(send);
    transport_.wait(receive);
  }

  // What the first rank says, so that both go on alike.
  double agreed(double value) {
    float shared = first_ ? static_cast<float>(value) : 0.0f;
    Transport& host = transport_.for_host_memory();
    Request request = host.all_reduce(groups_.of_host, &shared, 1, tag);
    host.wait(request);
    return static_cast<double>(shared);
  }

  // Of one of `count` operations, one after the other.
  template <typename Operation>
  double time_of(Operation operation, int64_t count, int64_t bytes, int64_t repetition) {
    const double us = time_us([&] {
      transport_.begin_iteration();
      for (int64_t i = 0; i < count; ++i) operation(bytes, repetition * count + i);
      transport_.finish_iteration();
    });
    return us / static_cast<double>(count);
  }

  // Median of the operation's time. Where the GPUs exchange data themselves, several short ones at once, as in a
  // program: the host waits for the last one alone, and what that takes is not the operation's.
  template <typename Operation>
  double measure_us(Operation operation, int64_t bytes) {
    time_of(operation, 1, bytes, 0);
    const double once_us = agreed(time_of(operation, 1, bytes, 1));
    constexpr double at_once_us = 4e3, total_us = 0.4e6;
    const int64_t count =
        transport_.ordered() ? static_cast<int64_t>(std::clamp<double>(at_once_us / once_us, 1, 16)) : 1;
    const int repetitions = static_cast<int>(std::clamp<double>(total_us / once_us / static_cast<double>(count), 3,
                                                                bytes < 64 << 10  ? 400
                                                                : bytes < 1 << 20 ? 50
                                                                                  : 9));
    Vector<double> times;
    for (int i = 0; i < repetitions; ++i) times.push_back(time_of(operation, count, bytes, i + 2));
    return agreed(median(times));
  }

  // `share` of the operation's time goes to `latencies` latencies and the bytes.
  template <typename Operation>
  MeasuredLine measure_line(Operation operation, double share, double latencies) {
    MeasuredLine measured{};
    Vector<TimedSize> times;
    // GPUs of one host have links that only long messages fill.
    const bool grows = !one_host_ || transport_.ordered();
    for (int64_t size = smallest; size <= (grows ? largest : largest_on_one_host); size *= 4) {
      times.push_back({size, share * measure_us(operation, size)});
      measured.constant = rate_is_constant(times);
      if (grows && size >= constant_from && (measured.constant || times.back().us > enough_us)) break;
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
  const PairGroups groups_;
  const bool one_host_, first_;
  Messages out_, in_;
};

}  // namespace

LinkRates measure_link(Backend& backend, Transport& transport, int peer, const PairGroups& groups, bool one_host) {
  return LinkMeasurement(backend, transport, peer, groups, one_host).run();
}

double measure_at_once_us(Backend& backend, Transport& transport, bool active, int destination, int source,
                          int64_t bytes) {
  Messages out(backend), in(backend);
  if (active) {
    transport.connect({destination}, {source});
    out.place(bytes, 0);
    in.place(bytes, 0);
  } else {
    transport.connect({}, {});
  }
  Vector<double> slowest;
  constexpr int repetitions = 5;
  for (int i = 0; i <= repetitions; ++i) {  // the first warms up
    transport.barrier();
    double us = time_us([&] {
      if (!active) return;
      transport.begin_iteration();
      transport.begin_group();
      Request receive = transport.receive(in.place(bytes, 0), bytes, source, tag);
      Request send = transport.send(out.place(bytes, 0), bytes, destination, tag);
      transport.end_group();
      transport.wait(send);
      transport.wait(receive);
      transport.finish_iteration();
    });
    for (const std::string& one : transport.gather(to_bytes(Vector<double>{us})))
      us = std::max(us, from_bytes<double>(one)[0]);
    us = from_bytes<double>(transport.broadcast(to_bytes(Vector<double>{us})))[0];
    if (i > 0) slowest.push_back(us);
  }
  return median(slowest);
}

}  // namespace ff
