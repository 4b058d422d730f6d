// Training in bf16: split strategies against one device, and memory against the prediction.
//
// The bound. A bf16 has 8 bits of mantissa, so rounding changes a value by at most u = 2^-8 of its size. One device in
// bf16 and one in f32 differ by what all roundings of activations and their gradients add up to; call the root mean
// square of that over a tensor its rounding error. Where one device rounds a sum once, a strategy with d partial sums
// rounds each of these and each of d - 1 additions: 2 d - 1 times. So it does with d contributions to a gradient.
// Roundings are independent, so that its error against f32 is sqrt(2 d - 1) times as large at most, and its difference
// from one device in bf16 at most 1 + sqrt(2 d - 1) times. That of a tensor of few values may be small by chance: the
// largest relative one of the network's tensors, and one rounding more, stand for it. And the root mean square of n
// values that are drawn at random differs from the expected one by 1 / sqrt(2 n) of it (standard deviation): three of
// these are allowed.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "common/kernels/bf16.h"
#include "executor/transport/in_process.h"
#include "tests/support/executor/equivalence.h"

namespace ff {
namespace {

EquivalenceOutcome train_in_process(const StrategyFile& file, int ranks) {
  EquivalenceOutcome outcome;
  run_in_process(ranks, [&](Transport& transport) {
    const auto backend = make_cpu_backend(1);
    EquivalenceOutcome mine = train_for_comparison(file, *backend, transport);
    if (transport.rank() == 0) outcome = std::move(mine);
  });
  return outcome;
}

StrategyFile in_bf16(StrategyFile file) {
  file.settings.precision = Precision::bf16;
  file.graph = with_activation_type(file.graph, DataType::bf16);
  return file;
}

double root_mean_square(const std::vector<float>& values, const std::vector<float>* minus = nullptr) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = static_cast<double>(values[i]) - (minus ? static_cast<double>((*minus)[i]) : 0.0);
    sum += value * value;
  }
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(1, values.size())));
}

// Slots are decided by comparing numbers: another rounding sends a token to another expert.
bool decides_by_comparison(const Graph& graph) {
  return std::any_of(graph.operators.begin(), graph.operators.end(),
                     [](const Operator& op) { return op.definition->type() == "top_k_gating"; });
}

// d above: of partial sums, or of parts that may contribute to one gradient.
int most_terms(const StrategyFile& file) {
  int most = 1;
  for (const OperatorId op : file.graph.operator_ids()) {
    most = std::max(most, file.graph.operators[op].definition->partial_results(file.strategy[op].degrees));
    for (const TensorId tensor : file.graph.operators[op].outputs) {
      int64_t readers = 0;
      for (const TensorUse& use : file.graph.tensors[tensor].uses)
        readers = std::max(readers, file.strategy[use.consumer].parts());
      most = std::max(most, static_cast<int>(readers));
    }
  }
  return most;
}

// How many gradients were compared.
int compare_in_bf16(unsigned seed, int most_ranks) {
  int compared = 0;
  const EquivalenceCase one = random_case(seed, 1 + static_cast<int>(seed % static_cast<unsigned>(most_ranks)));
  if (decides_by_comparison(one.split.graph)) return compared;
  INFO(one.text);
  const EquivalenceOutcome exact = train_in_process(one.one_device, 1),
                           alone = train_in_process(in_bf16(one.one_device), 1),
                           split = train_in_process(in_bf16(one.split), one.ranks);
  // Before the first update: later iterations begin with weights that differ already.
  const double roundings = static_cast<double>(2 * one.split.graph.operators.size());
  CHECK(std::abs(split.losses[0] - alone.losses[0]) <=
        roundings * static_cast<double>(bf16_rounding) * std::max(1.0, std::abs(exact.losses[0])));
  if (!split.has_gradients) return compared;
  double largest = 0;
  for (const auto& [name, values] : exact.gradients[0]) largest = std::max(largest, root_mean_square(values));
  const auto size_of_gradient = [&](const std::vector<float>& values) {
    return std::max(root_mean_square(values), largest / 32);
  };
  double relative = static_cast<double>(bf16_rounding);  // the largest rounding error, of a tensor's size
  for (const auto& [name, values] : alone.gradients[0])
    relative = std::max(relative, root_mean_square(values, &exact.gradients[0].at(name)) / size_of_gradient(values));
  for (const auto& [name, values] : alone.gradients[0]) {
    INFO(name);
    const double chance = 1 + 3 / std::sqrt(2.0 * static_cast<double>(values.size()));
    CHECK(root_mean_square(split.gradients[0].at(name), &values) <=
          chance * ((1 + std::sqrt(2.0 * most_terms(one.split) - 1)) * relative + static_cast<double>(bf16_rounding)) *
              size_of_gradient(values));
    ++compared;
  }
  return compared;
}

}  // namespace

TEST_CASE("random strategies in bf16 compute what one device computes in bf16, within its rounding errors", "[slow]") {
  int compared = 0;
  for (unsigned seed = 5000; seed < 5200; ++seed) compared += compare_in_bf16(seed, 4);
  CHECK(compared > 300);
}

// By hand: FF_EQUIVALENCE_SEEDS=5000-8000 tests/test_executor "[bf16-sweep]". Two of 3,000 cases exceeded the bound:
// seeds 70483 and 81322; both agree in fp32. What differs are gradients of a layer with a relu and of those in front of
// it, as if an input near 0 had another sign in another order of sums. That was not traced to the number.
TEST_CASE("sweep of random strategies in bf16, as many as asked for", "[.][bf16-sweep]") {
  const char* asked = std::getenv("FF_EQUIVALENCE_SEEDS");
  REQUIRE(asked);
  char* dash = nullptr;
  const unsigned long begin = std::strtoul(asked, &dash, 10), end = std::strtoul(dash + 1, nullptr, 10);
  for (unsigned long seed = begin; seed < end; ++seed) compare_in_bf16(static_cast<unsigned>(seed), 8);
}

TEST_CASE("a strategy in bf16 gives the same bits when it runs again", "[slow]") {
  for (unsigned seed = 5300; seed < 5360; ++seed) {
    const EquivalenceCase one = random_case(seed, 1 + static_cast<int>(seed % 4));
    INFO(one.text);
    const StrategyFile file = in_bf16(one.split);
    const EquivalenceOutcome first = train_in_process(file, one.ranks), second = train_in_process(file, one.ranks);
    CHECK(first.losses == second.losses);
    for (const double loss : first.losses) CHECK(std::isfinite(loss));
    for (const HostTensors& weights : first.weights)
      for (const auto& [name, values] : weights)
        for (const float value : values) REQUIRE(std::isfinite(value));
  }
}

}  // namespace ff
