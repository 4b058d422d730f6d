// The device topology: devices, switches, and the links between them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "common/json_file.h"
#include "common/vector.h"

namespace ff {

using DeviceId = int;   // index into Topology::devices; rank r of ffexec is device r
using ChannelId = int;  // index into Topology::channels

// Shares of the peak rates that kernels reach, from microbenchmarks; for the analytic cost model. Without them: all.
struct KernelEfficiency {
  // Ascending; the second numbers are the shares. Between the points a share is linear in the logarithm of the first
  // number; beyond them it is constant.
  using Table = Vector<std::pair<double, double>>;
  struct Attention {
    int64_t head_channels = 0;
    bool causal = false;
    Table by_length;      // of forward and backward together
    int generation = 2;   // of FlashAttention
    bool triton = false;  // its algorithm, written in Triton
    bool cudnn = false;   // kernels of cuDNN
    double forward = 1;   // rate of the forward pass over that of both together
    // Forward has two products, backward five.
    double backward() const { return 5 / (7 - 2 / forward); }
    double most_over_both() const { return std::max(forward, backward()); }
    double share_of(double length, bool backward_pass) const {
      return share(by_length, length) * (backward_pass ? backward() : forward);
    }
  };
  // Matrix products in bf16 by shape: shares[depth][outputs], of the number of terms in each sum (k) and the number of
  // sums (m x n, of a batch in all). Both ascending; between them linear in the logarithms, beyond them constant.
  struct Products {
    Vector<double> depths, outputs;
    Vector<Vector<double>> shares;
    double accumulating = 1;  // times the share: of products that add to values, as gradients of weights may be
    double fp8 = 0;           // the rate of products in fp8 over that in bf16; 0: not known
    // What products that add take longer, over the time in which memory_gb_per_s moves the values that they read and
    // write.
    double exposed_accumulation = 0;
    double share(double depth, double outputs) const;
  };
  std::optional<Products> products;  // of peak_bf16_tflops
  Vector<Attention> attention;       // of peak_bf16_tflops; fused
  double memory = 1;                 // of memory_gb_per_s
  std::optional<double> norms;       // the same of layer and RMS norms of PyTorch and Apex; none: as memory
  double sustained = 1;              // times the shares of products, under lasting load
  // Standard deviation, from device to device, of the time of products and attention, over that of the median device:
  // at the power limit chips of one kind have different clocks. All devices are taken to be as slow as the slowest of
  // the topology is expected to be, as an iteration waits for it.
  double variation = 0;
  double slowest = 1;      // times those, of all devices of the topology: follows from `variation` and their number
  double collectives = 0;  // share of the device that a collective occupies while it runs

  static double share(const Table& table, double at);
};

// What the analytic cost model knows of a kind of device. Rates as in datasheets; the file names its sources.
struct DeviceModel {
  std::string name;             // "p100": profiles name it too
  double peak_tflops = 0;       // f32, 1e12 operations per second
  double peak_tf32_tflops = 0;  // of matrix products and convolutions in TF32; 0: the file does not say
  double peak_bf16_tflops = 0;  // the same in bf16, accumulated in f32
  double memory_gb_per_s = 0;   // 1e9 bytes per second
  int64_t memory_bytes = 0;     // capacity; 0: not limited
  double launch_us = 0;         // least time of a kernel
  KernelEfficiency efficiency;
  int cores = 1;         // threads that a CPU rank uses
  int scaled_from = -1;  // the model of which the measured kernel times, divided by `speed`, are this one's; -1: none
  double speed = 1;      // relative to it: 0.5 takes twice as long
  std::string source;    // of the numbers, as the file says it
};

enum class DeviceKind { gpu, cpu };

struct Device {
  std::string name;  // "node0.gpu1"
  DeviceKind kind;
  int model;  // index into Topology::models
  std::string node;
};

// A channel carries one transfer at a time: one direction of a full-duplex link, or both directions of a half-duplex
// one.
struct Channel {
  double bandwidth_gb_per_s;
  double latency_us;
  bool blocks_devices;  // a transfer occupies the sending and the receiving device
  // CPU time of a transfer at each end, in addition to the kernels: of any transfer, and of each byte (the file's
  // cpu_overhead_fraction over the bandwidth).
  double cpu_overhead_us, cpu_overhead_ns_per_byte;
  // bytes per second that an all-reduce moves over it (measured; default: the bandwidth)
  double all_reduce_gb_per_s;
  double all_reduce_latency_us;  // of one step of an all-reduce (default: the latency)
};

struct Route {
  std::span<const ChannelId> channels;  // in order from source to destination; the topology's memory
  double latency_us = 0;                // sum
  double bandwidth_gb_per_s = 0;        // the narrowest
  bool blocks_devices = false;
  double cpu_overhead_us = 0, cpu_overhead_ns_per_byte = 0;  // the most of its channels
};

class Topology {
 public:
  std::string name;
  Vector<DeviceModel> models;
  Vector<Device> devices;
  Vector<Channel> channels;
  Json file;  // what was read: goes into strategy files

  // "node0.gpu0 -> node0.gpu1"
  const std::string& channel_name(ChannelId channel) const { return (*channel_names_)[channel]; }
  const DeviceModel& model_of(DeviceId device) const { return models[devices[device].model]; }

