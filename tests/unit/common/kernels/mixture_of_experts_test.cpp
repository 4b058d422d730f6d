// What the gating decides on hand-made logits, and what becomes of tokens that no expert takes.
#include <catch2/catch.hpp>
#include <cmath>

#include "common/graph.h"
#include "common/kernels/backend.h"

using namespace ff;

namespace {

Graph layer(int64_t batch, int64_t length, int64_t experts, const Json& gating) {
  const Json tokens = {"batch", length, 2}, logits = {"batch", length, experts};
  const Json graph = {{"format", "ffgraph/1"},
                      {"name", "g"},
                      {"batch_size", batch},
                      {"inputs",
                       {{{"name", "x"}, {"shape", tokens}, {"dtype", "f32"}},
                        {{"name", "logits"}, {"shape", logits}, {"dtype", "f32"}},
                        {{"name", "scores"}, {"shape", {"batch", 2}}, {"dtype", "f32"}},
                        {{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}}}},
                      {"operators",
                       {{{"name", "gating"}, {"type", "top_k_gating"}, {"inputs", {"logits"}}, {"attributes", gating}},
                        {{"name", "dispatch"}, {"type", "dispatch"}, {"inputs", {"x", "gating"}}},
                        {{"name", "combine"}, {"type", "combine"}, {"inputs", {"dispatch", "gating", "gating:weight"}}},
                        {{"name", "loss"}, {"type", "softmax_cross_entropy"}, {"inputs", {"scores", "label"}}}}}};
  return parse_graph(parse_json(graph.dump(), "g"));
}

std::unique_ptr<Kernel> kernel_of(Backend& backend, const Graph& graph, int op) {
  const OperatorDefinition& definition = *graph.operators[op].definition;
  return backend.make_kernel(
      {definition, definition.whole(), Vector<bool>(definition.inputs().size(), true), graph.operators[op].name, 1});
}

struct Gated {
  Vector<int32_t> slots;
  Vector<float> weights;
};

Gated gate(const Graph& graph, Vector<float> logits, bool training = true, int64_t iteration = 0) {
  const auto backend = make_cpu_backend();
  const int64_t choices = volume(graph.operators[0].definition->outputs()[0].shape);
  Gated gated{Vector<int32_t>(static_cast<size_t>(choices)), Vector<float>(static_cast<size_t>(choices))};
  KernelArguments arguments;
  arguments.inputs = {logits.data()};
  arguments.outputs = {reinterpret_cast<float*>(gated.slots.data()), gated.weights.data()};
  arguments.training = training;
  arguments.iteration = iteration;
  kernel_of(*backend, graph, 0)->forward(arguments);
  return gated;
}

}  // namespace

TEST_CASE("first choices take places first, then second ones, each in the order of the tokens") {
  // 4 tokens, 3 experts, 2 places each: the choices are 0 1, 0 2, 0 1, 1 0
  const Graph graph = layer(1, 4, 3, {{"capacity_factor", 0.75}, {"random_routing", false}});
  const Gated gated = gate(graph, {3, 2, 1, 3, 1, 2, 3, 2, 1, 2, 3, 1});
  // Expert 0 is full after two tokens; expert 1 has the first choice of token 3 at place 0, then token 0's second.
  CHECK(gated.slots == Vector<int32_t>{0, 3, 1, 4, -1, -1, 2, -1});
  const float second = 1 / (1 + std::exp(1.0f)), first = 1 - second;
  const Vector<float> expected{first, second, first, second, 0, 0, first, 0};
  for (size_t i = 0; i < expected.size(); ++i) CHECK(gated.weights[i] == Approx(expected[i]));
}

TEST_CASE("of equal logits the lower expert comes first, with one expert a token its softmax gate counts") {
  const Gated two = gate(layer(1, 2, 3, {{"random_routing", false}}), {1, 1, 1, 0, 5, 5});
  CHECK(two.slots == Vector<int32_t>{0, 3, 2, 4});
  CHECK(two.weights == Vector<float>{0.5f, 0.5f, 0.5f, 0.5f});
  const Gated one = gate(layer(1, 2, 3, {{"top_k", 1}}), {1, 1, 1, 0, 5, 5});
  CHECK(one.slots == Vector<int32_t>{0, 1});
  CHECK(one.weights[0] == Approx(1.0 / 3));
}

TEST_CASE("each token chooses top_k experts, whose weights are their gates, or these over their sum") {
  // Two tokens, four experts; the third choices come after all second ones, and expert 2 has one place.
  const Vector<float> logits{4, 3, 2, 1, 1, 2, 3, 4};
  const Gated normal = gate(layer(1, 2, 4, {{"top_k", 3}, {"capacity_factor", 0.6}}), logits);
  CHECK(normal.slots == Vector<int32_t>{0, 1, -1, 3, 2, -1});
  const float sum = std::exp(0.0f) + std::exp(-1.0f) + std::exp(-2.0f), all = sum + std::exp(-3.0f);
  CHECK(normal.weights[0] == Approx(1 / sum));
  CHECK(normal.weights[1] == Approx(std::exp(-1.0f) / sum));
  CHECK(normal.weights[2] == 0);
  const Gated gates = gate(layer(1, 2, 4, {{"top_k", 3}, {"normalize", false}}), logits);
  CHECK(gates.slots == Vector<int32_t>{0, 2, 5, 6, 4, 3});
  for (int k = 0; k < 3; ++k) CHECK(gates.weights[k] == Approx(std::exp(-static_cast<float>(k)) / all));
}

