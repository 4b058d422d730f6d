// Every kernel of the CPU backend against the double-precision reference, forward and backward, on random shapes,
// attributes and parts; and the reference's backward against finite differences of its forward.
#include "tests/unit/common/kernels/kernel_cases.h"

using namespace ff;
using namespace ff::kernel_cases;

TEST_CASE("every kernel equals the double-precision reference, forward and backward, on any part", "[slow]") {
  const auto backend = make_cpu_backend();
  for (const std::string& type : operator_types())
    check_random_cases(*backend, type, /*count=*/type == "einsum" ? 400 : 60, /*tolerance=*/2e-5);  // of any equation
}

// The random shapes above are small; here are those that fill vector instructions, and their remainders.
TEST_CASE("kernels equal the reference on rows of many elements", "[slow]") {
  struct Wide {
    const char *type, *inputs, *attributes;
  };
  const Wide wides[] = {
      {"relu", "[[700]]", "{}"},
      {"tanh", "[[700]]", "{}"},
      {"sigmoid", "[[700]]", "{}"},
      {"gelu", "[[700]]", "{}"},
      {"gelu", "[[700]]", R"({"approximate":"tanh"})"},
      {"silu", "[[700]]", "{}"},
      {"affine", "[[700]]", R"({"factor":0.7,"offset":-0.2})"},
      {"clip", "[[700]]", R"({"least":-0.3,"most":0.9})"},
      {"leaky_relu", "[[700]]", R"({"slope":0.1})"},
      {"hard_sigmoid", "[[700]]", R"({"slope":0.2})"},
      {"hard_swish", "[[700]]", "{}"},
      {"elu", "[[700]]", R"({"alpha":0.7})"},
      {"softplus", "[[700]]", "{}"},
      {"mish", "[[700]]", "{}"},
      {"exp", "[[700]]", "{}"},
      {"sin", "[[700]]", "{}"},
      {"pow", "[[700]]", R"({"exponent": -0.5})"},
      {"log", "[[700]]", "{}"},
      {"relative_bias", "[[19,37,23]]", R"({"buckets":8,"max_distance":20})"},
      {"broadcast_mul", "[[70,5,6],[70]]", R"({"axes":[0,1]})"},
      {"broadcast_mul", "[[70,5,6]]", R"({"axes":[1]})"},
      {"broadcast_add", "[[3,19,70]]", R"({"axes":[2,3]})"},
      {"broadcast_add", "[[19,70],[19]]", R"({"axes":[0,1]})"},
      {"prefix", "[[19,70]]", R"({"rows":2})"},
      {"add", "[[700],[700]]", "{}"},
      {"add", "[[700],[700],[700],[700]]", "{}"},
      {"sub", "[[700],[700]]", "{}"},
      {"mul", "[[700],[700]]", "{}"},
      {"identity", "[[700]]", "{}"},
      {"dropout", "[[701]]", R"({"rate":0.3})"},
      {"dropout", "[[7,37]]", R"({"rate":0.5})"},
      {"dropout", "[[19,6,45]]", R"({"rate":0.1})"},
      {"local_response_normalization", "[[70,3,3]]", R"({"size":5,"alpha":0.3,"beta":0.75,"bias":1.5})"},
      {"batch_norm", "[[71,3,3]]", R"({"epsilon":0.1,"activation":"relu"})"},
      {"batch_norm", "[[60,4,5]]", R"({"epsilon":0.1})"},
      {"layer_norm", "[[133]]", R"({"epsilon":0.01})"},
      {"layer_norm", "[[133,3,5]]", R"({"epsilon":0.01})"},
      {"rms_norm", "[[133]]", R"({"epsilon":0.01})"},
      {"conv2d", "[[37,5,6]]", R"({"out_channels":35,"kernel":3,"padding":1})"},
      {"conv2d", "[[32,7,6]]", R"({"out_channels":48,"kernel":3,"padding":1,"activation":"relu"})"},
      {"conv2d", "[[3,9,9]]", R"({"out_channels":16,"kernel":5,"stride":2,"padding":2})"},
      {"conv2d", "[[48,1,40]]", R"({"out_channels":64,"kernel":[5,9],"padding":[2,4]})"},
      {"conv2d", "[[37,5,6]]", R"({"out_channels":35,"kernel":1,"stride":2,"activation":"relu"})"},
      {"conv2d", "[[37,8,7]]", R"({"out_channels":35,"kernel":1,"stride":[3,1]})"},
      {"conv2d", "[[6,4,9]]", R"({"out_channels":8,"kernel":1,"stride":[1,2],"groups":2})"},
      {"conv1d", "[[9,37]]", R"({"out_channels":35,"kernel":3,"padding":1})"},
      {"conv1d", "[[9,37]]", R"({"out_channels":35,"kernel":1,"stride":2})"},
      {"matmul", "[[19,70],[70,37]]", "{}"},
      {"embedding", "[[9]]", R"({"vocabulary":5,"channels":70})"},
      {"position_embedding", "[[5,70]]", "{}"},
      {"lstm", "[[40],[71],[71]]", R"({"hidden":71})"},
      {"lstm", "[[40]]", R"({"hidden":71})"},
      {"attention", "[[40],[19,37]]", R"({"out_features":70})"},
      {"multi_head_attention", "[[17,18]]", R"({"heads":2})"},
      {"multi_head_attention", "[[17,80]]", R"({"heads":4,"key_value_heads":2,"rotary_base":100,"causal":true})"},
      {"multi_head_attention", "[[17,57]]", R"({"heads":3,"rotary_base":100,"rotary_channels":14})"},
      {"multi_head_attention", "[[150,6]]", R"({"heads":2,"causal":true})"},  // several tiles of queries
      {"multi_head_attention", "[[150,4]]", R"({"heads":2,"key_value_heads":1})"},
      {"multi_head_attention", "[[150,8]]", R"({"heads":2,"rotary_base":100,"causal":true})"},
      {"softmax", "[[333]]", "{}"},
      {"softmax_cross_entropy", "[[333]]", R"({"weight":0.5})"},
      {"softmax_cross_entropy", "[[3]]", R"({"weight":0.5,"ignored_label":2})"},
      {"mean_loss", "[[333]]", R"({"weight":0.5})"},
      {"mean", "[[70,4,4]]", "{}"},
      {"einsum", "[[19,4,5],[19,70]]", R"({"equation":"GSEC,GSM->EGCM"})"},
      {"einsum", "[[5,9,33]]", R"({"equation":"EGCM,EMH->EGCH","sizes":{"H":71}})"},
      {"einsum", "[[5,9,33]]", R"({"equation":"EGCH,EHM->GECM","sizes":{"M":70}})"},
      {"einsum", "[[19,4,5],[4,5,70]]", R"({"equation":"GSEC,GECM->GSM"})"},
      {"einsum", "[[19,37],[19,71]]", R"({"equation":"bij,bik->bkj"})"},
      {"einsum", "[[7,19]]", R"({"equation":"blm,mhd->hbld","sizes":{"h":3,"d":35}})"},
      {"einsum", "[[37,71],[37,71]]", R"({"equation":"bij,bij->bij"})"},
      {"linear", "[[70]]", R"({"out_features":71,"activation":"relu"})"},
      {"linear", "[[70]]", R"({"out_features":71})"},
      {"top_k_gating", "[[37,70]]", R"({"capacity_factor":0.9})"},
      {"top_k_gating", "[[37,70]]", R"({"top_k":1,"capacity_factor":0.9})"},
      {"load_balancing_loss", "[[37,70]]", R"({"weight":0.5})"},
      {"dispatch", "[[19,70],[19,5]]", R"({"capacity_factor":0.9})"},
      {"combine", "[[19,70],[19,5]]", R"({"capacity_factor":0.9})"},
      {"expert_linear", "[[19,70]]", R"({"out_features":71,"activation":"relu"})"}};
  const auto backend = make_cpu_backend();
  for (const Wide& wide : wides)
    for (uint32_t seed = 0; seed < 2; ++seed) {
      Cases cases(seed);
      Vector<Json> shapes;
      for (Json shape : Json::parse(wide.inputs)) {
        shape.insert(shape.begin(), "batch");
        shapes.push_back(shape);
      }
      const std::string text = cases.wrap(wide.type, shapes, Json::parse(wide.attributes)).dump();
      INFO("seed " << seed << ": " << text);
      auto drawn = draw_values(cases, text);
      REQUIRE(drawn);
      for (Values& parameter : drawn->operands.parameters)  // long sums would be far out on tanh and softmax
        for (double& value : parameter) value = static_cast<float>(0.1 * value);
      check_parts(*backend, cases, *drawn, /*tolerance=*/5e-5);  // longer sums
    }
}

