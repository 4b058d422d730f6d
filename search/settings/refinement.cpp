#include "search/settings/refinement.h"

#include <algorithm>
#include <optional>

#include "common/sharding.h"
#include "search/optimizer/device_nodes.h"
#include "search/settings/torchtitan_stages.h"

namespace ff {
namespace {

constexpr double least_gain = 0.001;

// Nothing where it exceeds memory or is not possible.
std::optional<SettingsPrediction> predicted_if_it_fits(const Parallelism& parallelism,
                                                       const SettingsRefinement& refinement, int64_t& simulated) {
  try {
    ++simulated;
    SettingsPrediction found = predict_settings(parallelism, refinement.graph, refinement.topology, refinement.costs,
                                                Extrapolation::steady, &refinement.folds);
    if (found.fits()) return found;
  } catch (const InputError&) {
  } catch (const MachineError&) {  // this machine has no memory for it
  }
  return std::nullopt;
}

bool pays(const SettingsPrediction& found, const SettingsPrediction& best) {
  return static_cast<double>(found.makespan) < (1 - least_gain) * static_cast<double>(best.makespan);
}

// Each layer in a chunk of its own, and the embedding, or it and the loss.
SettingsPrediction with_ends_alone(SettingsPrediction best, const SettingsRefinement& refinement, int64_t& simulated) {
  constexpr int most_chunks = 12;  // of a stage; MLPerf's GPT-3 has as many
  const int layers = transformer_layers(refinement.graph).count(), stages = best.parallelism.pipeline;
  const int micro_batches = micro_batches_of(best.parallelism, refinement.graph);
  for (const int all : {layers + 2, layers + 1}) {
    const int chunks = all / stages;
    if (all % stages != 0 || chunks < 2 || chunks > most_chunks || chunks == best.parallelism.chunks ||
        all > most_chunks_of(layers) || micro_batches % stages != 0)
      continue;
    Parallelism parallelism = best.parallelism;
    parallelism.chunks = chunks;
    parallelism.layers.clear();
    const auto found = predicted_if_it_fits(parallelism, refinement, simulated);
    if (found && pays(*found, best)) best = *found;
  }
  return best;
}

// Ascending, up to all of the largest chunk. torchtitan has every so many of a stage.
Vector<int> numbers_of_recomputed_layers(Parallelism plan, int layers) {
  const Vector<int> of_chunks = layers_of_chunks(plan, layers);
  const int all = *std::max_element(of_chunks.begin(), of_chunks.end());
  Vector<int> numbers;
  for (plan.recompute_layers = 1; plan.recompute_layers < all; ++plan.recompute_layers)
    if (plan.framework != "fsdp" || recomputed_every(plan, layers) > 0) numbers.push_back(plan.recompute_layers);
  numbers.push_back(all);
  return numbers;
}

SettingsPrediction with_less_recomputation(SettingsPrediction best, const SettingsRefinement& refinement,
                                           int64_t& simulated) {
  const int layers = transformer_layers(refinement.graph).count();
  const Vector<int> numbers = numbers_of_recomputed_layers(best.parallelism, layers);
  int exceeds = -1, fits = numbers.count() - 1;  // indices
  while (fits - exceeds > 1 && !refinement.ended()) {
    const int tried = (exceeds + fits) / 2;
    Parallelism parallelism = best.parallelism;
    parallelism.recompute_layers = numbers[tried];
    const auto found = predicted_if_it_fits(parallelism, refinement, simulated);
    (found ? fits : exceeds) = tried;
    if (found && pays(*found, best)) best = *found;
  }
  return best;
}

SettingsPrediction with_moved_borders(SettingsPrediction best, const SettingsRefinement& refinement,
                                      int64_t& simulated) {
  const int layers = transformer_layers(refinement.graph).count();
  while (!refinement.ended()) {
    const Vector<StageTimes> stages =
        stage_times(best.parallelism, refinement.graph, refinement.topology, refinement.costs);
    const auto busier = [](const StageTimes& a, const StageTimes& b) { return a.busy() < b.busy(); };
    const auto from = std::max_element(stages.begin(), stages.end(), busier),
               to = std::min_element(stages.begin(), stages.end(), busier);
    // What a layer takes at most: the stages at the ends compute more than their layers.
    if (from->layers < 2 || to->busy() + to->busy() / std::max(1, to->layers) >= from->busy()) return best;
    Parallelism parallelism = best.parallelism;
    parallelism.layers = layers_of_chunks(parallelism, layers);
    --parallelism.layers[static_cast<int>(from - stages.begin())];
    ++parallelism.layers[static_cast<int>(to - stages.begin())];
    const auto found = predicted_if_it_fits(parallelism, refinement, simulated);
    if (!found || !pays(*found, best)) return best;
    best = *found;
  }
  return best;
}

SettingsPrediction with_other_overlap(SettingsPrediction best, const SettingsRefinement& refinement,
                                      int64_t& simulated) {
  Parallelism parallelism = best.parallelism;
  parallelism.overlaps_reductions = !overlaps_reductions(parallelism);
  if (refinement.gathers && parallelism.framework == "megatron")
    parallelism.overlaps_gathers = *parallelism.overlaps_reductions;
  const auto found = predicted_if_it_fits(parallelism, refinement, simulated);
  return found && pays(*found, best) ? *found : best;
}

// The smallest groups that fit exchange least between nodes.
SettingsPrediction with_smaller_groups(SettingsPrediction best, const SettingsRefinement& refinement,
                                       int64_t& simulated) {
  Parallelism parallelism = best.parallelism;
  const int ranks = parallelism.ranks_of_parameters(),
            most = parallelism.shard_group > 0 ? parallelism.shard_group : ranks;
  const int least = smallest_shard_group(parallelism, most_devices_of_node(refinement.topology));
  for (int group = least; group > 0 && group < most && !refinement.ended(); group *= 2) {
    if (ranks % group != 0) continue;
    parallelism.shard_group = group;
    if (const auto found = predicted_if_it_fits(parallelism, refinement, simulated))
      return pays(*found, best) ? *found : best;
  }
  return best;
}

}  // namespace

bool can_shard_in_groups(const std::string& framework, Synchronization synchronization) {
  if (framework == "internevo") return synchronization == Synchronization::sharded_optimizer;
  if (framework == "megatron") return is_sharded(synchronization);
  return framework != "none" && framework != "scaling" && shards_parameters(synchronization);
}

int smallest_shard_group(const Parallelism& parallelism, int devices_of_node) {
  const int group = devices_of_node / parallelism.tensor, ranks = parallelism.ranks_of_parameters();
  return group > 1 && group < ranks && ranks % group == 0 ? group : 0;
}

SettingsPrediction refined(const SettingsPrediction& plan, const SettingsRefinement& refinement, int64_t& simulated) {
  SettingsPrediction best = plan;
  const Parallelism& settings = plan.parallelism;
  if (refinement.chunks && settings.pipeline > 1 && settings.stage_data.empty())
    best = with_ends_alone(best, refinement, simulated);
  if (refinement.recomputation && settings.recompute == Recomputation::full && settings.recompute_layers == 0)
    best = with_less_recomputation(best, refinement, simulated);
  // torchtitan could not say which layers stages of other sizes recompute.
  const bool keeps_borders = settings.framework == "fsdp" && best.parallelism.recompute_layers > 0;
  if (refinement.borders && settings.pipeline > 1 && best.parallelism.chunks == 1 && !keeps_borders)
    best = with_moved_borders(best, refinement, simulated);
  if (refinement.overlap && settings.data > 1 && !shards_gradients(settings.synchronization))
    best = with_other_overlap(best, refinement, simulated);
  if (refinement.groups && can_shard_in_groups(settings.framework, settings.synchronization))
    best = with_smaller_groups(best, refinement, simulated);
  return best;
}

}  // namespace ff
