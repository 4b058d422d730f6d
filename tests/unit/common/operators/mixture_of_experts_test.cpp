// What top_k_gating, load_balancing_loss, dispatch, expert_linear and combine mean: shapes, blocks, wrong input.
#include <catch2/catch.hpp>

#include "common/graph.h"
#include "common/operators/experts.h"
#include "common/operators/gating.h"
#include "tests/support/message_of.h"

using namespace ff;

namespace {

// Tokens [batch, 5, 6] and logits [batch, 5, experts]; a layer of experts, and a loss of something else.
Json layer(int64_t batch, int64_t experts, const Json& gating) {
  Json graph = Json::parse(R"({"format": "ffgraph/1", "name": "g", "batch_size": 1,
    "inputs": [{"name": "x", "shape": ["batch", 5, 6], "dtype": "f32"},
               {"name": "logits", "shape": ["batch", 5, 1], "dtype": "f32"},
               {"name": "scores", "shape": ["batch", 3], "dtype": "f32"},
               {"name": "label", "shape": ["batch"], "dtype": "i32"},
               {"name": "numbers", "shape": ["batch", 5, 2], "dtype": "i32"}],
    "operators": [{"name": "gating", "type": "top_k_gating", "inputs": ["logits"], "attributes": {}},
                  {"name": "dispatch", "type": "dispatch", "inputs": ["x", "gating"]},
                  {"name": "experts", "type": "expert_linear", "inputs": ["dispatch"],
                   "attributes": {"out_features": 7}},
                  {"name": "combine", "type": "combine", "inputs": ["experts", "gating", "gating:weight"]},
                  {"name": "balance", "type": "load_balancing_loss", "inputs": ["logits"], "attributes": {}},
                  {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["scores", "label"]}]})");
  graph["batch_size"] = batch;
  graph["inputs"][1]["shape"][2] = experts;
  graph["operators"][0]["attributes"] = gating;
  if (gating.contains("group_samples")) graph["operators"][4]["attributes"]["group_samples"] = gating["group_samples"];
  return graph;
}

Graph parse_layer(const Json& json) { return parse_graph(parse_json(json.dump(), "g")); }
std::string error(const Json& json) {
  return message_of<InputError>([&] { parse_layer(json); });
}
int64_t capacity(int64_t batch, int64_t experts, const Json& gating) {
  return dynamic_cast<const TopKGating&>(*parse_layer(layer(batch, experts, gating)).operators[0].definition)
      .routing.capacity;
}

}  // namespace

TEST_CASE("capacity is a share of a group's choices, rounded up, from one to all of its tokens") {
  CHECK(capacity(4, 5, Json::object()) == 2);           // 2 choices of 5 tokens, 5 experts
  CHECK(capacity(4, 4, {{"group_samples", 4}}) == 10);  // 2 * 20 / 4
  CHECK(capacity(4, 3, {{"group_samples", 2}}) == 7);   // 2 * 10 / 3 = 6.67
  CHECK(capacity(4, 5, {{"top_k", 1}}) == 1);           // 5 / 5
  CHECK(capacity(4, 5, {{"top_k", 4}}) == 4);
  CHECK(capacity(4, 5, {{"capacity_factor", 0.6}}) == 2);  // 1.2
  CHECK(capacity(4, 5, {{"capacity_factor", 0.001}}) == 1);
  CHECK(capacity(4, 5, {{"capacity_factor", 1e9}}) == 5);
  CHECK(capacity(4, 2, {{"capacity_factor", 0.6}}) == 3);  // 0.6 * 5 is a rounding above 3 in some orders
  CHECK(capacity(10, 5, {{"capacity_factor", 1.1}, {"group_samples", 5}}) == 11);  // 1.1 * 10 is a rounding above 11
}

