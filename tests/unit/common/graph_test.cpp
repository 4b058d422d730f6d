#include "common/graph.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "tests/support/committed_files.h"
#include "tests/support/graph_text.h"
#include "tests/support/message_of.h"

using namespace ff;

namespace {

std::string graph_error(const std::string& text) {
  return message_of<InputError>([&] { parse_graph(parse_json(text, "g.json")); });
}

Graph committed_graph(const std::string& name) { return load_graph(FF_SOURCE_DIR "/graphs/" + name + ".json"); }

double forward_gflop_per_sample(const Graph& graph) {
  double flops = 0;
  for (const Operator& op : graph.operators) flops += op.definition->forward_work(op.definition->whole()).flops;
  return flops / static_cast<double>(graph.batch_size) / 1e9;
}

// Shape of an operator's first output without the sample axis.
Shape shape_of(const Graph& graph, const std::string& name) {
  for (const Tensor& tensor : graph.tensors)
    if (tensor.name == name) return Shape(tensor.shape.begin() + 1, tensor.shape.end());
  FAIL("no tensor is named " << name);
  return {};
}

}  // namespace

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
  CHECK(graph_error(graph_text(R"({"name":"l","type":"mse","inputs":["x"]})")) ==
        "g.json: /operators/0/type: unknown operator type \"mse\"; did you mean \"mish\"? (losses: "
        "softmax_cross_entropy, load_balancing_loss)");
  CHECK_THAT(graph_error(graph_text(R"({"name":"l","type":"cross_entropy","inputs":["x"]})")),
             Catch::EndsWith("in all) (losses: softmax_cross_entropy, load_balancing_loss)"));
  const auto with_activation = [](const std::string& activation) {
    return graph_error(
        graph_text(R"({"name":"f","type":"conv2d","inputs":["x"],"attributes":{"out_channels":4,"kernel":3,)"
                   R"("activation":")" +
                   activation + R"("}})"));
  };
  const std::string found = "g.json: /operators/0/attributes/activation: found ",
                    expected = ", expected \"none\" or \"relu\"; ";
  CHECK(with_activation("gelu") == found + "\"gelu\"" + expected + "an operator of type \"gelu\" can follow this one");
  CHECK(with_activation("rleu") == found + "\"rleu\"" + expected + "did you mean \"relu\"?");
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
        "g.json: /operators: no operator is a loss; training needs one of type softmax_cross_entropy or "
        "mean_loss");
}

// The committed graphs against published figures.
TEST_CASE("every committed graph loads and bears the name of its file") {
  for (const std::string& path : committed_json_files("graphs")) {
    INFO(path);
    const Graph graph = load_graph(path);
    CHECK(graph.name == std::filesystem::path(path).stem().string());
    CHECK(graph.losses.size() >= 1);
    for (const Operator& op : graph.operators) {
      INFO(op.name);
      CHECK(op.has_backward);  // everything in a training graph is on the way to the loss
    }
  }
}

TEST_CASE("lenet has the parameters and the work of LeNet-5") {
  const Graph graph = committed_graph("lenet");
  CHECK(graph.batch_size == 64);
  // LeCun et al. 1998 count 60,000 trainable parameters with a sparsely connected second convolution; connected in
  // full: 61,706.
  CHECK(graph.parameter_count() == 61706);
  CHECK(shape_of(graph, "conv1") == Shape{6, 28, 28});
  CHECK(shape_of(graph, "pool1") == Shape{6, 14, 14});
  CHECK(shape_of(graph, "conv2") == Shape{16, 10, 10});
  CHECK(shape_of(graph, "pool2") == Shape{16, 5, 5});
  CHECK(shape_of(graph, "flatten") == Shape{400});
  CHECK(shape_of(graph, "fc3") == Shape{10});
  // Multiply-adds: 117,600 + 240,000 in convolutions, 48,000 + 10,080 + 840 in linear layers; two operations each.
  CHECK(forward_gflop_per_sample(graph) == Approx(2 * 416520e-9).epsilon(0.03));
}

TEST_CASE("alexnet has the parameters and the work of Krizhevsky et al. 2012") {
  const Graph graph = committed_graph("alexnet");
  CHECK(graph.batch_size == 256);
  // "60 million parameters" (the paper's abstract); 60,965,224 is the sum over its layers, Caffe's bvlc_alexnet among
  // others.
  CHECK(graph.parameter_count() == 60965224);
  CHECK(shape_of(graph, "conv1") == Shape{96, 55, 55});
  CHECK(shape_of(graph, "pool1") == Shape{96, 27, 27});
  CHECK(shape_of(graph, "conv2") == Shape{256, 27, 27});
  CHECK(shape_of(graph, "conv3") == Shape{384, 13, 13});
  CHECK(shape_of(graph, "pool5") == Shape{256, 6, 6});
  CHECK(shape_of(graph, "flatten") == Shape{9216});
  CHECK(shape_of(graph, "fc8") == Shape{1000});
  // Sze et al. 2017, Efficient Processing of Deep Neural Networks (arXiv 1703.09039), table II: 724 M multiply-adds.
  // Pooling and response normalization, which that figure leaves out, add 1 to 2 percent.
  CHECK(forward_gflop_per_sample(graph) == Approx(2 * 0.724).epsilon(0.03));
}

TEST_CASE("vgg16 has the parameters and the work of configuration D") {
  const Graph graph = committed_graph("vgg16");
  CHECK(graph.batch_size == 64);
  // Simonyan, Zisserman 2014, table 2: 138 million; 138,357,544 is the sum over the layers, torchvision's vgg16 among
  // others.
  CHECK(graph.parameter_count() == 138357544);
  CHECK(shape_of(graph, "conv1_2") == Shape{64, 224, 224});
  CHECK(shape_of(graph, "conv3_3") == Shape{256, 56, 56});
  CHECK(shape_of(graph, "pool5") == Shape{512, 7, 7});
  CHECK(shape_of(graph, "flatten") == Shape{25088});
  // Sze et al. 2017, table II: 15.5 G multiply-adds.
  CHECK(forward_gflop_per_sample(graph) == Approx(2 * 15.5).epsilon(0.01));
}

// They are kept, by what was read, the batch and the type.
TEST_CASE("a graph with another batch, type or optimizer is the same however often it is asked for") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 16);
  const auto embedded = [](const Graph& of) { return of.tensors[of.operators[0].outputs[0]]; };
  for (int again = 0; again < 2; ++again) {
    const Graph larger = with_batch_size(graph, 32, "larger"), bf16 = with_activation_type(larger, DataType::bf16);
    CHECK(larger.batch_size == 32);
    CHECK(embedded(larger).shape[0] == 32);
    CHECK(bf16.batch_size == 32);
    CHECK(embedded(bf16).type == DataType::bf16);
    CHECK(with_batch_size(bf16, 16, "smaller").activation_type == DataType::bf16);
    CHECK(embedded(with_activation_type(bf16, DataType::f32)).type == DataType::f32);
    for (const double rate : {0.5, 0.25}) {
      Graph other = graph;
      set_optimizer(other, {.learning_rate = rate});
      CHECK(with_batch_size(other, 32, "larger").optimizer->learning_rate == rate);
      CHECK(with_batch_size(other, 32, "larger").file()["optimizer"] == other.file()["optimizer"]);
    }
    CHECK_FALSE(with_batch_size(graph, 32, "larger").optimizer);
  }
  CHECK_THROWS_AS(with_batch_size(graph, int64_t{1} << 33, "too large"), InputError);
}
