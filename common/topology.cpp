#include "common/topology.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "common/first_devices.h"

namespace ff {
namespace {

// of tflops and GB/s: sums of times stay within 64 bits of nanoseconds
constexpr double least_rate = 1e-4, most_rate = 1e12;

// Of so many independent values that are normally distributed, in standard deviations above the mean (Blom 1958,
// Statistical Estimates and Transformed Beta-Variables).
double expected_largest(int count) {
  const double probability = (count - 0.375) / (count + 0.25);
  double low = 0, high = 10;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < probability ? low : high) = middle;
  }
  return low;
}

}  // namespace

// Accepts the flat form (devices, switches, links) and the `nodes` form, which it expands to the flat one.
class TopologyParser {
 public:
  explicit TopologyParser(const JsonPlace& place) : place_(place) {
    expect_format(place, "fftopology/1");
    place.allow_keys({"$schema", "format", "name", "description", "sources", "device_models", "devices", "switches",
                      "links", "nodes"},
                     "key of a topology");
  }

  Topology parse() {
    topology_.name = place_.at("name").as_string();
    topology_.file = place_.value();
    for (const auto& [name, place] : place_.at("device_models").members()) add_model(name, place);
    // Devices take the first vertices, so they come before any switch.
    if (const auto devices = place_.find("devices"))
      for (const JsonPlace& device : devices->items()) add_device(device, "", "");
    const auto nodes = place_.find("nodes");
    if (nodes) add_nodes(*nodes);
    if (topology_.devices.empty()) place_.fail("has no devices, expected \"devices\" or \"nodes\"");
    if (const auto switches = place_.find("switches"))
      for (const JsonPlace& name : switches->items()) add_switch(name, name.as_string());
    topology_.neighbours_.resize(vertices_.size());
    if (nodes) add_node_links(*nodes);
    if (const auto links = place_.find("links"))
      for (const JsonPlace& link : links->items()) add_link(link, "");
    topology_.set_neighbours(std::move(topology_.neighbours_));
    topology_.channel_names_ = std::make_shared<const Vector<std::string>>(std::move(channel_names_));
    check_connected();
    find_slowest();
    return std::move(topology_);
  }

 private:
  void find_slowest() {
    Vector<int> count(topology_.models.size(), 0);
    for (const Device& device : topology_.devices) ++count[device.model];
    for (const int model : count.indices()) {
      KernelEfficiency& efficiency = topology_.models[model].efficiency;
      if (count[model] > 0) efficiency.slowest = 1 + efficiency.variation * expected_largest(count[model]);
    }
  }

  static KernelEfficiency::Table read_table(const JsonPlace& place) {
    KernelEfficiency::Table table;
    for (const JsonPlace& point : place.items()) {
      const Vector<JsonPlace> numbers = point.items();
      if (numbers.size() != 2) point.fail("expected two numbers, such as [64, 0.7]");
      const double at = numbers[0].as_number(least_rate, most_rate);
      if (!table.empty() && at <= table.back().first) numbers[0].fail("must be above the number of the point before");
      table.emplace_back(at, numbers[1].as_number(least_rate, 2));
    }
    if (table.empty()) place.fail("expected at least one point, such as [64, 0.7]");
    return table;
  }

  static Vector<double> read_ascending(const JsonPlace& place) {
    Vector<double> numbers;
    for (const JsonPlace& one : place.items()) {
      numbers.push_back(one.as_number(least_rate, most_rate));
      if (numbers.size() > 1 && numbers[numbers.size() - 2] >= numbers.back())
        one.fail("must be above the number before");
    }
    if (numbers.empty()) place.fail("expected at least one number");
    return numbers;
  }

