// Fuzz targets: the files that users give. The bytes are one, of the format that the program is compiled for; it is
// read, or refused with an InputError. tests/fuzz/file_cases/FORMAT holds examples to begin with.
//   cmake --preset fuzz && cmake --build --preset fuzz && build/fuzz/tests/graph_fuzz -max_total_time=3600
//   build/fuzz/graph_corpus tests/fuzz/file_cases/graph
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "common/task_graph/task_graph.h"
#include "executor/checkpoint.h"
#include "executor/npy_file.h"
#include "search/cost/profile.h"
#include "search/optimizer/annotations.h"

using namespace ff;

namespace {

// A small network and machine, for files about these.
const Graph& small_graph() {
  static const Graph graph = parse_graph(parse_json(
      R"({"format":"ffgraph/1","name":"two","batch_size":8,
        "inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
        "operators":[{"name":"fc1","type":"linear","inputs":["x"],"attributes":{"out_features":8}},
                     {"name":"fc2","type":"linear","inputs":["fc1"],"attributes":{"out_features":8}},
                     {"name":"loss","type":"softmax_cross_entropy","inputs":["fc2","label"]}]})",
      "graph"));
  return graph;
}

const Topology& small_topology() {
  static const Topology topology = parse_topology(parse_json(
      R"({"format":"fftopology/1","name":"t","device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":1}},
        "nodes":{"count":4,"devices":[{"name":"d","kind":"cpu","model":"m"}],
                 "network":{"name":"s","attach":["d"],"link":{"bandwidth_gb_per_s":1,"latency_us":1}}}})",
      "topology"));
  return topology;
}

// Readers that take a path.
std::string as_file(const std::string& text) {
  static const std::string path = "/dev/shm/file_fuzz." + std::to_string(getpid());
  static const int at_exit = std::atexit([] { std::remove(path.c_str()); });
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (at_exit != 0 || !file.flush()) std::abort();
  return path;
}

// A graph that is read has task graphs, as long as these are small.
[[maybe_unused]] void read_graph(const std::string& text) {
  const Graph graph = parse_graph(parse_json(text, "graph"));
  for (const Tensor& tensor : graph.tensors) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    if (elements > 1 << 20) return;
  }
  TaskGraphBuilder(graph).build(data_parallel(graph, small_topology()));
}

[[maybe_unused]] void read_npy(const std::string& text) {
  const NpyFile file(as_file(text));
  if (file.shape().count() > Block::max_rank) return;  // no network has such an input
  for (const DataType type : {DataType::f32, DataType::i32}) {
    try {
      file.expect(file.shape(), type, "x");
    } catch (const InputError&) {
      continue;
    }
    Block block(file.shape());
    if (block.empty()) return;
    for (int axis = 0; axis < block.rank(); ++axis) block[axis].end = std::min<int64_t>(block[axis].end, 4);
    Vector<int64_t> samples;
    for (int64_t i = 0; i < block[0].size(); ++i) samples.push_back(file.samples() - 1 - i);
    Vector<float> out(block.volume());
    file.read(block, samples, type, out.data());
  }
}

[[maybe_unused]] void read_topology(const std::string& text) { parse_topology(parse_json(text, "topology")); }
[[maybe_unused]] void read_profile(const std::string& text) { load_profile(as_file(text)); }
[[maybe_unused]] void read_annotations(const std::string& text) {
  parse_annotations(parse_json(text, "annotations"), small_graph(), small_topology());
}
[[maybe_unused]] void read_safetensors(const std::string& text) { load_checkpoint(as_file(text), small_graph()); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  try {
    FF_FUZZ_READER(std::string(reinterpret_cast<const char*>(bytes), size));
  } catch (const InputError&) {}
  return 0;
}
