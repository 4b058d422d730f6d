// Every kernel of the CUDA backend against the double-precision reference, forward and backward: the random cases that
// the CPU's kernels pass, and cases so large that rows take a block of threads and sums are split over blocks.
#include <cstdlib>
#include <map>

#include "tests/gpu/gpu_or_skip.h"
#include "tests/gpu/random_cases.h"
#include "tests/unit/common/kernels/kernel_cases.h"

using namespace ff;
using namespace ff::kernel_cases;
using namespace ff::random_cases;

namespace {

constexpr double tolerance = 5e-5;
constexpr double convolution_tolerance = 1e-4;  // Winograd and Fourier algorithms of cuDNN round more than sums do

// With the stand-in, times are drawn, so that each way to compute a convolution is chosen in some cases.
void draw_times() {
  if (stand_in) setenv("FF_CUDA_STAND_IN_TIMES", "drawn", 1);
}

bool is_convolution(const std::string& type) { return type == "conv2d" || type == "conv1d"; }

// One for all sections: each of them runs its test case from the beginning. Never destroyed: when static objects are,
// the driver may be gone already.
CudaBackend* shared_gpu(Precision precision = Precision::fp32) {
  static auto& made = *new std::map<Precision, std::unique_ptr<CudaBackend>>;
  std::unique_ptr<CudaBackend>& backend = made[precision];
  if (!backend) backend = gpu_or_skip(precision);
  return backend.get();
}

// A graph whose operator "tested" has these inputs; shapes without the batch.
std::string large_case(const std::string& type, const Vector<Json>& shapes, const Json& attributes, int64_t batch) {
  Vector<Json> whole;
  for (const Json& shape : shapes) {
    whole.push_back(Json::array({"batch"}));
    for (const Json& size : shape) whole.back().push_back(size);
  }
  return Cases::wrap(type, whole, attributes, batch).dump();
}

void check_large(Backend& backend, const std::string& text, double largest_difference) {
  INFO(text);
  Cases cases(1);
  const auto drawn = draw_values(cases, text);
  REQUIRE(drawn);
  const OperatorDefinition& definition = drawn->definition();
  for (int degree : {1, 2}) {
    Degrees degrees(definition.dimensions().size(), 1);
    for (size_t d = 0; d < degrees.size(); ++d)
      if (definition.dimensions()[d].size >= degree) degrees[d] = degree;
    int64_t parts = 1;
    for (int of : degrees) parts *= of;
    check_part(backend, {definition, degrees, parts - 1}, drawn->operands, drawn->gradients, {"tested", 7, 3},
               largest_difference);
  }
}

// By operator type, for a section each: `-c softmax` runs those of softmax alone.
using CasesByType = std::map<std::string, Vector<std::string>>;
void add_case(CasesByType& cases, const std::string& text) {
  cases[Json::parse(text)["operators"][0]["type"].get<std::string>()].push_back(text);
}

void check_all_large(CudaBackend& backend, const CasesByType& cases, double largest_difference) {
  for (const auto& [type, texts] : cases) {
    DYNAMIC_SECTION(type) {
      for (const std::string& text : texts) check_large(backend, text, largest_difference);
    }
  }
}

}  // namespace

// Each in a section of its own: one that fails does not hide what the others do. Convolutions apart, since cuDNN's
// search takes a while.
TEST_CASE("every CUDA kernel equals the double-precision reference, forward and backward, on any part") {
  CudaBackend* const backend = shared_gpu();
  if (!backend) return;
  const int cases = number_of_cases(60);
  for (const std::string& type : operator_types())
    if (!is_convolution(type)) DYNAMIC_SECTION(type) check_random_cases(*backend, type, cases, tolerance, first_seed());
}

TEST_CASE("every CUDA convolution equals the double-precision reference, forward and backward, on any part",
          "[convolution]") {
  draw_times();
  CudaBackend* const backend = shared_gpu();
  if (!backend) return;
  const int cases = number_of_cases(25);
  for (const std::string& type : operator_types()) {
    if (!is_convolution(type)) continue;
    DYNAMIC_SECTION(type) check_random_cases(*backend, type, cases, convolution_tolerance, first_seed());
  }
}

TEST_CASE("CUDA losses by class equal the reference with equal largest logits and with distant ones") {
  if (CudaBackend* const backend = shared_gpu()) check_losses_by_class(*backend, 2e-6);
}

