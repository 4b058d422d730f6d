#include "common/strategy.h"

#include <catch2/catch.hpp>

#include <set>
#include <tuple>

#include "common/errors.h"
#include "tests/support/graph_text.h"
#include "tests/support/message_of.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

Topology devices_on_a_switch(int count) {
  return parse_topology(parse_json(
      R"({"format":"fftopology/1","name":"t","device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":1}},
          "nodes":{"count":)" +
          std::to_string(count) + R"(,"devices":[{"name":"d","kind":"cpu","model":"m"}],
          "network":{"name":"s","attach":["d"],"link":{"bandwidth_gb_per_s":1,"latency_us":1}}}})",
      "t"));
}

// Three blocks of a linear layer and a normalization, and a loss.
Graph blocks_graph() {
  std::string operators, x = "x";
  for (const std::string block : {"block1", "block2", "block3"}) {
    operators += R"({"name":")" + block + R"(.fc","type":"linear","inputs":[")" + x +
                 R"("],"attributes":{"out_features":8}},{"name":")" + block +
                 R"(.norm","type":"layer_norm","inputs":[")" + block + R"(.fc"]},)";
    x = block + ".norm";
  }
  operators += R"({"name":"loss","type":"softmax_cross_entropy","inputs":[")" + x + R"(","label"]})";
  return parse_graph(
      parse_json(graph_text(operators, R"({"name":"x","shape":["batch",8],"dtype":"f32"})"), "blocks.json"));
}

// A strategy file of blocks_graph on 8 devices with these configurations.
StrategyFile parse_blocks(const std::string& configurations) {
  const Graph graph = blocks_graph();
  const Topology topology = devices_on_a_switch(8);
  Json json = strategy_to_json({graph, topology, data_parallel(graph, topology), {}, Json::object(), false});
  json["configurations"] = Json::parse(configurations);
  return parse_strategy(parse_json(json.dump(), "s.json"));
}

std::string error_of_blocks(const std::string& configurations) {
  return message_of<InputError>([&] { parse_blocks(configurations); });
}

}  // namespace

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
  // As in old files: by the operator's name.
  const Json whole = {{"degrees", Json::object()}, {"devices", {0}}};
  json["configurations"] = {{"c", whole}, {"f", whole}, {"l", whole}};
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
        "s.json: /configurations/c/degrees/chanel: unknown parallelizable dimension of c (conv2d); did you mean "
        "\"channel\"?");
  CHECK(error_with({{"degrees", {{"sample", 2}}}, {"devices", {0}}}) ==
        "s.json: /configurations/c/devices: has 1 devices, expected 2: one for each task of c");
  CHECK(error_with({{"degrees", Json::object()}, {"devices", {2}}}) ==
        "s.json: /configurations/c/devices/0: found 2, expected an integer from 0 to 1"
        " (configuration of c)");
  json["configurations"].erase("f");
  CHECK(error_with({{"degrees", Json::object()}, {"devices", {0}}}) == "s.json: /configurations: \"f\" is missing");
}

TEST_CASE("a configuration is given once for many operators") {
  const StrategyFile file = parse_blocks(R"([
    {"operators": "*", "degrees": {"sample": 4}, "devices": "0-3"},
    {"operators": ["block[1-2].fc"], "degrees": {"sample": 2, "channel": 2}, "devices": "0-6:2",
     "origin": "annotated"},
    {"operators": "loss", "degrees": {}, "devices": ["node5.d"], "origin": "searched"}])");
  const Configuration samples{{4}, {0, 1, 2, 3}}, both{{2, 2, 1}, {0, 2, 4, 6}};
  for (const int block : {0, 1}) {
    CHECK(file.strategy[2 * block] == both);
    CHECK(file.strategy[2 * block + 1] == samples);
    CHECK(file.origins[2 * block] == ConfigurationOrigin::annotated);
    CHECK(file.origins[2 * block + 1] == ConfigurationOrigin::unstated);
  }
  CHECK(file.strategy[6] == Configuration{{1, 1}, {5}});
  CHECK(file.origins[6] == ConfigurationOrigin::searched);
}