  static KernelEfficiency::Products read_products(const JsonPlace& place) {
    place.allow_keys({"depths", "outputs", "shares", "accumulating", "exposed_accumulation", "fp8"},
                     "key of products' efficiency");
    KernelEfficiency::Products products;
    products.depths = read_ascending(place.at("depths"));
    products.outputs = read_ascending(place.at("outputs"));
    const JsonPlace shares = place.at("shares");
    const auto expect = [](const JsonPlace& list, const Vector<double>& of, const std::string& each) {
      if (list.items().size() != of.size())
        list.fail("found " + std::to_string(list.items().size()) + ", expected " + std::to_string(of.size()) +
                  ", one " + each);
    };
    expect(shares, products.depths, "for each of \"depths\"");
    for (const JsonPlace& row : shares.items()) {
      expect(row, products.outputs, "for each of \"outputs\"");
      Vector<double>& known = products.shares.emplace_back();
      for (const JsonPlace& share : row.items()) known.push_back(share.as_number(least_rate, 2));
    }
    if (const auto accumulating = place.find("accumulating"))
      products.accumulating = accumulating->as_number(least_rate, 2);
    if (const auto exposed = place.find("exposed_accumulation"))
      products.exposed_accumulation = exposed->as_number(0, 4);
    if (const auto fp8 = place.find("fp8")) products.fp8 = fp8->as_number(least_rate, 4);
    return products;
  }

  static KernelEfficiency read_efficiency(const JsonPlace& place) {
    place.allow_keys({"products", "attention", "memory", "norms", "sustained", "variation", "collectives", "source"},
                     "key of a device model's efficiency");
    KernelEfficiency efficiency;
    if (const auto products = place.find("products")) efficiency.products = read_products(*products);
    if (const auto memory = place.find("memory")) efficiency.memory = memory->as_number(least_rate, 2);
    if (const auto norms = place.find("norms")) efficiency.norms = norms->as_number(least_rate, 2);
    if (const auto sustained = place.find("sustained")) efficiency.sustained = sustained->as_number(least_rate, 1);
    if (const auto variation = place.find("variation")) efficiency.variation = variation->as_number(0, 1);
    if (const auto collectives = place.find("collectives")) efficiency.collectives = collectives->as_number(0, 0.99);
    if (const auto attention = place.find("attention"))
      for (const JsonPlace& kind : attention->items()) {
        kind.allow_keys({"head_channels", "causal", "by_length", "generation", "triton", "cudnn", "forward"},
                        "key of attention's efficiency");
        KernelEfficiency::Attention& known = efficiency.attention.emplace_back();
        known.head_channels = kind.at("head_channels").as_integer(1, 1 << 20);
        known.causal = kind.at("causal").as_bool();
        known.by_length = read_table(kind.at("by_length"));
        if (const auto generation = kind.find("generation"))
          known.generation = static_cast<int>(generation->as_integer(1, 100));
        if (const auto triton = kind.find("triton")) known.triton = triton->as_bool();
        if (const auto cudnn = kind.find("cudnn")) known.cudnn = cudnn->as_bool();
        if (const auto forward = kind.find("forward")) known.forward = forward->as_number(0.5, 10);
      }
    return efficiency;
  }

  void add_model(const std::string& name, const JsonPlace& place) {
    place.allow_keys({"peak_tflops", "memory_gb_per_s", "memory_bytes", "launch_us", "cores", "peak_tf32_tflops",
                      "peak_bf16_tflops", "scaled_from", "speed", "efficiency", "source"},
                     "key of a device model", {{"kernels_of", "scaled_from"}});
    DeviceModel model;
    model.name = name;
    model.peak_tflops = place.at("peak_tflops").as_number(least_rate, most_rate);
    if (const auto tf32 = place.find("peak_tf32_tflops"))
      model.peak_tf32_tflops = tf32->as_number(least_rate, most_rate);
    if (const auto bf16 = place.find("peak_bf16_tflops"))
      model.peak_bf16_tflops = bf16->as_number(least_rate, most_rate);
    model.memory_gb_per_s = place.at("memory_gb_per_s").as_number(least_rate, most_rate);
    if (const auto bytes = place.find("memory_bytes")) model.memory_bytes = bytes->as_integer(0, INT64_MAX);
    model.launch_us = place.at("launch_us").as_number(0, 1e6);
    if (const auto source = place.find("source")) model.source = source->as_string();
    if (const auto cores = place.find("cores")) model.cores = static_cast<int>(cores->as_integer(1, 4096));
    if (const auto efficiency = place.find("efficiency")) model.efficiency = read_efficiency(*efficiency);
    if (const auto other = place.find("scaled_from")) {
      Vector<std::string> known;
      for (const DeviceModel& before : topology_.models) {
        if (before.name == other->as_string()) model.scaled_from = known.count();
        known.push_back(before.name);
      }
      if (model.scaled_from < 0 || topology_.models[model.scaled_from].scaled_from >= 0)
        other->fail("found \"" + other->as_string() +
                    "\", expected the name of a device model that stands before this one and has kernels of its own");
    }
    if (const auto speed = place.find("speed")) {
      if (model.scaled_from < 0) speed->fail("is relative to the model of \"scaled_from\", which is missing");
      model.speed = speed->as_number(least_rate, most_rate);
    }
    topology_.models.push_back(model);
  }