TEST_CASE("a mixture of experts has these shapes and is split by whole groups") {
  const Graph graph = parse_layer(layer(6, 4, {{"group_samples", 2}}));  // 3 groups of 10 tokens, 5 places an expert
  const auto shape = [&](int op) { return graph.operators[op].definition->outputs()[0].shape; };
  CHECK(shape(0) == Shape{6, 5, 2});
  CHECK(graph.operators[0].definition->outputs()[1].shape == Shape{6, 5, 2});
  CHECK(shape(1) == Shape{4, 15, 6});
  CHECK(shape(2) == Shape{4, 15, 7});
  CHECK(shape(3) == Shape{6, 5, 7});
  CHECK(shape(4) == Shape{3});
  for (int op : {0, 1, 3, 4}) {
    const OperatorDefinition& definition = *graph.operators[op].definition;
    CHECK(definition.dimensions()[0].name == "sample");
    CHECK(definition.dimensions()[0].kind == DimensionKind::sample);
    CHECK(definition.dimensions()[0].size == 3);
  }
  const OperatorDefinition &gating = *graph.operators[0].definition, &dispatch = *graph.operators[1].definition,
                           &experts = *graph.operators[2].definition, &combine = *graph.operators[3].definition;
  CHECK(gating.input_block(0, gating.part({3}, 1)) == Block{{2, 4}, {0, 5}, {0, 4}});
  const Block part = dispatch.part({3, 2}, 3);
  CHECK(dispatch.input_block(0, part) == Block{{2, 4}, {0, 5}, {3, 6}});
  CHECK(dispatch.input_block(1, part) == Block{{2, 4}, {0, 5}, {0, 2}});
  CHECK(dispatch.output_block(0, part) == Block{{0, 4}, {5, 10}, {3, 6}});
  const Block own = experts.part({3, 2, 1, 1}, 3);  // rows, then experts
  CHECK(experts.input_block(0, own) == Block{{2, 4}, {5, 10}, {0, 6}});
  CHECK(experts.output_block(0, own) == Block{{2, 4}, {5, 10}, {0, 7}});
  CHECK(experts.parameter_block(0, own) == Block{{2, 4}, {0, 7}, {0, 6}});
  CHECK(experts.parameter_block(1, own) == Block{{2, 4}, {0, 7}});
  CHECK(combine.input_block(0, combine.part({3, 1, 1}, 2)) == Block{{0, 4}, {10, 15}, {0, 7}});
  // partial sums: the first adds the bias; rows of two of the experts, and all of the tokens' slots
  const Block first = experts.part({1, 1, 1, 2}, 0), second = experts.part({1, 1, 1, 2}, 1);
  CHECK(experts.output_block(0, second) == experts.output_block(0, first));
  CHECK(experts.input_block(0, second) == Block{{0, 4}, {0, 15}, {3, 6}});
  CHECK(experts.parameter_block(0, second) == Block{{0, 4}, {0, 7}, {3, 6}});
  CHECK(experts.parameter_block(1, first) == Block{{0, 4}, {0, 7}});
  CHECK(experts.parameter_block(1, second).empty());
  CHECK(experts.signature(second) == experts.signature(first) + " without bias");
  const Block half = combine.part({1, 1, 2}, 1);
  CHECK(combine.input_block(0, half) == Block{{2, 4}, {0, 15}, {0, 7}});
  CHECK(combine.input_block(2, half) == Block{{0, 6}, {0, 5}, {0, 2}});
  CHECK(combine.output_block(0, half) == Block{{0, 6}, {0, 5}, {0, 7}});
  CHECK(!graph.tensors[graph.operators[0].outputs[0]].has_gradient);  // numbers have none
}

TEST_CASE("wrong mixtures of experts are refused") {
  const auto gating = [](const Json& attributes, int64_t experts = 4) { return error(layer(6, experts, attributes)); };
  CHECK(gating({{"capacity_factor", 0}}) ==
        "g: /operators/0/attributes/capacity_factor: found 0, expected a number above 0");
  CHECK(gating({{"capacity_factor", -1}}) ==
        "g: /operators/0/attributes/capacity_factor: found -1, expected a number above 0");
  CHECK(gating({{"top_k", 17}}).find("/operators/0/attributes/top_k: found 17") != std::string::npos);
  CHECK(gating({{"top_k", 5}}) ==
        "g: /operators/0/inputs/0: has logits of 4 experts, top_k_gating expects from 5 to 8192");
  CHECK(gating({{"top_k", 1}, {"normalize", true}}) ==
        "g: /operators/0/attributes/normalize: found true, but the one weight of top_k 1 would always be 1");
  CHECK(gating({{"group_samples", 4}}) ==
        "g: /operators/0/attributes/group_samples: found 4, expected a divisor of the batch of 6");
  CHECK(gating({{"top_k", 1}, {"random_routing", true}}) ==
        "g: /operators/0/attributes/random_routing: found true, but only with top_k 2 and normalized weights is the "
        "second expert dropped at random");
  CHECK(gating({{"top_k", 3}, {"random_routing", true}}).find("random_routing: found true") != std::string::npos);
  CHECK(gating(Json::object(), 1) ==
        "g: /operators/0/inputs/0: has logits of 1 experts, top_k_gating expects from 2 to 8192");
  CHECK(gating(Json::object(), 8193) ==
        "g: /operators/0/inputs/0: has logits of 8193 experts, top_k_gating expects from 2 to 8192");

  Json graph = layer(6, 4, Json::object());
  graph["operators"][1]["inputs"][1] = "numbers";
  CHECK(error(graph) == "g: /operators/1/inputs/1: is no output of a top_k_gating, which dispatch takes slots from");
  graph = layer(6, 4, Json::object());
  graph["operators"][1]["inputs"][1] = "gating:weight";
  CHECK(error(graph) == "g: /operators/1/inputs/1: has type f32, dispatch expects i32");
  graph = layer(6, 4, Json::object());
  graph["operators"][3]["inputs"][2] = "logits";
  CHECK(error(graph) == "g: /operators/3/inputs/2: has shape [6, 5, 4], expected a weight for each slot of [6, 5, 2]");
  // rows that another gating's slots do not mean
  graph = layer(6, 4, Json::object());
  graph["operators"].push_back({{"name", "other"},
                                {"type", "top_k_gating"},
                                {"inputs", {"logits"}},
                                {"attributes", {{"capacity_factor", 0.5}}}});
  graph["operators"][3]["inputs"] = {"experts", "other", "other:weight"};
  CHECK(error(graph) ==
        "g: /operators/3/inputs/0: has shape [4, 18, 7], expected [4, 12, 7]: rows of 4 experts with 2 places for each "
        "group");
  // a loss that has no labels does not make a training
  graph = layer(6, 4, Json::object());
  graph["operators"].erase(5);
  CHECK(error(graph) ==
        "g: /operators: its only loss is of type load_balancing_loss; training needs one of type "
        "softmax_cross_entropy or mean_loss");
}