TEST_CASE("a later entry overrides an earlier one for the operators that it names; * is for those that none names") {
  const auto devices = [](const std::string& entries) {
    std::string text;
    for (const Configuration& configuration : parse_blocks("[" + entries + "]").strategy)
      text += std::to_string(configuration.devices[0]);
    return text;
  };
  const auto entry = [](const std::string& operators, int device) {
    return R"({"operators":)" + operators + R"(,"degrees":{},"devices":[)" + std::to_string(device) + "]}";
  };
  // block1.fc, block1.norm, block2.fc, block2.norm, block3.fc, block3.norm, loss
  const std::string rest = entry(R"("*")", 0), fc = entry(R"("block[1-3].fc")", 1);
  CHECK(devices(rest + "," + fc) == "1010100");
  CHECK(devices(fc + "," + rest) == "1010100");
  CHECK(devices(rest + "," + fc + "," + entry(R"("block2.fc")", 2)) == "1020100");
  CHECK(devices(rest + "," + fc + "," + entry(R"("block2.*")", 3)) == "1033100");
  CHECK(devices(rest + "," + fc + "," + entry(R"(["block*","loss"])", 4)) == "4444444");
  CHECK(devices(rest + "," + entry(R"("*")", 5)) == "5555555");
  CHECK(devices(rest + "," + entry(R"("block2.*")", 3) + "," + entry(R"(["block*","block2.fc"])", 4)) == "4444440");
}

TEST_CASE("operators with equal configurations are written together") {
  const auto written = [](const std::string& configurations) {
    return strategy_to_json(parse_blocks(configurations))["configurations"].dump();
  };
  const std::string two_kinds = R"([{"operators":["block[1-3].fc"],"degrees":{"channel":8},"devices":"7-0"},)"
                                R"({"operators":"block[1-3].norm","degrees":{"sample":2},"devices":[0,5]},)"
                                R"({"operators":"loss","degrees":{},"devices":[0]}])";
  CHECK(written(two_kinds) == R"([{"operators":"block[1-3].fc","degrees":{"channel":8},"devices":"7-0"},)"
                              R"({"operators":"block[1-3].norm","degrees":{"sample":2},"devices":[0,5]},)"
                              R"({"operators":"loss","degrees":{},"devices":[0]}])");
  CHECK(written(R"([{"operators":["loss","block*"],"degrees":{"sample":4},"devices":"0-1 x2"}])") ==
        R"([{"operators":"*","degrees":{"sample":4},"devices":"0-1 x2"}])");
  CHECK(written(R"([{"operators":"loss","degrees":{},"devices":[3],"origin":"propagated"},)"
                R"({"operators":"*","degrees":{"sample":4},"devices":"0-3"}])") ==
        R"([{"operators":"*","degrees":{"sample":4},"devices":"0-3"},)"
        R"({"operators":"loss","degrees":{},"devices":[3],"origin":"propagated"}])");
}

