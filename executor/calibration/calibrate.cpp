#include "executor/calibration/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "common/busy_processors.h"
#include "executor/calibration/device_rates.h"
#include "executor/calibration/link_measurement.h"
#include "executor/calibration/processor_work.h"
#include "executor/calibration/values.h"

namespace ff {
namespace {

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

// Of one direction, while the other one may be in use.
double one_way_gb_per_s(const LinkRates& link) {
  return link.full_duplex() ? std::min(link.message.line.gb_per_s, link.both_ways_gb_per_s)
                            : link.message.line.gb_per_s;
}

struct MeasuredPair {
  LinkRates link;
  Array<ProcessorWork, 2> work;  // of a and of b
};

// Measures pairs of ranks that have no rank in common, at once. All ranks call; on rank 0: of each pair.
// `work`: what processors do is measured too.
Vector<MeasuredPair> measure_pairs(Backend& backend, Transport& transport, const Vector<Pair>& pairs, bool one_host,
                                   bool work) {
  const int rank = transport.rank();
  const auto mine =
      std::find_if(pairs.begin(), pairs.end(), [&](const Pair& pair) { return pair.a == rank || pair.b == rank; });
  const bool measures = mine != pairs.end();
  const int peer = !measures ? -1 : rank == mine->a ? mine->b : mine->a;
  const Vector<Vector<int>> both = measures ? Vector<Vector<int>>{{mine->a, mine->b}} : Vector<Vector<int>>();
  const Vector<GroupId> groups = transport.make_groups(both),
                        host_groups = transport.for_host_memory().make_groups(both);
  const Vector<int> peers = measures ? Vector<int>{peer} : Vector<int>();
  transport.connect(peers, peers);
  transport.barrier();
  struct OfRank {
    LinkRates rates;
    ProcessorWork work;
  };
  OfRank own{};
  if (measures) {
    own.rates = measure_link(backend, transport, peer, {groups[0], host_groups[0]}, one_host);
    // Within a host copies keep both busy, which the topology says.
    if (work) own.work = measure_processor_work(backend, transport, peer, one_host ? 0 : one_way_gb_per_s(own.rates));
  }
  const Vector<OfRank> all = gather_values(transport, own);
  Vector<MeasuredPair> measured;
  if (rank == 0)
    for (const Pair& pair : pairs) measured.push_back({all[pair.a].rates, {all[pair.a].work, all[pair.b].work}});
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
void describe(const std::string& ends, const MeasuredPair& pair, bool one_host, bool has_work,
              Calibration& calibration) {
  const LinkRates& rates = pair.link;
  const auto line_text = [](const MeasuredLine& measured) {
    return number_text(measured.line.gb_per_s) + " GB/s, " + number_text(measured.line.latency_us) + " us (" +
           deviation_text(measured) + ")";
  };
  calibration.text += ends + ": messages " + line_text(rates.message) + "; both ways at once " +
                      number_text(rates.both_ways_gb_per_s) + " GB/s each; all-reduces " + line_text(rates.all_reduce);
  if (has_work)
    calibration.text += "; CPU overhead while kernels run " + number_text(pair.work[0].us) + " and " +
                        number_text(pair.work[1].us) + " us per message";
  if (has_work && !one_host)
    calibration.text += ", " + number_text(pair.work[0].ns_per_byte * one_way_gb_per_s(rates)) + " and " +
                        number_text(pair.work[1].ns_per_byte * one_way_gb_per_s(rates)) + " of the time of its bytes";
  calibration.text += "\n";
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
               bool blocks_devices, double all_reduce_gb_per_s, double all_reduce_latency_us) {
  return {{"between", {a, b}},
          {"bandwidth_gb_per_s", rounded(gb_per_s)},
          {"latency_us", rounded(latency_us)},
          {"duplex", full_duplex ? "full" : "half"},
          {"blocks_devices", blocks_devices},
          {"all_reduce_gb_per_s", rounded(all_reduce_gb_per_s)},
          {"all_reduce_latency_us", rounded(all_reduce_latency_us)}};
}

// The links within hosts. All hosts measure at once, as they exchange data at once in training. `by_processors`: they
// are what computes, and what moves the data.
void measure_inside(Backend& backend, Transport& transport, const Hosts& hosts, bool by_processors, bool work,
                    Calibration& calibration) {
  size_t most = 0;
  for (const Vector<int>& ranks : hosts.ranks) most = std::max(most, ranks.size());
  for (size_t i = 0; i < most; ++i)
    for (size_t j = i + 1; j < most; ++j) {
      Vector<Pair> pairs;
      for (const Vector<int>& ranks : hosts.ranks)
        if (j < ranks.size()) pairs.push_back({ranks[i], ranks[j]});
      const Vector<MeasuredPair> measured = measure_pairs(backend, transport, pairs, true, work);
      if (transport.rank() > 0) continue;
      for (const int p : pairs.indices()) {
        const std::string a = rank_name(pairs[p].a), b = rank_name(pairs[p].b);
        const LinkRates& rates = measured[p].link;
        describe(a + " and " + b, measured[p], true, by_processors, calibration);
        Json link = link_json(a, b, rates.message.line.gb_per_s, rates.message.line.latency_us, rates.full_duplex(),
                              by_processors, rates.all_reduce.line.gb_per_s, rates.all_reduce.line.latency_us);
        if (by_processors) link["cpu_overhead_us"] = rounded(std::max(measured[p].work[0].us, measured[p].work[1].us));
        calibration.topology["links"].push_back(std::move(link));
      }
    }
}

// What a host and its way to the network can do.
struct HostRates {
  double gb_per_s = 0, latency_us = 0, all_reduce_gb_per_s = 0, all_reduce_latency_us = 0;
  double cpu_overhead_us = 0, cpu_overhead_fraction = 0;
  bool full_duplex = true;
};

// One rank of each host with one of the next host, pair after pair. A pair gets what the slower end can do: a host is
// as fast as in the faster of its two pairs.
Vector<HostRates> measure_between(Backend& backend, Transport& transport, const Hosts& hosts, bool by_processors,
                                  Calibration& calibration) {
  const int count = static_cast<int>(hosts.ranks.size());
  Vector<HostRates> rates(hosts.ranks.size());
  for (int host = 0; host < (count == 2 ? 1 : count); ++host) {
    const int next = (host + 1) % count;
    const int first = hosts.ranks[host][0], second = hosts.ranks[next][0];
    // In the order of their hosts, whose ranks ascend but for the last host with the first.
    const bool ascend = first < second;
    const Vector<MeasuredPair> measured =
        measure_pairs(backend, transport, {{std::min(first, second), std::max(first, second)}}, false, by_processors);
    if (transport.rank() > 0) continue;
    MeasuredPair pair = measured[0];
    if (!ascend) std::swap(pair.work[0], pair.work[1]);
    const LinkRates& link = pair.link;
    describe(rank_name(first) + " on " + hosts.names[host] + " and " + rank_name(second) + " on " + hosts.names[next],
             pair, false, by_processors, calibration);
    const double gb_per_s = one_way_gb_per_s(link);
    for (const int end : {host, next}) {
      HostRates& of = rates[end];
      const bool known = of.gb_per_s > 0;
      const auto least = [&](double a, double b) { return known ? std::min(a, b) : b; };
      of.full_duplex = (known && of.full_duplex) || link.full_duplex();
      of.gb_per_s = std::max(of.gb_per_s, gb_per_s);
      const ProcessorWork& work = pair.work[end == host ? 0 : 1];
      of.cpu_overhead_us = std::max(of.cpu_overhead_us, work.us);
      of.cpu_overhead_fraction = std::max(of.cpu_overhead_fraction, std::min(1.0, work.ns_per_byte * gb_per_s));
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
double measure_contention(Backend& backend, Transport& transport, const Hosts& hosts, double alone_gb_per_s,
                          Calibration& calibration) {
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
  const double us = measure_at_once_us(backend, transport, active, active ? hosts.ranks[next][place] : -1,
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
void add_network(const Hosts& hosts, const Vector<HostRates>& rates, double contention, bool by_processors,
                 Json& topology) {
  topology["switches"] = {"network"};
  for (const int host : hosts.ranks.indices()) {
    const HostRates& of = rates[host];
    const auto add = [&](const std::string& a, const std::string& b, double share, double latency_share) {
      topology["links"].push_back(link_json(a, b, share * of.gb_per_s, latency_share * of.latency_us, of.full_duplex,
                                            false, share * of.all_reduce_gb_per_s,
                                            latency_share * of.all_reduce_latency_us));
      if (!by_processors) return;
      Json& link = topology["links"].back();
      link["cpu_overhead_us"] = rounded(of.cpu_overhead_us);
      link["cpu_overhead_fraction"] =
          rounded(std::min(1.0, share * of.cpu_overhead_fraction));  // so that a byte takes its work
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

ComputeRates measure_rates(const CalibratedDevice& device) {
  return device.gpu ? measure_compute_of_gpu(*device.gpu, device.tf32) : measure_compute(device.backend);
}

// Rank 0; the others sleep meanwhile, since a rank that waits for a message is busy looking for it. Nothing where there
// are no others.
ComputeRates measure_alone(const CalibratedDevice& device, Transport& transport) {
  if (transport.size() == 1) return {};
  transport.barrier();
  const auto begin = std::chrono::steady_clock::now();
  const ComputeRates rates = transport.rank() == 0 ? measure_rates(device) : ComputeRates{};
  constexpr auto long_enough = std::chrono::milliseconds(1800);
  std::this_thread::sleep_until(begin + long_enough);
  return rates;
}

// The first of the name's words that has a digit, "h100" of "NVIDIA H100 80GB HBM3", as `ffsearch topology` has it;
// else the whole name: profiles are found by either.
std::string model_key(std::string name) {
  for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  std::string word;
  for (const char letter : name + " ") {
    if (std::isalnum(static_cast<unsigned char>(letter))) {
      word += letter;
      continue;
    }
    if (word.find_first_of("0123456789") != std::string::npos) return word;
    word.clear();
  }
  return name;
}

DeviceKindText kind_text(const CalibratedDevice& device, const Transport& transport) {
  if (device.gpu) return {"gpu", model_key(device.name), "a GPU", 0, device.memory_bytes};
  return {"cpu", "cpu", "processors", device.cores,
          int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / transport.place().local_size};
}

}  // namespace

Calibration calibrate(const CalibratedDevice& device, Transport& transport, const Vector<RankProcessors>& processors) {
  const Hosts hosts = find_hosts(transport);
  const int size = transport.size(), rank = transport.rank();
  const bool by_processors = !device.gpu;
  Backend& backend = device.backend;
  const BusyWatch watch(processors, transport);
  const ComputeRates alone = measure_alone(device, transport);
  transport.barrier();  // all ranks compute at once, as they do in training
  const Vector<ComputeRates> computes = gather_values(transport, measure_rates(device));
  const DeviceKindText text = kind_text(device, transport);
  Calibration calibration;
  if (rank == 0) {
    Vector<std::string> nodes;
    for (int r = 0; r < size; ++r) nodes.push_back(hosts.names[hosts.of(r)]);
    calibration.topology = {{"format", "fftopology/1"},
                            {"name", "calibrated-" + text.kind + "-" + std::to_string(size)}};
    add_devices(alone, computes, nodes, text, calibration);
    if (size > 1) calibration.topology["links"] = Json::array();
  }
  // Ranks that take turns on a processor would wait for each other's turns, which is not what they do for a message.
  const bool turns = transport.broadcast(rank == 0 && ranks_hinder_each_other(alone, computes) ? "turns" : "") != "";
  measure_inside(backend, transport, hosts, by_processors, by_processors && !turns, calibration);
  if (hosts.ranks.size() > 1) {
    const Vector<HostRates> rates = measure_between(backend, transport, hosts, by_processors, calibration);
    double slowest = rates[0].gb_per_s;
    for (const HostRates& of : rates) slowest = std::min(slowest, of.gb_per_s);
    const double contention = measure_contention(backend, transport, hosts, slowest, calibration);
    if (rank == 0) add_network(hosts, rates, contention, by_processors, calibration.topology);
  }
  if (by_processors) watch.note_busy_hosts(transport, hosts, calibration);
  return calibration;
}

}  // namespace ff
