#include "common/sharding.h"

#include <catch2/catch.hpp>

#include "tests/support/message_of.h"

using namespace ff;

namespace {

Graph graph_of_three() {
  return parse_graph(parse_json(R"({"format": "ffgraph/1", "name": "three", "batch_size": 4,
    "inputs": [{"name": "x", "shape": ["batch", 8], "dtype": "f32"}, {"name": "y", "shape": ["batch"], "dtype": "i32"}],
    "operators": [{"name": "a", "type": "linear", "inputs": ["x"], "attributes": {"out_features": 8}},
                  {"name": "b1", "type": "linear", "inputs": ["a"], "attributes": {"out_features": 8},
                  "parameters": "shared"},
                  {"name": "relu", "type": "relu", "inputs": ["b1"]},
                  {"name": "b2", "type": "linear", "inputs": ["relu"], "attributes": {"out_features": 8},
                  "parameters": "shared"},
                  {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["b2", "y"]}]})",
                                "graph"));
}

StrategySettings written(const std::string& text) {
  StrategySettings settings;
  set_sharding(settings, text);
  return settings;
}

Vector<Synchronization> by_group(const std::string& text) {
  return sharding_by_group(graph_of_three(), written(text).sharding);
}

}  // namespace

TEST_CASE("sharding is one word, or one for each pattern of operators") {
  using enum Synchronization;
  CHECK(by_group("parameters").empty());
  CHECK(written("parameters").synchronization == sharded_parameters);
  CHECK(written("none").synchronization == all_reduce);
  CHECK(by_group("a=parameters") == Vector<Synchronization>{sharded_parameters, all_reduce});
  CHECK(by_group("b*=gradients,*=optimizer") == Vector<Synchronization>{sharded_optimizer, sharded_gradients});
  // b2 has the parameters of b1
  CHECK(by_group("*=none,b2=optimizer") == Vector<Synchronization>{all_reduce, sharded_optimizer});
  CHECK(by_group("b[1,2]=optimizer,a=none") == Vector<Synchronization>{all_reduce, sharded_optimizer});
  CHECK(written("a=optimizer,b1=parameters").synchronization == sharded_parameters);
  CHECK(written_sharding(written("b[1,2]=optimizer,a=none")) == "b[1,2]=optimizer,a=none");
  CHECK(written_sharding(written("gradients")) == "gradients");
  CHECK(sharding_to_json(written("b1=optimizer,*=gradients")).dump() == R"({"b1":"optimizer","*":"gradients"})");
  CHECK(sharding_to_json(written("gradients")).dump() == R"("gradients")");
}

TEST_CASE("what sharding cannot be is one message") {
  const auto message = [](const std::string& text) { return message_of<InputError>([&] { by_group(text); }); };
  CHECK(message("zero") == "found \"zero\"; known: none, optimizer, gradients, parameters");
  CHECK(message("a=optimiser") == "found \"optimiser\"; did you mean \"optimizer\"?");
  CHECK(message("a=optimizer,b") == "found \"b\", expected PATTERN=WORD, such as layer*=parameters");
  CHECK(message("conv=optimizer") == "no operator is called \"conv\"; known: a, b1, relu, b2, loss");
  CHECK(message("conv*=optimizer") == "no operator matches \"conv*\"; known: a, b1, relu, b2, loss");
  CHECK(message("relu=optimizer") == "\"relu\" names no operator with trained parameters");
  CHECK(message("b1=optimizer,b2=gradients") ==
        "\"b1\" and \"b2\" share parameters, which have two shardings: optimizer by \"b1\" and gradients by \"b2\"");
  CHECK(message("a=optimizer,a*=gradients") ==
        "the parameters of \"a\" have two shardings: optimizer by \"a\" and gradients by \"a*\"");
  StrategySettings owners;
  owners.synchronization = Synchronization::parameter_server;
  CHECK(message_of<InputError>([&] { set_sharding(owners, "a=optimizer"); }) ==
        "a parameter server has the optimizer's state already, it cannot be sharded");
}