TEST_CASE("mistakes in configurations for many operators name their place") {
  const auto with = [](const std::string& operators, const std::string& devices = "\"0\"",
                       const std::string& degrees = "{}") {
    return error_of_blocks(R"([{"operators":)" + operators + R"(,"degrees":)" + degrees + R"(,"devices":)" + devices +
                           "}]");
  };
  CHECK(with(R"("*")") == "");
  CHECK(with(R"("block*")") == "s.json: /configurations: \"loss\" is missing");
  CHECK(with(R"("loss")") == "s.json: /configurations: \"block1.fc\" is missing, and 5 more of the operators");
  CHECK(with(R"(["*","blok1.fc"])") ==
        "s.json: /configurations/0/operators/1: unknown operator \"blok1.fc\"; did you mean \"block1.fc\"?"
        " (configuration of *, ...)");
  CHECK(with(R"(["*","block[1-4].fc"])") ==
        "s.json: /configurations/0/operators/1: unknown operator \"block4.fc\"; did you mean \"block1.fc\"?"
        " (configuration of *, ...)");
  CHECK(with(R"(["*","lose*"])") ==
        "s.json: /configurations/0/operators/1: no operator's name matches \"lose*\"; did you mean \"loss\"?"
        " (configuration of *, ...)");
  CHECK(with(R"(["*","block[1-9].fc"])") ==
        "s.json: /configurations/0/operators/1: found \"block[1-9].fc\", expected an operator's name or a pattern such "
        "as \"layer*.norm\" or \"layer[1-4].norm\", for at most the 7 operators of the graph"
        " (configuration of *, ...)");
  CHECK(with(R"(["loss","block*","l*"])") == "");
  CHECK(with(R"(["*","block*"])") ==
        "s.json: /configurations/0/operators/1: operator \"block1.fc\" has a "
        "configuration already, by /configurations/0/operators/0"
        " (configuration of *, ...)");
  CHECK(with(R"(["*","block1.fc","block[1-2].fc"])") ==
        "s.json: /configurations/0/operators/2: operator \"block1.fc\" has a configuration already, by "
        "/configurations/0/operators/1 (configuration of *, ...)");
  CHECK(with("7") == "s.json: /configurations/0/operators: found 7, expected an array");
  CHECK(with(R"("*")", R"("0-1")") ==
        "s.json: /configurations/0/devices: has 2 devices, expected 1: one for each task of block1.fc");
  CHECK(with(R"("*")", R"("8")") ==
        "s.json: /configurations/0/devices: device 8 is not there: the topology has devices 0 to 7"
        " (configuration of *)");
  CHECK(with(R"("*")", R"("0-3 x999999")") ==
        "s.json: /configurations/0/devices: \"0-3 x999999\" are more than "
        "1048576 devices"
        " (configuration of *)");
  CHECK(with(R"("*")", R"("0..3")") ==
        "s.json: /configurations/0/devices: found \"0..3\", expected ranges of device numbers, such as \"0-7\", "
        "\"0-6:2\", \"0,4-7\" or \"0-3 x2\""
        " (configuration of *)");
  CHECK(with(R"("*")", R"("0-1")", R"({"channel":2})") ==
        "s.json: /configurations/0/degrees/channel: unknown parallelizable dimension of block1.norm (layer_norm); "
        "known: sample");
  const auto with_shares = [](const std::string& shares) {
    return error_of_blocks(R"([{"operators":"*","degrees":{"sample":2},"devices":"0-1","shares":)" + shares + "}]");
  };
  CHECK(with_shares(R"({"sample":[3,1]})") == "");
  CHECK(with_shares(R"({"sample":[3,1,1]})") ==
        "s.json: /configurations/0/shares/sample: has 3 shares, but dimension \"sample\" of block1.fc has 2 parts");
  CHECK(with_shares(R"({"channel":[3,1]})") ==
        "s.json: /configurations/0/shares/channel: has 2 shares, but dimension \"channel\" of block1.fc has 1 part");
  CHECK(with_shares(R"({"sample":[3,0]})") ==
        "s.json: /configurations/0/shares/sample/1: found 0, expected an integer from 1 to 1000"
        " (configuration of block1.fc)");
  CHECK(with_shares(R"({"sample":[1,1000]})") ==
        "s.json: /configurations/0/shares/sample: leaves a part of dimension \"sample\" of block1.fc without an "
        "element: it has 4");
  CHECK(with_shares(R"({"samples":[3,1]})") ==
        "s.json: /configurations/0/shares/samples: unknown parallelizable dimension of block1.fc (linear); did you "
        "mean \"sample\"?");
  CHECK(error_of_blocks(R"([{"operators":"*","degrees":{},"devices":"0","origin":"serched"}])") ==
        "s.json: /configurations/0/origin: unknown origin \"serched\"; did you mean \"searched\"?"
        " (configuration of *)");
  CHECK(error_of_blocks(R"([{"operator":"*","degrees":{},"devices":"0"}])") ==
        "s.json: /configurations/0/operator: unknown key of a configuration; did you mean \"operators\"?");
}

TEST_CASE("an operator whose name looks like a pattern is named by it") {
  const Graph graph = parse_graph(parse_json(
      graph_text(R"({"name":"f1","type":"flatten","inputs":["x"]},{"name":"f2","type":"flatten","inputs":["x"]},
                     {"name":"f[1-2]","type":"add","inputs":["f1","f2"]},
                     {"name":"*","type":"softmax_cross_entropy","inputs":["f[1-2]","label"]})"),
      "g"));
  const Topology topology = devices_on_a_switch(2);
  Strategy strategy = single_device(graph);
  strategy[0].devices = strategy[1].devices = {1};
  for (int changes = 0; changes < 3; ++changes) {
    const Json json = strategy_to_json({graph, topology, strategy, {}, Json::object(), false});
    CHECK(parse_strategy(parse_json(json.dump(), "s.json")).strategy == strategy);
    strategy[changes].devices = {0};
  }
}