  void add_vertex(const JsonPlace& place, const std::string& name) {
    if (!vertices_.emplace(name, static_cast<int>(vertices_.size())).second)
      place.fail("the name \"" + name + "\" is already taken");
    vertex_names_.push_back(name);
  }

  void add_device(const JsonPlace& place, const std::string& prefix, const std::string& node) {
    place.allow_keys({"name", "kind", "model", "node"}, "key of a device");
    Device device;
    device.name = prefix + place.at("name").as_string();
    const std::string kind = place.at("kind").as_string();
    if (kind != "gpu" && kind != "cpu")
      place.at("kind").fail("found \"" + kind + "\"" + suggestion(kind, {"gpu", "cpu"}));
    device.kind = kind == "gpu" ? DeviceKind::gpu : DeviceKind::cpu;
    const std::string model = place.at("model").as_string();
    Vector<std::string> known;
    device.model = -1;
    for (size_t m = 0; m < topology_.models.size(); ++m) {
      known.push_back(topology_.models[m].name);
      if (topology_.models[m].name == model) device.model = static_cast<int>(m);
    }
    if (device.model < 0)
      place.at("model").fail("no device model is named \"" + model + "\"" + suggestion(model, known));
    const Device& first = first_of_model_.try_emplace(device.model, device).first->second;
    if (first.kind != device.kind)
      place.at("kind").fail("found \"" + kind + "\", but \"" + first.name +
                            "\" has the same model and is none; give each kind a model of its own");
    device.node = node;
    if (const auto given = place.find("node")) {
      if (!prefix.empty()) given->fail("a device of a node template belongs to its node; leave \"node\" out");
      device.node = given->as_string();
    }
    add_vertex(place.at("name"), device.name);
    topology_.devices.push_back(device);
    if (topology_.devices.size() > 65536) place_.fail("has more than 65536 devices");
  }

  void add_switch(const JsonPlace& place, const std::string& name) { add_vertex(place, name); }

  std::string node_name(const JsonPlace& nodes, int64_t index) const {
    const auto name = nodes.find("name");
    return (name ? name->as_string() : "node") + std::to_string(index);
  }

  void add_nodes(const JsonPlace& nodes) {
    nodes.allow_keys({"count", "name", "devices", "switches", "links", "network", "torus"}, "key of nodes");
    const int64_t count = nodes.at("count").as_integer(1, 65536);
    for (int64_t n = 0; n < count; ++n)
      for (const JsonPlace& device : nodes.at("devices").items())
        add_device(device, node_name(nodes, n) + ".", node_name(nodes, n));
    for (int64_t n = 0; n < count; ++n)
      if (const auto switches = nodes.find("switches"))
        for (const JsonPlace& name : switches->items()) add_switch(name, node_name(nodes, n) + "." + name.as_string());
    const auto network = nodes.find("network"), torus = nodes.find("torus");
    if (torus) {
      if (network) torus->fail("is not allowed with \"network\"; one of the two joins the nodes");
      torus->allow_keys({"shape", "attach", "link"}, "key of a torus");
      torus_shape(*torus, count);
    } else if (network) {
      network->allow_keys({"name", "attach", "link"}, "key of a network");
      add_switch(network->at("name"), network->at("name").as_string());
    } else if (count > 1) {
      nodes.fail("\"network\" is missing: " + std::to_string(count) +
                 " nodes need one that joins them, or a \"torus\"");
    }
  }

