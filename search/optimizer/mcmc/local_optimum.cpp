#include "search/optimizer/mcmc/local_optimum.h"

#include <chrono>
#include <cmath>

namespace ff {
Neighbourhood::Neighbourhood(const Graph& graph, const Topology& topology, const SearchSpace& space,
                             int64_t most_assignments)
    : space_(space), device_count_(topology.devices.size()), most_assignments_(most_assignments) {
  size_t most_parts = 0, fewest_left = SIZE_MAX;
  for (OperatorId op = 0; op < static_cast<OperatorId>(graph.operators.size()); ++op)
    for (const Degrees& degrees : space.degrees(op)) {
      const size_t parts = static_cast<size_t>(parts_of(degrees));
      if (every_assignment(parts)) most_parts = std::max(most_parts, parts);
      else fewest_left = std::min(fewest_left, parts);
    }
  text_ = "one operator changed: all degrees of the search space, every assignment of devices";
  if (fewest_left != SIZE_MAX)
    text_ += most_parts > 0
                 ? " up to " + std::to_string(most_parts) + " parts, consecutive devices from every first one beyond"
                 : " replaced by consecutive devices from every first one";
}

bool Neighbourhood::every_assignment(size_t parts) const {
  int64_t assignments = 1;
  for (size_t part = 0; part < parts && assignments <= most_assignments_; ++part)
    assignments *= static_cast<int64_t>(device_count_);
  return assignments <= most_assignments_;
}

void Neighbourhood::for_each(OperatorId op, const std::function<bool(const Configuration&)>& visit) const {
  Configuration configuration;
  for (const Degrees& degrees : space_.degrees(op)) {
    const size_t parts = static_cast<size_t>(parts_of(degrees));
    configuration.degrees = degrees;
    configuration.devices.assign(parts, 0);
    if (every_assignment(parts)) {
      size_t digit = 0;
      while (digit < parts) {
        if (!visit(configuration)) return;
        for (digit = 0; digit < parts; ++digit) {  // counts in base `devices`
          if (static_cast<size_t>(++configuration.devices[digit]) < device_count_) break;
          configuration.devices[digit] = 0;
        }
      }
    } else {
      for (size_t first = 0; first < device_count_; ++first) {
        for (size_t part = 0; part < parts; ++part)
          configuration.devices[part] = static_cast<DeviceId>((first + part) % device_count_);
        if (!visit(configuration)) return;
      }
    }
  }
}

LocalOptimum local_optimum(const Graph& graph, const Topology& topology, KernelCosts& kernels,
                           const Neighbourhood& neighbourhood, const Strategy& start, SimulatorKind simulator,
                           const std::atomic<bool>& stop, const std::function<void(int64_t, Nanoseconds)>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<ChainOracle> oracle = make_chain_oracle(simulator, graph, topology, kernels);
  LocalOptimum result;
  result.evaluation = oracle->start(start);
  const OperatorId operators = static_cast<OperatorId>(graph.operators.size());
  Vector<int64_t> neighbours(graph.operators.size(), 0);
  // After its turn an operator has its best configuration given the others': one turn each without a change proves the
  // optimum.
  OperatorId unchanged = 0;
  for (OperatorId op = 0; unchanged < operators && !stop; op = (op + 1) % operators) {
    int64_t configurations = 0;
    bool changed = false, own_seen = false;  // the configuration that it has in the end
    neighbourhood.for_each(op, [&](const Configuration& configuration) {
      ++configurations;
      if (configuration == oracle->strategy()[op]) {
        own_seen = true;
        return true;
      }
      const std::optional<Evaluation> evaluation =
          oracle->propose({{op, configuration}}, std::nextafter(result.evaluation.cost, 0));
      if (evaluation && evaluation->cost < result.evaluation.cost) {
        oracle->accept();
        result.evaluation = *evaluation;
        ++result.improvements;
        changed = own_seen = true;
      } else {
        oracle->reject();
      }
      if (++result.evaluated % 64 == 0 && progress) progress(result.evaluated, result.evaluation.makespan);
      return !stop;
    });
    neighbours[op] = configurations - own_seen;
    if (stop) {  // not all of this operator's neighbours were seen
      if (changed) unchanged = 0;
      break;
    }
    unchanged = changed ? 1 : unchanged + 1;
  }
  result.operators = unchanged;
  result.proven = unchanged >= operators;
  for (int64_t count : neighbours) result.neighbours += count;
  result.strategy = oracle->strategy();
  result.elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace ff
