#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "executor/data.h"
#include "executor/npy_file.h"
#include "executor/plan/runs.h"
#include "temporary_directory.h"

namespace ff {
namespace {

template <typename Value>
std::string npy(const std::string& descr, const std::string& shape, const Vector<Value>& values, int version = 1,
                const std::string& fortran = "False") {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  for (int byte = 0; byte < (version == 1 ? 2 : 4); ++byte)
    text += static_cast<char>(header.size() >> (8 * byte) & 0xFF);
  return text + header + std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value));
}

Vector<float> counting(size_t count) {
  Vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

Graph small_graph() {
  return parse_graph(parse_json(R"({"format": "ffgraph/1", "name": "small", "batch_size": 2,
    "inputs": [{"name": "x", "shape": ["batch", 3], "dtype": "f32"}, {"name": "label", "shape": ["batch"],
    "dtype": "i32"}],
    "operators": [{"name": "fc", "type": "linear", "inputs": ["x"], "attributes": {"out_features": 4}},
                  {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc", "label"]}]})",
                                "small"));
}

}  // namespace

TEST_CASE("runs of a block inside a larger one") {
  const auto runs = [](const Block& outer, const Block& region) {
    Vector<std::pair<int64_t, int64_t>> found;
    for_each_run(outer, region, [&](int64_t offset, int64_t length) { found.emplace_back(offset, length); });
    return found;
  };
  using Runs = Vector<std::pair<int64_t, int64_t>>;
  CHECK(runs({{0, 4}, {0, 3}}, {{1, 3}, {0, 3}}) == Runs{{3, 6}});
  CHECK(runs({{0, 4}, {0, 3}}, {{1, 3}, {1, 3}}) == Runs{{4, 2}, {7, 2}});
  CHECK(runs({{2, 4}, {5, 8}}, {{3, 4}, {6, 7}}) == Runs{{4, 1}});
  CHECK(runs({{0, 2}, {0, 2}, {0, 2}}, {{0, 2}, {1, 2}, {0, 2}}) == Runs{{2, 2}, {6, 2}});
  CHECK(runs({{0, 5}}, {{2, 2}}).empty());
}

TEST_CASE("npy files of every version and convertible type") {
  const TemporaryDirectory directory;
  for (int version = 1; version <= 3; ++version) {
    const NpyFile file(directory.write("x.npy", npy("<f4", "(4, 2, 3)", counting(24), version)));
    CHECK(file.shape() == Shape{4, 2, 3});
    const Vector<int64_t> samples = {3, 1};
    Vector<float> out(4);
    file.read({{0, 2}, {1, 2}, {1, 3}}, samples, DataType::f32, out.data());
    CHECK(out == Vector<float>{22, 23, 10, 11});
  }
  const Vector<int64_t> samples = {1, 0};
  Vector<int32_t> labels(2);
  NpyFile(directory.write("i8.npy", npy("<i8", "(2,)", Vector<int64_t>{7, -1})))
      .read(Block{{0, 2}}, samples, DataType::i32, labels.data());
  CHECK(labels == Vector<int32_t>{-1, 7});
  NpyFile(directory.write("large.npy", npy("<i8", "(2,)", Vector<int64_t>{(int64_t{1} << 32) + 1, INT64_MIN})))
      .read(Block{{0, 2}}, samples, DataType::i32, labels.data());
  CHECK(labels == Vector<int32_t>{INT32_MIN, INT32_MAX});  // not 0 and 1
  Vector<int64_t> numbers(5 * 2 * 3);
  for (int i : numbers.indices()) numbers[i] = (int64_t{1} << 33) + i;
  const NpyFile wide(directory.write("wide.npy", npy("<i8", "(5, 2, 3)", numbers)));
  const Vector<int64_t> shuffled = {4, 2, 0};
  const Vector<int64_t> expected = {14, 17, 2, 5};  // column 2 of both rows of samples 2 and 0
  for (int i : expected.indices())
    CHECK(wide.integer(Block{{1, 3}, {0, 2}, {2, 3}}, shuffled, i) == (int64_t{1} << 33) + expected[i]);
  Vector<float> pixels(2);
  NpyFile(directory.write("u1.npy", npy("|u1", "(2,)", Vector<uint8_t>{255, 3})))
      .read(Block{{0, 2}}, samples, DataType::f32, pixels.data());
  CHECK(pixels == Vector<float>{3, 255});
}

TEST_CASE("what is wrong with an npy file") {
  const TemporaryDirectory directory;
  const auto open = [&](const std::string& content) {
    const std::string path = directory.write("x.npy", content);
    const std::string message = message_of<InputError>([&] { NpyFile{path}; });
    return message.rfind(path, 0) == 0 ? message.substr(path.size()) : message;
  };
  const std::string good = npy("<f4", "(4, 3)", counting(12));
  CHECK(open(good) == "");
  CHECK(open("") == ": is not a .npy file (it does not begin with \\x93NUMPY)");
  CHECK(open("PK\x03\x04 something else") == ": is not a .npy file (it does not begin with \\x93NUMPY)");
  CHECK(open(npy("<f4", "(4, 3)", counting(12), 9)) == ": has .npy version 9, expected 1 to 3");
  CHECK(open(good.substr(0, 20)) == ": is truncated within its header");
  CHECK(open(good.substr(0, good.size() - 1)) ==
        ": is truncated: shape [4, 3] of '<f4' needs 48 bytes of data, found 47");
  CHECK(open(npy("<f4", "(4, 3)", counting(12), 1, "True")) ==
        ": is in Fortran order, expected C order (numpy.ascontiguousarray makes it so)");
  CHECK(open(npy("<f4", "()", counting(1))) ==
        ": holds a single number, expected an array whose first axis is the sample");
  CHECK(open(npy("<f4", "(99999999999999999999,)", counting(1))) ==
        ": has the shape (99999999999999999999,), which is too large");
  CHECK(message_of<InputError>([] { NpyFile("/nowhere/x.npy"); }) ==
        "/nowhere/x.npy: cannot open: No such file or directory");
}

TEST_CASE("what is wrong with a data directory") {
  const Graph graph = small_graph();
  const TemporaryDirectory directory;
  const auto open = [&](int64_t least = 2) {
    return message_of<InputError>([&] { npy_data(graph, directory.path, least); });
  };
  const std::string x = directory.path + "/x.npy", label = directory.path + "/label.npy";
  CHECK(message_of<InputError>([&] { npy_data(graph, "/nowhere", 2); }) ==
        "/nowhere: is not a directory, expected one with a .npy file for each input of the graph");
  CHECK(open() == x + ": missing; the graph \"small\" has an input \"x\"");
  directory.write("x.npy", npy("<f4", "(5, 3)", counting(15)));
  CHECK(open() == label + ": missing; the graph \"small\" has an input \"label\"");
  directory.write("label.npy", npy("<f4", "(5,)", counting(5)));
  CHECK(open() ==
        label + ": has dtype '<f4', expected '<i4' ('<i8' and '|u1' are converted) for the i32 input \"label\"");
  directory.write("label.npy", npy("<i4", "(4,)", Vector<int32_t>(4)));
  CHECK(open() == label + ": has 4 samples, but " + x + " has 5");
  directory.write("label.npy", npy("<i4", "(5,)", Vector<int32_t>{0, 1, 2, 4, 0}));
  CHECK(open() == "");
  CHECK(open(6) == x + ": has 5 samples, expected at least 6 (one batch)");

  const auto data = npy_data(graph, directory.path, 2);
  const Vector<int64_t> samples = {0, 3};
  Vector<int32_t> labels(2);
  const TensorId input = graph.inputs[1];
  CHECK(message_of<InputError>([&] {
          data->read(input, Block{{0, 2}}, samples, labels.data());
        }) == label + ": sample 3 has the label 4, expected 0 to 3");
  // Labels that only 64 bits hold are named as the file has them.
  for (const auto& [value, text] :
       {std::pair(int64_t{1} << 40, "1099511627776"), std::pair(-(int64_t{1} << 40), "-1099511627776"),
        std::pair(int64_t{-1}, "-1"), std::pair(int64_t{INT32_MAX}, "2147483647")}) {
    directory.write("label.npy", npy("<i8", "(5,)", Vector<int64_t>{0, 1, 2, value, 0}));
    CHECK(message_of<InputError>([&] {
            npy_data(graph, directory.path, 2)->read(input, Block{{0, 2}}, samples, labels.data());
          }) == label + ": sample 3 has the label " + text + ", expected 0 to 3");
  }
  directory.write("x.npy", npy("<f4", "(5, 4)", counting(20)));
  CHECK(open() == x + ": has shape [5, 4], expected [samples, 3] for the input \"x\"");
}

TEST_CASE("a label that the loss ignores may lie outside of the classes") {
  const TemporaryDirectory directory;
  directory.write("x.npy", npy("<f4", "(2, 3)", counting(6)));
  directory.write("label.npy", npy<int32_t>("<i4", "(2,)", {-100, 3}));
  const auto read = [&](const std::string& attributes) {
    Json graph = Json::parse(R"({"format": "ffgraph/1", "name": "small", "batch_size": 2,
      "inputs": [{"name": "x", "shape": ["batch", 3], "dtype": "f32"}, {"name": "label", "shape": ["batch"],
      "dtype": "i32"}],
      "operators": [{"name": "fc", "type": "linear", "inputs": ["x"], "attributes": {"out_features": 4}},
                    {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc", "label"]}]})");
    graph["operators"][1]["attributes"] = Json::parse(attributes);
    const Graph parsed = parse_graph(parse_json(graph.dump(), "small"));
    const auto data = npy_data(parsed, directory.path, 2);
    Vector<int32_t> labels(2, 0);
    const Vector<int64_t> samples{0, 1};
    data->read(parsed.inputs[1], {{0, 2}}, samples, labels.data());
    return labels;
  };
  CHECK(read(R"({"ignored_label": -100})") == Vector<int32_t>{-100, 3});
  CHECK_THROWS_WITH(read("{}"), Catch::Contains("label.npy: sample 0 has the label -100, expected 0 to 3"));
}

TEST_CASE("synthetic data is the same for every split") {
  const Graph graph = small_graph();
  const auto data = synthetic_data(graph, 3);
  const Vector<int64_t> samples = {0, 1};
  Vector<float> whole(6), part(2);
  Vector<int32_t> labels(2);
  data->read(graph.inputs[0], Block{{0, 2}, {0, 3}}, samples, whole.data());
  data->read(graph.inputs[0], Block{{1, 2}, {1, 3}}, samples, part.data());
  CHECK(part == Vector<float>{whole[4], whole[5]});
  data->read(graph.inputs[1], Block{{0, 2}}, samples, labels.data());
  for (int32_t label : labels) CHECK((label >= 0 && label < 4));
  for (float value : whole) CHECK((value >= -1 && value < 1));
}

TEST_CASE("a shuffle is a permutation that depends on seed and epoch") {
  Vector<int64_t> order = shuffled_samples(100, 1, 0);
  CHECK(order == shuffled_samples(100, 1, 0));
  CHECK(order != shuffled_samples(100, 1, 1));
  CHECK(order != shuffled_samples(100, 2, 0));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 100; ++i) CHECK(order[i] == i);
}

}  // namespace ff
