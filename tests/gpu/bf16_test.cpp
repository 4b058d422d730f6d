// Kernels of the CUDA backend that work on bf16 as it lies, beside its kernels in f32 on the same values.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "common/graph.h"
#include "common/kernels/bf16.h"
#include "common/kernels/bf16_kernels.h"
#include "common/kernels/converted_kernel.h"
#include "common/operators/conversion.h"
#include "tests/gpu/gpu_or_skip.h"

using namespace ff;

namespace {

struct Case {
  std::string type;
  Vector<Shape> inputs;  // with the batch; empty shapes of i32: indices
  Json attributes = Json::object();
  int64_t indices = 0;  // an input holds indices below this
  double terms = 1;     // of the longest sum
  int index_input = 0;  // which one
  // Of gradients, where products read operands that the kernel rounds: four times the root of the terms, 2^-9 and the
  // terms' size.
  double rounded_operands = 0;
  // Parameters are up to this: with large ones a rounding of queries and keys is one of many percent of a probability.
  float largest_parameter = 1;
  bool is_index(int input) const { return indices > 0 && input == index_input; }
  bool is_loss() const { return type == "softmax_cross_entropy"; }
};

// An operator "tested" whose inputs are activations, so that they have the graph's type, or indices.
Graph graph_of(const Case& one, DataType type) {
  Json inputs = Json::array(), operators = Json::array(), names = Json::array();
  for (const int i : one.inputs.indices()) {
    Json shape = Json::array({"batch"});
    for (size_t axis = 1; axis < one.inputs[i].size(); ++axis) shape.push_back(one.inputs[i][axis]);
    const std::string name = "x" + std::to_string(i);
    const bool indices = one.is_index(i);
    inputs.push_back({{"name", name}, {"shape", shape}, {"dtype", indices ? "i32" : "f32"}});
    if (!indices) operators.push_back({{"name", "r" + name}, {"type", "relu"}, {"inputs", {name}}});
    names.push_back(indices ? name : "r" + name);
  }
  operators.push_back({{"name", "tested"}, {"type", one.type}, {"inputs", names}, {"attributes", one.attributes}});
  if (!one.is_loss()) {
    inputs.push_back({{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}});
    operators.push_back({{"name", "flat"}, {"type", "flatten"}, {"inputs", {"tested"}}});
    operators.push_back({{"name", "loss"}, {"type", "softmax_cross_entropy"}, {"inputs", {"flat", "label"}}});
  }
  const Json whole = {{"format", "ffgraph/1"},
                      {"name", "g"},
                      {"batch_size", one.inputs[0][0]},
                      {"inputs", inputs},
                      {"operators", operators}};
  return parse_graph(parse_json(whole.dump(), "g"), 0, type);
}

const OperatorDefinition& tested(const Graph& graph) {
  for (const Operator& op : graph.operators)
    if (op.name == "tested") return *op.definition;
  throw std::logic_error("no operator \"tested\"");
}

// A device's buffer of one of the two types, filled from the host with values that both have.
class Tensor {
 public:
  Tensor(CudaBackend& backend, DataType type, const Vector<float>& values) : backend_(backend), type_(type) {
    elements_ = std::ssize(values);
    memory_ = backend.allocate(std::max<int64_t>(bytes_of(type, elements_), 4) + 4);
    Vector<float> words = values;
    if (type == DataType::bf16) {
      words = Vector<float>((values.size() + 1) / 2, 0.0f);
      for (const int64_t i : values.indices()) {
        const Bf16 bits = bf16_of(values[i]);
        std::memcpy(reinterpret_cast<char*>(words.data()) + 2 * i, &bits, sizeof bits);
      }
    }
    backend.store_from_host(words.data(), memory_, {std::ssize(words)});
  }
  ~Tensor() { backend_.release(memory_); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  float* data() { return static_cast<float*>(memory_); }
  Vector<float> read() {
    const bool is_bf16 = type_ == DataType::bf16;
    Vector<float> words(is_bf16 ? (elements_ + 1) / 2 : elements_), values(elements_);
    backend_.load_to_host(memory_, words.data(), {std::ssize(words)});
    for (int64_t i = 0; i < elements_; ++i) {
      Bf16 bits = 0;
      if (is_bf16) std::memcpy(&bits, reinterpret_cast<const char*>(words.data()) + 2 * i, sizeof bits);
      values[i] = is_bf16 ? f32_of(bits) : words[i];
    }
    return values;
  }

 private:
  CudaBackend& backend_;
  DataType type_;
  int64_t elements_;
  void* memory_;
};
using DeviceTensor = Tensor;  // not ff::Tensor
using Tensors = Vector<std::unique_ptr<Tensor>>;

// One side of the comparison: an operator's operands and results in the types of its definition.
struct Side {
  Side(CudaBackend& gpu, const OperatorDefinition& op, const Block& block)
      : backend(gpu), definition(op), part(block) {}

