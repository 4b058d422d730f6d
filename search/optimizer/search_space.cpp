#include "search/optimizer/search_space.h"

#include <algorithm>

namespace ff {
namespace {

// All that the dimensions after `degrees` can have where their product is at most `room`. `given`: decided degrees, 0
// where there is a choice.
void enumerate(const Vector<ParallelDimension>& dimensions, const Degrees& given, int device_count, int room,
               Degrees& degrees, Vector<Degrees>& result) {
  const int d = degrees.count();
  if (d == dimensions.count()) {
    result.push_back(degrees);
    return;
  }
  if (given[d] > 0) {
    degrees.push_back(given[d]);
    enumerate(dimensions, given, device_count, room, degrees, result);
    degrees.pop_back();
    return;
  }
  for (int degree = 1; degree <= room && degree <= dimensions[d].size; ++degree) {
    if (device_count % degree != 0) continue;
    degrees.push_back(degree);
    enumerate(dimensions, given, device_count, room / degree, degrees, result);
    degrees.pop_back();
  }
}

// How many parts the dimensions without a decided degree may still have.
int room_beside(const Degrees& given, int device_count) {
  for (const int degree : given)
    if (degree > 0) device_count /= degree;
  return std::max(1, device_count);
}

}  // namespace

SearchSpace::SearchSpace(const Graph& graph, const Topology& topology, bool whole_operators,
                         const Annotations* annotations)
    : graph_(graph), device_count_(topology.devices.count()), whole_operators_(whole_operators),
      annotations_(annotations) {
  for (const OperatorId op : graph.operator_ids()) {
    const Vector<ParallelDimension>& dimensions = graph.operators[op].definition->dimensions();
    const Annotation* annotation = annotations ? annotations->find(op) : nullptr;
    const Degrees given = annotation ? annotation->degrees : Degrees(dimensions.size(), 0);
    Degrees degrees;
    enumerate(dimensions, given, device_count_, whole_operators ? 1 : room_beside(given, device_count_), degrees,
              degrees_.emplace_back());
    soap_degrees_.push_back(degrees_.back());
    std::erase_if(soap_degrees_.back(),
                  [&](const Degrees& some) { return graph.operators[op].definition->partial_results(some) > 1; });
    if (soap_degrees_.back().empty()) soap_degrees_.back() = degrees_.back();  // annotated
  }
}

bool SearchSpace::allows_slices(OperatorId op, const Degrees& degrees) const {
  if (whole_operators_ || (annotations_ && annotations_->find(op))) return false;
  const Vector<ParallelDimension>& dimensions = graph_.operators[op].definition->dimensions();
  int64_t parts = 1;
  for (int d : degrees.indices()) {
    if (degrees[d] > dimensions[d].size || device_count_ * most_slices % degrees[d] != 0) return false;
    parts *= degrees[d];
  }
  return parts > device_count_ && parts <= device_count_ * most_slices;
}

Vector<Degrees> SearchSpace::sliced_degrees(OperatorId op) const {
  const Vector<ParallelDimension>& dimensions = graph_.operators[op].definition->dimensions();
  Vector<Degrees> result;
  Degrees degrees;
  const int most = device_count_ * most_slices;
  enumerate(dimensions, Degrees(dimensions.size(), 0), most, most, degrees, result);
  std::erase_if(result, [&](const Degrees& some) { return !allows_slices(op, some); });
  return result;
}

const Degrees& SearchSpace::random_degrees(OperatorId op, RandomStream& random, bool sums) const {
  const bool any = sums && degrees_[op].size() > soap_degrees_[op].size() && random.below(4) == 0;
  return random.one_of(any ? degrees_[op] : soap_degrees_[op]);
}

Configuration SearchSpace::random_configuration(OperatorId op, RandomStream& random, bool sums) const {
  if (const Vector<DeviceId>* devices = fixed_devices(op)) return {degrees_[op][0], *devices};
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
