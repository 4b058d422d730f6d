#include "executor/calibration/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <set>

#include "common/busy_processors.h"
#include "executor/buffer.h"
#include "executor/calibration/calibration_kernel.h"
#include "executor/calibration/link_measurement.h"
#include "executor/calibration/processor_work.h"
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
  double products_per_s;  // in the long run: what a quota of processor time leaves
};

// Over several of the periods, of 0.1 s mostly, in which a quota is handed out.
template <typename Function>
double rate_per_s(Function function) {
  constexpr double least_us = 1e6;
  double total_us = 0;
  int count = 0;
  for (; total_us < least_us; ++count) total_us += time_us(function);
  return count / total_us * 1e6;
}

ComputeRates measure_compute(Backend& backend) {
  ComputeRates rates{};
  constexpr int64_t side = 1024;
  CalibrationKernel least = CalibrationKernel::least(backend), product = CalibrationKernel::product(backend, side);
  const auto run = [&] { product.run(); };
  rates.peak_tflops = 2.0 * side * side * side / median_us(run) * 1e-6;
  rates.products_per_s = rate_per_s(run);
  rates.launch_us = median_us([&] { least.run(); });
  constexpr int64_t bytes = 64 << 20;
  const Buffer from = allocate_buffer(backend, bytes / 4, true), to = allocate_buffer(backend, bytes / 4, true);
  const Block block{{0, bytes / 4}};
  const double us = median_us([&] {
    backend.copy_block(from.get(), block, to.get(), block, block);
    backend.wait();
  });
  rates.memory_gb_per_s = 2.0 * bytes / us * 1e-3;  // read and written
  return rates;
}

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

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string rank_name(int rank) { return "rank" + std::to_string(rank); }

