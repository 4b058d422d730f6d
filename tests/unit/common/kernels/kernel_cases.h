// One operator on random or given shapes, attributes and parts, its kernel in any backend against the double-precision
// reference.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "common/graph.h"
#include "common/kernels/backend.h"
#include "common/operators/batch_norm.h"
#include "tests/unit/common/kernels/buffer.h"
#include "tests/unit/common/kernels/reference/reference.h"
#include "tests/unit/common/kernels/statistics.h"

namespace ff::kernel_cases {

using reference::Values;

constexpr int64_t vocabulary = 5;

class Cases {
 public:
  explicit Cases(uint32_t seed) : random_(seed) {}

  int64_t between(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
  bool chance() { return between(0, 1) == 1; }
  double normal() { return std::normal_distribution<double>()(random_); }

  // A graph whose operator "tested" is a random one of `type`.
  Json graph(const std::string& type) {
    if (type == "einsum") return einsum_graph();
    Json attributes = Json::object();
    int64_t rank = between(1, 4);
    if (type == "conv2d" || type == "pool2d" || type == "local_response_normalization") rank = 4;
    if (type == "conv1d" || type == "pool1d" || type == "position_embedding" || type == "multi_head_attention" ||
        type == "matmul" || type == "top_k_gating" || type == "load_balancing_loss" || type == "dispatch" ||
        type == "expert_linear" || type == "combine" || type == "prefix")
      rank = 3;
    if (type == "relative_bias") rank = 4;
    if (type == "linear" || type == "softmax" || type == "softmax_cross_entropy") rank = between(2, 3);
    if (type == "flatten" || type == "concat" || type == "slice" || type == "split" || type == "pad" ||
        type == "batch_norm" || type == "layer_norm" || type == "rms_norm" || type == "broadcast_add" ||
        type == "broadcast_mul")
      rank = between(2, 4);
    if (type == "mean" || type == "transpose") rank = between(3, 4);
    if (type == "lstm" || type == "attention" || type == "stack") rank = 2;
    if (type == "embedding") rank = between(1, 2);
    const bool image = rank == 4 && type.find("2d") != std::string::npos;
    Json shape = Json::array({"batch"});
    int64_t groups = 1;
    if ((type == "conv2d" || type == "conv1d") && chance()) groups = between(2, 3);
    const int64_t channel_axis = type == "conv1d" ? 2 : 1;
    for (int64_t axis = 1; axis < rank; ++axis)
      shape.push_back(axis == channel_axis ? between(1, 6) * groups : between(image ? 4 : 1, 11));
    Vector<Json> inputs{shape};
    if (type == "conv2d" || type == "conv1d") conv_attributes(attributes, groups);
    if (type == "pool2d" || type == "pool1d") pool_attributes(attributes);
    if (type == "conv1d")
      for (const char* key : {"kernel", "stride", "padding", "dilation"})
        if (attributes.contains(key)) attributes[key] = Json(attributes[key][1]);
    if ((type == "conv2d" || type == "conv1d") && between(0, 3) == 0) attributes["trained"] = false;
    if (type == "linear" || type == "expert_linear")
      attributes = {{"out_features", between(1, 20)}, {"bias", chance()}, {"activation", chance() ? "relu" : "none"}};
    if (type == "affine") attributes = {{"factor", -0.7}, {"offset", 0.3}};
    if (type == "clip") attributes = {{"least", -0.5}, {"most", 0.8}};
    if (type == "leaky_relu") attributes = {{"slope", 0.2}};
    if (type == "hard_sigmoid") attributes = {{"slope", 0.6}, {"offset", 0.4}};
    if (type == "gelu" && chance()) attributes = {{"approximate", "tanh"}};
    if (type == "elu") attributes = {{"alpha", chance() ? 1.0 : 0.6}};
    if (type == "pow") attributes = {{"exponent", Vector<double>{0.5, -0.5, -1, 2, 3, 0.25, 1}[between(0, 6)]}};
    if (type == "relative_bias") relative_bias_attributes(attributes);
    if (type == "broadcast_add" || type == "broadcast_mul") broadcast_attributes(inputs, attributes);
    if (type == "prefix") attributes = {{"rows", between(1, 3)}};
    if (type == "dropout") attributes["rate"] = 0.1 * static_cast<double>(between(0, 9));
    if (type == "local_response_normalization")
      attributes = {{"size", 2 * between(0, 3) + 1}, {"alpha", 0.3}, {"beta", chance() ? 0.75 : 0.6}, {"bias", 1.5}};
    if (type == "softmax_cross_entropy" || type == "mean_loss") attributes["weight"] = 0.5;
    if (type == "softmax_cross_entropy" && chance())
      attributes.update({{"ignored_label", 0}, {"mean_over", chance() ? "counted" : "all"}});
    if (type == "add") inputs.resize(between(2, 4), shape);
    if (type == "stack") inputs.resize(between(1, 5), shape);
    if (type == "sub" || type == "mul") inputs.resize(2, shape);
    if (type == "embedding") attributes = {{"vocabulary", vocabulary}, {"channels", between(1, 9)}};
    if (type == "embedding" && between(0, 3) == 0) attributes["trained"] = false;
    if (type == "batch_norm")
      attributes = {{"epsilon", 0.1},
                    {"activation", chance() ? "relu" : "none"},
                    {"statistics", between(0, 3) > 0 ? "global" : "local"},
                    {"trained", between(0, 3) > 0}};
    if (type == "layer_norm" || type == "rms_norm") {
      inputs[0][rank == 4 ? 1 : static_cast<size_t>(rank - 1)] =
          between(4, 11);  // of very few features little but rounding is left
      attributes["epsilon"] = 0.01;
      if (between(0, 3) == 0) attributes["affine"] = false;
    }
    if (type == "top_k_gating" || type == "dispatch" || type == "combine") gating_attributes(attributes);
    if (type == "load_balancing_loss") attributes = {{"group_samples", between(1, 3)}, {"weight", 0.5}};
    if (type == "dispatch" || type == "combine") inputs.push_back({"batch", shape[1], between(2, 6)});
    if (type == "lstm") lstm_inputs(inputs, attributes);
    if (type == "attention") {
      inputs.push_back({"batch", between(1, 5), between(1, 6)});
      attributes["out_features"] = between(1, 7);
    }
    if (type == "multi_head_attention") attention_attributes(inputs, attributes);
    if (type == "matmul") {
      const bool transposed = chance();
      const int64_t columns = between(1, 6);
      inputs.push_back(transposed ? Json{"batch", columns, shape[2]} : Json{"batch", shape[2], columns});
      attributes = {{"transpose", transposed}, {"scale", chance() ? 1.0 : 0.25}};
    }
    if (type == "concat") {
      const int64_t axis = between(1, rank - 1);
      attributes["axis"] = axis;
      for (int64_t more = between(1, 3); more > 0; --more) {
        inputs.push_back(shape);
        inputs.back()[static_cast<size_t>(axis)] = between(1, 7);
      }
    }
    if (type == "slice" || type == "split" || type == "pad" || type == "transpose" || type == "reshape")
      rearranging_attributes(type, shape, attributes);
    return wrap(type, inputs, attributes);
  }

  Values values(const Shape& shape) {
    Values result(static_cast<size_t>(volume(shape)));
    // what a float holds, so that both sides see the same
    for (double& value : result) value = static_cast<float>(normal());
    return result;
  }

  Degrees degrees(const OperatorDefinition& definition) {
    Vector<int> result;
    // local statistics: only the whole is the reference
    const bool whole = definition.type() == "batch_norm" && !definition.may_have_statistics();
    for (const ParallelDimension& dimension : definition.dimensions())
      result.push_back(whole ? 1 : static_cast<int>(between(1, std::min<int64_t>(3, dimension.size))));
    return result;
  }

  // A graph with an operator "tested" of `type` on inputs of these shapes.
  Json wrap(const std::string& type, const Vector<Json>& shapes, const Json& attributes) {
    return wrap(type, shapes, attributes, between(1, 6));
  }

  static Json wrap(const std::string& type, const Vector<Json>& shapes, const Json& attributes, int64_t batch) {
    Json inputs = Json::array(), names = Json::array();
    for (size_t i = 0; i < shapes.size(); ++i) {
      names.push_back("x" + std::to_string(i));
      inputs.push_back({{"name", names.back()}, {"shape", shapes[i]}, {"dtype", type == "embedding" ? "i32" : "f32"}});
    }
    Json op = {{"name", "tested"}, {"type", type}, {"attributes", attributes}};
    if (type == "softmax_cross_entropy") {
      Json label = shapes[0];
      label.erase(label.size() - 1);
      inputs.push_back({{"name", "label"}, {"shape", label}, {"dtype", "i32"}});
      names.push_back("label");
    }
    Json operators = Json::array();
    if (type == "dispatch" || type == "combine") {  // slots come from a gating alone, to which the attributes go
      operators.push_back(
          {{"name", "gating"}, {"type", "top_k_gating"}, {"inputs", {"x1"}}, {"attributes", attributes}});
      op.erase("attributes");
      names = {"x0", "gating"};
    }
    if (type == "combine") {
      operators.push_back({{"name", "dispatched"}, {"type", "dispatch"}, {"inputs", names}});
      names = {"dispatched", "gating", "gating:weight"};
    }
    op["inputs"] = names;
    operators.push_back(op);
    if (type != "softmax_cross_entropy") {  // a graph needs a loss
      inputs.push_back({{"name", "z"}, {"shape", {"batch", 2}}, {"dtype", "f32"}});
      inputs.push_back({{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}});
      operators.push_back({{"name", "loss"}, {"type", "softmax_cross_entropy"}, {"inputs", {"z", "label"}}});
    }
    return {
        {"format", "ffgraph/1"}, {"name", "one"}, {"batch_size", batch}, {"inputs", inputs}, {"operators", operators}};
  }

 private:
  void relative_bias_attributes(Json& attributes) {
    const std::string directions = Vector<std::string>{"both", "past", "signed"}[between(0, 2)];
    const int64_t buckets = 2 * between(1, 8);
    attributes = {{"buckets", buckets}, {"directions", directions}};
    if (directions != "signed" && chance()) return void(attributes["max_distance"] = buckets + between(0, 9));
    Json boundaries = Json::array();
    int64_t boundary = directions == "signed" ? between(-9, 0) : 1;
    for (int64_t left = between(0, buckets / 2 - 1); left > 0; --left, boundary += between(0, 2))
      boundaries.push_back(boundary);
    attributes["boundaries"] = boundaries;
  }

  // Letters in both operands and the output, in one operand and the output, in both operands alone; in any order.
  Json einsum_graph() {
    const bool parameter = chance();
    std::string letters = "GSECMHgsecmh", tensors[3];
    std::shuffle(letters.begin(), letters.end(), random_);
    letters.resize(static_cast<size_t>(between(1, Block::max_rank)));
    for (char letter : letters) {
      const int64_t absent = between(0, 3);  // 3: in all
      for (int64_t tensor = 0; tensor < 3; ++tensor)
        if (tensor != absent) tensors[tensor] += letter;
    }
    for (std::string& tensor : tensors) std::shuffle(tensor.begin(), tensor.end(), random_);
    const int64_t batch = between(1, 5);
    Json sizes = Json::object(), own = Json::object();
    for (char letter : letters) sizes[std::string(1, letter)] = between(1, 5);
    for (int64_t input = 0; input < (parameter ? 1 : 2); ++input) sizes[tensors[input].substr(0, 1)] = batch;
    Vector<Json> inputs;
    for (int64_t input = 0; input < (parameter ? 1 : 2); ++input) {
      inputs.push_back(Json::array({"batch"}));
      for (size_t axis = 1; axis < tensors[input].size(); ++axis)
        inputs.back().push_back(sizes[tensors[input].substr(axis, 1)]);
    }
    Json attributes = {{"equation", tensors[0] + ", " + tensors[1] + " -> " + tensors[2]}};
    for (char letter : tensors[1])
      if (tensors[0].find(letter) == std::string::npos) own[std::string(1, letter)] = sizes[std::string(1, letter)];
    if (parameter && !own.empty()) attributes["sizes"] = own;
    if (parameter && between(0, 3) == 0) attributes["trained"] = false;
    return wrap("einsum", inputs, attributes, batch);
  }
  void conv_attributes(Json& attributes, int64_t groups) {
    attributes = {{"out_channels", between(1, 6) * groups},
                  {"kernel", {between(1, 3), between(1, 4)}},
                  {"stride", {between(1, 3), between(1, 2)}},
                  {"groups", groups},
                  {"bias", chance()},
                  {"activation", chance() ? "relu" : "none"}};
    if (chance())
      attributes["padding"] = {between(0, attributes["kernel"][0].get<int64_t>() - 1),
                               between(0, attributes["kernel"][1].get<int64_t>() - 1)};
    if (between(0, 3) == 0) {
      attributes["dilation"] = {2, 1};
      attributes["kernel"] = {2, 3};
      attributes["padding"] = {1, 1};
    }
  }
  void gating_attributes(Json& attributes) {
    const int64_t top_k = Vector<int64_t>{1, 2, 2, 3, 5}[between(0, 4)];
    const bool normalized = top_k > 1 && between(0, 2) > 0;
    attributes = {{"top_k", top_k},
                  {"capacity_factor", Vector<double>{0.3, 0.8, 1, 1.25, 100}[between(0, 4)]},
                  {"group_samples", between(1, 3)},
                  {"normalize", normalized},
                  {"random_routing", top_k == 2 && normalized && chance()}};
  }
  void attention_attributes(Vector<Json>& inputs, Json& attributes) {
    const int64_t key_value_heads = between(1, 3), heads = key_value_heads * between(1, 3);
    const bool rotary = chance();
    inputs[0] = {"batch", between(1, 5), heads * (rotary ? 2 * between(1, 2) : between(1, 4))};
    attributes = {{"heads", heads}, {"causal", chance()}, {"bias", chance()}};
    if (between(0, 3) == 0) attributes["head_channels"] = 2 * between(1, 3);
    if (key_value_heads < heads || chance()) attributes["key_value_heads"] = key_value_heads;
    if (rotary) attributes["rotary_base"] = chance() ? 10000 : 3;
    if (rotary && chance()) attributes["rotary_channels"] = 2;
  }
  // Some of the axes after the sample: of a parameter at least one, of a second input not all.
  void broadcast_attributes(Vector<Json>& inputs, Json& attributes) {
    const Json shape = inputs[0];
    const int64_t others = static_cast<int64_t>(shape.size()) - 1;
    const bool parameter = chance();
    Vector<int64_t> axes;
    for (int64_t axis = 1; axis <= others; ++axis) axes.push_back(axis);
    std::shuffle(axes.begin(), axes.end(), random_);
    axes.resize(parameter ? between(1, others) : between(0, others - 1));
    if (!parameter) axes.push_back(0);
    std::sort(axes.begin(), axes.end());
    attributes = {{"axes", axes}};
    if (parameter) return;
    Json second = Json::array();
    for (const int64_t axis : axes) second.push_back(shape[static_cast<size_t>(axis)]);
    inputs.push_back(second);
  }
  void lstm_inputs(Vector<Json>& inputs, Json& attributes) {
    attributes["hidden"] = between(1, 7);
    if (chance()) return;
    inputs.push_back({"batch", attributes["hidden"]});
    inputs.push_back({"batch", attributes["hidden"]});
  }
  void rearranging_attributes(const std::string& type, const Json& shape, Json& attributes) {
    const int64_t rank = static_cast<int64_t>(shape.size()), axis = rank > 1 ? between(1, rank - 1) : 0;
    const auto size = [&](int64_t a) { return shape[static_cast<size_t>(a)].get<int64_t>(); };
    if (type == "slice") {
      const int64_t begin = between(0, size(axis) - 1);
      attributes = {{"axis", axis}, {"begin", begin}, {"end", between(begin + 1, size(axis))}};
    } else if (type == "split") {
      attributes = {{"axis", axis}, {"sizes", Json::array()}};
      for (int64_t rest = size(axis); rest > 0;) {
        const int64_t part = between(1, rest);
        attributes["sizes"].push_back(part);
        rest -= part;
      }
    } else if (type == "pad") {
      for (int64_t a = 1; a < rank; ++a) attributes["padding"].push_back({between(0, 3), between(0, 3)});
    } else if (type == "transpose") {
      Vector<int64_t> axes;
      for (int64_t a = 1; a < rank; ++a) axes.push_back(a);
      std::shuffle(axes.begin(), axes.end(), random_);
      attributes["axes"] = axes;
    } else {
      int64_t elements = 1;
      for (int64_t a = 1; a < rank; ++a) elements *= size(a);
      for (int64_t factor = between(1, 3); factor > 1; --factor)
        for (int64_t divisor = between(2, 6); divisor > 1; --divisor)
          if (elements % divisor == 0) {
            attributes["shape"].push_back(divisor);
            elements /= divisor;
            break;
          }
      attributes["shape"].push_back(elements);
    }
  }
  void pool_attributes(Json& attributes) {
    const int64_t kernel = between(1, 4);
    attributes = {{"method", chance() ? "max" : "average"},
                  {"kernel", kernel},
                  {"stride", between(1, 3)},
                  {"padding", between(0, kernel / 2)}};
    if (chance()) attributes["ceil"] = true;
    else if (chance()) attributes["count_padding"] = true;
  }

  std::mt19937 random_;
};

// A partial sum is what the whole would give if all that other shares work on were zero.
inline reference::Operands operands_of_share(const OperatorDefinition& definition, const Block& part,
                                             const reference::Operands& whole) {
  reference::Operands share = whole;
  const auto keep = [](Values& values, const Shape& shape, const Block& block) {
    Values kept(values.size(), 0);
    for_each_element(shape, block, [&](size_t w, size_t) { kept[w] = values[w]; });
    values = std::move(kept);
  };
  for (size_t d = 0; d < definition.dimensions().size(); ++d) {
    const ParallelDimension& dimension = definition.dimensions()[d];
    if (dimension.kind != DimensionKind::reduction || definition.is_loss()) continue;
    if (part[static_cast<int>(d)].size() == dimension.size) continue;
    for (size_t i = 0; i < whole.inputs.size(); ++i)
      if (definition.inputs()[i].type == DataType::f32)
        keep(share.inputs[i], definition.inputs()[i].shape, definition.input_block(static_cast<int>(i), part));
    for (size_t p = 0; p < whole.parameters.size(); ++p)
      keep(share.parameters[p], definition.parameters()[p].shape,
           definition.parameter_block(static_cast<int>(p), part));
  }
  return share;
}

// Gradients of parameters are compared with this at least. Where summands cancel it is their size: in sums over a batch
// that is normalized, and in those of attention's queries and keys, which are 0 with a single key.
inline double least_scale(const OperatorDefinition& definition) {
  return definition.type() == "batch_norm" || definition.type() == "multi_head_attention" ? 1 : 1e-3;
}

// One task's kernel, both phases, against the reference on the whole tensors.
inline void check_part(Backend& backend, const KernelCase& of, const reference::Operands& whole,
                       const Vector<Values>& gradients, const reference::Randomness& randomness, double tolerance) {
  const OperatorDefinition& definition = of.definition;
  const Block part = definition.part(of.degrees, of.part);
  const reference::Operands operands = operands_of_share(definition, part, whole);
  INFO("part " << to_string(part) << ", " << definition.signature(part));
  Vector<Buffer> inputs, parameters, outputs, input_gradients, parameter_gradients, output_gradients;
  KernelArguments arguments;
  arguments.iteration = randomness.iteration;
  for (size_t i = 0; i < operands.inputs.size(); ++i) {
    const TensorSpec& spec = definition.inputs()[i];
    const Block block = definition.input_block(static_cast<int>(i), part);
    inputs.emplace_back(backend, spec.shape, block, true).fill(operands.inputs[i], spec.type);
    arguments.inputs.push_back(inputs.back().data());
    input_gradients.emplace_back(backend, spec.shape, block, true);
    arguments.input_gradients.push_back(
        definition.differentiable_input(static_cast<int>(i)) ? input_gradients.back().data() : nullptr);
  }
  for (size_t p = 0; p < operands.parameters.size(); ++p) {
    const Block block = definition.parameter_block(static_cast<int>(p), part);
    parameters.emplace_back(backend, definition.parameters()[p].shape, block, false)
        .fill(operands.parameters[p], DataType::f32);
    arguments.parameters.push_back(parameters.back().data());
    parameter_gradients.emplace_back(backend, definition.parameters()[p].shape, block, false);
    arguments.parameter_gradients.push_back(definition.parameters()[p].trained ? parameter_gradients.back().data()
                                                                               : nullptr);
  }
  Vector<Values> inside;  // the output gradient, zero outside the part; a loss has none
  for (size_t o = 0; o < gradients.size(); ++o) {
    const Shape& shape = definition.outputs()[o].shape;
    const Block block = definition.output_block(static_cast<int>(o), part);
    outputs.emplace_back(backend, shape, block, true);
    arguments.outputs.push_back(outputs.back().data());
    inside.emplace_back(gradients[o].size(), definition.is_loss() ? 1.0 : 0.0);
    for_each_element(shape, block, [&](size_t w, size_t) { inside.back()[w] = gradients[o][w]; });
    output_gradients.emplace_back(backend, shape, block, true).fill(gradients[o], DataType::f32);
    if (!definition.is_loss()) arguments.output_gradients.push_back(output_gradients.back().data());
  }
  auto kernel = backend.make_kernel(
      {definition, part, Vector<bool>(inputs.size(), true), randomness.operator_name, randomness.seed});
  const reference::Reference judge = reference::make_reference(definition, randomness);
  std::optional<Buffer> statistics;
  // kernels are used again and again; the second time gradients are added up
  for (int repetition = 0; repetition < 2; ++repetition) {
    arguments.accumulate.assign(parameters.size(), repetition == 1);
    if (definition.has_statistics(of.degrees, /*backward=*/false)) {
      statistics.emplace(definition.gathers_statistics()
                             ? gathered_statistics(backend, of, *kernel, arguments, operands)
                             : whole_batch_sums(backend, definition, part, operands));
      arguments.statistics = statistics->data();
      if (definition.gathers_statistics()) arguments.statistics_slots = of.degrees.back();
    }
    if (definition.type() == "multi_head_attention")
      REQUIRE(kernel->workspace_bytes() <= definition.workspace_bytes(part));
    kernel->forward(arguments);
    const Vector<Values> expected = judge.forward(operands);
    for (size_t o = 0; o < outputs.size(); ++o)
      REQUIRE(outputs[o].difference(expected[o], 1e-3, definition.outputs()[o].type) < tolerance);
    // outside of the part the gradient is 0: its sums are all
    if (definition.has_statistics(of.degrees, /*backward=*/true)) kernel->backward_statistics(arguments);
    kernel->backward(arguments);
    const reference::Gradients expected_gradients = judge.backward(operands, inside);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (arguments.input_gradients[i])
        REQUIRE(input_gradients[i].difference(expected_gradients.inputs[i]) < tolerance);
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (!definition.parameters()[p].trained) continue;
      Values expected_sum = expected_gradients.parameters[p];
      for (double& value : expected_sum) value *= repetition + 1;
      REQUIRE(parameter_gradients[p].difference(expected_sum, least_scale(definition)) < tolerance);
    }
  }
}

struct Drawn {
  Graph graph;
  reference::Operands operands;
  Vector<Values> gradients;
  const OperatorDefinition& definition() const {
    for (const Operator& op : graph.operators)
      if (op.name == "tested") return *op.definition;
    throw InputError("no operator is tested");
  }
};

// Slots [batch, length, choices] as a gating could have given them: of each group different ones, and some -1.
inline void draw_slots(Cases& cases, const TensorSpec& spec, Values& slots) {
  const Routing& routing = *spec.routing;
  const int64_t choices = routing.group_samples * spec.shape[1] * spec.shape[2];
  for (int64_t first = 0; first < static_cast<int64_t>(slots.size()); first += choices) {
    Vector<int64_t> free;
    for (int64_t slot = 0; slot < routing.slots(); ++slot) free.push_back(slot);
    for (int64_t choice = 0; choice < choices; ++choice) {
      slots[first + choice] = -1;
      if (free.empty() || cases.between(0, 4) == 0) continue;
      std::swap(free[cases.between(0, free.count() - 1)], free.back());
      slots[first + choice] = static_cast<double>(free.back());
      free.pop_back();
    }
  }
}

// Random values for the operator "tested" of the graph in this text. Nothing where its attributes do not fit its
// shapes.
inline std::optional<Drawn> draw_values(Cases& cases, const std::string& text) {
  try {
    Drawn drawn{parse_graph(parse_json(text, "test")), {}, {}};
    if (const auto* norm = dynamic_cast<const BatchNorm*>(&drawn.definition()); norm && norm->elements_per_channel < 6)
      return std::nullopt;  // of very few elements little but rounding is left
    const OperatorDefinition& definition = drawn.definition();
    for (size_t i = 0; i < definition.inputs().size(); ++i) {
      const TensorSpec& spec = definition.inputs()[i];
      drawn.operands.inputs.push_back(cases.values(spec.shape));
      if (definition.type() == "log" || definition.type() == "pow")  // of what it is defined for, far enough from 0
        for (double& value : drawn.operands.inputs.back()) value = static_cast<float>(std::abs(value) + 0.25);
      if (spec.routing) draw_slots(cases, spec, drawn.operands.inputs.back());
      else if (spec.type == DataType::i32)
        for (double& index : drawn.operands.inputs.back())
          index = static_cast<double>(cases.between(0, definition.index_limit(static_cast<int>(i)) - 1));
    }
    for (const ParameterSpec& spec : definition.parameters()) {
      drawn.operands.parameters.push_back(cases.values(spec.shape));
      // far out on tanh and softmax little but rounding is left of the gradients
      if (definition.type() == "attention" || definition.type() == "multi_head_attention")
        for (double& value : drawn.operands.parameters.back()) value *= 0.25;
    }
    for (const TensorSpec& spec : definition.outputs())
      drawn.gradients.push_back(definition.is_loss() ? Values(static_cast<size_t>(volume(spec.shape)), 1.0)
                                                     : cases.values(spec.shape));
    return drawn;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// The same of a random graph.
inline std::optional<Drawn> draw(Cases& cases, const std::string& type, std::string& text) {
  text = cases.graph(type).dump();
  return draw_values(cases, text);
}

// The first, the last and a random part of random degrees.
inline void check_parts(Backend& backend, Cases& cases, const Drawn& drawn, double tolerance) {
  const Degrees degrees = cases.degrees(drawn.definition());
  int64_t parts = 1;
  for (int degree : degrees) parts *= degree;
  for (int64_t part : {int64_t{0}, cases.between(0, parts - 1), parts - 1})
    check_part(backend, {drawn.definition(), degrees, part}, drawn.operands, drawn.gradients,
               {"tested", 7, cases.between(0, 5)}, tolerance);
}

// Losses of parts by class where the largest logit is there several times, or far from the others, with every label.
inline void check_losses_by_class(Backend& backend, double tolerance) {
  const std::string text = R"({"format":"ffgraph/1","name":"one","batch_size":20,"inputs":[
    {"name":"x","shape":["batch",5],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],"operators":[
    {"name":"tested","type":"softmax_cross_entropy","inputs":["x","label"]}]})";
  Cases cases(1);
  auto drawn = draw_values(cases, text);
  REQUIRE(drawn);
  const double rows[4][5] = {{1, 3, 3, 0, 3}, {-200, 0, 200, 1, 2}, {2, 2, 2, 2, 2}, {500, 501, 100, 499, 501}};
  for (size_t sample = 0; sample < 20; ++sample) {
    std::copy(rows[sample / 5], rows[sample / 5] + 5,
              drawn->operands.inputs[0].begin() + static_cast<int64_t>(5 * sample));
    drawn->operands.inputs[1][sample] = static_cast<double>(sample % 5);
  }
  for (int degree = 1; degree <= 5; ++degree)
    for (int part = 0; part < degree; ++part)
      check_part(backend, {drawn->definition(), {1, degree}, part}, drawn->operands, drawn->gradients, {"tested", 7, 0},
                 tolerance);
}

// `count` random cases of an operator type, of each the first, the last and a random part.
inline void check_random_cases(Backend& backend, const std::string& type, int count, double tolerance,
                               uint32_t first_seed = 0) {
  int checked = 0;
  for (uint32_t seed = first_seed; checked < count; ++seed) {
    REQUIRE(seed - first_seed < 1000);
    Cases cases(seed);
    std::string text;
    const auto drawn = draw(cases, type, text);
    if (!drawn) continue;
    INFO("seed " << seed << ": " << text);
    REQUIRE(drawn->definition().type() == type);
    ++checked;
    check_parts(backend, cases, *drawn, tolerance);
  }
}

}  // namespace ff::kernel_cases
