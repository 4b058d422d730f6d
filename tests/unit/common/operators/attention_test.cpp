#include "common/operators/attention.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "common/graph.h"
#include "tests/support/graph_text.h"
#include "tests/support/message_of.h"

using namespace ff;

namespace {

// A graph of an attention with these attributes on [4, 5, 24], and a loss on something else.
std::string text_of(const std::string& attributes) {
  return graph_text(R"({"name":"a","type":"multi_head_attention","inputs":["x"],"attributes":)" + attributes +
                        R"(},{"name":"loss","type":"softmax_cross_entropy","inputs":["z","label"]})",
                    R"({"name":"x","shape":["batch",5,24],"dtype":"f32"},
                       {"name":"z","shape":["batch",2],"dtype":"f32"})");
}

std::string error_of(const std::string& attributes) {
  return message_of<InputError>([&] { parse_graph(parse_json(text_of(attributes), "g")); });
}

// "name[shape] ..." of the parameters.
std::string parameters_of(const std::string& attributes) {
  const Graph graph = parse_graph(parse_json(text_of(attributes), "g"));
  std::string text;
  for (const ParameterSpec& parameter : graph.operators[0].definition->parameters())
    text += (text.empty() ? "" : " ") + parameter.name + to_string(parameter.shape);
  return text;
}

}  // namespace

TEST_CASE("attention has one weight for all projections, or two with grouped queries") {
  CHECK(parameters_of(R"({"heads":6})") == "weight[3, 24, 24] bias[3, 24]");
  CHECK(parameters_of(R"({"heads":6,"key_value_heads":6,"rotary_base":10000})") == "weight[3, 24, 24] bias[3, 24]");
  CHECK(parameters_of(R"({"heads":6,"bias":false})") == "weight[3, 24, 24]");
  CHECK(parameters_of(R"({"heads":6,"key_value_heads":2})") ==
        "query[24, 24] key_value[2, 8, 24] query_bias[24] key_value_bias[2, 8]");
  CHECK(parameters_of(R"({"heads":6,"key_value_heads":1,"bias":false})") == "query[24, 24] key_value[2, 4, 24]");
  CHECK(parameters_of(R"({"heads":5,"head_channels":7})") == "weight[3, 35, 24] bias[3, 35]");
  CHECK(parameters_of(R"({"heads":6,"key_value_heads":2,"head_channels":8,"bias":false})") ==
        "query[48, 24] key_value[2, 16, 24]");
}

TEST_CASE("parts of attention by heads hold each parameter once and write each channel once") {
  for (const char* attributes :
       {R"({"heads":6})", R"({"heads":6,"key_value_heads":3})", R"({"heads":5,"head_channels":3})",
        R"({"heads":6,"key_value_heads":2,"head_channels":6})",
        R"({"heads":12,"key_value_heads":4,"bias":false,"rotary_base":10000})"}) {
    INFO(attributes);
    const Graph graph = parse_graph(parse_json(text_of(attributes), "g"));
    const auto& attention = dynamic_cast<const MultiHeadAttention&>(*graph.operators[0].definition);
    CHECK(attention.dimensions()[2].size == attention.key_value_heads);
    const int degree = static_cast<int>(attention.dimensions()[2].size);
    Vector<int64_t> held(attention.parameters().size(), 0), ends(held);
    int64_t written = 0;
    for (int part = 0; part < degree; ++part) {
      const Block block = attention.part({1, 1, degree}, part);
      for (int p = 0; p < static_cast<int>(held.size()); ++p) {
        const Block own = attention.parameter_block(p, block);
        const int axis = own.rank() - (attention.parameters()[p].name.find("bias") == std::string::npos ? 2 : 1);
        CHECK(own[axis].begin == ends[p]);  // one part's rows after the other's
        ends[p] = own[axis].end;
        held[p] += own.volume();
      }
      written += attention.output_block(0, block).volume();
    }
    for (int p = 0; p < static_cast<int>(held.size()); ++p) CHECK(held[p] == volume(attention.parameters()[p].shape));
    CHECK(written == volume(attention.outputs()[0].shape));
  }
}