TEST_CASE("CUDA kernels equal the double-precision reference on larger shapes", "[large]") {
  CudaBackend* const backend = shared_gpu();
  if (!backend) return;
  const Json none = Json::object();
  CasesByType cases;
  for (const std::string& text : {
           large_case("pool2d", {{40, 27, 27}}, {{"kernel", 3}, {"stride", 2}}, 5),
           large_case("pool2d", {{5, 20, 20}}, {{"kernel", 20}, {"stride", 1}}, 5),  // more than 256 places in a window
           large_case("pool2d", {{24, 13, 17}}, {{"method", "average"}, {"kernel", 3}, {"stride", 2}}, 5),
           large_case("concat", {{24, 13, 17}, {20, 13, 17}}, {{"axis", 1}}, 5),
           large_case("concat", {{24, 13, 17}, {21, 13, 17}}, {{"axis", 1}}, 5),
           large_case("linear", {{40}}, {{"out_features", 500}, {"activation", "relu"}}, 700),
           large_case("linear", {{300}}, {{"out_features", 70}}, 700),
           large_case("gelu", {{130, 70}}, none, 40),
           large_case("gelu", {{130, 70}}, {{"approximate", "tanh"}}, 40),
           large_case("silu", {{131, 71}}, none, 41),
           large_case("mul", {{131, 71}, {131, 71}}, none, 41),
           large_case("tanh", {{131, 71}}, none, 41),
           large_case("add", {{131, 71}, {131, 71}}, none, 41),
           large_case("add", {{131, 71}, {131, 71}, {131, 71}}, none, 41),
           large_case("clip", {{130, 70}}, {{"least", -0.5}, {"most", 0.75}}, 40),
           large_case("hard_sigmoid", {{130, 70}}, {{"slope", 0.5}}, 40),
           large_case("hard_swish", {{130, 70}}, none, 40),
           large_case("elu", {{130, 70}}, {{"alpha", 0.75}}, 40),
           large_case("softplus", {{130, 70}}, none, 40),
           large_case("mish", {{130, 70}}, none, 40),
           large_case("exp", {{130, 70}}, none, 40),
           large_case("sin", {{130, 70}}, none, 40),
           large_case("pow", {{130, 70}}, {{"exponent", -0.5}}, 40),
           large_case("log", {{130, 70}}, none, 40),
           large_case("relative_bias", {{6, 60, 61}}, {{"buckets", 32}, {"max_distance", 48}}, 9),
           large_case("relative_bias", {{3, 20, 40}}, {{"buckets", 8}, {"directions", "past"}}, 5),
           large_case("broadcast_mul", {{70, 21, 23}, {70}}, {{"axes", {0, 1}}}, 9),
           large_case("broadcast_mul", {{70, 21, 23}}, {{"axes", Json::array({1})}}, 9),
           large_case("broadcast_add", {{4, 60, 61}}, {{"axes", {2, 3}}}, 9),
           large_case("prefix", {{60, 200}}, {{"rows", 2}}, 30),
           large_case("dropout", {{31, 17, 19}}, {{"rate", 0.4}}, 9),
           large_case("dropout", {{150, 77}}, {{"rate", 0.4}}, 9),
           large_case("local_response_normalization", {{96, 13, 13}}, {{"size", 5}}, 4),
           large_case("batch_norm", {{70, 21, 23}}, {{"activation", "relu"}}, 9),
           large_case("batch_norm", {{72, 21, 23}}, {{"activation", "relu"}}, 9),  // channels by fours
           large_case("batch_norm", {{16, 21, 23}}, none, 9),
           large_case("layer_norm", {{50, 700}}, none, 12),
           large_case("layer_norm", {{20, 701}}, none, 3),  // rows begin at odd elements
           large_case("layer_norm", {{6, 1303}}, none, 4),  // a block of threads a row
           large_case("layer_norm", {{6, 8301}}, none, 2),  // longer than what threads hold
           large_case("layer_norm", {{300, 9, 11}}, none, 7),
           large_case("rms_norm", {{50, 700}}, none, 12),
           large_case("rms_norm", {{6, 1303}}, none, 4),
           large_case("rms_norm", {{6, 8301}}, none, 2),
           large_case("embedding", {{60}}, {{"vocabulary", 40}, {"channels", 300}}, 20),
           large_case("embedding", {{300}}, {{"vocabulary", 3}, {"channels", 5}}, 4),
           large_case("position_embedding", {{64, 200}}, none, 300),
           large_case("lstm", {{48}, {60}, {60}}, {{"hidden", 60}}, 30),
           large_case("attention", {{40}, {25, 50}}, {{"out_features", 60}}, 6),
           large_case("multi_head_attention", {{40, 48}}, {{"heads", 4}, {"causal", true}}, 3),
           large_case("multi_head_attention", {{40, 48}},
                      {{"heads", 6}, {"key_value_heads", 2}, {"rotary_base", 10000}, {"bias", false}}, 3),
           large_case("multi_head_attention", {{40, 51}}, {{"heads", 3}, {"rotary_base", 100}, {"rotary_channels", 14}},
                      2),
           // several tiles of positions; heads wider than a thread block's channels
           large_case("multi_head_attention", {{150, 6}}, {{"heads", 2}, {"causal", true}}, 2),
           large_case("multi_head_attention", {{130, 4}}, {{"heads", 2}, {"key_value_heads", 1}}, 2),
           large_case("multi_head_attention", {{9, 150}}, {{"heads", 1}}, 2),
           large_case("multi_head_attention", {{9, 140}}, {{"heads", 2}, {"key_value_heads", 1}, {"causal", true}}, 2),
           large_case("matmul", {{70, 90}, {90, 110}}, {{"scale", 0.25}}, 12),
           large_case("einsum", {{70, 6, 9}, {70, 90}}, {{"equation", "GSEC,GSM->EGCM"}}, 5),
           large_case("einsum", {{5, 30, 90}}, {{"equation", "EGCM,EMH->EGCH"}, {"sizes", {{"H", 130}}}}, 6),
           large_case("einsum", {{5, 30, 90}}, {{"equation", "EGCH,EHM->GECM"}, {"sizes", {{"M", 110}}}}, 6),
           large_case("einsum", {{70, 6, 9}, {6, 9, 90}}, {{"equation", "GSEC,GECM->GSM"}}, 5),
           large_case("einsum", {{300, 50}, {300, 50}}, {{"equation", "bij,bij->bij"}}, 20),
           large_case("einsum", {{300, 50}, {300, 50}}, {{"equation", "bij,bij->ib"}}, 20),
           large_case("mean", {{150, 21, 21}}, none, 8),
           large_case("transpose", {{60, 40, 30}}, {{"axes", {3, 1, 2}}}, 5),
           large_case("transpose", {{45, 70}}, {{"axes", {2, 1}}}, 5),  // matrices, by tiles
           large_case("flatten", {{100, 37, 5}}, none, 6),
           large_case("softmax", {{3000}}, none, 70),
           large_case("softmax", {{9001}}, none, 5),   // rows begin at odd elements
           large_case("softmax", {{51301}}, none, 2),  // longer than what threads hold
           large_case("softmax_cross_entropy", {{40, 1000}}, none, 9),
           large_case("softmax_cross_entropy", {{40, 131}}, none, 9),  // a warp a row
           large_case("softmax_cross_entropy", {{3, 9001}}, none, 3),
           large_case("softmax_cross_entropy", {{102701}}, none, 2),
           large_case("top_k_gating", {{23, 70}}, {{"group_samples", 3}, {"capacity_factor", 0.8}}, 6),
           large_case("top_k_gating", {{17, 700}}, {{"top_k", 1}, {"group_samples", 2}}, 4),
           large_case("top_k_gating", {{9, 130}}, {{"top_k", 8}, {"capacity_factor", 0.9}}, 5),
           large_case("top_k_gating", {{9, 60}}, {{"top_k", 6}, {"normalize", false}}, 5),
           // more choices than a block has threads
           large_case("top_k_gating", {{150, 20}}, {{"group_samples", 3}, {"capacity_factor", 0.8}}, 6),
           large_case("load_balancing_loss", {{23, 70}}, {{"group_samples", 3}}, 6),
           large_case("load_balancing_loss", {{17, 700}}, {{"group_samples", 2}}, 4),
           large_case("dispatch", {{70, 300}, {70, 24}}, {{"group_samples", 2}, {"capacity_factor", 0.8}}, 6),
           large_case("combine", {{70, 300}, {70, 24}}, {{"group_samples", 2}, {"capacity_factor", 0.8}}, 6),
           large_case("expert_linear", {{150, 90}}, {{"out_features", 130}, {"activation", "relu"}}, 6),
       })
    add_case(cases, text);
  check_all_large(*backend, cases, tolerance);
}

