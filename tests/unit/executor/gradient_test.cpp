// Gradients of whole networks against finite differences of the training loss, along each parameter's own gradient.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "executor/trainer.h"
#include "executor/transport/in_process.h"

namespace ff {
namespace {

Json op(const std::string& name, const std::string& type, const Vector<std::string>& inputs,
        const Json& attributes = Json::object(), const std::string& group = "") {
  Json result = {{"name", name}, {"type", type}, {"inputs", inputs}};
  if (!attributes.empty()) result["attributes"] = attributes;
  if (!group.empty()) result["parameters"] = group;
  return result;
}

Json network(const Json& inputs, const Json& operators) {
  return {{"format", "ffgraph/1"}, {"name", "small"}, {"batch_size", 6}, {"inputs", inputs}, {"operators", operators}};
}

// Convolutions, batch normalization, a residual connection, pooling. Smooth: a relu has no derivative at its kink.
Json convolutional() {
  return network(
      {{{"name", "image"}, {"shape", {"batch", 3, 8, 8}}, {"dtype", "f32"}},
       {{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}}},
      {op("conv1", "conv2d", {"image"}, {{"out_channels", 4}, {"kernel", 3}, {"padding", 1}, {"bias", false}}),
       op("norm1", "batch_norm", {"conv1"}), op("tanh1", "tanh", {"norm1"}),
       op("conv2", "conv2d", {"tanh1"}, {{"out_channels", 4}, {"kernel", 3}, {"padding", 1}}),
       op("norm2", "batch_norm", {"conv2"}), op("sum", "add", {"norm2", "tanh1"}), op("gelu", "gelu", {"sum"}),
       op("pool", "pool2d", {"gelu"}, {{"method", "average"}, {"kernel", 2}}), op("mean", "mean", {"pool"}),
       op("scores", "linear", {"mean"}, {{"out_features", 5}}),
       op("loss", "softmax_cross_entropy", {"scores", "label"})});
}

// Two LSTM layers over four steps, attention over the first one's states, a loss at each step.
Json recurrent() {
  Json operators = Json::array();
  const auto at = [](const std::string& name, int t) { return name + ".t" + std::to_string(t); };
  Vector<std::string> states;
  for (int t = 0; t < 4; ++t) {
    operators.push_back(
        op(at("word", t), "embedding", {"token:" + std::to_string(t)}, {{"vocabulary", 9}, {"channels", 5}}, "word"));
    Vector<std::string> inputs{at("word", t)};
    if (t > 0) inputs.insert(inputs.end(), {at("first", t - 1), at("first", t - 1) + ":c"});
    operators.push_back(op(at("first", t), "lstm", inputs, {{"hidden", 6}}, "first"));
    states.push_back(at("first", t));
  }
  operators.push_back(op("states", "stack", states));
  for (int t = 0; t < 4; ++t) {
    Vector<std::string> inputs{at("word", t)};
    if (t > 0) inputs.insert(inputs.end(), {at("second", t - 1), at("second", t - 1) + ":c"});
    operators.push_back(op(at("second", t), "lstm", inputs, {{"hidden", 6}}, "second"));
    operators.push_back(
        op(at("attention", t), "attention", {at("second", t), "states"}, {{"out_features", 6}}, "attention"));
    operators.push_back(op(at("scores", t), "linear", {at("attention", t)}, {{"out_features", 9}}, "scores"));
    operators.push_back(op(at("loss", t), "softmax_cross_entropy", {at("scores", t), "label:" + std::to_string(t)},
                           {{"weight", 0.25}}));
  }
  return network({{{"name", "token"}, {"shape", {"batch"}}, {"dtype", "i32"}, {"steps", 4}},
                  {{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}, {"steps", 4}}},
                 operators);
}

// A transformer layer between an embedding and a projection that share their table.
Json transformer() {
  return network({{{"name", "token"}, {"shape", {"batch", 5}}, {"dtype", "i32"}},
                  {{"name", "label"}, {"shape", {"batch", 5}}, {"dtype", "i32"}}},
                 {op("words", "embedding", {"token"}, {{"vocabulary", 9}, {"channels", 8}}, "table"),
                  op("positions", "position_embedding", {"words"}), op("norm1", "layer_norm", {"positions"}),
                  op("attention", "multi_head_attention", {"norm1"}, {{"heads", 2}, {"causal", true}}),
                  op("projection", "linear", {"attention"}, {{"out_features", 8}}),
                  op("sum1", "add", {"projection", "positions"}), op("norm2", "layer_norm", {"sum1"}),
                  op("wide", "linear", {"norm2"}, {{"out_features", 16}}), op("gelu", "gelu", {"wide"}),
                  op("narrow", "linear", {"gelu"}, {{"out_features", 8}}), op("sum2", "add", {"narrow", "sum1"}),
                  op("scores", "linear", {"sum2"}, {{"out_features", 9}, {"bias", false}}, "table"),
                  op("loss", "softmax_cross_entropy", {"scores", "label"})});
}

// A layer of LLaMA: root mean squares, grouped queries with rotary positions, and a gated feed-forward layer (SwiGLU:
// Shazeer 2020, arXiv 2002.05202).
Json llama() {
  const auto linear = [](int features) { return Json{{"out_features", features}, {"bias", false}}; };
  return network(
      {{{"name", "token"}, {"shape", {"batch", 5}}, {"dtype", "i32"}},
       {{"name", "label"}, {"shape", {"batch", 5}}, {"dtype", "i32"}}},
      {op("words", "embedding", {"token"}, {{"vocabulary", 9}, {"channels", 16}}), op("norm1", "rms_norm", {"words"}),
       op("attention", "multi_head_attention", {"norm1"},
          {{"heads", 4}, {"key_value_heads", 2}, {"causal", true}, {"rotary_base", 100}}),
       op("projection", "linear", {"attention"}, linear(16)), op("sum1", "add", {"projection", "words"}),
       op("norm2", "rms_norm", {"sum1"}), op("gate", "linear", {"norm2"}, linear(24)), op("silu", "silu", {"gate"}),
       op("up", "linear", {"norm2"}, linear(24)), op("gated", "mul", {"silu", "up"}),
       op("down", "linear", {"gated"}, linear(16)), op("sum2", "add", {"down", "sum1"}),
       op("scores", "linear", {"sum2"}, linear(9)), op("loss", "softmax_cross_entropy", {"scores", "label"})});
}

// A mean of squares and one of logistic losses, and a cross entropy that ignores a label.
Json several_losses() {
  return network(
      {{{"name", "x"}, {"shape", {"batch", 5, 4}}, {"dtype", "f32"}},
       {{"name", "target"}, {"shape", {"batch", 5, 3}}, {"dtype", "f32"}},
       {{"name", "label"}, {"shape", {"batch", 5}}, {"dtype", "i32"}}},
      {op("hidden", "linear", {"x"}, {{"out_features", 3}}), op("difference", "sub", {"hidden", "target"}),
       op("square", "mul", {"difference", "difference"}), op("squares", "mean_loss", {"square"}, {{"weight", 0.5}}),
       op("softplus", "softplus", {"hidden"}), op("logistic", "mean_loss", {"softplus"}, {{"weight", -0.3}}),
       op("loss", "softmax_cross_entropy", {"hidden", "label"}, {{"ignored_label", 1}})});
}

void check_gradients(const Json& graph) {
  StrategyFile file{parse_graph(parse_json(graph.dump(), "small")), {}, {}, {}, Json::object(), false};
  file.strategy = single_device(file.graph);
  run_in_process(1, [&](Transport& transport) {
    const auto backend = make_cpu_backend(1);
    Trainer trainer(file, *backend, transport, {{0, 0, 0}, 3});  // a learning rate of 0: parameters stay
    const auto data = synthetic_data(file.graph, 3);
    Vector<int64_t> samples(file.graph.batch_size);
    std::iota(samples.begin(), samples.end(), 0);
    trainer.load_batch(*data, samples);
    trainer.run_iteration();
    const HostTensors gradients = gather_parameters(trainer.program(), ParameterData::gradient);
    const HostTensors weights = gather_parameters(trainer.program(), ParameterData::weight);
    for (const auto& [name, gradient] : gradients) {
      double square = 0;
      for (float value : gradient) square += static_cast<double>(value) * value;
      double size = 0;
      for (float value : weights.at(name)) size += static_cast<double>(value) * value;
      const double length = std::sqrt(square), step = 0.008 * std::clamp(std::sqrt(size), 0.5, 1.0);
      if (length < 1e-3) continue;  // a bias in front of a normalization
      const auto loss_at = [&, &name = name, &gradient = gradient](double distance) {
        HostTensors moved = weights;
        for (size_t i = 0; i < gradient.size(); ++i)
          moved[name][i] += static_cast<float>(distance / length * gradient[i]);
        set_parameters(trainer.program(), ParameterData::weight, moved);
        return trainer.run_iteration();
      };
      INFO(name);
      // Fourth order in the step: rounding of single precision allows no small one.
      const double slope =
          (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) / (12 * step);
      CHECK(slope == Approx(length).epsilon(2e-3).margin(2e-5));
    }
    set_parameters(trainer.program(), ParameterData::weight, weights);
  });
}

}  // namespace

TEST_CASE("gradients of a convolutional network equal finite differences") { check_gradients(convolutional()); }
TEST_CASE("gradients of a recurrent network equal finite differences") { check_gradients(recurrent()); }
TEST_CASE("gradients of a transformer equal finite differences") { check_gradients(transformer()); }
TEST_CASE("gradients of a layer of LLaMA equal finite differences") { check_gradients(llama()); }
TEST_CASE("gradients of several losses equal finite differences") { check_gradients(several_losses()); }

}  // namespace ff
