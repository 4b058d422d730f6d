#include "search/optimizer/exhaustive/space.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace ff::exhaustive {
namespace {

constexpr double most_choices = 100000;

// Sizes of a profile's entries "copy BYTES" or "update BYTES": between them, times are interpolated.
Vector<int64_t> measured_sizes(const Profile& profile, const std::string& work) {
  Vector<int64_t> sizes;
  const std::string prefix = work + " ";
  for (auto it = profile.entries.lower_bound(prefix); it != profile.entries.end() && it->first.rfind(prefix, 0) == 0;
       ++it) {
    int64_t size = 0;
    const char* end = it->first.data() + it->first.size();
    if (std::from_chars(it->first.data() + prefix.size(), end, size).ptr == end && size > 0) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

}  // namespace

Space::Space(Evaluator& evaluator, const SearchSpace& space, Assignments assignments)
    : builder_(evaluator.builder()), topology_(evaluator.problem().topology), costs_(evaluator.cost_model()),
      device_count_(topology_.devices.count()), symmetries_(device_symmetries(topology_)),
      operators_(graph().operators.size()) {
  if (assignments == Assignments::consecutive)  // a symmetry has to map the space onto itself
    std::erase_if(symmetries_, [&](const DevicePermutation& symmetry) {
      for (int device = 0; device < device_count_; ++device)
        if (symmetry.device[device] != (symmetry.device[0] + device) % device_count_) return true;
      return false;
    });
  double all = 0;
  for (OperatorId op : graph().operator_ids()) {
    double count = 0;
    for (const Degrees& degrees : space.degrees(op)) {
      const int parts = parts_of(degrees);
      enumerable_ = enumerable_ && parts <= most_parts;
      count += assignments == Assignments::all ? std::pow(device_count_, parts) : device_count_;
    }
    log10_size_ += std::log10(count);
    all += count;
  }
  enumerable_ = enumerable_ && all <= most_choices;
  if (!enumerable_) return;
  for (OperatorId op : graph().operator_ids()) {
    enumerate(op, space.degrees(op), assignments);
    find_orbits(op);
  }
  lay_out_edges();
  for (int model : topology_.models.indices()) bound_rates(evaluator.problem().kernels, model);
}

void Space::enumerate(OperatorId op, const Vector<Degrees>& degrees, Assignments assignments) {
  OperatorChoices& result = operators_[op];
  for (const Degrees& given : degrees) {
    DegreesCosts costs{given, parts_of(given), {}, {}, {}};
    for (Direction direction : directions)
      costs.statistics[direction] =
          graph().operators[op].definition->has_statistics(given, direction == Direction::backward);
    for (int model : topology_.models.indices()) {
      const TaskCostModel::PartCosts& parts = costs_.part_costs(op, given, model);
      costs.forward.emplace_back();
      costs.backward.emplace_back();
      for (int part = 0; part < costs.parts; ++part) {
        costs.forward.back()[part] = parts[part].all_forward();
        costs.backward.back()[part] = parts[part].all_backward();
      }
    }
    Choice choice;
    choice.degrees = static_cast<int16_t>(result.degrees.size());
    choice.parts = static_cast<int8_t>(costs.parts);
    result.degrees.push_back(std::move(costs));
    if (assignments == Assignments::consecutive) {
      for (int first = 0; first < device_count_; ++first) {
        for (int part = 0; part < choice.parts; ++part)
          choice.devices[part] = static_cast<int8_t>((first + part) % device_count_);
        result.choices.push_back(choice);
      }
      continue;
    }
    choice.devices.fill(0);
    while (true) {
      result.choices.push_back(choice);
      int part = choice.parts - 1;
      while (part >= 0 && choice.devices[part] == device_count_ - 1) choice.devices[part--] = 0;
      if (part < 0) break;
      ++choice.devices[part];
    }
  }
}

void Space::find_orbits(OperatorId op) {
  OperatorChoices& result = operators_[op];
  std::map<std::pair<int, Array<int8_t, most_parts>>, int32_t> orbit_of;  // by degrees and the least image
  for (int i : result.choices.indices()) {
    Choice& choice = result.choices[i];
    Array<int8_t, most_parts> least = choice.devices;
    for (const DevicePermutation& symmetry : symmetries_) least = std::min(least, image(choice, symmetry).devices);
    const auto [it, added] = orbit_of.try_emplace({choice.degrees, least}, result.representative.count());
    if (added) {
      result.representative.push_back(i);
      result.of_orbit.emplace_back();
    }
    choice.orbit = it->second;
    result.of_orbit[it->second].push_back(i);
  }
}

void Space::lay_out_edges() {
  in_edges_.resize(operators_.size());
  out_edges_.resize(operators_.size());
  Strategy strategy(operators_.size());
  for (int e : builder_.edges().indices()) {
    const Edge& edge = builder_.edges()[e];
    const Graph& graph = builder_.graph();
    EdgeChoices choices{edge, has_gradient(graph, edge), {}, {}};
    for (const DegreesCosts& producer : this->choices(edge.producer).degrees)
      for (const DegreesCosts& consumer : this->choices(edge.consumer).degrees) {
        strategy[edge.producer].degrees = producer.degrees;
        strategy[edge.consumer].degrees = consumer.degrees;
        choices.exchanges.push_back(builder_.exchanges(e, producer.degrees, consumer.degrees));
        Vector<PairDelay>& pairs = choices.pairs.emplace_back();
        for (const auto blocks = builder_.pairs(e, strategy); const BlockPair& pair : *blocks)
          pairs.push_back({static_cast<int8_t>(pair.producer_part), static_cast<int8_t>(pair.consumer_part),
                           pair.whole_output, pair.whole_input, pair.partial, pair.bytes, delays(pair.bytes)});
      }
    edges_.push_back(std::move(choices));
    out_edges_[edge.producer].push_back(e);
    in_edges_[edge.consumer].push_back(e);
  }
}

const Nanoseconds* Space::delays(int64_t bytes) {
  std::unique_ptr<Vector<Nanoseconds>>& table = delays_[bytes];
  if (!table) {
    table = std::make_unique<Vector<Nanoseconds>>(device_count_ * device_count_, 0);
    CommunicationCost cost;
    for (DeviceId source = 0; source < device_count_; ++source)
      for (DeviceId destination = 0; destination < device_count_; ++destination) {
        if (source == destination) continue;
        costs_.communication().transfer(source, destination, bytes, cost);
        (*table)[source * device_count_ + destination] = cost.duration;
      }
  }
  return table->data();
}

// Times of copies and updates are interpolated between measured sizes, proportional beyond the largest and constant
// below the smallest (interpolated_us), so that both the least time and the least time a byte lie at a measured size or
// in the limit; an analytic time is constant and then proportional. A time x is rounded to at least x - 1/2 and at
// least 1: that is at least 2/3 x, and 1 - 1/2 / x of it.
void Space::bound_rates(KernelCosts& kernels, int model) {
  constexpr int64_t large = int64_t{1} << 40;
  least_copies_.emplace_back();
  Nanoseconds least = costs_.update_ns(1, model);
  double ratio = static_cast<double>(costs_.update_ns(large, model)) / static_cast<double>(large);
  Vector<int64_t> sizes = measured_sizes(kernels.profile(model), "update");
  if (builder_.graph().activation_type == DataType::bf16)  // with a copy of 3/4 of the bytes (TaskCostModel::update_ns)
    for (const int64_t size : measured_sizes(kernels.profile(model), "copy")) sizes.push_back((size * 4 + 2) / 3);
  for (int64_t size : sizes) {
    const Nanoseconds ns = costs_.update_ns(size, model);
    least = std::min(least, ns);
    ratio = std::min(ratio, static_cast<double>(ns) / static_cast<double>(size));
  }
  const double rounding = least < 2 ? 2.0 / 3 : 1 - 0.5 / (static_cast<double>(least) - 0.5);
  least_update_.push_back(least);
  update_ns_per_byte_.push_back(ratio * rounding * rounding * (1 - 1e-9));
  costs_.copy_ns(1, model);  // measures, where this machine can
  measured_copies_.push_back(measured_sizes(kernels.profile(model), "copy"));
}

Nanoseconds Space::least_copy(int64_t bytes, int model) {
  if (bytes == 0) return 0;
  const auto [it, added] = least_copies_[model].try_emplace(bytes, 0);
  if (added) {
    it->second = costs_.copy_ns(bytes, model);
    for (int64_t size : measured_copies_[model])
      if (size > bytes) it->second = std::min(it->second, costs_.copy_ns(size, model));
  }
  return it->second;
}

Nanoseconds Space::least_collective(CollectiveKind kind, uint32_t holders, int64_t bytes) {
  const auto [it, added] = collectives_.try_emplace({kind, holders, bytes}, std::numeric_limits<Nanoseconds>::max());
  if (!added) return it->second;
  CommunicationCost cost;
  for (const DevicePermutation& symmetry : symmetries_) {
    Vector<DeviceId> image;
    for (DeviceId device = 0; device < device_count_; ++device)
      if (holders >> device & 1) image.push_back(symmetry.device[device]);
    std::sort(image.begin(), image.end());
    costs_.communication().collective(kind, image, bytes, cost);
    it->second = std::min(it->second, cost.duration);
  }
  return it->second;
}

const Vector<PairDelay>& Space::pairs(int edge, const Choice& producer, const Choice& consumer) const {
  const EdgeChoices& choices = edges_[edge];
  return choices.pairs[producer.degrees * operators_[choices.edge.consumer].degrees.count() + consumer.degrees];
}

const EdgeExchanges& Space::exchanges(int edge, const Choice& producer, const Choice& consumer) const {
  const EdgeChoices& choices = edges_[edge];
  return *choices.exchanges[producer.degrees * operators_[choices.edge.consumer].degrees.count() + consumer.degrees];
}

Configuration Space::configuration(OperatorId op, const Choice& choice) const {
  Configuration configuration{choices(op).degrees[choice.degrees].degrees, {}};
  for (int part = 0; part < choice.parts; ++part) configuration.devices.push_back(choice.devices[part]);
  return configuration;
}

int32_t Space::find(OperatorId op, const Configuration& configuration) const {
  const OperatorChoices& all = choices(op);
  for (int i : all.choices.indices())
    if (this->configuration(op, all.choices[i]) == configuration) return i;
  return -1;
}

Choice Space::image(const Choice& choice, const DevicePermutation& permutation) const {
  Choice result = choice;
  for (int part = 0; part < choice.parts; ++part)
    result.devices[part] = static_cast<int8_t>(permutation.device[choice.devices[part]]);
  return result;
}

}  // namespace ff::exhaustive
