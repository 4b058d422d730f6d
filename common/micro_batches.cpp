#include "common/micro_batches.h"

#include "common/errors.h"

namespace ff {

bool has_micro_batches(const OperatorDefinition& definition) {
  return !definition.dimensions().empty() && definition.dimensions()[0].kind == DimensionKind::sample;
}

Degrees expanded_degrees(const OperatorDefinition& definition, const Degrees& degrees, int micro_batches) {
  if (micro_batches == 1 || !has_micro_batches(definition)) return degrees;
  Degrees all = degrees;
  all.set_shares(0, {});
  all[0] *= micro_batches;
  if (const Vector<int>& shares = degrees.shares(0); !shares.empty()) {
    Vector<int> repeated;
    for (int k = 0; k < micro_batches; ++k) repeated.insert(repeated.end(), shares.begin(), shares.end());
    all.set_shares(0, std::move(repeated));
  }
  return all;
}

Configuration expanded(const OperatorDefinition& definition, const Configuration& configuration, int micro_batches) {
  if (micro_batches == 1 || !has_micro_batches(definition)) return configuration;
  Configuration all{expanded_degrees(definition, configuration.degrees, micro_batches), {}};
  all.devices.reserve(configuration.devices.size() * static_cast<size_t>(micro_batches));
  for (int k = 0; k < micro_batches; ++k)
    all.devices.insert(all.devices.end(), configuration.devices.begin(), configuration.devices.end());
  return all;
}

Strategy expanded(const Graph& graph, const Strategy& strategy, int micro_batches) {
  if (micro_batches == 1) return strategy;
  Strategy all;
  all.reserve(strategy.size());
  for (const OperatorId op : strategy.indices())
    all.push_back(expanded(*graph.operators[op].definition, strategy[op], micro_batches));
  return all;
}

Vector<Change> expanded(const Graph& graph, const Vector<Change>& changes, int micro_batches) {
  if (micro_batches == 1) return changes;
  Vector<Change> all;
  for (const auto& [op, configuration] : changes)
    all.push_back({op, expanded(*graph.operators[op].definition, configuration, micro_batches)});
  return all;
}

Strategy of_one_micro_batch(const Graph& graph, const Strategy& expanded, int micro_batches) {
  Strategy of_one = expanded;
  if (micro_batches == 1) return of_one;
  for (const OperatorId op : of_one.indices()) {
    if (!has_micro_batches(*graph.operators[op].definition)) continue;
    auto& [degrees, devices] = of_one[op];
    Vector<int> shares = degrees.shares(0);
    degrees.set_shares(0, {});
    degrees[0] /= micro_batches;
    shares.resize(shares.size() / static_cast<size_t>(micro_batches));
    degrees.set_shares(0, std::move(shares));
    devices.resize(devices.size() / static_cast<size_t>(micro_batches));
  }
  return of_one;
}

namespace {

// Has the batch m times the samples of a micro-batch in each operator, and all else alike?
void expect_alike(const Graph& whole, const Graph& of_one, int micro_batches) {
  for (const OperatorId op : whole.operator_ids()) {
    const OperatorDefinition& definition = *whole.operators[op].definition;
    const auto &all = definition.dimensions(), &one = of_one.operators[op].definition->dimensions();
    for (const int d : all.indices())
      if (all[d].size != one[d].size * (d == 0 && has_micro_batches(definition) ? micro_batches : 1))
        throw InputError(std::to_string(micro_batches) + " micro-batches: operator \"" + whole.operators[op].name +
                         "\" has size " + std::to_string(all[d].size) + " in dimension \"" + all[d].name +
                         "\" for the batch and " + std::to_string(one[d].size) +
                         " for a micro-batch: in micro-batches it would compute something else");
  }
}

}  // namespace

Graph graph_of_batch(const Graph& of_one, int micro_batches) {
  if (micro_batches == 1) return of_one;
  Graph whole = with_batch_size(of_one, of_one.batch_size * micro_batches, of_one.name);
  expect_alike(whole, of_one, micro_batches);
  return whole;
}

Graph graph_of_micro_batch(const Graph& whole, int micro_batches) {
  if (micro_batches == 1) return whole;
  if (whole.batch_size % micro_batches != 0)
    throw InputError(std::to_string(micro_batches) + " micro-batches: the batch of " +
                     std::to_string(whole.batch_size) + " samples is not divisible by them");
  Graph of_one = with_batch_size(whole, whole.batch_size / micro_batches,
                                 whole.name + " in " + std::to_string(micro_batches) + " micro-batches");
  expect_alike(whole, of_one, micro_batches);
  return of_one;
}

}  // namespace ff
