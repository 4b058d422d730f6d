// The messages that users see for wrong files: whole texts.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "common/graph.h"
#include "common/strategy.h"

using namespace ff;

namespace {

const std::string image = R"({"name":"x","shape":["batch",3,8,8],"dtype":"f32"})";

std::string graph_text(const std::string& operators, const std::string& inputs = image) {
  return R"({"format":"ffgraph/1","name":"g","batch_size":4,"inputs":[)" + inputs +
         R"(,{"name":"label","shape":["batch"],"dtype":"i32"}],"operators":[)" + operators + "]}";
}

std::string graph_error(const std::string& text) {
  try {
    parse_graph(parse_json(text, "g.json"));
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string topology_error(const std::string& rest) {
  const std::string text =
      R"({"format":"fftopology/1","name":"t","device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":1}},
      )" +
      rest + "}";
  try {
    parse_topology(parse_json(text, "t.json"));
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("syntax errors name line and column") {
  CHECK(graph_error("{\n  \"format\": \"ffgraph/1\",\n  \"name\" \"x\"}") ==
        "g.json: line 3, column 12: syntax error while parsing object separator - unexpected string literal; expected "
        "':'");
  CHECK(graph_error("  ") == "g.json: line 1, column 3: the file is empty, expected a JSON object");
  CHECK(graph_error(R"({"format":"ffgraph/1","name":"a","name":"b"})") ==
        "g.json: the key \"name\" stands twice in one object");
}

TEST_CASE("graph errors name the place, what was found and what is accepted") {
  CHECK(graph_error("[1]") == "g.json: /: found an array, expected an object");
  CHECK(graph_error(R"({"format":"ffgraph/2"})") == "g.json: /format: found \"ffgraph/2\", expected \"ffgraph/1\"");
  CHECK(graph_error(R"({"format":"ffgraph/1","nmae":"x"})") ==
        "g.json: /nmae: unknown key of a graph; did you mean \"name\"?");
  CHECK(graph_error(
            graph_text(R"({"name":"c","type":"conv2d","inputs":["x"],"attributes":{"kernal":3,"out_channels":4}})")) ==
        "g.json: /operators/0/attributes/kernal: unknown attribute of conv2d; did you mean \"kernel\"?");
  CHECK(graph_error(graph_text(R"({"name":"c","type":"conv2d","inputs":["x"],"attributes":{"kernel":3}})")) ==
        "g.json: /operators/0/attributes: conv2d needs the attribute \"out_channels\"");
  CHECK(graph_error(graph_text(R"({"name":"c","type":"conv3d","inputs":["x"]})")) ==
        "g.json: /operators/0/type: unknown operator type \"conv3d\"; did you mean \"conv2d\"?");
  CHECK(graph_error(graph_text(R"({"name":"r","type":"relu","inputs":["y"]})",
                               R"({"name":"images","shape":["batch",2],"dtype":"f32"})")) ==
        "g.json: /operators/0/inputs/0: no operator or input is named \"y\"; did you mean \"r\"?");
  CHECK(graph_error(graph_text(R"({"name":"r","type":"relu","inputs":["x:h"]})")) ==
        "g.json: /operators/0/inputs/0: \"x\" is an input of the graph and has no output \"x:h\"");
  CHECK(graph_error(graph_text(R"({"name":"x","type":"relu","inputs":["x"]})")) ==
        "g.json: /operators/0/name: the name \"x\" is already that of /inputs/0/name");
  CHECK(graph_error(graph_text(
            R"({"name":"c","type":"conv2d","inputs":["x"],"attributes":{"out_channels":4,"kernel":[9,9]}})")) ==
        "g.json: /operators/0/attributes/kernel: the kernel's extent 9 exceeds the padded input of shape [4, 3, 8, 8]");
}

TEST_CASE("cycles are spelled out") {
  CHECK(
      graph_error(graph_text(R"({"name":"a","type":"add","inputs":["x","c"]},{"name":"b","type":"relu","inputs":["a"]},
                                  {"name":"c","type":"relu","inputs":["b"]})")) ==
      "g.json: /operators/0/inputs: the graph has a cycle: a -> b -> c -> a");
}

TEST_CASE("shape mismatches say both shapes") {
  CHECK(graph_error(graph_text(
            R"({"name":"p","type":"pool2d","inputs":["x"],"attributes":{"kernel":2}},
          {"name":"s","type":"add","inputs":["x","p"]})")) ==
        "g.json: /operators/1/inputs/1: has shape [4, 3, 4, 4], the first input of add has shape [4, 3, 8, 8]");
  CHECK(graph_error(graph_text(R"({"name":"f","type":"linear","inputs":["x"],"attributes":{"out_features":4}})")) ==
        "g.json: /operators/0/inputs/0: has shape [4, 3, 8, 8], linear expects 2 to 3 axes");
}

TEST_CASE("a graph without a loss cannot be trained") {
  CHECK(graph_error(graph_text(R"({"name":"r","type":"relu","inputs":["x"]})")) ==
        "g.json: /operators: no operator is a loss; training needs one of type softmax_cross_entropy");
}

TEST_CASE("topology errors") {
  const std::string two = R"("devices":[{"name":"a","kind":"gpu","model":"m"},{"name":"b","kind":"gpu","model":"m"}])";
  CHECK(topology_error(two) ==
        "t.json: /: no route joins the devices \"a\" and \"b\" (routes lead through links and switches, not through "
        "devices)");
  CHECK(topology_error(two + R"(,"links":[{"between":["a","c"],"bandwidth_gb_per_s":1,"latency_us":1}])") ==
        "t.json: /links/0/between/1: no device or switch is named \"c\"; did you mean \"a\"?");
  CHECK(topology_error(two + R"(,"links":[{"between":["a","b"],"bandwidth_gb_per_s":0,"latency_us":1}])") ==
        "t.json: /links/0/bandwidth_gb_per_s: found 0, expected a number from 0.0001 to 1e+12");
  CHECK(topology_error(R"("devices":[{"name":"a","kind":"gpu","model":"mm"}])") ==
        "t.json: /devices/0/model: no device model is named \"mm\"; did you mean \"m\"?");
  CHECK(topology_error(R"("devices":[])") == "t.json: /: has no devices, expected \"devices\" or \"nodes\"");
}

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
    try {
      parse_strategy(parse_json(edited.dump(), "s.json"));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(error_with({{"degrees", {{"sample", 2}}}, {"devices", {0, 1}}}) == "no error");
  CHECK(error_with({{"degrees", {{"sample", 2}}}, {"devices", {"a", "b"}}}) == "no error");
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

TEST_CASE("files appear whole or not at all") {
  const std::string path = "errors_test_output.json";
  write_file_atomically(path, "old");
  CHECK_THROWS_AS(write_file_atomically("no/such/folder/x.json", "new"), MachineError);
  write_file_atomically(path, "new");
  std::ifstream file(path);
  std::string content;
  file >> content;
  CHECK(content == "new");
  std::remove(path.c_str());
}

TEST_CASE("what is no regular file is written to, not replaced; links are followed") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("errors_test_" + std::to_string(getpid()));
  fs::create_directory(folder);
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const int reader = open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(folder / "pipe", "through");
  char text[16] = {};
  CHECK(read(reader, text, sizeof text - 1) == 7);
  CHECK(std::string(text) == "through");
  close(reader);
  CHECK(fs::is_fifo(folder / "pipe"));

  write_file_atomically(folder / "file", "old");
  fs::create_symlink("file", folder / "link");
  write_file_atomically(folder / "link", "new");
  CHECK(fs::is_symlink(folder / "link"));
  std::string content;
  std::ifstream(folder / "file") >> content;
  CHECK(content == "new");
  fs::remove_all(folder);
}

TEST_CASE("nesting that no format has is refused") {
  const auto nested = [](size_t levels) {
    return R"({"a":)" + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  CHECK_NOTHROW(parse_json(nested(99), "x.json"));
  CHECK_THROWS_WITH(parse_json(nested(200000), "x.json"), "x.json: objects and arrays are nested more than 100 deep");
}