TEST_CASE("CUDA convolutions equal the double-precision reference on larger shapes", "[convolution]") {
  draw_times();
  CudaBackend* const backend = shared_gpu();
  if (!backend) return;
  CasesByType cases;
  for (const std::string& text : {
           large_case("conv2d", {{16, 19, 21}},
                      {{"out_channels", 32}, {"kernel", 3}, {"padding", 1}, {"activation", "relu"}}, 4),
           large_case("conv2d", {{32, 14, 14}}, {{"out_channels", 48}, {"kernel", 1}}, 4),
           large_case("conv2d", {{37, 14, 15}}, {{"out_channels", 40}, {"kernel", 3}, {"padding", 1}}, 4),
           large_case("conv1d", {{50, 37}}, {{"out_channels", 40}, {"kernel", 3}, {"padding", 1}}, 4),
           large_case("conv2d", {{3, 43, 43}}, {{"out_channels", 16}, {"kernel", 11}, {"stride", 4}, {"padding", 2}},
                      3),
           large_case("conv2d", {{12, 17, 17}},
                      {{"out_channels", 12}, {"kernel", 5}, {"stride", 2}, {"padding", 2}, {"groups", 3}}, 3),
           // The last of two parts takes one channel of a group and all of the next, whose weights begin at a multiple
           // of 4 bytes alone.
           large_case("conv2d", {{3, 15, 16}}, {{"out_channels", 6}, {"kernel", 3}, {"padding", 1}, {"groups", 3}}, 3),
       })
    add_case(cases, text);
  check_all_large(*backend, cases, convolution_tolerance);
}

