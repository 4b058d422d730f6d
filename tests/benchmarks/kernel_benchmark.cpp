// Times of a GPU's kernels, operator by operator, and the rates that they reach:
//
//     kernel_benchmark [--only TEXT] [--precision fp32|tf32|bf16] [--repetitions N] [--tiny]
//
// --only: operators whose line contains the text. --tiny: small sizes, to see that it runs. Exit code 77 without a GPU.
//
// A time is the mean of N repetitions (20) in a row, after as many that are not counted, by the GPU's clock. The
// repetitions take their tensors in turn from several sets, which together have three times the bytes of the second-
// level cache. `forward` and `backward` are the whole kernel, with all launches: of attention also its projections, of
// batch normalization also its sums over the batch. In bf16 it is the kernel that the executor uses, conversions
// included.
//
// `GB/s` counts each tensor once. Forward: inputs, parameters and outputs. Backward: gradients of the outputs; inputs
// and outputs that the operator's gradient reads; parameters; gradients of inputs and parameters. `attention TFLOPS`
// counts the products of queries, keys and values alone (half of them with a causal mask), over the whole time. In
// "narrow" cases the input has 8 channels, so that projections take almost none of it. `TFLOPS` counts all operations.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "common/graph.h"
#include "common/kernels/cuda/cuda_backend.h"
#include "search/cost/measurement.h"
#include "search/cost/measurement_lane.h"

