#include "search/optimizer/search_space.h"

namespace ff {
namespace {

void enumerate(const Vector<ParallelDimension>& dimensions, int device_count, int room, Degrees& degrees,
               Vector<Degrees>& result) {
  if (degrees.size() == dimensions.size()) {
    result.push_back(degrees);
    return;
  }
  for (int degree = 1; degree <= room && degree <= dimensions[degrees.size()].size; ++degree) {
    if (device_count % degree != 0) continue;
    degrees.push_back(degree);
    enumerate(dimensions, device_count, room / degree, degrees, result);
    degrees.pop_back();
  }
}

}  // namespace

SearchSpace::SearchSpace(const Graph& graph, const Topology& topology, bool whole_operators)
    : device_count_(topology.devices.count()) {
  for (const Operator& op : graph.operators) {
    Degrees degrees;
    enumerate(op.definition->dimensions(), device_count_, whole_operators ? 1 : device_count_, degrees,
              degrees_.emplace_back());
    soap_degrees_.push_back(degrees_.back());
    std::erase_if(soap_degrees_.back(), [&](const Degrees& some) { return op.definition->partial_results(some) > 1; });
  }
}

const Degrees& SearchSpace::random_degrees(OperatorId op, RandomStream& random, bool sums) const {
  const bool any = sums && degrees_[op].size() > soap_degrees_[op].size() && random.below(4) == 0;
  return random.one_of(any ? degrees_[op] : soap_degrees_[op]);
}

Configuration SearchSpace::random_configuration(OperatorId op, RandomStream& random, bool sums) const {
  Configuration configuration;
  configuration.degrees = random_degrees(op, random, sums);
  const int parts = parts_of(configuration.degrees);
  const bool consecutive = random.below(2) == 0;
  const int first = random.below(device_count_);
  for (int part = 0; part < parts; ++part)
    configuration.devices.push_back(consecutive ? (first + part) % device_count_ : random.below(device_count_));
  return configuration;
}

Strategy SearchSpace::random_strategy(RandomStream& random) const {
  Strategy strategy;
  for (OperatorId op : degrees_.indices()) strategy.push_back(random_configuration(op, random));
  return strategy;
}

}  // namespace ff
