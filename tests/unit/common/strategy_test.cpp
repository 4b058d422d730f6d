#include "common/strategy.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "tests/support/graph_text.h"
#include "tests/support/message_of.h"

using namespace ff;

TEST_CASE("strategies are checked against graph and topology in full") {
  const Graph graph = parse_graph(
      parse_json(graph_text(
                     R"({"name":"c","type":"conv2d","inputs":["x"],"attributes":{"out_channels":4,"kernel":3}},
          {"name":"f","type":"flatten","inputs":["c"]},
                    {"name":"l","type":"softmax_cross_entropy","inputs":["f","label"]})"),
                 "g"));
  const Topology topology = parse_topology(parse_json(
      R"({"format":"fftopology/1","name":"t","device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":1}},
          "devices":[{"name":"a","kind":"cpu","model":"m"},{"name":"b","kind":"cpu","model":"m"}],
          "links":[{"between":["a","b"],"bandwidth_gb_per_s":1,"latency_us":1}]})",
      "t"));
  Json json = strategy_to_json({graph, topology, data_parallel(graph, topology), {}, Json::object(), false});
  const auto error_with = [&](const Json& configuration) {
    Json edited = json;
    edited["configurations"]["c"] = configuration;
    return message_of<InputError>([&] { parse_strategy(parse_json(edited.dump(), "s.json")); });
  };
  CHECK(error_with({{"degrees", {{"sample", 2}}}, {"devices", {0, 1}}}) == "");
  CHECK(error_with({{"degrees", {{"sample", 2}}}, {"devices", {"a", "b"}}}) == "");
  CHECK(error_with({{"degrees", {{"channel", 5}}}, {"devices", {0, 0, 0, 0, 0}}}) ==
        "s.json: /configurations/c/degrees/channel: found 5, but dimension \"channel\" of c has size 4");
  CHECK(error_with({{"degrees", {{"chanel", 2}}}, {"devices", {0, 1}}}) ==
        "s.json: /configurations/c/degrees/chanel: unknown parallelizable dimension of conv2d; did you mean "
        "\"channel\"?");
  CHECK(error_with({{"degrees", {{"sample", 2}}}, {"devices", {0}}}) ==
        "s.json: /configurations/c/devices: has 1 devices, expected 2: one for each task of c");
  CHECK(error_with({{"degrees", Json::object()}, {"devices", {2}}}) ==
        "s.json: /configurations/c/devices/0: found 2, expected an integer from 0 to 1");
  json["configurations"].erase("f");
  CHECK(error_with({{"degrees", Json::object()}, {"devices", {0}}}) == "s.json: /configurations: \"f\" is missing");
}