  Tensor& add(Tensors& tensors, DataType type, const Vector<float>& values) {
    return *tensors.emplace_back(std::make_unique<Tensor>(backend, type, values));
  }

  CudaBackend& backend;
  const OperatorDefinition& definition;
  const Block part;
  Tensors inputs, parameters, outputs, output_gradients, input_gradients, parameter_gradients;
  KernelArguments arguments;
};

class Random {
 public:
  Vector<float> values(int64_t count, float largest = 1) {
    Vector<float> result(count);
    for (float& value : result)
      value = f32_of(bf16_of(std::uniform_real_distribution<float>(-largest, largest)(random_)));
    return result;
  }
  Vector<float> indices(int64_t count, int64_t limit) {
    Vector<float> result(count);
    for (float& value : result)
      value = std::bit_cast<float>(std::uniform_int_distribution<int32_t>(0, static_cast<int32_t>(limit) - 1)(random_));
    return result;
  }

 private:
  std::mt19937 random_{7};
};

void check_near(Tensor& found, Tensor& expected, double terms, double rounded_operands = 0) {
  const Vector<float> a = found.read(), b = expected.read();
  for (const int64_t i : a.indices()) {
    const double bound = std::abs(static_cast<double>(b[i])) / 128 + 1e-5 * (1 + terms) + rounded_operands;
    if (!(std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])) <= bound)) {
      CAPTURE(i, a[i], b[i], bound);
      FAIL_CHECK("too far apart");
      return;
    }
  }
  SUCCEED();
}

