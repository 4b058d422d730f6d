// Every kernel of the CPU backend against the double-precision reference, forward and backward, on random shapes, attributes and parts; and
// the reference's backward against finite differences of its forward.
#include "tests/unit/kernels/kernel_cases.h"

using namespace ff;
using namespace ff::kernel_cases;

TEST_CASE("every kernel equals the double-precision reference, forward and backward, on any part") {
  const auto backend = make_cpu_backend();
  for (const std::string& type : operator_types()) check_random_cases(*backend, type, /*count=*/60, /*tolerance=*/2e-5);
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
      const auto* loss = definition.is_loss() ? &definition : nullptr;
      const auto objective = [&] {  // what the gradients are of
        const std::vector<Values> y = reference::forward(definition, drawn->operands, randomness);
        double sum = 0;
        for (size_t o = 0; o < (loss ? 1 : y.size()); ++o)
          for (size_t k = 0; k < y[o].size(); ++k) sum += y[o][k] * drawn->gradients[o][k];
        return loss ? sum * 0.5 / static_cast<double>(y[0].size()) : sum;  // weight 0.5, mean
      };
      const reference::Gradients gradients = reference::backward(definition, drawn->operands, drawn->gradients, randomness);
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
