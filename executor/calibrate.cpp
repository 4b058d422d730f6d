#include "executor/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "common/graph.h"
#include "executor/buffer.h"
#include "executor/transport/control_data.h"

namespace ff {
namespace {

using Clock = std::chrono::steady_clock;

template <typename Function>
double time_us(Function function) {
  const Clock::time_point begin = Clock::now();
  function();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double median(Vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Median of `function`'s time after a warm-up: at least 5 times and about 60 ms.
template <typename Function>
double median_us(Function function) {
  function();
  Vector<double> times;
  double total_us = 0;
  while (times.size() < 5 || (total_us < 60e3 && times.size() < 2000)) {
    times.push_back(time_us(function));
    total_us += times.back();
  }
  return median(times);
}

// What one rank's device does.
struct ComputeRates {
  double peak_tflops, memory_gb_per_s, launch_us;
};

// A product of two matrices of 1024 x 1024, and a relu of one element for the cost of a kernel that has nothing to do.
ComputeRates measure_compute(Backend& backend) {
  constexpr int64_t side = 1024;
  const Graph graph = parse_graph(parse_json(R"({"format": "ffgraph/1", "name": "calibration", "batch_size": 1024,
    "inputs": [{"name": "x", "shape": ["batch", 1024], "dtype": "f32"}, {"name": "one", "shape": ["batch", 1],
    "dtype": "f32"},
               {"name": "label", "shape": ["batch"], "dtype": "i32"}],
    "operators": [{"name": "product", "type": "linear", "inputs": ["x"],
    "attributes": {"out_features": 1024, "bias": false}},
                  {"name": "relu", "type": "relu", "inputs": ["one"]},
                  {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["product", "label"]}]})",
                                             "calibration"));
  ComputeRates rates{};
  const auto allocate = [&](int64_t elements) { return allocate_buffer(backend, elements, true); };
  const Buffer a = allocate(side * side), b = allocate(side * side), c = allocate(side * side);
  for (const Operator& op : graph.operators) {
    if (op.definition->is_loss()) continue;
    const bool product = op.name == "product";
    const Block part = product ? op.definition->whole() : Block{{0, 1}, {0, 1}};
    const auto kernel = backend.make_kernel({*op.definition, part, {false}, op.name, 0});
    KernelArguments arguments;
    arguments.inputs = {a.get()};
    if (product) arguments.parameters = {b.get()};
    arguments.outputs = {c.get()};
    const double us = median_us([&] {
      kernel->forward(arguments);
      backend.wait();
    });
    if (product) rates.peak_tflops = 2.0 * side * side * side / us * 1e-6;
    else rates.launch_us = us;
  }
  constexpr int64_t bytes = 64 << 20;
  const Buffer from = allocate(bytes / 4), to = allocate(bytes / 4);
  const Block block{{0, bytes / 4}};
  const double us = median_us([&] {
    backend.copy_block(from.get(), block, to.get(), block, block);
    backend.wait();
  });
  rates.memory_gb_per_s = 2.0 * bytes / us * 1e-3;  // read and written
  return rates;
}

struct Line {
  double latency_us, gb_per_s;
};

// time = latencies * latency + bytes / bandwidth, by least squares of the relative error; at least the fastest
// message's latency.
Line fit_line(const Vector<double>& bytes, const Vector<double>& us, double latencies) {
  double one = 0, x = 0, xx = 0, y = 0, xy = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const double weight = 1 / (us[i] * us[i]);
    one += weight;
    x += weight * bytes[i];
    xx += weight * bytes[i] * bytes[i];
    y += weight * us[i];
    xy += weight * bytes[i] * us[i];
  }
  const double determinant = one * xx - x * x;
  const double intercept =
      std::max(determinant > 0 ? (y * xx - xy * x) / determinant : 0.0, *std::min_element(us.begin(), us.end()));
  const double us_per_byte = (xy - intercept * x) / xx;
  return {intercept / latencies, us_per_byte > 0 ? 1e-3 / us_per_byte : 1e3};
}

struct LinkRates {
  double latency_us, gb_per_s, all_reduce_latency_us, all_reduce_gb_per_s;
  double full_duplex;  // 1 or 0
};

// Measures between this rank and `peer`; both call, the lower rank's times count.
class LinkMeasurement {
 public:
  LinkMeasurement(Transport& transport, int peer, GroupId group)
      : transport_(transport), peer_(peer), group_(group), first_(transport.rank() < peer), out_(largest / 4),
        in_(largest / 4) {}

  LinkRates run() {
    // The receive of the answer is posted first, as programs do.
    const auto exchange = [&](int64_t bytes, int repetition, bool answer) {
      Request receive = transport_.receive(place(in_, bytes, repetition), bytes, peer_, tag);
      if (answer) transport_.wait(receive);
      Request send = transport_.send(place(out_, bytes, repetition), bytes, peer_, tag);
      transport_.wait(send);
      transport_.wait(receive);
    };
    const auto there_and_back = [&](int64_t bytes, int repetition) { exchange(bytes, repetition, !first_); };
    const auto both_ways = [&](int64_t bytes, int repetition) { exchange(bytes, repetition, false); };
    const auto all_reduce = [&](int64_t bytes, int repetition) {
      Request request = transport_.all_reduce(group_, place(out_, bytes, repetition), bytes / 4, tag);
      transport_.wait(request);
    };
    const Line message = measure_line(there_and_back, 0.5, 1);
    constexpr int64_t duplex_bytes = 1 << 20;
    const double full_duplex =
        measure_us(both_ways, duplex_bytes) < 1.5 * 0.5 * measure_us(there_and_back, duplex_bytes) ? 1 : 0;
    // Among 2 ranks an all-reduce takes 2 latencies, and each hop carries 2 (k-1)/k = 1 times its bytes.
    const Line reduction = measure_line(all_reduce, 1, 2);
    return {message.latency_us, message.gb_per_s, reduction.latency_us, reduction.gb_per_s, full_duplex};
  }