// `masters`: parameters of bf16 are given in f32.
void check_part(CudaBackend& gpu, const Case& one, const Degrees& degrees, int64_t number, bool masters) {
  const Graph graphs[] = {graph_of(one, DataType::bf16), graph_of(one, DataType::f32)};
  Side native(gpu, tested(graphs[0]), tested(graphs[0]).part(degrees, number)),
      in_f32(gpu, tested(graphs[1]), native.part);
  Vector<bool> gradients(one.inputs.size(), true);
  if (one.indices > 0) gradients[one.index_input] = false;
  const KernelRequest request{native.definition, native.part, gradients, "tested", 1};
  // What the kernel has not written there must not count, not even times 0.
  Tensor scratch(gpu, DataType::f32,
                 Vector<float>(conversion_bytes(native.definition, native.part, true, gradients) / 4,
                               std::numeric_limits<float>::quiet_NaN()));
  auto* const kernels = dynamic_cast<Bf16Kernels*>(&gpu);
  REQUIRE(kernels);
  const std::unique_ptr<Kernel> kernel = kernels->make_bf16_kernel(request, scratch.data()),
                                reference = gpu.make_kernel({in_f32.definition, in_f32.part, gradients, "tested", 1});
  REQUIRE(kernel);
  CHECK(kernel->workspace_bytes() == reference->workspace_bytes());

  Random random;
  const auto both = [&](auto member, auto target, DataType type, DataType other, const Vector<float>& values) {
    (native.arguments.*target).push_back(native.add(native.*member, type, values).data());
    (in_f32.arguments.*target).push_back(in_f32.add(in_f32.*member, other, values).data());
  };
  const OperatorDefinition& definition = native.definition;
  for (const int i : definition.inputs().indices()) {
    const int64_t elements = definition.input_block(i, native.part).volume();
    const DataType type = definition.inputs()[i].type;
    const bool indices = type == DataType::i32;
    both(&Side::inputs, &KernelArguments::inputs, type, indices ? type : DataType::f32,
         indices ? random.indices(elements, one.indices) : random.values(elements));
    both(&Side::input_gradients, &KernelArguments::input_gradients, indices ? DataType::f32 : type, DataType::f32,
         Vector<float>(elements, 0.0f));
    if (!gradients[i]) native.arguments.input_gradients[i] = in_f32.arguments.input_gradients[i] = nullptr;
  }
  for (const int p : definition.parameters().indices()) {
    const int64_t elements = definition.parameter_block(p, native.part).volume();
    const bool is_bf16 = definition.parameter_type(p) == DataType::bf16;
    both(&Side::parameters, &KernelArguments::parameters, is_bf16 && !masters ? DataType::bf16 : DataType::f32,
         DataType::f32, random.values(elements, one.largest_parameter));
    both(&Side::parameter_gradients, &KernelArguments::parameter_gradients, DataType::f32, DataType::f32,
         random.values(elements));
    native.arguments.masters.push_back(is_bf16 && masters);
    for (Side* side : {&native, &in_f32}) side->arguments.accumulate.push_back(masters);
  }
  for (const int o : definition.outputs().indices()) {
    const int64_t elements = definition.output_block(o, native.part).volume();
    both(&Side::outputs, &KernelArguments::outputs, definition.outputs()[o].type, DataType::f32,
         Vector<float>(elements, 0.0f));
    if (!one.is_loss())
      both(&Side::output_gradients, &KernelArguments::output_gradients, definition.outputs()[o].type, DataType::f32,
           random.values(elements));
  }
  kernel->forward(native.arguments);
  reference->forward(in_f32.arguments);
  for (const int o : definition.outputs().indices()) {
    // a convolution's sum is rounded before the bias is added, too
    check_near(*native.outputs[o], *in_f32.outputs[o], one.terms,
               one.type.starts_with("conv") ? one.rounded_operands : 0);
    in_f32.outputs[o] = std::make_unique<Tensor>(gpu, DataType::f32, native.outputs[o]->read());
    in_f32.arguments.outputs[o] = in_f32.outputs[o]->data();
  }
  kernel->backward(native.arguments);
  reference->backward(in_f32.arguments);
  for (const int i : definition.inputs().indices())
    if (gradients[i])
      check_near(*native.input_gradients[i], *in_f32.input_gradients[i], one.terms, one.rounded_operands);
  for (const int p : definition.parameters().indices())
    check_near(*native.parameter_gradients[p], *in_f32.parameter_gradients[p], one.terms, one.rounded_operands);
  gpu.wait();
}

// Queries, keys, values, probabilities and gradients of these are rounded in between: errors of 0.01 in sums of up to
// 200 such numbers. tests/gpu/attention_test.cpp has bounds that count each rounding.
constexpr double attention_terms = 1000;

Json attention_of(int64_t heads, int64_t key_value_heads, int64_t head_channels, bool causal = false,
                  double rotary_base = 0, bool bias = true) {
  Json attributes = {{"heads", heads},
                     {"key_value_heads", key_value_heads},
                     {"head_channels", head_channels},
                     {"causal", causal},
                     {"bias", bias}};
  if (rotary_base > 0) attributes["rotary_base"] = rotary_base;
  return attributes;
}

}  // namespace