  // The route of least time for 1 MiB (latencies plus bytes over each link's bandwidth; ties by fewest links, then by
  // link order), through switches only: devices forward nothing. source != destination. Thread-safe; each source is
  // computed once.
  Route route(DeviceId source, DeviceId destination) const {
    RoutesFrom& routes = (*routes_)[source];
    if (!routes.known.load(std::memory_order_acquire)) find_ways_once(source, routes);
    Page* page = routes.pages[destination / Page::size].load(std::memory_order_acquire);
    const ChannelId* channels =
        page ? page->channels[destination % Page::size].load(std::memory_order_acquire) : nullptr;
    if (!channels) {
      channels = write_route(destination, routes);
      if (!channels) return {};
      page = routes.pages[destination / Page::size].load(std::memory_order_acquire);
    }
    const Kind& kind = *page->kinds[destination % Page::size];
    Route route = kind.route;
    route.channels = {channels, kind.channels};
    return route;
  }

  // Are their links equal, and do they join the same switches and devices? Then routes from them, or to them, differ in
  // the first channel, or the last one, alone.
  bool linked_alike(DeviceId device, DeviceId other) const;
  // Of devices that are linked alike: what stands in routes from (to) `other` where those from (to) `device` have this
  // channel.
  ChannelId first_channel(ChannelId channel, DeviceId device, DeviceId other) const;
  ChannelId last_channel(ChannelId channel, DeviceId device, DeviceId other) const;

  // How fast data can come in at most, in GB/s: the sum over the channels that lead into a device, or from outside into
  // a node (its devices, and the switches that no other node's device is linked to).
  struct IncomingRates {
    Vector<double> device, node;
    Vector<int> node_of;  // [device]
  };
  IncomingRates incoming_rates() const;

  // All devices in the order in which the links of the file lead to them: the same devices with other numbers come in
  // the same order. Rings of collectives, and what places operators without a search, go by it.
  Vector<DeviceId> by_links() const;
  void sort_by_links(Vector<DeviceId>& some) const;

  // The same topology with these devices alone, numbered in this order; models, channels, switches and so the routes
  // between them stay. `kept`: at least one device, each once. `file` stays that of the whole.
  Topology with_devices(const Vector<DeviceId>& kept) const;

 private:
  friend class TopologyParser;
  struct Neighbour {
    int vertex;
    ChannelId channel;
  };
  // What routes have in common, and how many channels they have.
  struct Kind {
    Route route;  // without its channels
    size_t channels = 0;
  };
  // How a switch is reached from a device, or a device at last.
  struct Step {
    double cost = 1e300;  // of a transfer of 1 MiB, in microseconds
    int hops = 0;
    int previous = -1;  // switch, by its number in Ways::switches; -1 after the source's own links
    ChannelId channel = -1;
    // A way that costs as much and has no more links than the one before takes its place.
    bool improve(double other_cost, int hops_before, int other_previous, ChannelId last);
  };
  // To all switches: the same from devices that are linked alike, but for the first channel.
  struct Ways {
    DeviceId source;
    Vector<Step> switches;                // the nearest first
    Vector<std::pair<int, int>> numbers;  // vertex of a switch, and its number among these; ascending
    std::mutex mutex;                     // of the kinds
    std::deque<Kind> kinds;               // the different ones; what points to them stays
    // In front of a step; null: nothing is.
    const Step* before(const Step& step) const { return step.previous >= 0 ? &switches[step.previous] : nullptr; }
  };
  // The routes to neighbouring destinations; null: not written yet. A kind is written before its channels are.
  struct Page {
    static constexpr int size = 16;
    Array<std::atomic<const ChannelId*>, size> channels = {};
    Array<const Kind*, size> kinds = {};
  };
  // Routes of a large cluster are looked up at random, and most of them never: no bytes until then.
  struct RoutesFrom {
    std::once_flag once;
    std::atomic<bool> known = false;  // ways, first_channels and null pages are there
    std::shared_ptr<Ways> ways;
    std::map<ChannelId, ChannelId> first_channels;  // that stand in these ways, and the source's own
    Vector<std::atomic<Page*>> pages;               // [destination / Page::size]
    std::mutex mutex;                               // of what is written
    Vector<std::unique_ptr<Page>> written_pages;
    Vector<std::unique_ptr<ChannelId[]>> written;
    ChannelId* end = nullptr;  // of the last route in the last of these
    size_t room = 0;           // behind it
  };
  // Of what is linked to what.
  void set_neighbours(Vector<Vector<Neighbour>> neighbours);
  DeviceId first_linked_alike(DeviceId device) const;  // itself, if none before it is
  void find_ways_once(DeviceId source, RoutesFrom& routes) const;
  void find_ways(DeviceId source, RoutesFrom& routes) const;
  std::shared_ptr<Ways> ways_to_switches(DeviceId source) const;
  Step last_step(const Ways& ways, DeviceId destination) const;
  const Kind* kind_of(Ways& ways, const Step& last) const;
  const ChannelId* write_route(DeviceId destination, RoutesFrom& routes) const;  // null: there is none

  Vector<Vector<Neighbour>> neighbours_;       // [vertex]: devices first, then switches
  Vector<Vector<Neighbour>> linked_switches_;  // [vertex]
  Vector<Vector<Neighbour>> arrivals_;         // [device]: the switches that lead to it
  std::shared_ptr<Vector<RoutesFrom>> routes_;
  std::shared_ptr<const Vector<std::string>> channel_names_;  // the same for all parts of a large topology
};

// Throws InputError for anything that is not a valid fftopology/1, devices without a route between them included.
Topology load_topology(const std::string& path);
Topology parse_topology(const JsonPlace& place);

}  // namespace ff
