// The optimizer of a training run: what turns gradients into updates of the parameters. The formulas are PyTorch's
// (torch.optim.SGD, Adam and AdamW without amsgrad, torch.nn.utils.clip_grad_norm_).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/json_file.h"
#include "common/vector.h"

namespace ff {

enum class OptimizerKind : uint8_t { sgd, adam, adamw };
std::string_view to_string(OptimizerKind kind);
Vector<std::string> optimizer_names();
OptimizerKind optimizer_of(const std::string& name);  // of those

struct LearningRateSchedule {
  // The first iterations' rates grow linearly: iteration i, from 0, has (i + 1) / warmup_iterations of the rate.
  int64_t warmup_iterations = 0;
  // After them the rate falls along half a cosine and reaches `minimum` at this iteration, counted with the warm-up;
  // 0: it stays.
  int64_t iterations = 0;
  double minimum = 0;
  bool operator==(const LearningRateSchedule&) const = default;
};

struct OptimizerSettings {
  double learning_rate = 0.01;
  double momentum = 0;      // of SGD
  double weight_decay = 0;  // SGD, Adam: added to the gradient, times the parameter; AdamW: decoupled
  OptimizerKind kind = OptimizerKind::sgd;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // of Adam and AdamW
  // Gradients are scaled down where the norm of all of them together is larger; 0: never.
  double clip_norm = 0;
  LearningRateSchedule schedule = {};

  bool constant() const {  // do all iterations take the same step?
    return kind == OptimizerKind::sgd && clip_norm == 0 && schedule == LearningRateSchedule();
  }
  bool operator==(const OptimizerSettings&) const = default;
};

// PyTorch's defaults; of SGD, which has no default rate there, 0.01.
OptimizerSettings default_optimizer(OptimizerKind kind);

// Numbers that are kept for each trained one: SGD's velocity with momentum, Adam's two moments.
int state_buffers(const OptimizerSettings& optimizer);
// What they are called in checkpoints, after "PARAMETER.": as many.
Vector<std::string> state_names(const OptimizerSettings& optimizer);
// Those of all optimizers.
Vector<std::string> all_state_names();

// Of the iteration with this number, from 0. In double precision, the same on all ranks.
double learning_rate_at(const OptimizerSettings& optimizer, int64_t iteration);

// What one iteration's updates need.
struct OptimizerStep {
  OptimizerKind kind = OptimizerKind::sgd;
  float learning_rate = 0.01f, momentum = 0, weight_decay = 0;
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;
  float step_size = 0.01f;       // Adam, AdamW: learning rate / (1 - beta1^t)
  float second_moment_root = 1;  // Adam, AdamW: sqrt(1 - beta2^t)
};
// `updates_before`: how many updates the state has seen, for Adam's correction of its bias.
OptimizerStep optimizer_step(const OptimizerSettings& optimizer, int64_t iteration, int64_t updates_before);
// min(1, clip_norm / (norm + 1e-6)).
double clipping_scale(double clip_norm, double norm);

// The key "optimizer" of a graph file. Throws InputError.
OptimizerSettings parse_optimizer(const JsonPlace& place);
Json optimizer_to_json(const OptimizerSettings& optimizer);

// Flags of the command line, instead of what a graph file says. Another optimizer than the file's begins with its own
// defaults.
struct OptimizerFlags {
  std::string kind = {};  // "": the file's, or SGD
  std::optional<double> learning_rate = {}, momentum = {}, weight_decay = {}, clip_norm = {};
  bool any() const { return !kind.empty() || learning_rate || momentum || weight_decay || clip_norm; }
};
// Throws InputError where they do not go together.
OptimizerSettings with_flags(const std::optional<OptimizerSettings>& of_file, const OptimizerFlags& flags);

}  // namespace ff