TEST_CASE("losses by class equal the reference with equal largest logits and with distant ones") {
  check_losses_by_class(*make_cpu_backend(), /*tolerance=*/2e-6);
}

TEST_CASE("the reference's gradients equal finite differences") {
  for (const std::string& type : operator_types()) {
    int checked = 0;
    for (uint32_t seed = 0; checked < 12; ++seed) {
      Cases cases(seed);
      std::string text;
      auto drawn = draw(cases, type, text);
      if (!drawn) continue;
      INFO("seed " << seed << ": " << text);
      ++checked;
      const reference::Randomness randomness{"tested", 7, 1};
      const OperatorDefinition& definition = drawn->definition();
      const reference::Reference judge = reference::make_reference(definition, randomness);
      const auto* loss = definition.is_loss() ? &definition : nullptr;
      const auto objective = [&] {  // what the gradients are of
        const Vector<Values> y = judge.forward(drawn->operands);
        double sum = 0;
        for (size_t o = 0; o < (loss ? 1 : y.size()); ++o)
          for (size_t k = 0; k < y[o].size(); ++k) sum += y[o][k] * drawn->gradients[o][k];
        return loss ? sum * 0.5 / static_cast<double>(y[0].size()) : sum;  // weight 0.5, mean
      };
      const reference::Gradients gradients = judge.backward(drawn->operands, drawn->gradients);
      const auto check = [&](Values& values, const Values& gradient) {
        for (int sample = 0; sample < 6 && !values.empty() && !gradient.empty(); ++sample) {
          const size_t k = static_cast<size_t>(cases.between(0, static_cast<int64_t>(values.size()) - 1));
          const double kept = values[k], step = 1e-6;
          values[k] = kept + step;
          const double above = objective();
          values[k] = kept - step;
          const double below = objective();
          values[k] = kept;
          REQUIRE(gradient[k] == Approx((above - below) / (2 * step)).margin(1e-5));
        }
      };
      for (size_t i = 0; i < drawn->operands.inputs.size(); ++i)
        if (definition.differentiable_input(static_cast<int>(i))) check(drawn->operands.inputs[i], gradients.inputs[i]);
      for (size_t p = 0; p < drawn->operands.parameters.size(); ++p)
        if (definition.parameters()[p].trained) check(drawn->operands.parameters[p], gradients.parameters[p]);
    }
  }
}
