#include "search/optimizer/search_space.h"

namespace ff {
namespace {

void enumerate(const Vector<ParallelDimension>& dimensions, int device_count, int room, Vector<int>& degrees,
               Vector<Vector<int>>& result) {
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
    : device_count_(static_cast<int>(topology.devices.size())) {
  for (const Operator& op : graph.operators) {
    Degrees degrees;
    degrees_.emplace_back();
    enumerate(op.definition->dimensions(), device_count_, whole_operators ? 1 : device_count_, degrees,
              degrees_.back());
  }
}

Configuration SearchSpace::random_configuration(OperatorId op, RandomStream& random) const {
  Configuration configuration;
  configuration.degrees = degrees_[op][random.below(static_cast<uint32_t>(degrees_[op].size()))];
  const int parts = parts_of(configuration.degrees);
  const bool consecutive = random.below(2) == 0;
  const int first = static_cast<int>(random.below(static_cast<uint32_t>(device_count_)));
  for (int part = 0; part < parts; ++part)
    configuration.devices.push_back(consecutive ? (first + part) % device_count_
                                                : static_cast<int>(random.below(static_cast<uint32_t>(device_count_))));
  return configuration;
}

Strategy SearchSpace::random_strategy(RandomStream& random) const {
  Strategy strategy;
  for (OperatorId op = 0; op < static_cast<OperatorId>(degrees_.size()); ++op)
    strategy.push_back(random_configuration(op, random));
  return strategy;
}

}  // namespace ff
