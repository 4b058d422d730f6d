#include "search/optimizer/mcmc/local_optimum.h"

#include <chrono>
#include <cmath>
#include <limits>

namespace ff {

Neighbourhood::Neighbourhood(const Graph& graph, const Topology& topology, const SearchSpace& space,
                             int64_t most_assignments)
    : space_(space), device_count_(topology.devices.count()), most_assignments_(most_assignments) {
  constexpr int none = std::numeric_limits<int>::max();
  int most_parts = 0, fewest_left = none;
  for (OperatorId op : graph.operator_ids())
    for (const Degrees& degrees : space.degrees(op)) {
      if (space.fixed_devices(op)) continue;
      const int parts = parts_of(degrees);
      if (every_assignment(parts)) most_parts = std::max(most_parts, parts);
      else fewest_left = std::min(fewest_left, parts);
    }
  text_ = "one operator changed: all degrees of the search space, every assignment of devices";
  if (fewest_left != none)
    text_ += most_parts > 0
                 ? " up to " + std::to_string(most_parts) + " parts, consecutive devices from every first one beyond"
                 : " replaced by consecutive devices from every first one";
  if (space.annotations()) text_ += ", as far as annotations allow";
}

bool Neighbourhood::every_assignment(int parts) const {
  int64_t assignments = 1;
  for (int part = 0; part < parts && assignments <= most_assignments_; ++part) assignments *= device_count_;
  return assignments <= most_assignments_;
}

void Neighbourhood::for_each(OperatorId op, const std::function<bool(const Configuration&)>& visit) const {
  Configuration configuration;
  Vector<DeviceId>& devices = configuration.devices;
  if (const Vector<DeviceId>* fixed = space_.fixed_devices(op)) {
    visit({space_.degrees(op)[0], *fixed});
    return;
  }
  for (const Degrees& degrees : space_.degrees(op)) {
    const int parts = parts_of(degrees);
    configuration.degrees = degrees;
    devices.assign(parts, 0);
    if (every_assignment(parts)) {
      int digit = 0;
      while (digit < parts) {
        if (!visit(configuration)) return;
        for (digit = 0; digit < parts; ++digit) {  // counts in base `devices`
          if (++devices[digit] < device_count_) break;
          devices[digit] = 0;
        }
      }
    } else {
      for (DeviceId first = 0; first < device_count_; ++first) {
        for (int part = 0; part < parts; ++part) devices[part] = (first + part) % device_count_;
        if (!visit(configuration)) return;
      }
    }
  }
}

LocalOptimum local_optimum(const Problem& problem, const Neighbourhood& neighbourhood, const Strategy& start,
                           SimulatorKind simulator, const SearchControl& control) {
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const std::unique_ptr<ChainOracle> oracle = make_chain_oracle(simulator, problem);
  LocalOptimum result;
  result.prediction = oracle->start(start);
  const int operators = problem.graph.operators.count();
  Vector<int64_t> neighbours(operators, 0);
  // After its turn an operator has its best configuration given the others': one turn each without a change proves the
  // optimum.
  int unchanged = 0;
  for (OperatorId op = 0; unchanged < operators && !control.stop; op = (op + 1) % operators) {
    int64_t configurations = 0;
    bool changed = false, own_seen = false;  // the configuration that it has in the end
    neighbourhood.for_each(op, [&](const Configuration& configuration) {
      ++configurations;
      if (configuration == oracle->strategy()[op]) {
        own_seen = true;
        return true;
      }
      const std::optional<Prediction> prediction =
          oracle->propose({{op, configuration}}, std::nextafter(result.prediction.cost, 0));
      if (prediction && prediction->cost < result.prediction.cost) {
        oracle->accept();
        result.prediction = *prediction;
        ++result.improvements;
        changed = own_seen = true;
      } else {
        oracle->reject();
      }
      if (++result.evaluated % 64 == 0 && control.progress)
        control.progress({.elapsed_s = elapsed_s(),
                          .proposals = result.evaluated,
                          .current = result.prediction.makespan,
                          .best = result.prediction.makespan});
      return !control.stop;
    });
    neighbours[op] = configurations - own_seen;
    if (control.stop) {  // not all of this operator's neighbours were seen
      if (changed) unchanged = 0;
      break;
    }
    unchanged = changed ? 1 : unchanged + 1;
  }
  result.operators = unchanged;
  result.proven = unchanged >= operators;
  for (int64_t count : neighbours) result.neighbours += count;
  result.strategy = oracle->strategy();
  result.elapsed_s = elapsed_s();
  return result;
}

}  // namespace ff