TEST_CASE("experts whose logits are no numbers come last, and are different ones") {
  const Gated gated = gate(layer(1, 1, 3, {{"top_k", 3}, {"capacity_factor", 10}}), {NAN, 1, NAN});
  CHECK(gated.slots == Vector<int32_t>{1, 0, 2});
}

TEST_CASE("second choices are kept at random with twice their weight, in training alone, and take places if kept") {
  // 2000 groups of one token; the second weight is 0.2
  const Graph graph = layer(2000, 1, 2, {{"capacity_factor", 10}});
  Vector<float> logits;
  for (int token = 0; token < 2000; ++token) logits.insert(logits.end(), {std::log(4.0f), 0});
  const auto kept = [](const Gated& gated) {
    int count = 0;
    for (size_t i = 1; i < gated.slots.size(); i += 2) {
      CHECK((gated.weights[i] == 0) == (gated.slots[i] == -1));
      count += gated.slots[i] != -1;
    }
    return count;
  };
  const Gated first = gate(graph, logits), again = gate(graph, logits), next = gate(graph, logits, true, 1);
  CHECK(kept(first) == Approx(800).epsilon(0.1));
  CHECK(first.slots == again.slots);
  CHECK(first.slots != next.slots);
  CHECK(kept(gate(graph, logits, false)) == 2000);
  // One group of all: those that are kept have places 0, 1, 2 ... of expert 1.
  const Graph together = layer(1, 2000, 2, {{"capacity_factor", 10}});
  const Gated gated = gate(together, logits);
  int32_t place = 2000;  // slots of expert 1 come after those of expert 0
  for (size_t i = 1; i < gated.slots.size(); i += 2)
    if (gated.slots[i] != -1) CHECK(gated.slots[i] == place++);
}

TEST_CASE("routing that drops every token gives zeros and no gradients") {
  const Graph graph = layer(2, 2, 2, Json::object());  // 2 places for each of 2 experts and 2 groups
  const auto backend = make_cpu_backend();
  const Vector<int32_t> none(8, -1);
  const Vector<float> x(8, 3), weights(8, 0), gradient(8, 5), rows(16, 2), row_gradient(16, 7);
  Vector<float> y(16, NAN), combined(8, NAN), dx(8, NAN), drows(16, NAN), dweights(8, NAN);
  KernelArguments arguments;
  arguments.inputs = {x.data(), none.data()};
  arguments.outputs = {y.data()};
  arguments.output_gradients = {row_gradient.data()};
  arguments.input_gradients = {dx.data(), nullptr};
  const auto dispatch = kernel_of(*backend, graph, 1);
  dispatch->forward(arguments);
  dispatch->backward(arguments);
  CHECK(y == Vector<float>(16, 0.0f));
  CHECK(dx == Vector<float>(8, 0.0f));
  arguments.inputs = {rows.data(), none.data(), weights.data()};
  arguments.outputs = {combined.data()};
  arguments.output_gradients = {gradient.data()};
  arguments.input_gradients = {drows.data(), nullptr, dweights.data()};
  const auto combine = kernel_of(*backend, graph, 2);
  combine->forward(arguments);
  combine->backward(arguments);
  CHECK(combined == Vector<float>(8, 0.0f));
  CHECK(drows == Vector<float>(16, 0.0f));
  CHECK(dweights == Vector<float>(8, 0.0f));
  // and of the gating: no weight depends on the logits
  const Vector<float> logits{1, 2, 1, 2, 2, 1, 2, 1};
  Vector<float> dlogits(8, NAN);
  Vector<int32_t> slots = none;
  arguments.inputs = {logits.data()};
  arguments.outputs = {reinterpret_cast<float*>(slots.data()), nullptr};
  arguments.output_gradients = {nullptr, gradient.data()};
  arguments.input_gradients = {dlogits.data()};
  kernel_of(*backend, graph, 0)->backward(arguments);
  CHECK(dlogits == Vector<float>(8, 0.0f));
}

TEST_CASE("a slot out of range names the operator, the slot and the limit") {
  const Graph graph = layer(1, 2, 2, Json::object());
  const auto backend = make_cpu_backend();
  const Vector<int32_t> slots{0, 4, -1, -1};
  const Vector<float> x(4, 1);
  Vector<float> y(8);
  KernelArguments arguments;
  arguments.inputs = {x.data(), slots.data()};
  arguments.outputs = {y.data()};
  CHECK_THROWS_WITH(kernel_of(*backend, graph, 1)->forward(arguments),
                    "dispatch: found the slot 4, expected one from -1 to 3");
}
