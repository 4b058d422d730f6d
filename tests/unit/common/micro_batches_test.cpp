#include "common/micro_batches.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

Graph chain(int64_t batch) {
  return parse_graph(parse_json(R"({"format":"ffgraph/1","name":"chain","batch_size":)" + std::to_string(batch) + R"(,
    "inputs":[{"name":"x","shape":["batch",6],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[{"name":"a","type":"linear","inputs":["x"],"attributes":{"out_features":4}},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["a","label"]}]})",
                                "graph"));
}

Json plan(int micro_batches, int sample_degree, const std::string& devices) {
  return {{"format", "ffstrategy/1"},
          {"graph", chain(12).file()},
          {"topology", parse_json(R"({"format":"fftopology/1","name":"t",
            "device_models":{"flat":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":1}},
            "devices":[{"name":"d0","kind":"gpu","model":"flat"},{"name":"d1","kind":"gpu","model":"flat"}],
            "links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":1}]})",
                                  "topology")
                           .value()},
          {"configurations",
           Json::array({{{"operators", "*"}, {"degrees", {{"sample", sample_degree}}}, {"devices", devices}}})},
          {"micro_batches", micro_batches}};
}

StrategyFile read(const Json& json) { return parse_strategy(parse_json(json.dump(), "s.json")); }

std::string error_of(const Json& json) {
  try {
    read(json);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the parts of a micro-batch are those of its graph, after the samples of the earlier ones") {
  int compared = 0;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    RandomSource random(seed);
    const Graph whole = random_graph(random);
    for (const int micro_batches : {2, 3, 4}) {
      const std::optional<Graph> found = micro_batch_graph(whole, micro_batches);
      if (!found) continue;
      const Graph& of_one = *found;
      CHECK(graph_of_batch(of_one, micro_batches).batch_size == whole.batch_size);
      const Strategy strategy = random_strategy(of_one, 3, random);
      const Strategy all = expanded(whole, strategy, micro_batches);
      CHECK(of_one_micro_batch(whole, all, micro_batches) == strategy);
      for (const OperatorId op : whole.operator_ids()) {
        const OperatorDefinition &definition = *whole.operators[op].definition, &one = *of_one.operators[op].definition;
        const int64_t parts = strategy[op].parts();
        const int copies = has_micro_batches(definition) ? micro_batches : 1;
        REQUIRE(all[op].parts() == copies * parts);
        for (int64_t part = 0; part < all[op].parts(); ++part) {
          const int k = micro_batch_of(definition, all[op].parts(), part, micro_batches);
          CHECK(k == (copies > 1 ? part / parts : -1));
          Block expected = one.part(strategy[op].degrees, part % parts);
          if (copies > 1) {
            const int64_t before = k * one.dimensions()[0].size;
            expected[0] = {expected[0].begin + before, expected[0].end + before};
          }
          CHECK(definition.part(all[op].degrees, part) == expected);
          CHECK(all[op].devices[part] == strategy[op].devices[part % parts]);
          ++compared;
        }
      }
    }
  }
  CHECK(compared > 1000);
}

TEST_CASE("unequal shares of a micro-batch's samples are those of each micro-batch") {
  const Graph graph = chain(24);
  const OperatorDefinition& definition = *graph.operators[0].definition;
  Degrees degrees{2, 1, 1};
  degrees.set_shares(0, {3, 1});
  const Degrees all = expanded_degrees(definition, degrees, 3);
  CHECK(all[0] == 6);
  Vector<int64_t> sizes;
  for (int part = 0; part < 6; ++part) sizes.push_back(definition.part(all, part)[0].size());
  CHECK(sizes == Vector<int64_t>{6, 2, 6, 2, 6, 2});
}

TEST_CASE("a strategy file has the configurations of one micro-batch and their number") {
  const StrategyFile file = read(plan(3, 2, "0-1"));
  CHECK(file.settings.micro_batches == 3);
  CHECK(file.strategy[0].parts() == 2);
  CHECK(expanded(file)[0].devices == Vector<DeviceId>{0, 1, 0, 1, 0, 1});
  const Json written = strategy_to_json(file);
  CHECK(written["micro_batches"] == 3);
  CHECK(read(written).strategy == file.strategy);
  CHECK_FALSE(read(written).edited);
  Json edited = written;
  edited["micro_batches"] = 2;
  CHECK(read(edited).edited);
  CHECK_FALSE(strategy_to_json(read(plan(1, 2, "0-1"))).contains("micro_batches"));
}

TEST_CASE("micro-batches that a batch cannot have are refused") {
  CHECK(error_of(plan(5, 1, "0")) ==
        "s.json: /micro_batches: 5 micro-batches: the batch of 12 samples is not divisible by them");
  CHECK(error_of(plan(0, 1, "0")) == "s.json: /micro_batches: found 0, expected an integer from 1 to 1048576");
  const std::string error = error_of(plan(12, 2, "0-1"));  // one sample each
  CHECK(error.starts_with("s.json: /configurations/0/degrees"));
  CHECK(error.find("has size 1") != std::string::npos);
}
