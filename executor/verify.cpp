#include "executor/verify.h"

#include <cmath>
#include <limits>

#include "executor/transport/in_process.h"

namespace ff {

double relative_error(std::span<const float> a, std::span<const float> b, float floor) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, largest = floor;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return difference / largest;
}

void restore(Trainer& trainer, const Checkpoint& checkpoint) {
  set_parameters(trainer.program(), ParameterData::weight, checkpoint.weights);
  set_parameters(trainer.program(), ParameterData::velocity, checkpoint.velocities);
}

Verification verify(const StrategyFile& file, Backend& backend, const TrainerSettings& trainer_settings, const RunSettings& settings,
                    const RunResult& result, const Checkpoint* initial, const HostTensors& parameters) {
  const StrategyFile one_device{file.graph, file.topology, single_device(file.graph), {}, Json::object(), false};
  RunSettings quiet;
  quiet.iterations = static_cast<int64_t>(result.losses.size());  // fewer than asked for after an interruption
  quiet.data = settings.data;
  quiet.shuffle = settings.shuffle;
  RunResult reference;
  HostTensors expected;
  run_in_process(1, [&](Transport& transport) {
    Trainer trainer(one_device, backend, transport, trainer_settings);
    if (initial) restore(trainer, *initial);
    reference = run_training(trainer, quiet);
    expected = gather_parameters(trainer.program(), ParameterData::weight);
  });
  Verification verification;
  // Rounding differences grow as training goes on from slightly different parameters.
  verification.tolerance = 1e-4 * std::sqrt(std::max(1.0, static_cast<double>(result.losses.size())));
  const auto consider = [&](double error, const std::string& what) {
    if (!(error <= verification.max_relative_error)) {
      verification.max_relative_error = error;
      verification.worst = what;
    }
  };
  for (size_t i = 0; i < result.losses.size(); ++i) {
    const float mine[] = {static_cast<float>(result.losses[i])}, theirs[] = {static_cast<float>(reference.losses[i])};
    consider(relative_error(mine, theirs), "the loss of iteration " + std::to_string(i));
  }
  for (const auto& [name, values] : expected) {
    const auto it = parameters.find(name);
    consider(it == parameters.end() ? std::numeric_limits<double>::infinity() : relative_error(it->second, values), "parameter " + name);
  }
  return verification;
}

}  // namespace ff
