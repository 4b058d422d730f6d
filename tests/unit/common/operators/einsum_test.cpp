// What einsum means: dimensions and their kinds, blocks, how products become products of matrices, wrong input.
#include "common/operators/einsum.h"

#include <catch2/catch.hpp>

#include "common/graph.h"
#include "tests/support/message_of.h"

using namespace ff;

namespace {

// An einsum of graph inputs of these shapes, the batch first.
Json graph_of(const Json& attributes, const Vector<Shape>& shapes) {
  Json graph = Json::parse(R"({"format": "ffgraph/1", "name": "g", "batch_size": 4,
    "inputs": [{"name": "scores", "shape": ["batch", 3], "dtype": "f32"},
               {"name": "label", "shape": ["batch"], "dtype": "i32"}],
    "operators": [{"name": "e", "type": "einsum", "inputs": []},
                  {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["scores", "label"]}]})");
  for (const Shape& sizes : shapes) {
    const std::string name = "x" + std::to_string(graph["operators"][0]["inputs"].size());
    Json shape = sizes;
    shape[0] = "batch";
    graph["batch_size"] = sizes[0];
    graph["inputs"].push_back({{"name", name}, {"shape", shape}, {"dtype", "f32"}});
    graph["operators"][0]["inputs"].push_back(name);
  }
  if (!attributes.is_null()) graph["operators"][0]["attributes"] = attributes;
  return graph;
}

Json with(const std::string& equation, const Json& sizes = Json()) {
  Json attributes = {{"equation", equation}};
  if (!sizes.is_null()) attributes["sizes"] = sizes;
  return attributes;
}

Graph parse(const Json& graph) { return parse_graph(parse_json(graph.dump(), "g")); }

struct Parsed {
  Parsed(const Json& attributes, const Vector<Shape>& shapes) : graph(parse(graph_of(attributes, shapes))) {}
  const Einsum& operator*() const { return dynamic_cast<const Einsum&>(*graph.operators[0].definition); }
  const Einsum* operator->() const { return &**this; }
  // "G:S E:P", the kinds by their letters
  std::string dimensions() const {
    std::string text;
    for (const ParallelDimension& dimension : (**this).dimensions())
      text += (text.empty() ? "" : " ") + dimension.name + std::to_string(dimension.size) + ":" +
              std::string(1, "SAPR"[static_cast<int>(dimension.kind)]);
    return text;
  }
  Graph graph;
};

std::string error(const Json& attributes, const Vector<Shape>& shapes) {
  const Json graph = graph_of(attributes, shapes);
  return message_of<InputError>([&] { parse(graph); });
}

}  // namespace

TEST_CASE("the kind of an einsum's letter follows from where it stands") {
  const Shape mask{4, 5, 2, 3}, tokens{4, 5, 6}, rows{2, 4, 3, 6};  // GSEC, GSM, EGCM
  CHECK(Parsed(with("GSEC,GSM->EGCM"), {mask, tokens}).dimensions() == "G4:S E2:A C3:A M6:A S5:R");
  CHECK(Parsed(with("EGCM,EMH->EGCH", {{"H", 7}}), {rows}).dimensions() == "G4:S E2:P C3:A H7:P M6:R");
  CHECK(Parsed(with("EGCH,EHM->GECM", {{"M", 7}}), {rows}).dimensions() == "G4:S E2:P C3:A M7:P H6:R");
  CHECK(Parsed(with(" GSM, ME -> GSE", {{"E", 3}}), {tokens}).dimensions() == "G4:S S5:A E3:P M6:R");
  CHECK(Parsed(with("GSM,ME->EGS", {{"E", 3}}), {tokens}).dimensions() == "G4:S E3:P S5:A M6:R");  // S first
  CHECK(Parsed(with("ab,Ab->aA"), {{4, 5}, {4, 5}}).dimensions() == "a4:S A4:A b5:R");             // two cases
  CHECK(Parsed(with("ba,bc->ac"), {{4, 5}, {4, 6}}).dimensions() == "a5:S c6:A b4:R");
  CHECK(Parsed(with("b,bc->c", {{"c", 6}}), {{4}}).dimensions() == "c6:P b4:R");  // no letter is a sample
  CHECK(Parsed(with("ij,ij->ij"), {{4, 5}, {4, 5}}).dimensions() == "i4:S j5:A");

  const Parsed weights(with("EGCM,EMH->EGCH", {{"H", 7}}), {rows});
  CHECK(weights->outputs()[0].shape == Shape{2, 4, 3, 7});
  REQUIRE(weights->parameters().size() == 1);
  CHECK(weights->parameters()[0].name == "weight");
  CHECK(weights->parameters()[0].shape == Shape{2, 6, 7});
  CHECK(weights->parameters()[0].uniform_bound == Approx(std::sqrt(3.0 / 6)));
  const Block part = weights->part({2, 2, 1, 1, 3}, 8);  // second half of G, first of E, last third of M
  CHECK(weights->input_block(0, part) == Block{{0, 1}, {2, 4}, {0, 3}, {4, 6}});
  CHECK(weights->parameter_block(0, part) == Block{{0, 1}, {4, 6}, {0, 7}});
  CHECK(weights->output_block(0, part) == Block{{0, 1}, {2, 4}, {0, 3}, {0, 7}});
  CHECK(weights->forward_work(part).flops == 2 * 2 * 1 * 3 * 7 * 2);
  CHECK(weights->signature(part) == "einsum EGCM,EMH->EGCH [1, 2, 3, 2] -> [1, 2, 3, 7]");
}