TEST_CASE("operators that move elements move indices as such in bf16 graphs too") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const Json token = {{"name", "token"}, {"shape", {"batch", 6, 5}}, {"dtype", "i32"}},
             label = {{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}};
  const auto operator_of = [](const char* name, const char* type, const Json& inputs, const Json& attributes) {
    return Json{{"name", name}, {"type", type}, {"inputs", inputs}, {"attributes", attributes}};
  };
  const Json none = Json::object(), axes = Json{{"axes", {2, 1}}}, table = Json{{"vocabulary", 9}, {"channels", 6}};
  const Json operators =
      Json::array({operator_of("tested", "transpose", Json::array({"token"}), axes),
                   operator_of("row", "flatten", Json::array({"tested"}), none),
                   operator_of("words", "embedding", Json::array({"row"}), table),
                   operator_of("flat", "flatten", Json::array({"words"}), none),
                   operator_of("loss", "softmax_cross_entropy", Json::array({"flat", "label"}), none)});
  const Json whole = {{"format", "ffgraph/1"},
                      {"name", "g"},
                      {"batch_size", 4},
                      {"inputs", Json::array({token, label})},
                      {"operators", operators}};
  const Graph graph = parse_graph(parse_json(whole.dump(), "g"), 0, DataType::bf16);
  const OperatorDefinition& transpose = tested(graph);
  REQUIRE(transpose.activation_type() == DataType::bf16);
  const KernelRequest request{transpose, transpose.part(Degrees(3, 1), 0), {false}, "tested", 1};
  const std::unique_ptr<Kernel> kernel = make_typed_kernel(*gpu, request, nullptr);
  Random random;
  const Vector<float> tokens = random.indices(120, 1 << 30);
  DeviceTensor input(*gpu, DataType::i32, tokens), output(*gpu, DataType::i32, Vector<float>(120, 0.0f));
  KernelArguments arguments;
  arguments.inputs.push_back(input.data());
  arguments.outputs.push_back(output.data());
  kernel->forward(arguments);
  const Vector<float> found = output.read();
  for (int64_t row = 0; row < 24; ++row)
    for (int64_t column = 0; column < 5; ++column) {
      const int64_t sample = row / 6;
      CHECK(std::bit_cast<int32_t>(found[(sample * 5 + column) * 6 + row % 6]) ==
            std::bit_cast<int32_t>(tokens[row * 5 + column]));
    }
}

