#include "search/explain/settings_remedies.h"

#include <algorithm>
#include <bit>

#include "common/recomputation.h"
#include "common/strategy_configurations.h"

namespace ff {
namespace {

constexpr int most_micro_batches = 64;
constexpr int64_t most_tasks = 20'000'000;  // simulated in all: about a minute

enum Setting { micro_batches, sharding, recomputation, precision };
constexpr int setting_count = 4;
// One bit each.
constexpr bool has(unsigned settings, Setting setting) { return (settings >> setting & 1) != 0; }

const char* sharded_text(Synchronization stage) {
  switch (stage) {
    case Synchronization::sharded_optimizer: return "the optimizer's state";
    case Synchronization::sharded_gradients: return "the optimizer's state and the gradients";
    default: return "the optimizer's state, gradients and weights";
  }
}

class SettingsFinder {
 public:
  SettingsFinder(const Problem& problem, const Strategy& strategy, int64_t tasks)
      : problem_(problem), strategy_(strategy), tasks_(tasks), bf16_(problem.whole().activation_type == DataType::f32),
        full_(problem.settings.recompute.empty() ? full_recomputation(problem.whole()) : Vector<std::string>()) {
    const StrategySettings& given = problem.settings;
    for (int count = 2 * given.micro_batches; count <= most_micro_batches && splits(count); count *= 2)
      micro_batches_.push_back(count);
    if (given.synchronization != Synchronization::parameter_server)
      for (const Synchronization stage : {Synchronization::sharded_optimizer, Synchronization::sharded_gradients,
                                          Synchronization::sharded_parameters})
        if (!given.sharding.empty() || stage > given.synchronization) stages_.push_back(stage);
  }

  // With these settings, the others as they are.
  std::optional<MemoryRemedy> find(unsigned settings) {
    if ((has(settings, micro_batches) && micro_batches_.empty()) || (has(settings, sharding) && stages_.empty()) ||
        (has(settings, recomputation) && full_.empty()) || (has(settings, precision) && !bf16_))
      return std::nullopt;
    const auto counts = has(settings, micro_batches) ? micro_batches_ : Vector<int>{problem_.settings.micro_batches};
    const auto stages = has(settings, sharding) ? stages_ : Vector<Synchronization>{problem_.settings.synchronization};
    // What needs least memory first: where it does not fit, nothing else does. Then the fewest micro-batches with the
    // last stage, and the first stage with these.
    auto found = remedy(settings, counts.back(), stages.back());
    if (!found) return std::nullopt;
    int fewest = counts.back();
    for (const int count : counts) {
      if (count == fewest) break;
      if (auto fewer = remedy(settings, count, stages.back())) {
        found = std::move(fewer);
        fewest = count;
        break;
      }
    }
    for (const Synchronization stage : stages) {
      if (stage == stages.back()) break;
      if (auto less = remedy(settings, fewest, stage)) return less;
    }
    return found;
  }

 private:
  bool splits(int count) const {
    try {
      const Graph of_one = graph_of_micro_batch(problem_.whole(), count);
      const Json configurations = configurations_to_json(problem_.graph, strategy_, {});
      parse_configurations(JsonPlace(std::make_shared<Json>(configurations), "the strategy"), of_one,
                           problem_.topology);
      return true;
    } catch (const InputError&) {  // the strategy cannot split so few samples
      return false;
    }
  }

  std::optional<MemoryRemedy> remedy(unsigned settings, int count, Synchronization stage) {
    simulated_ += tasks_ * count / problem_.settings.micro_batches;
    if (simulated_ > most_tasks && simulated_ > setting_count * tasks_) return std::nullopt;
    StrategySettings changed = problem_.settings;
    changed.micro_batches = count;
    if (has(settings, sharding)) changed.synchronization = stage, changed.sharding.clear();
    if (has(settings, recomputation)) changed.recompute = full_;
    if (has(settings, precision)) changed.precision = Precision::bf16;
    try {
      const auto whole = std::make_shared<const Graph>(
          has(settings, precision) ? with_activation_type(problem_.whole(), DataType::bf16) : problem_.whole());
      const Graph of_one = graph_of_micro_batch(*whole, count);
      Problem other{of_one,  problem_.topology,      problem_.kernels,           nullptr,
                    changed, problem_.state_buffers, count > 1 ? whole : nullptr};
      const Prediction prediction = Evaluator(other).evaluate(strategy_);
      if (!prediction.feasible()) return std::nullopt;
      return MemoryRemedy{text_of(settings, count, stage), prediction.makespan, prediction.fullness};
    } catch (const InputError&) {  // devices have no rate for bf16
      return std::nullopt;
    }
  }

  static std::string text_of(unsigned settings, int count, Synchronization stage) {
    std::string flags, reason;
    const auto add = [&](Setting setting, const std::string& flag, const std::string& why) {
      if (!has(settings, setting)) return;
      reason = flags.empty() ? ": " + why : "";
      flags += (flags.empty() ? "" : " ") + flag;
    };
    add(micro_batches, "--micro-batches " + std::to_string(count), "fewer samples at a time");
    add(sharding, "--sharding " + std::string(sharding_name(stage)),
        std::string("devices with the same parameters split ") + sharded_text(stage));
    add(recomputation, "--recompute full", "most operators are computed again before backward");
    add(precision, "--precision bf16", "activations and the weights that kernels read take half the bytes");
    return flags + reason;
  }

  const Problem& problem_;
  const Strategy& strategy_;
  const int64_t tasks_;    // of the strategy as it is
  int64_t simulated_ = 0;  // tasks so far
  const bool bf16_;
  const Vector<std::string> full_;
  Vector<int> micro_batches_;
  Vector<Synchronization> stages_;  // from the least to the most memory saved
};

}  // namespace

Vector<MemoryRemedy> settings_remedies(const Problem& problem, const Strategy& strategy, int64_t tasks) {
  SettingsFinder finder(problem, strategy, tasks);
  Vector<MemoryRemedy> found;
  for (int together = 1; together <= setting_count && found.empty(); ++together) {
    for (unsigned settings = 1; settings < 1U << setting_count; ++settings)
      if (std::popcount(settings) == together)
        if (auto remedy = finder.find(settings)) found.push_back(std::move(*remedy));
    if (together == 1 || found.count() <= 1) continue;
    const auto fastest = std::min_element(found.begin(), found.end(), [](const MemoryRemedy& a, const MemoryRemedy& b) {
      return a.predicted < b.predicted;
    });
    found = {MemoryRemedy(*fastest)};
  }
  return found;
}

}  // namespace ff