TEST_CASE("tensors of an einsum are permuted only where their elements do not lie as matrices") {
  const auto permuted = [](const Json& attributes, const Vector<Shape>& shapes) {
    const Parsed parsed(attributes, shapes);
    Vector<int64_t> elements;
    for (int tensor : {Einsum::output, 0, 1})
      elements.push_back(parsed->products(tensor, parsed->whole()).permuted_elements());
    CHECK(parsed->workspace_bytes(parsed->whole()) == 4 * *std::max_element(elements.begin(), elements.end()));
    return elements;  // of the output, and of the gradients of the two
  };
  const Vector<int64_t> none{0, 0, 0};
  CHECK(permuted(with("bij,bjk->bik"), {{4, 5, 6}, {4, 6, 7}}) == none);
  CHECK(permuted(with("bij,bkj->bik"), {{4, 5, 6}, {4, 7, 6}}) == none);
  CHECK(permuted(with("bij,bkj->bki"), {{4, 5, 6}, {4, 7, 6}}) == none);  // the transposed product
  CHECK(permuted(with("blm,mh->blh", {{"h", 7}}), {{4, 5, 6}}) == none);  // b and l are rows
  CHECK(permuted(with("blm,bln->lmn"), {{4, 5, 6}, {4, 5, 7}}) == none);  // the batch of products in the middle
  CHECK(permuted(with("bij,bij->bij"), {{4, 5, 6}, {4, 5, 6}}) == none);
  // Stored b, i, j, h: of products for each b and h, rows and columns would both have gaps.
  CHECK(permuted(with("bhij,bhj->bhi"), {{4, 3, 5, 6}, {4, 3, 6}}) == Vector<int64_t>{360, 360, 360});
  CHECK(permuted(with("blm,mhd->blhd", {{"h", 3}, {"d", 7}}), {{4, 5, 6}}) == Vector<int64_t>{420, 420, 420});
  // Two letters of different orders are no single row; the smaller tensor gives way.
  CHECK(permuted(with("blm,mlh->bh", {{"h", 7}}), {{2, 5, 6}}) == Vector<int64_t>{60, 60, 60});
}

TEST_CASE("wrong einsums are refused") {
  const Vector<Shape> two{{4, 5}, {4, 6}}, one{{4, 5}};
  const std::string at = "g: /operators/0/attributes/equation: ";
  const auto expected = [&](const std::string& found) {
    return at + "found \"" + found +
           "\", expected the letters of two operands and of the output, as in \"GSEC,GSM->EGCM\"";
  };
  for (const char* text : {"", "ab", "ab,ac", "ab,ac->", "ab->ab", ",ac->c", "ab,ac->bc,", "ab,a1->b", "ab,ac,ad->bcd",
                           "a...,ac->c", "ab,ac-bc"})
    CHECK(error(with(text), two) == expected(text));
  CHECK(error(Json(), two) == "g: /operators/0: einsum needs the attribute \"equation\"");
  CHECK(error(with("aab,ac->bc"), two) == at + "has the letter \"a\" twice in \"aa\": diagonals are not supported");
  CHECK(error(with("ab,ac->bcc"), two) == at + "has the letter \"c\" twice in \"bcc\": diagonals are not supported");
  CHECK(error(with("ab,ac->bx"), two) == at + "neither operand has the output's letter \"x\"");
  CHECK(error(with("ab,ac->b"), two) ==
        at + "has the letter \"c\" in one operand alone: einsum sums over letters that both operands have");
  CHECK(error(with("abc,ad->bcd"), two) ==
        "g: /operators/0/inputs/0: has shape [4, 5], \"abc\" of \"abc,ad->bcd\" expects 3 axes");
  CHECK(error(with("ab,a->b"), two) ==
        "g: /operators/0/inputs/1: has shape [4, 6], \"a\" of \"ab,a->b\" expects 1 axis");
  CHECK(error(with("ab,ab->b"), two) ==
        "g: /operators/0/inputs/1: has shape [4, 6], in which \"b\" is 6; in the first operand it is 5");
  CHECK(error(with("abcd,aefg->abcdefg"), {{4, 1, 1, 1}, {4, 1, 1, 1}}) == at + "has 7 letters, expected at most 6");
  CHECK(error(with("ab,ac->bc"), {{4, 5}, {4, 6}, {4, 7}}) ==
        "g: /operators/0/inputs: einsum has 3 inputs, expected 1 to 2");
  // of parameters
  CHECK(error(with("ab,bcd->acd"), one) ==
        "g: /operators/0: einsum needs the size of its parameter's letter \"c\", as in \"sizes\": {\"c\": 8}");
  CHECK(error(with("ab,bcd->acd", {{"c", 2}}), one) ==
        "g: /operators/0/attributes/sizes: einsum needs the size of its parameter's letter \"d\", as in \"sizes\": "
        "{\"d\": 8}");
  for (const char* letter : {"b", "x", "cd", ""})
    CHECK(error(with("ab,bc->ac", {{"c", 2}, {letter, 5}}), one) ==
          "g: /operators/0/attributes/sizes/" + std::string(letter) + ": \"" + letter +
              "\" is no letter that the parameter has and the input has not");
  CHECK(error(with("ab,bc->ac", {{"c", 0}}), one).find("/attributes/sizes/c: found 0, expected") != std::string::npos);
  CHECK(error(with("ab,ac->bc", {{"c", 6}}), two) ==
        "g: /operators/0/attributes/sizes: is for the letters of a parameter, and with two inputs there is none");
  CHECK(error({{"equation", "ab,ac->bc"}, {"letters", 3}}, two).find("unknown attribute of einsum") !=
        std::string::npos);
  Json labels = graph_of(with("ab,a->b"), {{4, 5}});
  labels["operators"][0]["inputs"].push_back("label");
  CHECK(message_of<InputError>([&] { parse(labels); }) == "g: /operators/0/inputs/1: has type i32, einsum expects f32");
}