TEST_CASE("CUDA kernels that work on bf16 as it lies equal those in f32, rounded") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  for (const Case& one : Vector<Case>{
           {"linear", {{9, 40}}, {{"out_features", 33}}, 0, 80},
           {"linear", {{6, 7, 24}}, {{"out_features", 50}, {"activation", "relu"}}, 0, 100},
           {"linear", {{70, 64}}, {{"out_features", 32}, {"bias", false}}, 0, 140},
           // rows of the output that are not multiples of 16 bytes
           {"linear", {{264, 130}}, {{"out_features", 270}}, 0, 300},
           {"linear", {{264, 129}}, {{"out_features", 271}, {"activation", "relu"}}, 0, 300},
           {"linear", {{140, 130}}, {{"out_features", 131}, {"bias", false}}, 0, 300},
           {"matmul", {{4, 10, 17}, {4, 17, 6}}, {{"scale", 0.25}}, 0, 34},
           {"matmul", {{4, 10, 16}, {4, 24, 16}}, {{"transpose", true}}, 0, 48},
           {"multi_head_attention", {{2, 40, 8}}, attention_of(3, 3, 16), 0, attention_terms, 0, 0, 0.25f},
           {"multi_head_attention",
            {{2, 21, 6}},
            attention_of(4, 2, 6, true, 10000.0),
            0,
            attention_terms,
            0,
            0,
            0.25f},
           {"multi_head_attention",
            {{2, 130, 8}},
            attention_of(4, 2, 64, true, 500.0),
            0,
            2 * attention_terms,
            0,
            0,
            0.25f},
           {"multi_head_attention",
            {{1, 70, 8}},
            attention_of(2, 2, 128, false, 0.0, false),
            0,
            attention_terms,
            0,
            0,
            0.25f},
           {"embedding", {{5, 12}}, {{"vocabulary", 19}, {"channels", 21}}, 19, 60},
           {"gelu", {{6, 35}}},
           {"gelu", {{40, 170, 44}}},  // by packs
           {"silu", {{6, 9, 7}}},
           {"tanh", {{6, 35}}},
           {"add", {{6, 35}, {6, 35}}},
           {"mul", {{6, 36}, {6, 36}}},
           {"dropout", {{6, 36}}, {{"rate", 0.4}}},
           {"dropout", {{6, 9, 7}}, {{"rate", 0.4}}},
           {"layer_norm", {{7, 9, 64}}, Json::object(), 0, 60},
           {"layer_norm", {{7, 35}}, Json::object(), 0, 60},
           {"layer_norm", {{5, 1500}}, Json::object(), 0, 1500},
           {"layer_norm", {{3, 9001}}, Json::object(), 0, 9000},
           {"rms_norm", {{7, 9, 64}}, Json::object(), 0, 60},
           {"rms_norm", {{7, 1027}}, Json::object(), 0, 60},
           {"batch_norm", {{6, 24, 9, 11}}, {{"statistics", "local"}, {"activation", "relu"}}, 0, 600},
           {"batch_norm", {{6, 21, 9, 11}}, {{"statistics", "local"}}, 0, 600},
           {"lstm", {{6, 20}, {6, 24}, {6, 24}}, {{"hidden", 24}}, 0, 200, 0, 0.01},
           {"lstm", {{7, 21}}, {{"hidden", 19}}, 0, 160, 0, 0.01},
           {"conv2d", {{3, 8, 9, 7}}, {{"out_channels", 16}, {"kernel", 3}, {"padding", 1}}, 0, 300, 0, 0.01},
           {"conv2d",
            {{2, 6, 11, 9}},
            {{"out_channels", 9}, {"kernel", 5}, {"stride", 2}, {"padding", 2}, {"groups", 3}, {"activation", "relu"}},
            0,
            300,
            0,
            0.02},
           {"conv2d", {{3, 16, 5, 6}}, {{"out_channels", 24}, {"kernel", 1}, {"bias", false}}, 0, 100, 0, 0},
           {"conv1d", {{3, 10, 13}}, {{"out_channels", 8}, {"kernel", 3}, {"padding", 1}}, 0, 100, 0, 0.01},
           {"pool2d", {{3, 12, 13, 11}}, {{"kernel", 3}, {"stride", 2}}},
           {"pool2d", {{3, 5, 20, 20}}, {{"kernel", 20}, {"stride", 1}}},
           {"pool2d", {{3, 7, 13, 11}}, {{"kernel", 3}, {"stride", 2}, {"method", "average"}, {"padding", 1}}},
           {"pool1d", {{3, 8, 13}}, {{"kernel", 3}, {"stride", 2}}},
           {"mean", {{4, 10, 7, 6}}},
           {"mean", {{4, 10, 7}}},
           {"concat", {{3, 8, 5, 4}, {3, 6, 5, 4}}, {{"axis", 1}}},
           {"concat", {{4, 9, 7}, {4, 3, 7}}, {{"axis", 1}}},
           {"stack", {{4, 9}, {4, 9}, {4, 9}}},
           {"slice", {{4, 9, 8}}, {{"axis", 1}, {"begin", 2}, {"end", 7}}},
           {"pad", {{4, 9, 8}}, {{"padding", {{1, 0}, {2, 3}}}}},
           {"transpose", {{4, 9, 12, 5}}, {{"axes", {3, 1, 2}}}},
           {"transpose", {{4, 40, 70}}, {{"axes", {2, 1}}}},
           {"reshape", {{4, 9, 12, 5}}, {{"shape", {12, 9, 5}}}},
           {"reshape", {{4, 9, 12}}, {{"shape", {27, 4}}}},
           {"flatten", {{4, 9, 12, 5}}},
           {"softmax_cross_entropy", {{6, 37}, {6}}, Json::object(), 37, 37, 1},
           {"softmax_cross_entropy", {{3, 5, 1001}, {3, 5}}, Json::object(), 1001, 1001, 1},
           {"softmax_cross_entropy", {{2, 60001}, {2}}, Json::object(), 60001, 60001, 1},
       }) {
    DYNAMIC_SECTION(one.type << one.attributes.dump()) {
      const Graph graph = graph_of(one, DataType::bf16);
      const OperatorDefinition& definition = tested(graph);
      for (const bool masters : {false, true}) {
        check_part(*gpu, one, Degrees(definition.dimensions().size(), 1), 0, masters);
        Degrees degrees(definition.dimensions().size(), 1);
        int64_t parts = 1;
        for (const int d : degrees.indices())  // classes that are split have statistics
          if (definition.dimensions()[d].size > 1 && !(one.is_loss() && d > 0)) parts *= degrees[d] = 2;
        check_part(*gpu, one, degrees, parts - 1, masters);
      }
    }
  }
}