TEST_CASE("strategies are read back as they were written") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const Topology topology = devices_on_a_switch(static_cast<int>(random.between(1, 40)));
    StrategyFile file{graph, topology, data_parallel(graph, topology), {}, Json::object(), false};
    // Some operators differ from data parallelism: none, a few, or all.
    const int64_t one_in = random.between(0, 3);
    const Strategy other = random_strategy(graph, topology.devices.count(), random);
    for (const OperatorId op : graph.operator_ids())
      if (one_in > 0 && random.between(1, one_in) == 1) file.strategy[op] = other[op];
    if (seed % 3 == 0) file.origins.assign(file.strategy.size(), ConfigurationOrigin::propagated);
    if (seed % 6 == 0) file.origins[0] = ConfigurationOrigin::unstated;

    const Json json = strategy_to_json(file);
    const StrategyFile read = parse_strategy(parse_json(json.dump(), "s.json"));
    INFO(seed << ": " << json["configurations"].dump());
    CHECK(read.strategy == file.strategy);
    CHECK(read.origins == file.origins);
    CHECK_FALSE(read.edited);
    CHECK(strategy_to_json(read) == json);

    // With the names of what is split.
    std::set<std::tuple<Degrees, Vector<std::string>, Vector<DeviceId>>> different;
    for (const OperatorId op : graph.operator_ids()) {
      const Configuration& configuration = file.strategy[op];
      Vector<std::string> split;
      for (const int d : configuration.degrees.indices())
        if (configuration.degrees[d] > 1) split.push_back(graph.operators[op].definition->dimensions()[d].name);
      different.emplace(configuration.degrees, std::move(split), configuration.devices);
    }
    if (file.origins.empty()) CHECK(json["configurations"].size() <= different.size());
    // The form of old files says the same.
    Json old = json;
    old["configurations"] = Json::object();
    for (const OperatorId op : graph.operator_ids()) {
      Json degrees = Json::object();
      const auto& dimensions = graph.operators[op].definition->dimensions();
      for (const int d : dimensions.indices()) degrees[dimensions[d].name] = file.strategy[op].degrees[d];
      Json& one = old["configurations"][graph.operators[op].name];
      one = {{"degrees", degrees}, {"devices", file.strategy[op].devices}};
      for (const int d : dimensions.indices())
        if (!file.strategy[op].degrees.shares(d).empty())
          one["shares"][dimensions[d].name] = file.strategy[op].degrees.shares(d);
    }
    const StrategyFile read_old = parse_strategy(parse_json(old.dump(), "s.json"));
    CHECK(read_old.strategy == file.strategy);
    CHECK_FALSE(read_old.edited);
  }
}

TEST_CASE("a strategy says how parameters are synchronized, unless by all-reduce") {
  const Graph graph = blocks_graph();
  const Topology topology = devices_on_a_switch(2);
  StrategyFile file{graph, topology, data_parallel(graph, topology), {}, Json::object(), false};
  const auto read = [](const Json& json) { return parse_strategy(parse_json(json.dump(), "s.json")); };
  CHECK_FALSE(strategy_to_json(file).contains("synchronization"));
  CHECK(read(strategy_to_json(file)).settings.synchronization == Synchronization::all_reduce);
  file.settings.synchronization = Synchronization::parameter_server;
  Json json = strategy_to_json(file);
  CHECK(json["synchronization"] == "parameter-server");
  CHECK(read(json).settings.synchronization == Synchronization::parameter_server);
  CHECK(strategy_to_json(read(json)) == json);
  json["synchronization"] = "all-reduce";
  CHECK(read(json).settings.synchronization == Synchronization::all_reduce);
  json["synchronization"] = "ring";
  CHECK(message_of<InputError>([&] { read(json); }) ==
        "s.json: /synchronization: found \"ring\"; known: all-reduce, parameter-server");
}

TEST_CASE("a strategy names the schedule of its micro-batches, where it has one") {
  const Graph graph = blocks_graph();
  const Topology topology = devices_on_a_switch(2);
  StrategyFile file{graph, topology, data_parallel(graph, topology), {}, Json::object(), false};
  const auto read = [](const Json& json) { return parse_strategy(parse_json(json.dump(), "s.json")); };
  const auto error = [&](const Json& json) { return message_of<InputError>([&] { read(json); }); };
  CHECK_FALSE(strategy_to_json(file).contains("schedule"));
  file.settings.micro_batches = 2;
  file.settings.schedule = Schedule::one_forward_one_backward;
  Json json = strategy_to_json(file);
  CHECK(json["schedule"] == "1f1b");
  CHECK(read(json).settings == file.settings);
  CHECK(strategy_to_json(read(json)) == json);
  const std::string cannot = "s.json: /schedule: 1f1b is an order of two micro_batches or more, in stages";
  Json changed = json;
  changed["micro_batches"] = 1;
  CHECK(error(changed).starts_with(cannot));
  changed = json;
  changed["configurations"].push_back({{"operators", "block2.fc"}, {"degrees", Json::object()}, {"devices", {0}}});
  CHECK(error(changed).starts_with(cannot));
  changed = json;
  changed["issue_order"] = {"block1.fc/forward/0"};
  CHECK(error(changed) == "s.json: /schedule: the file has an issue_order, which is another order of tasks");
  changed = json;
  changed["schedule"] = "1F1B";
  CHECK(error(changed) == "s.json: /schedule: found \"1F1B\", expected \"1f1b\"");
}