 private:
  static constexpr int64_t smallest = 256, largest = 16 << 20;  // bytes of a message
  static constexpr int tag = 1;

  // Messages go through other memory each time, as a program's do.
  static float* place(Vector<float>& buffer, int64_t bytes, int repetition) {
    return buffer.data() + static_cast<int64_t>(repetition) * bytes % (largest - bytes + 4) / 4;
  }

  // Median of the operation's time.
  template <typename Operation>
  double measure_us(Operation operation, int64_t bytes) {
    const int repetitions = static_cast<int>(std::clamp<int64_t>((8 << 20) / (bytes + 1), 7, 400));
    Vector<double> times;
    for (int i = 0; i < repetitions + 2; ++i) {
      const double us = time_us([&] { operation(bytes, i); });
      if (i >= 2) times.push_back(us);
    }
    return median(times);
  }

  // `share` of the operation's time goes to `latencies` latencies and the bytes.
  template <typename Operation>
  Line measure_line(Operation operation, double share, double latencies) {
    Vector<double> bytes, us;
    for (int64_t size = smallest; size <= largest; size *= 4) {
      bytes.push_back(static_cast<double>(size));
      us.push_back(share * measure_us(operation, size));
    }
    return fit_line(bytes, us, latencies);
  }

  Transport& transport_;
  const int peer_;
  const GroupId group_;  // of the two ranks
  const bool first_;
  Vector<float> out_, in_;
};

// On rank 0.
template <typename Value>
Vector<Value> gather_values(Transport& transport, const Value& mine) {
  Vector<Value> all;
  for (const std::string& bytes : transport.gather(to_bytes(Vector<Value>{mine})))
    all.push_back(from_bytes<Value>(bytes)[0]);
  return all;
}

double rounded(double value) {
  if (value <= 0) return 0;
  const double scale = std::pow(10, 3 - std::floor(std::log10(value)));  // four digits
  return std::round(value * scale) / scale;
}

// The slowest rank's rates: a step ends when the last rank has ended.
Json device_model(const Vector<ComputeRates>& ranks, int cores, int64_t memory_bytes) {
  ComputeRates slowest = ranks[0];
  for (const ComputeRates& rank : ranks) {
    slowest.peak_tflops = std::min(slowest.peak_tflops, rank.peak_tflops);
    slowest.memory_gb_per_s = std::min(slowest.memory_gb_per_s, rank.memory_gb_per_s);
    slowest.launch_us = std::max(slowest.launch_us, rank.launch_us);
  }
  return {{"peak_tflops", rounded(slowest.peak_tflops)},
          {"memory_gb_per_s", rounded(slowest.memory_gb_per_s)},
          {"memory_bytes", memory_bytes},
          {"launch_us", rounded(slowest.launch_us)},
          {"cores", cores},
          {"source", "measured by ffexec --calibrate" +
                         (ranks.size() > 1 ? ", " + std::to_string(ranks.size()) + " ranks at once" : std::string())}};
}

}  // namespace

Json calibrate(Backend& backend, Transport& transport, int cores) {
  const Vector<std::string> hosts = transport.gather(transport.host());  // on rank 0
  const int size = transport.size(), rank = transport.rank();
  transport.barrier();  // all ranks compute at once, as they do in training
  const Vector<ComputeRates> computes = gather_values(transport, measure_compute(backend));
  const int64_t memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / transport.place().local_size;

  Json links = Json::array();
  for (int a = 0; a < size; ++a)
    for (int b = a + 1; b < size; ++b) {
      const bool measures = rank == a || rank == b;
      const Vector<GroupId> groups =
          transport.make_groups(measures ? Vector<Vector<int>>{{a, b}} : Vector<Vector<int>>());
      transport.barrier();
      LinkRates mine{};
      if (measures) mine = LinkMeasurement(transport, rank == a ? b : a, groups[0]).run();
      const Vector<LinkRates> all = gather_values(transport, mine);
      if (rank != 0) continue;
      const LinkRates& rates = all[a];
      const bool one_host = hosts[a] == hosts[b];
      links.push_back({{"between", {"rank" + std::to_string(a), "rank" + std::to_string(b)}},
                       {"bandwidth_gb_per_s", rounded(rates.gb_per_s)},
                       {"latency_us", rounded(rates.latency_us)},
                       {"duplex", rates.full_duplex > 0 ? "full" : "half"},
                       {"busy_endpoints", one_host},
                       {"all_reduce_gb_per_s", rounded(rates.all_reduce_gb_per_s)},
                       {"all_reduce_latency_us", rounded(rates.all_reduce_latency_us)}});
    }
  if (rank != 0) return {};

  Json devices = Json::array();
  for (int r = 0; r < size; ++r)
    devices.push_back({{"name", "rank" + std::to_string(r)}, {"kind", "cpu"}, {"model", "cpu"}, {"node", hosts[r]}});
  Json topology = {{"format", "fftopology/1"},
                   {"name", "calibrated-cpu-" + std::to_string(size)},
                   {"device_models", {{"cpu", device_model(computes, cores, memory_bytes)}}},
                   {"devices", std::move(devices)}};
  if (!links.empty()) topology["links"] = std::move(links);
  return topology;
}

}  // namespace ff