TEST_CASE("a part of attention by length reads what its queries attend to, with the whole of the parameters") {
  for (const bool causal : {false, true}) {
    const std::string attributes = R"({"heads":6,"key_value_heads":3,"rotary_base":100,"causal":)";
    const Graph graph = parse_graph(parse_json(text_of(attributes + (causal ? "true}" : "false}")), "g"));
    const auto& attention = dynamic_cast<const MultiHeadAttention&>(*graph.operators[0].definition);
    const Degrees degrees = {1, 2, 1};
    const Block first = attention.part(degrees, 0), second = attention.part(degrees, 1), whole = attention.whole();
    CHECK(to_string(attention.output_block(0, first)) == "[0:4, 0:2, 0:24]");
    CHECK(to_string(attention.output_block(0, second)) == "[0:4, 2:5, 0:24]");
    CHECK(to_string(attention.input_block(0, first)) == (causal ? "[0:4, 0:2, 0:24]" : "[0:4, 0:5, 0:24]"));
    CHECK(to_string(attention.input_block(0, second)) == "[0:4, 0:5, 0:24]");
    for (const int p : attention.parameters().indices())
      CHECK(attention.parameter_block(p, second) == Block(attention.parameters()[p].shape));
    // 4 samples, 6 heads; with a mask each score counts twice, those of a query with itself too
    CHECK(attention.scores(first) == 24 * (causal ? 2 * 2 : 2 * 5));
    CHECK(attention.scores(second) == 24 * (causal ? 5 * 5 - 2 * 2 : 3 * 5));
    CHECK(attention.scores(first) + attention.scores(second) == attention.scores(whole));
    // 24 channels of queries; keys and values of 12 each, for 5 positions in both parts without a mask
    CHECK(attention.projected(second).size() == 4 * (3 * 24 + 5 * 24));
    CHECK(attention.projected(whole).size() == 4 * 5 * 48);
  }
}

TEST_CASE("parts of attention with equal signatures do the same: those that see as much") {
  const auto signatures = [](const std::string& causal) {
    const Graph graph = parse_graph(parse_json(text_of(R"({"heads":6,"causal":)" + causal + "}"), "g"));
    const OperatorDefinition& attention = *graph.operators[0].definition;
    Vector<std::string> texts;
    for (int part = 0; part < 5; ++part) texts.push_back(attention.signature(attention.part({1, 5, 1}, part)));
    sort_and_unique(texts);
    CHECK(attention.kinds_of_parts({1, 5, 1}).back() == texts.count() - 1);
    return texts;
  };
  CHECK(signatures("false") == Vector<std::string>{"multi_head_attention head_channels=4 [4, 5, 24] -> [4, 1, 24]"});
  CHECK(signatures("true").count() == 5);
}

TEST_CASE("what attention cannot be says the numbers that do not fit") {
  const std::string at = "g: /operators/0/attributes/";
  CHECK(error_of(R"({"heads":5})") == at + "heads: found 5, expected a divisor of 24 channels, or \"head_channels\"");
  CHECK(error_of(R"({"heads":6,"key_value_heads":4})") ==
        at + "key_value_heads: found 4, expected a divisor of 6 heads");
  CHECK(error_of(R"({"heads":6,"key_value_heads":12})") ==
        at + "key_value_heads: found 12, expected a divisor of 6 heads");
  CHECK(error_of(R"({"heads":6,"key_value_heads":0})") ==
        at + "key_value_heads: found 0, expected an integer from 1 to 16777216");
  CHECK(
      error_of(R"({"heads":8,"rotary_base":10000})") ==
      at + "rotary_base: turns pairs of channels, but each of 8 heads has 3 channels; \"rotary_channels\" turns fewer");
  CHECK(error_of(R"({"heads":8,"rotary_base":10000,"rotary_channels":3})") ==
        at + "rotary_channels: found 3, expected an even number up to 3, the channels of each of 8 heads");
  CHECK(error_of(R"({"heads":6,"rotary_base":10000,"rotary_channels":6})") ==
        at + "rotary_channels: found 6, expected an even number up to 4, the channels of each of 6 heads");
  CHECK(error_of(R"({"heads":6,"rotary_channels":2})") ==
        at + "rotary_channels: needs \"rotary_base\", the base of the positions' angles");
  CHECK(error_of(R"({"heads":8,"rotary_base":10000,"rotary_channels":2})") == "");
  CHECK(error_of(R"({"heads":6,"rotary_base":0})") == at + "rotary_base: found 0, expected a number from 1 to 1e+12");
  CHECK(error_of(R"({"heads":6,"key_value_head":2})") ==
        at + "key_value_head: unknown attribute of multi_head_attention; did you mean \"key_value_heads\"?");
}