  // Nodes along each dimension of the torus; node numbers are row-major.
  static Vector<int64_t> torus_shape(const JsonPlace& torus, int64_t count) {
    Vector<int64_t> shape;
    int64_t places = 1;
    for (const JsonPlace& size : torus.at("shape").items()) {
      shape.push_back(size.as_integer(1, count));
      places *= shape.back();
      if (places > count) break;
    }
    if (places != count || torus.at("shape").items().size() != shape.size())
      torus.at("shape").fail("the sizes multiply to " + std::string(places > count ? "more than " : "fewer than ") +
                             std::to_string(count) + ", the number of nodes");
    return shape;
  }

  // Each node to the next one in every dimension, from the last to the first again. Two nodes have one link.
  void add_torus_links(const JsonPlace& nodes, const JsonPlace& torus, int64_t count) {
    torus.at("link").allow_keys(link_keys(), "key of a torus link", renamed_link_keys());
    const JsonPlace attached = torus.at("attach");
    const auto end = [&](int64_t node) {
      return vertex(attached, node_name(nodes, node) + "." + attached.as_string());
    };
    const Vector<int64_t> shape = torus_shape(torus, count);
    for (int64_t node = 0; node < count; ++node) {
      int64_t stride = count;  // between neighbours of this dimension
      for (const int64_t size : shape) {
        stride /= size;
        const int64_t place = node / stride % size;
        if (size == 1 || (size == 2 && place == 1)) continue;
        connect(torus.at("link"), end(node), end(node + ((place + 1) % size - place) * stride));
      }
    }
  }

  void add_node_links(const JsonPlace& nodes) {
    const int64_t count = nodes.at("count").as_integer(1, 65536);
    const auto network = nodes.find("network");
    for (int64_t n = 0; n < count; ++n) {
      const std::string prefix = node_name(nodes, n) + ".";
      if (const auto links = nodes.find("links"))
        for (const JsonPlace& link : links->items()) add_link(link, prefix);
      if (!network) continue;
      // "attach" lists what of each node is joined to the network, each by a link of its own.
      for (const JsonPlace& attached : network->at("attach").items()) {
        network->at("link").allow_keys(link_keys(), "key of a network link", renamed_link_keys());
        connect(network->at("link"), vertex(attached, prefix + attached.as_string()),
                vertex(network->at("name"), network->at("name").as_string()));
      }
    }
    if (const auto torus = nodes.find("torus")) add_torus_links(nodes, *torus, count);
  }

  static Vector<std::string> link_keys() {
    return {"bandwidth_gb_per_s",
            "latency_us",
            "duplex",
            "blocks_devices",
            "cpu_overhead_us",
            "cpu_overhead_fraction",
            "all_reduce_gb_per_s",
            "all_reduce_latency_us",
            "source"};
  }

  static Vector<Renamed> renamed_link_keys() {
    return {{"busy_endpoints", "blocks_devices"},
            {"processor_us", "cpu_overhead_us"},
            {"processor_share", "cpu_overhead_fraction"}};
  }

  void add_link(const JsonPlace& place, const std::string& prefix) {
    Vector<std::string> keys = link_keys();
    keys.push_back("between");
    place.allow_keys(keys, "key of a link", renamed_link_keys());
    const auto ends = place.at("between").items();
    if (ends.size() != 2) place.at("between").fail("has " + std::to_string(ends.size()) + " ends, expected 2");
    connect(place, vertex(ends[0], prefix + ends[0].as_string()), vertex(ends[1], prefix + ends[1].as_string()));
  }

  int vertex(const JsonPlace& place, const std::string& name) const {
    if (const auto it = vertices_.find(name); it != vertices_.end()) return it->second;
    Vector<std::string> known;
    for (const auto& [other, id] : vertices_) known.push_back(other);
    place.fail("no device or switch is named \"" + name + "\"" + suggestion(name, known));
  }

