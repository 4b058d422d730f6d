// bf16: rounding, and what backends do with it.
#include "common/kernels/bf16.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "common/graph.h"
#include "common/kernels/backend.h"
#include "common/operators/conversion.h"

using namespace ff;

TEST_CASE("rounding to bf16 is to nearest, ties to even") {
  CHECK(bf16_of(1.0f) == 0x3F80);
  CHECK(bf16_of(1.0f + 1.0f / 256) == 0x3F80);  // halfway to 1 + 2^-7: to the even one
  CHECK(bf16_of(1.0f + 3.0f / 256) == 0x3F82);  // halfway between 1 + 2^-7 and 1 + 2^-6
  CHECK(bf16_of(std::nextafter(1.0f + 1.0f / 256, 2.0f)) == 0x3F81);
  CHECK(bf16_of(-0.0f) == 0x8000);
  CHECK(bf16_of(std::numeric_limits<float>::infinity()) == 0x7F80);
  CHECK(bf16_of(std::numeric_limits<float>::max()) == 0x7F80);  // nearer to 2^128 than to the largest bf16
  CHECK(std::isnan(f32_of(bf16_of(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isnan(f32_of(bf16_of(std::bit_cast<float>(0x7F800001u)))));  // whose upper half is that of infinity
}

TEST_CASE("every bf16 becomes itself again, and rounding changes a number by 2^-8 of its size at most") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f32_of(static_cast<Bf16>(bits));
    if (!std::isnan(value)) REQUIRE(bf16_of(value) == bits);
  }
  double worst = 0;
  for (uint32_t bits = 0x3F800000; bits < 0x40000000; bits += 7) {
    const float value = std::bit_cast<float>(bits);
    worst = std::max(worst, std::abs(static_cast<double>(f32_of(bf16_of(value))) / static_cast<double>(value) - 1));
  }
  CHECK(worst <= bf16_rounding);
  CHECK(worst > 0.99 * bf16_rounding);
}

TEST_CASE("backends convert, copy and add blocks of bf16") {
  const auto backend = make_cpu_backend(1);
  Vector<float> values;
  for (int i = 0; i < 257; ++i) values.push_back(std::sin(static_cast<float>(i)) * 100);
  Vector<Bf16> narrow(values.size(), 0);
  Vector<float> wide(values.size(), 0.0f), rounded(values.size(), 0.0f);
  backend->convert(values.data(), DataType::f32, narrow.data(), DataType::bf16, values.count());
  backend->convert(narrow.data(), DataType::bf16, wide.data(), DataType::f32, values.count());
  backend->round_to_bf16(values.data(), rounded.data(), values.count());
  for (const int i : values.indices()) {
    CHECK(narrow[i] == bf16_of(values[i]));
    CHECK(wide[i] == f32_of(narrow[i]));
    CHECK(rounded[i] == wide[i]);
  }
  // Channels [1, 3) of [2, 4, 3, 2] (sample, height, width, channel in memory) into a block of their own, then added.
  const Block whole(Shape{2, 4, 3, 2}), region{{0, 2}, {1, 3}, {0, 3}, {0, 2}};
  Vector<Bf16> part(region.volume(), 0);
  backend->copy_block(narrow.data(), whole, part.data(), region, region, DataType::bf16);
  backend->add_block(narrow.data(), whole, part.data(), region, region, DataType::bf16);
  int at = 0;
  for (int sample = 0; sample < 2; ++sample)
    for (int position = 0; position < 6; ++position)
      for (int channel = 1; channel < 3; ++channel)
        CHECK(part[at++] == bf16_of(2 * f32_of(narrow[(sample * 6 + position) * 4 + channel])));
}

TEST_CASE("types follow from the graph and the precision") {
  const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"g","batch_size":4,"inputs":[
      {"name":"x","shape":["batch",6,8],"dtype":"f32"},{"name":"y","shape":["batch"],"dtype":"i32"}],"operators":[
      {"name":"norm","type":"layer_norm","inputs":["x"]},
      {"name":"mean","type":"mean","inputs":["norm"]},
      {"name":"fc","type":"linear","inputs":["mean"],"attributes":{"out_features":8}},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","y"]}]})",
                                             "g"),
                                  0, DataType::bf16);
  const auto type_of = [&](const std::string& name) {
    for (const Tensor& tensor : graph.tensors)
      if (tensor.name == name) return tensor.type;
    throw std::logic_error(name);
  };
  CHECK(type_of("x") == DataType::f32);
  CHECK(type_of("y") == DataType::i32);
  for (const char* name : {"norm", "mean", "fc"}) CHECK(type_of(name) == DataType::bf16);
  for (const char* name : {"loss", "loss:correct"}) CHECK(type_of(name) == DataType::f32);
  CHECK(graph.operators[0].definition->parameter_type(0) == DataType::f32);
  CHECK(graph.operators[2].definition->parameter_type(0) == DataType::bf16);
  CHECK(with_batch_size(graph, 8, "g").activation_type == DataType::bf16);
  CHECK(with_activation_type(graph, DataType::f32).tensors.back().type == DataType::f32);
  // linear: input 4 x 8, weight 8 x 8, bias 8, output 4 x 8, in f32 of 64 bytes at least; backward needs the output's
  // gradient instead of the output, and writes the input's.
  const OperatorDefinition& fc = *graph.operators[2].definition;
  CHECK(conversion_bytes(fc, fc.whole(), false, {true}) == 128 + 256 + 64 + 128);
  CHECK(conversion_bytes(fc, fc.whole(), true, {true}) == 128 + 256 + 64 + 128 + 128);
  const ConversionLayout backward = conversion_layout(fc, fc.whole(), true, {true});
  CHECK(backward.outputs[0] == -1);
  CHECK(backward.output_gradients[0] >= 0);
  CHECK(backward.input_gradients[0] >= 0);
}
