#include "executor/verify.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <tuple>

#include "common/kernels/bf16.h"
#include "common/philox.h"
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
  set_states(trainer.program(), checkpoint.states);
  const Vector<std::string> names = state_names(trainer.settings().optimizer);
  const bool known = std::all_of(names.begin(), names.end(),
                                 [&](const std::string& state) { return checkpoint.states.contains(state); });
  trainer.go_on_from(checkpoint.iterations, known ? checkpoint.updates : 0);
}

namespace {

struct Outcome {
  Vector<double> losses;
  HostTensors parameters;
};

// Every weight one unit in the last place larger or smaller: of f32, or where kernels read bf16, of that.
void perturb(Trainer& trainer) {
  const bool bf16 = trainer.program().graph().activation_type == DataType::bf16;
  HostTensors weights = gather_parameters(trainer.program(), ParameterData::weight);
  for (auto& [name, values] : weights) {
    const uint64_t stream = random_stream(1, name);
    for (size_t i = 0; i < values.size(); ++i) {
      const bool down = uniform_at(stream, i) < 0.5f;
      if (bf16) values[i] *= down ? 1 - 2 * bf16_rounding : 1 + 2 * bf16_rounding;
      else
        values[i] =
            std::nextafter(values[i], down ? -std::numeric_limits<float>::max() : std::numeric_limits<float>::max());
    }
  }
  set_parameters(trainer.program(), ParameterData::weight, weights);
}

// Largest relative difference, and what it is of.
std::pair<double, std::string> difference(const Outcome& found, const Outcome& expected) {
  std::pair<double, std::string> worst{0, "nothing"};
  const auto consider = [&](double error, const std::string& what) {
    if (!(error <= worst.first)) worst = {error, what};
  };
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    const float mine[] = {static_cast<float>(found.losses[i])}, theirs[] = {static_cast<float>(expected.losses[i])};
    consider(relative_error(mine, theirs), "the loss of iteration " + std::to_string(i));
  }
  for (const auto& [name, values] : expected.parameters) {
    const auto it = found.parameters.find(name);
    consider(
        it == found.parameters.end() ? std::numeric_limits<double>::infinity() : relative_error(it->second, values),
        "parameter " + name);
  }
  return worst;
}

}  // namespace

Verification verify(const StrategyFile& file, Backend& backend, const TrainerSettings& trainer_settings,
                    const RunSettings& settings, const RunResult& result, const Checkpoint* initial,
                    const HostTensors& parameters) {
  const StrategyFile one_device{file.graph, file.topology, single_device(file.graph), {}, Json::object(), false};
  RunSettings quiet;
  quiet.iterations = static_cast<int64_t>(result.losses.size());  // fewer than asked for after an interruption
  quiet.data = settings.data;
  quiet.shuffle = settings.shuffle;
  const auto run_alone = [&](bool perturbed) {
    Outcome outcome;
    run_in_process(1, [&](Transport& transport) {
      Trainer trainer(one_device, backend, transport, trainer_settings);
      if (initial) restore(trainer, *initial);
      if (perturbed) perturb(trainer);
      outcome.losses = run_training(trainer, quiet).losses;
      outcome.parameters = gather_parameters(trainer.program(), ParameterData::weight);
    });
    return outcome;
  };
  const Outcome reference = run_alone(false);
  Verification verification;
  // Rounding differences grow as training goes on from slightly different parameters.
  const double iterations = std::max(1.0, static_cast<double>(result.losses.size()));
  verification.tolerance =
      (file.graph.activation_type == DataType::bf16 ? bf16_rounding : 1e-4) * std::sqrt(iterations);
  std::tie(verification.max_relative_error, verification.worst) = difference({result.losses, parameters}, reference);
  if (std::isfinite(verification.max_relative_error) && verification.max_relative_error > verification.tolerance)
    verification.rounding_error = difference(run_alone(true), reference).first;
  return verification;
}

std::string failure_text(const Verification& verification) {
  std::ostringstream text;
  text << "verification failed: " << verification.worst << " differs from the one-device run by "
       << verification.max_relative_error << " (relative), expected at most " << verification.tolerance
       << ", or 10 times the " << verification.rounding_error
       << " that one unit in the last place of the weights makes";
  return text.str();
}

}  // namespace ff