  void connect(const JsonPlace& place, int a, int b) {
    if (a == b) place.fail("joins \"" + vertex_names_[a] + "\" to itself");
    Channel channel;
    channel.bandwidth_gb_per_s = place.at("bandwidth_gb_per_s").as_number(least_rate, most_rate);
    channel.latency_us = place.at("latency_us").as_number(0, 1e9);
    const auto duplex = place.find("duplex");
    const std::string mode = duplex ? duplex->as_string() : "full";
    if (mode != "full" && mode != "half") duplex->fail("found \"" + mode + "\"" + suggestion(mode, {"full", "half"}));
    const auto busy = place.find("blocks_devices");
    channel.blocks_devices = busy && busy->as_bool();
    const auto fixed = place.find("cpu_overhead_us");
    channel.cpu_overhead_us = fixed ? fixed->as_number(0, 1e9) : 0;
    const auto share = place.find("cpu_overhead_fraction");
    channel.cpu_overhead_ns_per_byte = share ? share->as_number(0, 1) / channel.bandwidth_gb_per_s : 0;
    const auto all_reduce = place.find("all_reduce_gb_per_s");
    channel.all_reduce_gb_per_s =
        all_reduce ? all_reduce->as_number(least_rate, most_rate) : channel.bandwidth_gb_per_s;
    const auto all_reduce_latency = place.find("all_reduce_latency_us");
    channel.all_reduce_latency_us = all_reduce_latency ? all_reduce_latency->as_number(0, 1e9) : channel.latency_us;
    channel_names_.push_back(vertex_names_[a] + (mode == "full" ? " -> " : " <-> ") + vertex_names_[b]);
    const ChannelId forward = static_cast<ChannelId>(topology_.channels.size());
    topology_.channels.push_back(channel);
    ChannelId backward = forward;
    if (mode == "full") {
      backward = forward + 1;
      channel_names_.push_back(vertex_names_[b] + " -> " + vertex_names_[a]);
      topology_.channels.push_back(channel);
    }
    topology_.neighbours_[a].push_back({b, forward});
    topology_.neighbours_[b].push_back({a, backward});
  }

  // One search over devices and switches is enough where switches forward everything; devices that hang together only
  // through other devices are found by asking for the routes of the first device.
  void check_connected() const {
    for (DeviceId d = 1; d < static_cast<DeviceId>(topology_.devices.size()); ++d)
      if (topology_.route(0, d).channels.empty())
        place_.fail("no route joins the devices \"" + topology_.devices[0].name + "\" and \"" +
                    topology_.devices[d].name + "\" (routes lead through links and switches, not through devices)");
  }

  JsonPlace place_;
  Topology topology_;
  std::map<std::string, int> vertices_;
  Vector<std::string> vertex_names_, channel_names_;
  std::map<int, Device> first_of_model_;
};

Topology::IncomingRates Topology::incoming_rates() const {
  IncomingRates rates;
  const size_t device_count = devices.size();
  std::map<std::string, int> numbers;
  for (size_t d = 0; d < device_count; ++d)  // a device without a node is one of its own
    rates.node_of.push_back(numbers
                                .try_emplace(devices[d].node.empty() ? "device " + devices[d].name : devices[d].node,
                                             static_cast<int>(numbers.size()))
                                .first->second);
  // Of each vertex: the node to which it belongs, or -1.
  Vector<int> node_of_vertex(rates.node_of);
  node_of_vertex.resize(neighbours_.size(), -1);
  for (size_t v = device_count; v < neighbours_.size(); ++v) {
    int node = -1;
    bool shared = false;
    for (const Neighbour& neighbour : neighbours_[v]) {
      if (static_cast<size_t>(neighbour.vertex) >= device_count) continue;
      const int own = rates.node_of[neighbour.vertex];
      shared = shared || (node >= 0 && own != node);
      node = own;
    }
    if (!shared) node_of_vertex[v] = node;
  }
  std::set<std::pair<int, ChannelId>> into_device, into_node;  // a half-duplex link once
  for (size_t v = 0; v < neighbours_.size(); ++v)
    for (const Neighbour& neighbour : neighbours_[v]) {
      if (static_cast<size_t>(neighbour.vertex) < device_count)
        into_device.emplace(neighbour.vertex, neighbour.channel);
      const int node = node_of_vertex[neighbour.vertex];
      if (node >= 0 && node != node_of_vertex[v]) into_node.emplace(node, neighbour.channel);
    }
  rates.device.assign(device_count, 0);
  rates.node.assign(numbers.size(), 0);
  for (const auto& [device, channel] : into_device) rates.device[device] += channels[channel].bandwidth_gb_per_s;
  for (const auto& [node, channel] : into_node) rates.node[node] += channels[channel].bandwidth_gb_per_s;
  return rates;
}