// Ranks that are about equally fast, the fastest first: a quarter slower is another kind. [kind]: ranks
Vector<Vector<int>> kinds_of_ranks(const Vector<ComputeRates>& ranks) {
  constexpr double about_equal = 0.75;
  Vector<int> by_speed(ranks.size());
  std::iota(by_speed.begin(), by_speed.end(), 0);
  std::stable_sort(by_speed.begin(), by_speed.end(),
                   [&](int a, int b) { return ranks[a].products_per_s > ranks[b].products_per_s; });
  Vector<Vector<int>> kinds;
  for (const int rank : by_speed) {
    if (kinds.empty() || ranks[rank].products_per_s < about_equal * ranks[kinds.back()[0]].products_per_s)
      kinds.emplace_back();
    kinds.back().push_back(rank);
  }
  return kinds;
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

double mean_products_per_s(const Vector<ComputeRates>& all, const Vector<int>& ranks) {
  double sum = 0;
  for (const int rank : ranks) sum += all[rank].products_per_s;
  return sum / static_cast<double>(ranks.size());
}

// Models and devices. Slower ranks have a model of their own, whose kernels are those of the fastest ranks, at a speed.
void add_devices(const Vector<ComputeRates>& computes, const Vector<std::string>& nodes, int cores,
                 int64_t memory_bytes, Calibration& calibration) {
  const Vector<Vector<int>> kinds = kinds_of_ranks(computes);
  Vector<std::string> model_of(computes.size());
  Json models = Json::object();
  for (const int kind : kinds.indices()) {
    const std::string name = kind == 0 ? "cpu" : "slower-cpu" + (kind == 1 ? "" : "-" + std::to_string(kind));
    Vector<ComputeRates> own;
    for (const int rank : kinds[kind]) {
      own.push_back(computes[rank]);
      model_of[rank] = name;
    }
    const double speed = mean_products_per_s(computes, kinds[kind]) / mean_products_per_s(computes, kinds[0]);
    models[name] = device_model(own, cores, memory_bytes);
    if (kind == 0) continue;
    models[name]["peak_tflops"] = rounded(speed * models["cpu"]["peak_tflops"].get<double>());
    models[name]["kernels_of"] = "cpu";
    models[name]["speed"] = rounded(speed);
    calibration.notes.push_back(
        std::to_string(kinds[kind].size()) + (kinds[kind].size() == 1 ? " rank (the first: " : " ranks (the first: ") +
        std::to_string(kinds[kind][0]) + ") computes at " + number_text(speed) + " of the speed of the fastest (rank " +
        std::to_string(kinds[0][0]) + "): device model \"" + name +
        "\" has the kernel times of \"cpu\" at this speed; let ffsearch measure on a host of the fastest");
  }
  Json devices = Json::array();
  for (const int rank : computes.indices())
    devices.push_back({{"name", rank_name(rank)}, {"kind", "cpu"}, {"model", model_of[rank]}, {"node", nodes[rank]}});
  calibration.topology["device_models"] = std::move(models);
  calibration.topology["devices"] = std::move(devices);
}

// Which ranks each host has, ascending, in the order of their lowest ranks.
struct Hosts {
  Vector<Vector<int>> ranks;
  Vector<std::string> names;
  int of(int rank) const {
    for (int host : ranks.indices())
      if (std::find(ranks[host].begin(), ranks[host].end(), rank) != ranks[host].end()) return host;
    return -1;
  }
  size_t least_ranks() const {
    size_t least = ranks[0].size();
    for (const Vector<int>& one : ranks) least = std::min(least, one.size());
    return least;
  }
};

// On every rank.
Hosts find_hosts(Transport& transport) {
  const Json mine = {transport.place().node, transport.host()};
  Json all = Json::array();
  for (const std::string& bytes : transport.gather(mine.dump())) all.push_back(Json::parse(bytes));
  std::map<int, int> host_of_node;
  Hosts hosts;
  int rank = 0;
  for (const Json& one : Json::parse(transport.broadcast(all.dump()))) {
    const auto [it, added] = host_of_node.emplace(one[0].get<int>(), static_cast<int>(hosts.ranks.size()));
    if (added) {
      hosts.ranks.emplace_back();
      hosts.names.push_back(one[1]);
    }
    hosts.ranks[it->second].push_back(rank++);
  }
  return hosts;
}

struct Pair {
  int a, b;  // ranks, a < b
};

// Measures pairs of ranks that have no rank in common, at once. All ranks call; on rank 0: the rates of each pair.
Vector<LinkRates> measure_pairs(Transport& transport, const Vector<Pair>& pairs, bool one_host) {
  const int rank = transport.rank();
  const auto mine =
      std::find_if(pairs.begin(), pairs.end(), [&](const Pair& pair) { return pair.a == rank || pair.b == rank; });
  const bool measures = mine != pairs.end();
  const Vector<GroupId> groups =
      transport.make_groups(measures ? Vector<Vector<int>>{{mine->a, mine->b}} : Vector<Vector<int>>());
  transport.barrier();
  LinkRates rates{};
  if (measures) rates = measure_link(transport, rank == mine->a ? mine->b : mine->a, groups[0], one_host);
  const Vector<LinkRates> all = gather_values(transport, rates);
  Vector<LinkRates> measured;
  if (rank == 0)
    for (const Pair& pair : pairs) measured.push_back(all[pair.a]);
  return measured;
}

std::string size_text(int64_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

// What a line leaves unexplained.
std::string deviation_text(const MeasuredLine& measured) {
  return "off by " + number_text(std::abs(measured.deviation.relative) * 100) + " % at " +
         size_text(measured.deviation.at.bytes) + ", the most from 256 B to " + size_text(measured.largest_bytes);
}

// For people, of one link; and what they should know.
void describe(const std::string& ends, const LinkRates& rates, Calibration& calibration) {
  const auto line_text = [](const MeasuredLine& measured) {
    return number_text(measured.line.gb_per_s) + " GB/s, " + number_text(measured.line.latency_us) + " us (" +
           deviation_text(measured) + ")";
  };
  calibration.text += ends + ": messages " + line_text(rates.message) + "; both ways at once " +
                      number_text(rates.both_ways_gb_per_s) + " GB/s each; all-reduces " + line_text(rates.all_reduce) +
                      "\n";
  const auto warn = [&](const std::string& what, const MeasuredLine& measured) {
    constexpr double much = 0.25, much_us = 50;  // what matters in an iteration of milliseconds
    const Deviation& deviation = measured.deviation;
    if (std::abs(deviation.relative) > much && std::abs(deviation.relative) * deviation.at.us > much_us)
      calibration.notes.push_back(what + " between " + ends + " do not follow a straight line of latency and rate: " +
                                  size_text(deviation.at.bytes) + " take " + number_text(deviation.at.us) +
                                  " us, the topology says " + number_text((1 + deviation.relative) * deviation.at.us) +
                                  "; predictions with many of about this size are off by as much");
    if (!measured.constant && measured.largest_bytes >= 64 << 20)
      calibration.notes.push_back(what + " between " + ends +
                                  " have no constant rate up to 64 MiB; is the network busy?");
  };
  warn("messages", rates.message);
  warn("all-reduces", rates.all_reduce);
}

Json link_json(const std::string& a, const std::string& b, double gb_per_s, double latency_us, bool full_duplex,
               bool busy_endpoints, double all_reduce_gb_per_s, double all_reduce_latency_us) {
  return {{"between", {a, b}},
          {"bandwidth_gb_per_s", rounded(gb_per_s)},
          {"latency_us", rounded(latency_us)},
          {"duplex", full_duplex ? "full" : "half"},
          {"busy_endpoints", busy_endpoints},
          {"all_reduce_gb_per_s", rounded(all_reduce_gb_per_s)},
          {"all_reduce_latency_us", rounded(all_reduce_latency_us)}};
}

// The links within hosts. All hosts measure at once, as they exchange data at once in training.
void measure_inside(Transport& transport, const Hosts& hosts, Calibration& calibration) {
  size_t most = 0;
  for (const Vector<int>& ranks : hosts.ranks) most = std::max(most, ranks.size());
  for (size_t i = 0; i < most; ++i)
    for (size_t j = i + 1; j < most; ++j) {
      Vector<Pair> pairs;
      for (const Vector<int>& ranks : hosts.ranks)
        if (j < ranks.size()) pairs.push_back({ranks[i], ranks[j]});
      const Vector<LinkRates> measured = measure_pairs(transport, pairs, true);
      if (transport.rank() > 0) continue;
      for (const int p : pairs.indices()) {
        const std::string a = rank_name(pairs[p].a), b = rank_name(pairs[p].b);
        const LinkRates& rates = measured[p];
        describe(a + " and " + b, rates, calibration);
        calibration.topology["links"].push_back(
            link_json(a, b, rates.message.line.gb_per_s, rates.message.line.latency_us, rates.full_duplex(), true,
                      rates.all_reduce.line.gb_per_s, rates.all_reduce.line.latency_us));
      }
    }
}

// What a host and its way to the network can do.
struct HostRates {
  double gb_per_s = 0, latency_us = 0, all_reduce_gb_per_s = 0, all_reduce_latency_us = 0;
  double processor_share = 0;
  bool full_duplex = true;
};

// Of one direction, while the other one may be in use.
double one_way_gb_per_s(const LinkRates& link) {
  return link.full_duplex() ? std::min(link.message.line.gb_per_s, link.both_ways_gb_per_s)
                            : link.message.line.gb_per_s;
}

// All ranks call; on rank 0: what the two ranks' processors do for messages between them, as a part of the time that
// these take at the link's rate (that rank 0 knows).
Array<double, 2> measure_processor_shares(Backend& backend, Transport& transport, const Array<int, 2>& ranks,
                                          double gb_per_s) {
  gb_per_s = from_bytes<double>(transport.broadcast(to_bytes(Vector<double>{gb_per_s})))[0];
  double ns_per_byte = 0;
  for (const int end : {0, 1})
    if (ranks[end] == transport.rank())
      ns_per_byte = measure_processor_ns_per_byte(backend, transport, ranks[1 - end], gb_per_s);
  const Vector<double> all = gather_values(transport, ns_per_byte);
  if (transport.rank() > 0) return {};
  return {std::min(1.0, all[ranks[0]] * gb_per_s), std::min(1.0, all[ranks[1]] * gb_per_s)};
}

// One rank of each host with one of the next host, pair after pair. A pair gets what the slower end can do: a host is
// as fast as in the faster of its two pairs.
Vector<HostRates> measure_between(Backend& backend, Transport& transport, const Hosts& hosts,
                                  Calibration& calibration) {
  const int count = static_cast<int>(hosts.ranks.size());
  Vector<HostRates> rates(hosts.ranks.size());
  for (int host = 0; host < (count == 2 ? 1 : count); ++host) {
    const int next = (host + 1) % count;
    const int first = hosts.ranks[host][0], second = hosts.ranks[next][0];
    const Vector<LinkRates> measured =
        measure_pairs(transport, {{std::min(first, second), std::max(first, second)}}, false);
    const Array<double, 2> shares = measure_processor_shares(backend, transport, {first, second},
                                                             measured.empty() ? 0 : one_way_gb_per_s(measured[0]));
    if (transport.rank() > 0) continue;
    const LinkRates& link = measured[0];
    describe(rank_name(first) + " on " + hosts.names[host] + " and " + rank_name(second) + " on " + hosts.names[next],
             link, calibration);
    calibration.text += "beside kernels, messages take " + number_text(shares[0]) + " and " + number_text(shares[1]) +
                        " of their time from the processor\n";
    for (const int end : {host, next}) {
      HostRates& of = rates[end];
      const bool known = of.gb_per_s > 0;
      const auto least = [&](double a, double b) { return known ? std::min(a, b) : b; };
      of.full_duplex = (known && of.full_duplex) || link.full_duplex();
      of.gb_per_s = std::max(of.gb_per_s, one_way_gb_per_s(link));
      of.processor_share = std::max(of.processor_share, shares[end == host ? 0 : 1]);
      of.latency_us = least(of.latency_us, link.message.line.latency_us);
      of.all_reduce_gb_per_s = std::max(of.all_reduce_gb_per_s, link.all_reduce.line.gb_per_s);
      of.all_reduce_latency_us = least(of.all_reduce_latency_us, link.all_reduce.line.latency_us);
    }
  }
  return rates;
}

// All hosts at once, as many ranks of each as every host has, each sending to the next host and receiving from the one
// before: the rate of a host, over that of the slowest host alone. Below 1 where hosts hinder each other (a switch or a
// medium that they share), above it where one rank could not fill its host's link.
double measure_contention(Transport& transport, const Hosts& hosts, double alone_gb_per_s, Calibration& calibration) {
  const size_t count = hosts.ranks.size(), places = hosts.least_ranks();
  alone_gb_per_s = from_bytes<double>(transport.broadcast(to_bytes(Vector<double>{alone_gb_per_s})))[0];
  const int host = hosts.of(transport.rank());
  const Vector<int>& own = hosts.ranks[host];
  const size_t place = static_cast<size_t>(std::find(own.begin(), own.end(), transport.rank()) - own.begin());
  const bool active = place < places;
  const size_t next = (static_cast<size_t>(host) + 1) % count, before = (static_cast<size_t>(host) + count - 1) % count;
  constexpr double time_us = 2e5;
  const int64_t bytes =
      std::clamp<int64_t>(static_cast<int64_t>(alone_gb_per_s * 1e3 * time_us / static_cast<double>(places)), 1 << 20,
                          64 << 20) /
      4 * 4;
  const double us = measure_at_once_us(transport, active, active ? hosts.ranks[next][place] : -1,
                                       active ? hosts.ranks[before][place] : -1, bytes);
  const double at_once = static_cast<double>(bytes) * static_cast<double>(places) / us * 1e-3;
  const double factor = at_once / alone_gb_per_s;
  if (transport.rank() > 0) return factor;
  calibration.text += "all " + std::to_string(count) + " hosts at once, " + std::to_string(places) +
                      (places == 1 ? " rank" : " ranks") + " each: " + number_text(at_once) +
                      " GB/s a host and direction, where one pair alone has " + number_text(alone_gb_per_s) + "\n";
  constexpr double much = 0.85;
  if (factor < much)
    calibration.notes.push_back("hosts hinder each other: all at once they have " + number_text(at_once) +
                                " GB/s each way, one pair alone " + number_text(alone_gb_per_s) +
                                "; the topology has what they get at once");
  return factor;
}

// A switch that joins the hosts. Where a host has several ranks, one more stands for its network adapter, which they
// share.
void add_network(const Hosts& hosts, const Vector<HostRates>& rates, double contention, Json& topology) {
  topology["switches"] = {"network"};
  for (const int host : hosts.ranks.indices()) {
    const HostRates& of = rates[host];
    const auto add = [&](const std::string& a, const std::string& b, double share, double latency_share) {
      topology["links"].push_back(link_json(a, b, share * of.gb_per_s, latency_share * of.latency_us, of.full_duplex,
                                            false, share * of.all_reduce_gb_per_s,
                                            latency_share * of.all_reduce_latency_us));
      // so that it is the work for a byte that was measured
      topology["links"].back()["processor_share"] = rounded(std::min(1.0, share * of.processor_share));
    };
    if (hosts.ranks[host].size() == 1) {
      add(rank_name(hosts.ranks[host][0]), "network", contention, 0.5);
      continue;
    }
    const std::string adapter = hosts.names[host] + ".adapter";
    topology["switches"].push_back(adapter);
    for (const int rank : hosts.ranks[host]) add(rank_name(rank), adapter, std::min(1.0, contention), 0);
    add(adapter, "network", contention, 0.5);
  }
}

// Looks at the processors of this rank's host, which all of its ranks may use together.
class BusyWatch {
 public:
  BusyWatch(const Vector<RankProcessors>& ranks, const Transport& transport) {
    for (const RankProcessors& rank : ranks)
      if (rank.node == transport.place().node)
        processors_.insert(rank.processors.allowed.begin(), rank.processors.allowed.end());
    begin_ = processor_time(processors_);
  }

  void note_busy_hosts(Transport& transport, const Hosts& hosts, Calibration& calibration) const {
    struct Seen {
      ProcessorTime time;
      int64_t processors;
    };
    const Seen mine{processor_time(processors_) - begin_, static_cast<int64_t>(processors_.size())};
    const Vector<Seen> all = gather_values(transport, mine);
    if (transport.rank() > 0) return;
    for (const int host : hosts.ranks.indices()) {
      Seen seen = all[hosts.ranks[host][0]];
      seen.time.own = 0;
      for (const int rank : hosts.ranks[host]) seen.time.own += all[rank].time.own;
      if (const std::string note = busy_note(seen.time, static_cast<size_t>(seen.processors)); !note.empty())
        calibration.notes.push_back(hosts.names[host] + ": " + note);
    }
  }

 private:
  std::set<int> processors_;
  ProcessorTime begin_;
};

}  // namespace

Calibration calibrate(Backend& backend, Transport& transport, int cores, const Vector<RankProcessors>& processors) {
  const Hosts hosts = find_hosts(transport);
  const int size = transport.size(), rank = transport.rank();
  const BusyWatch watch(processors, transport);
  transport.barrier();  // all ranks compute at once, as they do in training
  const Vector<ComputeRates> computes = gather_values(transport, measure_compute(backend));
  const int64_t memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / transport.place().local_size;
  Calibration calibration;
  if (rank == 0) {
    Vector<std::string> nodes;
    for (int r = 0; r < size; ++r) nodes.push_back(hosts.names[hosts.of(r)]);
    calibration.topology = {{"format", "fftopology/1"}, {"name", "calibrated-cpu-" + std::to_string(size)}};
    add_devices(computes, nodes, cores, memory_bytes, calibration);
    if (size > 1) calibration.topology["links"] = Json::array();
  }
  measure_inside(transport, hosts, calibration);
  if (hosts.ranks.size() > 1) {
    const Vector<HostRates> rates = measure_between(backend, transport, hosts, calibration);
    double slowest = rates[0].gb_per_s;
    for (const HostRates& of : rates) slowest = std::min(slowest, of.gb_per_s);
    const double contention = measure_contention(transport, hosts, slowest, calibration);
    if (rank == 0) add_network(hosts, rates, contention, calibration.topology);
  }
  watch.note_busy_hosts(transport, hosts, calibration);
  return calibration;
}

}  // namespace ff