namespace {

using namespace ff;

struct Case {
  std::string type;
  Vector<Shape> inputs;  // with the batch
  Json attributes = Json::object();
  std::string remark;
};

// Multi-head attention with the projections of a whole layer, and with narrow ones.
void add_attention(Vector<Case>& cases, Shape input, int64_t heads, bool causal) {
  const int64_t head_channels = input[2] / heads;
  Json attributes = {{"heads", heads}, {"causal", causal}};
  const std::string remark =
      std::to_string(heads) + " heads of " + std::to_string(head_channels) + (causal ? ", causal" : "");
  cases.push_back({"multi_head_attention", {input}, attributes, remark});
  input[2] = 8;
  attributes.update({{"head_channels", head_channels}, {"bias", false}});
  cases.push_back({"multi_head_attention", {input}, attributes, remark + ", narrow"});
}

// Operators that wait for memory: those of transformers, then those of convolutional networks.
void add_memory_bound(Vector<Case>& cases, int64_t batch, int64_t length, int64_t channels, int64_t classes,
                      int64_t size) {
  const Shape tokens{batch, length, channels}, wide{batch, length, 4 * channels},
      image{8 * batch, channels / 3, size, size};
  const auto add = [&](const std::string& type, Vector<Shape> inputs, Json attributes = Json::object()) {
    cases.push_back({type, std::move(inputs), attributes, attributes.empty() ? "" : attributes.dump()});
  };
  add("softmax_cross_entropy", {{batch, length, classes}});
  add("layer_norm", {tokens});
  add("rms_norm", {tokens});
  add("gelu", {wide});
  add("silu", {wide});
  add("add", {tokens, tokens});
  add("dropout", {tokens}, {{"rate", 0.1}});
  add("embedding", {{batch, length}}, {{"vocabulary", classes}, {"channels", channels}});
  add("position_embedding", {tokens});
  add("transpose", {{batch, length, 12, channels / 12}}, {{"axes", {2, 1, 3}}});
  add("batch_norm", {image}, {{"activation", "relu"}});
  add("relu", {image});
  add("add", {image, image});
  add("pool2d", {image}, {{"kernel", 3}, {"stride", 2}, {"padding", 1}});
  add("pool2d", {image}, {{"kernel", 2}, {"stride", 2}});
  add("mean", {image});
  add("concat", {image, image}, {{"axis", 1}});
  add("local_response_normalization", {image}, {{"size", 5}});
}

Vector<Case> all_cases() {
  Vector<Case> cases;
  add_attention(cases, {8, 1024, 768}, 12, true);
  add_attention(cases, {4, 2048, 2048}, 16, true);
  add_attention(cases, {32, 512, 1024}, 16, false);
  cases.push_back({"linear", {{8192, 768}}, {{"out_features", 3072}}, "3072 outputs"});
  add_memory_bound(cases, 8, 1024, 768, 50257, 56);
  return cases;
}

Vector<Case> tiny_cases() {
  Vector<Case> cases;
  add_attention(cases, {1, 8, 8}, 2, true);
  cases.push_back({"linear", {{6, 8}}, {{"out_features", 5}}, "5 outputs"});
  add_memory_bound(cases, 2, 5, 24, 11, 6);
  return cases;
}

// A graph whose operator "tested" is this one.
Graph graph_of(const Case& one, Precision precision) {
  Json inputs = Json::array(), names = Json::array(), operators = Json::array();
  for (const int i : one.inputs.indices()) {
    Json shape = Json::array({"batch"});
    for (size_t axis = 1; axis < one.inputs[i].size(); ++axis) shape.push_back(one.inputs[i][axis]);
    const std::string name = "x" + std::to_string(i);
    inputs.push_back({{"name", name}, {"shape", shape}, {"dtype", one.type == "embedding" ? "i32" : "f32"}});
    names.push_back(one.type == "embedding" ? name : "r" + name);
    // Activations are bf16, which the graph's own inputs are not.
    if (one.type != "embedding") operators.push_back({{"name", "r" + name}, {"type", "relu"}, {"inputs", {name}}});
  }
  if (one.type == "softmax_cross_entropy") {
    Json label = inputs[0]["shape"];
    label.erase(label.size() - 1);
    names.push_back("label");
    inputs.push_back({{"name", "label"}, {"shape", label}, {"dtype", "i32"}});
  }
  operators.push_back({{"name", "tested"}, {"type", one.type}, {"inputs", names}, {"attributes", one.attributes}});
  if (one.type != "softmax_cross_entropy") {  // a graph needs a loss
    inputs.push_back({{"name", "z"}, {"shape", {"batch", 2}}, {"dtype", "f32"}});
    inputs.push_back({{"name", "class"}, {"shape", {"batch"}}, {"dtype", "i32"}});
    operators.push_back({{"name", "loss"}, {"type", "softmax_cross_entropy"}, {"inputs", {"z", "class"}}});
  }
  const Json text = {{"format", "ffgraph/1"},
                     {"name", "one"},
                     {"batch_size", one.inputs[0][0]},
                     {"inputs", inputs},
                     {"operators", operators}};
  const Graph graph = parse_graph(parse_json(text.dump(), "benchmark"));
  return precision == Precision::bf16 ? with_activation_type(graph, DataType::bf16) : graph;
}

const OperatorDefinition& definition_of(const Graph& graph) {
  for (const Operator& op : graph.operators)
    if (op.name == "tested") return *op.definition;
  throw InputError("no operator is tested");
}

double bytes_of_direction(const OperatorDefinition& definition, bool backward) {
  int64_t bytes = 0;
  const Block part = definition.whole();
  for (const int i : definition.inputs().indices()) {
    const int64_t input = bytes_of(definition.inputs()[i].type, definition.input_block(i, part));
    if (!backward || definition.backward_reads_input(i)) bytes += input;
    if (backward && definition.differentiable_input(i)) bytes += input;
  }
  for (const int p : definition.parameters().indices()) {
    const Block block = definition.parameter_block(p, part);
    bytes += bytes_of(definition.parameter_type(p), block);
    if (backward && definition.parameters()[p].trained) bytes += bytes_of(DataType::f32, block);
  }
  for (const int o : definition.outputs().indices()) {
    const int64_t output = bytes_of(definition.outputs()[o].type, definition.output_block(o, part));
    if (!backward || definition.backward_reads_output()) bytes += output;
    if (backward && !definition.is_loss()) bytes += output;
  }
  return static_cast<double>(bytes);
}

double mean_us(MeasurementLane& lane, const OperatorDefinition& definition, bool backward, int repetitions) {
  const bool statistics = definition.statistics_bytes(definition.whole(), backward) > 0;
  const auto run = [&](int repetition) {
    if (statistics) lane.run(backward ? Phase::backward_statistics : Phase::forward_statistics, repetition);
    lane.run(backward ? Phase::backward : Phase::forward, repetition);
  };
  for (int repetition = 0; repetition < repetitions; ++repetition) run(repetition);
  lane.backend().wait();
  lane.backend().start_stopwatch();
  for (int repetition = 0; repetition < repetitions; ++repetition) run(repetition);
  return lane.backend().stop_stopwatch_us() / repetitions;
}

std::string shapes_text(const Case& one) {
  std::string text;
  for (const Shape& shape : one.inputs) {
    text += text.empty() ? "[" : " [";
    for (const int64_t size : shape) text += (text.back() == '[' ? "" : ",") + std::to_string(size);
    text += "]";
  }
  return text;
}

void print_row(const std::string& name, const char* direction, double us, double bytes, double flops,
               double attention_flops) {
  std::printf("%-86s %-8s %10.1f %8.0f %8.1f", name.c_str(), direction, us, bytes / us / 1e3, flops / us / 1e6);
  if (attention_flops > 0) std::printf(" %10.1f", attention_flops / us / 1e6);
  std::printf("\n");
  std::fflush(stdout);
}

void run_case(MeasurementLane& lane, const Case& one, const std::string& name, Precision precision, int repetitions) {
  const Graph graph = graph_of(one, precision);
  const OperatorDefinition& definition = definition_of(graph);
  const Block part = definition.whole();
  lane.prepare_kernel(definition, part, {.input_gradients = true});
  for (const bool backward : {false, true}) {
    const double us = mean_us(lane, definition, backward, repetitions);
    const Work work = backward ? definition.backward_work(part, true) : definition.forward_work(part);
    const AttentionWork attention = definition.attention_work(part, backward);
    const double masked = attention.causal ? attention.flops / 2 : 0;  // which kernels do not compute
    print_row(name, backward ? "backward" : "forward", us, bytes_of_direction(definition, backward),
              work.flops - masked, attention.flops - masked);
  }
  lane.clear();
}

void run(const Vector<Case>& cases, const Vector<Precision>& precisions, const std::string& only, int repetitions) {
  const CudaDescription device = describe_cuda_device(0);
  std::printf("%s, %d multiprocessors, driver %s, clocks: %s\n", device.name.c_str(), device.multiprocessors,
              device.driver.c_str(), device.clocks.c_str());
  std::printf("%-86s %-8s %10s %8s %8s %10s\n", "operator", "", "us", "GB/s", "TFLOPS", "attention");
  for (const Precision precision : precisions) {
    MeasurementLane lane(make_cuda_backend(0, precision), gpu_settings(0, precision));
    for (const Case& one : cases) {
      const std::string name = std::string(to_string(precision)) + " " + one.type + " " + shapes_text(one) +
                               (one.remark.empty() ? "" : " " + one.remark);
      if (name.find(only) != std::string::npos) run_case(lane, one, name, precision, repetitions);
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  std::string only, precision;
  int repetitions = 20;
  bool tiny = false;
  CLI::App app("Times of a GPU's kernels, and the rates that they reach");
  app.add_option("--only", only, "operators whose line contains this text");
  app.add_option("--precision", precision, "one instead of all")->check(CLI::IsMember({"fp32", "tf32", "bf16"}));
  app.add_option("--repetitions", repetitions, "timed runs of each kernel")->check(CLI::Range(1, 100000));
  app.add_flag("--tiny", tiny, "small sizes, to see that it runs");
  CLI11_PARSE(app, count, arguments);
  try {
    cuda_device_count();
  } catch (const MachineError& error) {
    std::printf("skipped: %s\n", error.what());
    return 77;
  }
  try {
    Vector<Precision> precisions{Precision::fp32, Precision::tf32, Precision::bf16};
    if (!precision.empty()) std::erase_if(precisions, [&](Precision one) { return to_string(one) != precision; });
    run(tiny ? tiny_cases() : all_cases(), precisions, only, repetitions);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