// By the channels that lead away from them; devices that share all of their links keep the order of their numbers.
void Topology::sort_by_links(Vector<DeviceId>& some) const {
  Vector<std::pair<Vector<ChannelId>, DeviceId>> keys;
  keys.reserve(some.size());
  for (const DeviceId device : some) {
    Vector<ChannelId> leading_away;
    for (const Neighbour& neighbour : neighbours_[device]) leading_away.push_back(neighbour.channel);
    std::sort(leading_away.begin(), leading_away.end());
    keys.emplace_back(std::move(leading_away), device);
  }
  std::sort(keys.begin(), keys.end());
  for (const int place : some.indices()) some[place] = keys[place].second;
}

Vector<DeviceId> Topology::by_links() const {
  Vector<DeviceId> all = first_devices(devices.count());
  sort_by_links(all);
  return all;
}

double KernelEfficiency::share(const Table& table, double at) {
  if (table.empty()) return 1;
  if (at <= table.front().first) return table.front().second;
  for (size_t i = 1; i < table.size(); ++i) {
    const auto& [end, last] = table[i];
    if (at > end) continue;
    const auto& [begin, first] = table[i - 1];
    return first + (last - first) * std::log(at / begin) / std::log(end / begin);
  }
  return table.back().second;
}

namespace {

// Where `at` lies among ascending numbers: after the i-th of them, by a fraction of the way to the next, in logarithms.
std::pair<size_t, double> place_among(const Vector<double>& numbers, double at) {
  if (at <= numbers.front() || numbers.size() == 1) return {0, 0};
  for (size_t i = 1; i < numbers.size(); ++i)
    if (at <= numbers[i]) return {i - 1, std::log(at / numbers[i - 1]) / std::log(numbers[i] / numbers[i - 1])};
  return {numbers.size() - 2, 1};
}

}  // namespace

double KernelEfficiency::Products::share(double depth, double number_of_outputs) const {
  const auto [row, down] = place_among(depths, depth);
  const auto [column, right] = place_among(outputs, number_of_outputs);
  const auto in_row = [&, column = column, right = right](size_t i) {
    const double here = shares[i][column];
    return right == 0 ? here : here + right * (shares[i][column + 1] - here);
  };
  return down == 0 ? in_row(row) : (1 - down) * in_row(row) + down * in_row(row + 1);
}

void Topology::set_neighbours(Vector<Vector<Neighbour>> neighbours) {
  neighbours_ = std::move(neighbours);
  const int device_count = devices.count();
  linked_switches_.assign(neighbours_.size(), {});
  arrivals_.assign(devices.size(), {});
  for (const int vertex : neighbours_.indices())
    for (const Neighbour& next : neighbours_[vertex])
      if (next.vertex >= device_count) linked_switches_[vertex].push_back(next);
      else if (vertex >= device_count) arrivals_[next.vertex].push_back({vertex, next.channel});
  routes_ = std::make_shared<Vector<RoutesFrom>>(devices.size());
}

Topology Topology::with_devices(const Vector<DeviceId>& kept) const {
  Topology part;
  part.name = name;
  part.models = models;
  part.channels = channels;
  part.channel_names_ = channel_names_;
  part.file = file;
  Vector<int> vertices(kept.begin(), kept.end());  // by new number: the old one
  for (size_t v = devices.size(); v < neighbours_.size(); ++v) vertices.push_back(static_cast<int>(v));
  Vector<int> number(neighbours_.size(), -1);
  for (size_t v = 0; v < vertices.size(); ++v) number[vertices[v]] = static_cast<int>(v);
  for (DeviceId device : kept) part.devices.push_back(devices[device]);
  Vector<Vector<Neighbour>> neighbours(vertices.size());
  for (size_t v = 0; v < vertices.size(); ++v)
    for (const Neighbour& neighbour : neighbours_[vertices[v]])
      if (number[neighbour.vertex] >= 0) neighbours[v].push_back({number[neighbour.vertex], neighbour.channel});
  part.set_neighbours(std::move(neighbours));
  return part;
}

Topology parse_topology(const JsonPlace& place) { return TopologyParser(place).parse(); }
Topology load_topology(const std::string& path) { return parse_topology(read_json_file(path)); }

}  // namespace ff