// Each backend chooses anew.
TEST_CASE("CUDA convolutions equal the double-precision reference in each way to compute them", "[convolution]") {
  draw_times();
  for (int choice = 0; choice < (stand_in ? 12 : 1); ++choice) {
    const auto gpu = gpu_or_skip();
    if (!gpu) return;
    for (const auto& [channels, kernel] : Vector<std::pair<int, int>>{{8, 1}, {10, 1}, {10, 3}})
      check_large(*gpu, large_case("conv2d", {{8, 7, 6}}, {{"out_channels", channels}, {"kernel", kernel}}, 3),
                  convolution_tolerance);
  }
}

// Tensor cores that cut the operands off after ten bits are wrong by up to 2^-9 of a product, all in one direction.
TEST_CASE("with tf32 matrix products and convolutions stay within its ten bits", "[convolution]") {
  CudaBackend* const backend = shared_gpu(Precision::tf32);
  if (!backend) return;
  for (const std::string& text : {
           large_case("conv2d", {{16, 19, 21}}, {{"out_channels", 32}, {"kernel", 3}, {"padding", 1}}, 4),
           large_case("linear", {{300}}, {{"out_features", 500}}, 700),
           large_case("matmul", {{70, 90}, {90, 110}}, Json::object(), 12),
       })
    DYNAMIC_SECTION(text) check_large(*backend, text, 4e-3);
}

// Projections to heads of any size. Softmax of large scores magnifies tf32's rounding: here it is enough to run.
TEST_CASE("with tf32 heads of any size run") {
  CudaBackend* const backend = shared_gpu(Precision::tf32);
  if (!backend) return;
  for (int heads : {4, 12})
    check_large(*backend, large_case("multi_head_attention", {{8, 36}}, {{"heads", heads}}, 3), 2);
  CHECK_NOTHROW(backend->wait());
}

TEST_CASE("running statistics move on the GPU as on the CPU") {
  CudaBackend* const backend = shared_gpu();
  if (!backend) return;
  const auto cpu = make_cpu_backend();
  Cases cases(3);
  const auto drawn = draw_values(cases, large_case("batch_norm", {{7, 5, 6}}, {{"statistics", "local"}}, 4));
  REQUIRE(drawn);
  const OperatorDefinition& definition = drawn->definition();
  const Shape shape = definition.inputs()[0].shape, channels{7};
  Vector<Vector<float>> results;
  for (Backend* one : {static_cast<Backend*>(backend), cpu.get()}) {
    Buffer input(*one, shape, Block(shape), true), output(*one, shape, Block(shape), true);
    input.fill(drawn->operands.inputs[0], DataType::f32);
    Vector<Buffer> parameters;
    KernelArguments arguments;
    for (const Values& values : drawn->operands.parameters) {
      parameters.emplace_back(*one, channels, Block(channels), false).fill(values, DataType::f32);
      arguments.parameters.push_back(parameters.back().data());
    }
    arguments.inputs = {input.data()};
    arguments.outputs = {output.data()};
    arguments.states = {nullptr, nullptr, parameters[2].data(), parameters[3].data()};
    const auto kernel = one->make_kernel({definition, definition.whole(), {true}, "norm", 1});
    kernel->forward(arguments);
    kernel->update_state(arguments);
    one->wait();
    Vector<float> states(14);
    one->load_to_host(parameters[2].data(), states.data(), channels);
    one->load_to_host(parameters[3].data(), states.data() + 7, channels);
    results.push_back(states);
  }
  for (size_t i = 0; i < results[0].size(); ++i) CHECK(results[0][i] == Approx(results[1][i]).epsilon(1e-5));
}
