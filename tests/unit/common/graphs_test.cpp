// The committed graphs/ and topologies/ against published figures, and the documents against the parsers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "common/graph.h"
#include "common/strategy.h"
#include "common/task_graph/issue_order.h"
#include "common/task_graph/task_graph.h"
#include "common/topology.h"
#include "common/vector.h"

namespace {

const std::string source = FF_SOURCE_DIR;

ff::Graph committed_graph(const std::string& name) { return ff::load_graph(source + "/graphs/" + name + ".json"); }
ff::Topology committed_topology(const std::string& name) {
  return ff::load_topology(source + "/topologies/" + name + ".json");
}

std::string read_text(const std::string& path) {
  std::ifstream stream(path);
  REQUIRE(stream);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

ff::Vector<std::string> json_files(const std::string& folder) {
  ff::Vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(source + "/" + folder))
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

double forward_gflop_per_sample(const ff::Graph& graph) {
  double flops = 0;
  for (const ff::Operator& op : graph.operators) flops += op.definition->forward_work(op.definition->whole()).flops;
  return flops / static_cast<double>(graph.batch_size) / 1e9;
}

// Shape of an operator's first output without the sample axis.
ff::Shape shape_of(const ff::Graph& graph, const std::string& name) {
  for (const ff::Tensor& tensor : graph.tensors)
    if (tensor.name == name) return ff::Shape(tensor.shape.begin() + 1, tensor.shape.end());
  FAIL("no tensor is named " << name);
  return {};
}

}  // namespace

TEST_CASE("every committed graph loads and bears the name of its file") {
  for (const std::string& path : json_files("graphs")) {
    INFO(path);
    const ff::Graph graph = ff::load_graph(path);
    CHECK(graph.name == std::filesystem::path(path).stem().string());
    CHECK(graph.losses.size() >= 1);
    for (const ff::Operator& op : graph.operators) {
      INFO(op.name);
      CHECK(op.has_backward);  // nothing in a training graph is beside the way to the loss
    }
  }
}

TEST_CASE("lenet has the parameters and the work of LeNet-5") {
  const ff::Graph graph = committed_graph("lenet");
  CHECK(graph.batch_size == 64);
  // LeCun et al. 1998 count 60,000 trainable parameters with a sparsely connected second convolution; connected in
  // full: 61,706.
  CHECK(graph.parameter_count() == 61706);
  CHECK(shape_of(graph, "conv1") == ff::Shape{6, 28, 28});
  CHECK(shape_of(graph, "pool1") == ff::Shape{6, 14, 14});
  CHECK(shape_of(graph, "conv2") == ff::Shape{16, 10, 10});
  CHECK(shape_of(graph, "pool2") == ff::Shape{16, 5, 5});
  CHECK(shape_of(graph, "flatten") == ff::Shape{400});
  CHECK(shape_of(graph, "fc3") == ff::Shape{10});
  // Multiply-adds: 117,600 + 240,000 in convolutions, 48,000 + 10,080 + 840 in linear layers; two operations each.
  CHECK(forward_gflop_per_sample(graph) == Approx(2 * 416520e-9).epsilon(0.03));
}

TEST_CASE("alexnet has the parameters and the work of Krizhevsky et al. 2012") {
  const ff::Graph graph = committed_graph("alexnet");
  CHECK(graph.batch_size == 256);
  // "60 million parameters" (the paper's abstract); 60,965,224 is the sum over its layers, Caffe's bvlc_alexnet among
  // others.
  CHECK(graph.parameter_count() == 60965224);
  CHECK(shape_of(graph, "conv1") == ff::Shape{96, 55, 55});
  CHECK(shape_of(graph, "pool1") == ff::Shape{96, 27, 27});
  CHECK(shape_of(graph, "conv2") == ff::Shape{256, 27, 27});
  CHECK(shape_of(graph, "conv3") == ff::Shape{384, 13, 13});
  CHECK(shape_of(graph, "pool5") == ff::Shape{256, 6, 6});
  CHECK(shape_of(graph, "flatten") == ff::Shape{9216});
  CHECK(shape_of(graph, "fc8") == ff::Shape{1000});
  // Sze et al. 2017, Efficient Processing of Deep Neural Networks (arXiv 1703.09039), table II: 724 M multiply-adds.
  // Pooling and response normalization, which that figure leaves out, add 1 to 2 percent.
  CHECK(forward_gflop_per_sample(graph) == Approx(2 * 0.724).epsilon(0.03));
}

TEST_CASE("vgg16 has the parameters and the work of configuration D") {
  const ff::Graph graph = committed_graph("vgg16");
  CHECK(graph.batch_size == 64);
  // Simonyan, Zisserman 2014, table 2: 138 million; 138,357,544 is the sum over the layers, torchvision's vgg16 among
  // others.
  CHECK(graph.parameter_count() == 138357544);
  CHECK(shape_of(graph, "conv1_2") == ff::Shape{64, 224, 224});
  CHECK(shape_of(graph, "conv3_3") == ff::Shape{256, 56, 56});
  CHECK(shape_of(graph, "pool5") == ff::Shape{512, 7, 7});
  CHECK(shape_of(graph, "flatten") == ff::Shape{25088});
  // Sze et al. 2017, table II: 15.5 G multiply-adds.
  CHECK(forward_gflop_per_sample(graph) == Approx(2 * 15.5).epsilon(0.01));
}

TEST_CASE("every committed topology loads, joins all its devices, and has the number of devices of its name") {
  const std::map<std::string, size_t> devices = {
      {"local-cpu-1", 1},     {"local-cpu-2", 2}, {"local-cpu-4", 4}, {"p100-1x4", 4},    {"p100-2x4", 8},
      {"p100-4x4", 16},       {"p100-16x4", 64},  {"k80-1x4", 4},     {"k80-2x4", 8},     {"k80-4x4", 16},
      {"k80-8x4", 32},        {"k80-16x4", 64},   {"dgx-a100-1", 8},  {"dgx-a100-2", 16}, {"dgx-a100-8", 64},
      {"dgx-a100-128", 1024}, {"dgx-h100-1", 8},  {"dgx-h100-2", 16}, {"dgx-h100-8", 64}, {"dgx-h100-128", 1024},
      {"h200-1", 1},          {"h200-8", 8},      {"h200-64", 64}};
  std::set<std::string> found;
  for (const std::string& path : json_files("topologies")) {
    INFO(path);
    const ff::Topology topology = ff::load_topology(path);
    CHECK(topology.name == std::filesystem::path(path).stem().string());
    REQUIRE(devices.count(topology.name) == 1);
    CHECK(topology.devices.size() == devices.at(topology.name));
    found.insert(topology.name);
    const int count = static_cast<int>(topology.devices.size());
    for (int source : {0, count / 2, count - 1})  // all pairs of 1024 devices are too many
      for (int destination = 0; destination < count; ++destination)
        if (source != destination && topology.route(source, destination).channels.empty())
          FAIL_CHECK("no route from " << source << " to " << destination);
  }
  CHECK(found.size() == devices.size());
}

TEST_CASE("routes of the committed topologies take the links they should") {
  SECTION("the paper's first cluster: NVLink inside a node, 100 Gb/s between nodes") {
    const ff::Topology topology = committed_topology("p100-4x4");
    CHECK(topology.devices[5].name == "node1.gpu1");
    CHECK(topology.route(0, 3).channels.size() == 1);
    CHECK(topology.route(0, 3).bandwidth_gb_per_s == 20);
    CHECK(topology.route(0, 5).bandwidth_gb_per_s == 12.5);
    CHECK(topology.route(0, 5).latency_us == Approx(7));
  }
  SECTION("the paper's second cluster: pairs of GPUs, a shared switch, 56 Gb/s between nodes") {
    const ff::Topology topology = committed_topology("k80-16x4");
    CHECK(topology.route(0, 1).channels.size() == 2);
    CHECK(topology.route(0, 2).channels.size() == 4);
    CHECK(topology.route(0, 4).bandwidth_gb_per_s == 7);
    // GPUs of one node share its adapter.
    CHECK(topology.route(0, 4).channels[2] == topology.route(3, 8).channels[2]);
  }
  SECTION("a DGX: NVSwitch inside, an adapter for each GPU") {
    const ff::Topology topology = committed_topology("dgx-h100-2");
    CHECK(topology.route(0, 7).bandwidth_gb_per_s == 450);
    CHECK(topology.route(0, 8).bandwidth_gb_per_s == 50);
    CHECK(topology.route(0, 8).channels[0] != topology.route(1, 9).channels[0]);
    CHECK(committed_topology("dgx-a100-2").route(0, 15).bandwidth_gb_per_s == 25);
  }
  SECTION("CPU ranks: copies keep both ends busy, one direction at a time") {
    const ff::Topology topology = committed_topology("local-cpu-4");
    CHECK(topology.channels.size() == 6);
    CHECK(topology.route(1, 3).busy_endpoints);
    CHECK(std::ranges::equal(topology.route(1, 3).channels, topology.route(3, 1).channels));
  }
}

TEST_CASE("the examples of docs/formats.md are valid files") {
  const std::string text = read_text(source + "/docs/formats.md");
  const std::string fence = "```json\n";
  std::set<std::string> formats;
  for (size_t at = text.find(fence); at != std::string::npos; at = text.find(fence, at + 1)) {
    const size_t begin = at + fence.size();
    const ff::JsonPlace place = ff::parse_json(text.substr(begin, text.find("```", begin) - begin), "docs/formats.md");
    const std::string format = place.at("format").as_string();
    formats.insert(format);
    if (format == "ffgraph/1") CHECK_NOTHROW(ff::parse_graph(place));
    if (format == "fftopology/1") CHECK_NOTHROW(ff::parse_topology(place));
    if (format == "ffstrategy/1") {
      const ff::StrategyFile file = ff::parse_strategy(place);
      INFO("its configurations_hash is " << ff::configurations_hash(file.graph, file.strategy));
      CHECK_FALSE(file.edited);
      ff::TaskGraphBuilder builder(file.graph);
      const ff::TaskGraph tasks = builder.build(file.strategy);
      CHECK_FALSE(ff::issue_order_from_names(builder, tasks, file.issue_order).empty());
    }
  }
  CHECK(formats == std::set<std::string>{"ffgraph/1", "fftopology/1", "ffprofile/1", "ffstrategy/1"});
}

TEST_CASE("docs/operators.md and the schema know every operator type") {
  const std::string text = read_text(source + "/docs/operators.md");
  for (const std::string& type : ff::operator_types()) {
    INFO(type << " has no entry in docs/operators.md");
    CHECK(text.find("\n## `" + type + "`\n") != std::string::npos);
  }
  const ff::JsonPlace schema = ff::read_json_file(source + "/docs/schema/ffgraph.json");
  ff::Vector<std::string> types;
  for (const ff::JsonPlace& type : schema.at("$defs").at("operator_type").at("enum").items())
    types.push_back(type.as_string());
  CHECK(types == ff::operator_types());
}
