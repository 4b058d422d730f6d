#include "common/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/errors.h"

namespace ff {
namespace {

constexpr std::string_view names[] = {"sgd", "adam", "adamw"};
constexpr double largest = 3.4e38;  // of a float

bool is_adam(OptimizerKind kind) { return kind != OptimizerKind::sgd; }

double number(const JsonPlace& place, const std::string& key, double least, double most, double otherwise) {
  const auto found = place.find(key);
  return found ? found->as_number(least, most) : otherwise;
}

LearningRateSchedule parse_schedule(const JsonPlace& place, double learning_rate) {
  place.allow_keys({"warmup_iterations", "iterations", "minimum"}, "key of a learning-rate schedule");
  constexpr int64_t most = int64_t{1} << 40;
  LearningRateSchedule schedule;
  if (const auto found = place.find("warmup_iterations")) schedule.warmup_iterations = found->as_integer(0, most);
  if (const auto found = place.find("iterations")) schedule.iterations = found->as_integer(1, most);
  schedule.minimum = number(place, "minimum", 0, learning_rate, 0);
  if (schedule.iterations > 0 && schedule.iterations <= schedule.warmup_iterations)
    place.at("iterations")
        .fail("found " + std::to_string(schedule.iterations) + ", expected more than the " +
              std::to_string(schedule.warmup_iterations) + " iterations of the warm-up, which they contain");
  if (schedule.iterations == 0 && place.find("minimum"))
    place.at("minimum").fail("goes with \"iterations\", after which the learning rate is at its minimum");
  return schedule;
}

}  // namespace

std::string_view to_string(OptimizerKind kind) { return names[static_cast<size_t>(kind)]; }

Vector<std::string> optimizer_names() { return {std::begin(names), std::end(names)}; }

OptimizerKind optimizer_of(const std::string& name) {
  return static_cast<OptimizerKind>(std::find(std::begin(names), std::end(names), name) - std::begin(names));
}

OptimizerSettings default_optimizer(OptimizerKind kind) {
  OptimizerSettings optimizer;
  optimizer.kind = kind;
  if (is_adam(kind)) optimizer.learning_rate = 0.001;
  if (kind == OptimizerKind::adamw) optimizer.weight_decay = 0.01;
  return optimizer;
}

int state_buffers(const OptimizerSettings& optimizer) {
  return is_adam(optimizer.kind) ? 2 : optimizer.momentum != 0 ? 1 : 0;
}

Vector<std::string> state_names(const OptimizerSettings& optimizer) {
  if (is_adam(optimizer.kind)) return {"exp_avg", "exp_avg_sq"};
  return optimizer.momentum != 0 ? Vector<std::string>{"velocity"} : Vector<std::string>{};
}

Vector<std::string> all_state_names() { return {"velocity", "exp_avg", "exp_avg_sq"}; }

double learning_rate_at(const OptimizerSettings& optimizer, int64_t iteration) {
  const auto& [warmup, iterations, minimum] = optimizer.schedule;
  const double rate = optimizer.learning_rate;
  if (iteration < warmup) return rate * static_cast<double>(iteration + 1) / static_cast<double>(warmup);
  if (iterations == 0) return rate;
  const double done = std::min(1.0, static_cast<double>(iteration - warmup) / static_cast<double>(iterations - warmup));
  return minimum + (rate - minimum) * (1 + std::cos(std::numbers::pi * done)) / 2;
}

OptimizerStep optimizer_step(const OptimizerSettings& optimizer, int64_t iteration, int64_t updates_before) {
  const double rate = learning_rate_at(optimizer, iteration), update = static_cast<double>(updates_before + 1);
  OptimizerStep step;
  step.kind = optimizer.kind;
  step.learning_rate = static_cast<float>(rate);
  step.momentum = static_cast<float>(optimizer.momentum);
  step.weight_decay = static_cast<float>(optimizer.weight_decay);
  step.beta1 = static_cast<float>(optimizer.beta1);
  step.beta2 = static_cast<float>(optimizer.beta2);
  step.epsilon = static_cast<float>(optimizer.epsilon);
  step.step_size = static_cast<float>(rate / (1 - std::pow(optimizer.beta1, update)));
  step.second_moment_root = static_cast<float>(std::sqrt(1 - std::pow(optimizer.beta2, update)));
  return step;
}

double clipping_scale(double clip_norm, double norm) { return std::min(1.0, clip_norm / (norm + 1e-6)); }

OptimizerSettings parse_optimizer(const JsonPlace& place) {
  place.allow_keys({"type", "learning_rate", "momentum", "weight_decay", "betas", "epsilon", "clip_norm", "schedule"},
                   "key of an optimizer");
  const JsonPlace type = place.at("type");
  const Vector<std::string> known = optimizer_names();
  if (std::find(known.begin(), known.end(), type.as_string()) == known.end())
    type.fail("unknown optimizer" + suggestion(type.as_string(), known));
  OptimizerSettings optimizer = default_optimizer(optimizer_of(type.as_string()));
  optimizer.learning_rate = number(place, "learning_rate", 0, largest, optimizer.learning_rate);
  optimizer.weight_decay = number(place, "weight_decay", 0, largest, optimizer.weight_decay);
  for (const char* key : {"betas", "epsilon"})
    if (const auto found = place.find(key); found && !is_adam(optimizer.kind))
      found->fail("goes with the optimizers adam and adamw");
  if (const auto found = place.find("momentum")) {
    if (is_adam(optimizer.kind)) found->fail("goes with the optimizer sgd; adam and adamw have \"betas\"");
    optimizer.momentum = found->as_number(0, largest);
  }
  if (const auto betas = place.find("betas")) {
    const Vector<JsonPlace> both = betas->items();
    if (both.size() != 2) betas->fail("has " + std::to_string(both.size()) + " elements, expected 2");
    constexpr double below_one = 0.9999999;  // 1 would divide by 0
    optimizer.beta1 = both[0].as_number(0, below_one);
    optimizer.beta2 = both[1].as_number(0, below_one);
  }
  optimizer.epsilon = number(place, "epsilon", 0, 1, optimizer.epsilon);
  if (const auto found = place.find("clip_norm")) optimizer.clip_norm = found->as_positive_number();
  if (const auto found = place.find("schedule")) optimizer.schedule = parse_schedule(*found, optimizer.learning_rate);
  return optimizer;
}

Json optimizer_to_json(const OptimizerSettings& optimizer) {
  Json json = {{"type", to_string(optimizer.kind)},
               {"learning_rate", optimizer.learning_rate},
               {"weight_decay", optimizer.weight_decay}};
  if (is_adam(optimizer.kind)) {
    json["betas"] = {optimizer.beta1, optimizer.beta2};
    json["epsilon"] = optimizer.epsilon;
  } else {
    json["momentum"] = optimizer.momentum;
  }
  if (optimizer.clip_norm > 0) json["clip_norm"] = optimizer.clip_norm;
  const LearningRateSchedule& schedule = optimizer.schedule;
  if (schedule.warmup_iterations > 0) json["schedule"]["warmup_iterations"] = schedule.warmup_iterations;
  if (schedule.iterations > 0) {
    json["schedule"]["iterations"] = schedule.iterations;
    json["schedule"]["minimum"] = schedule.minimum;
  }
  return json;
}

OptimizerSettings with_flags(const std::optional<OptimizerSettings>& of_file, const OptimizerFlags& flags) {
  OptimizerSettings optimizer = of_file.value_or(OptimizerSettings());
  if (!flags.kind.empty() && optimizer_of(flags.kind) != optimizer.kind) {
    const OptimizerSettings before = optimizer;
    optimizer = default_optimizer(optimizer_of(flags.kind));
    optimizer.clip_norm = before.clip_norm;
  }
  if (flags.momentum && *flags.momentum != 0 && is_adam(optimizer.kind))
    throw InputError("--momentum goes with the optimizer sgd, not with " + std::string(to_string(optimizer.kind)));
  optimizer.learning_rate = flags.learning_rate.value_or(optimizer.learning_rate);
  if (!is_adam(optimizer.kind)) optimizer.momentum = flags.momentum.value_or(optimizer.momentum);
  optimizer.weight_decay = flags.weight_decay.value_or(optimizer.weight_decay);
  optimizer.clip_norm = flags.clip_norm.value_or(optimizer.clip_norm);
  optimizer.schedule.minimum = std::min(optimizer.schedule.minimum, optimizer.learning_rate);
  return optimizer;
}

}  // namespace ff
