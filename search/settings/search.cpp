#include "search/settings/search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "search/optimizer/baselines/megatron.h"
#include "search/optimizer/device_nodes.h"
#include "search/optimizer/search_control.h"
#include "search/optimizer/stage_widths.h"
#include "search/settings/estimate.h"
#include "search/settings/refinement.h"

namespace ff {
namespace {

constexpr double margin = 0.05;            // by which simulations are expected to come out below estimates at most
constexpr int most_chunks = 6;             // for a stage; more are looked at where they are given
constexpr double surely_exceeds = 1.05;    // of estimated memory, which is hardly ever more than what is needed
constexpr int64_t least_positions = 2048;  // of a part of context parallelism

// What frameworks can shard: FSDP what torchtitan's data parallelism can (nothing, or all), InternEvo and Scaling the
// optimizer's state.
bool can_shard(const std::string& framework, Synchronization stage) {
  if (framework == "fsdp" || framework == "composer")
    return stage == Synchronization::all_reduce || stage == Synchronization::sharded_parameters;
  return (framework != "internevo" && framework != "scaling") || !shards_gradients(stage);
}

Synchronization more_sharded(Synchronization synchronization) {
  return synchronization == Synchronization::sharded_optimizer ? Synchronization::sharded_gradients
                                                               : Synchronization::sharded_parameters;
}

class SettingsSearch {
 public:
  SettingsSearch(const Graph& graph, const Topology& topology, const CostOptions& costs,
                 const SettingsSearchOptions& options, const std::atomic<bool>& stop)
      : graph_(graph), topology_(topology), costs_(costs), options_(options), stop_(stop), folds_(topology),
        fewer_layers_(graph), layers_(transformer_layers(graph).count()), node_size_(most_devices_of_node(topology)),
        experts_(experts_of(graph)) {}

  SettingsSearchResult run() {
    if (layers_ == 0)
      throw InputError("the graph \"" + graph_.name + "\" has no multi_head_attention: settings are for transformers");
    check_experts();
    const Vector<int> contexts = context_degrees();
    add_shapes(few_samples() || contexts.count() == 1 ? contexts : Vector<int>{1});
    look_at_waiting();
    if (contexts.count() > 1 && !few_samples()) {  // most are not looked at, given the best without
      add_shapes(Vector<int>(contexts.begin() + 1, contexts.end()));
      look_at_waiting();
    }
    const bool all_refused = !refused_.empty() && result_.best.empty() && result_.exceed_memory == 0;
    if ((nodes_.empty() || all_refused) && result_.complete)
      throw InputError("no settings are possible: " + (refused_.empty() ? "" : refused_ + "; and ") +
                       nothing_divides());
    if (result_.best.empty() && !result_.complete) simulate_estimated();
    if (!queue_.empty()) result_.least_of_others = queue_.top().first;
    for (; !queue_.empty(); queue_.pop())
      if (const auto [bound, number] = queue_.top();
          !nodes_[number].simulate && !places_.contains(to_string(nodes_[number].parallelism)))
        look_at(nodes_[number].parallelism, LookedAt::Outcome::bounded, bound, 0);
    refine_best();
    result_.elapsed_s = seconds_since(begin_);
    return std::move(result_);
  }

 private:
  struct Node {
    Parallelism parallelism;
    bool simulate = false;  // else: its shape is to be estimated
    Nanoseconds estimate = 0;
    bool in_groups = false;  // of one shape, the settings that have a shard group
  };
  // tp, pp, cp, ep, etp, samples of a micro-batch, recomputation, sharding, among how many ranks, groups of each stage
  using Shape = std::tuple<int, int, int, int, int, int64_t, Recomputation, Synchronization, int, Vector<int>>;

  bool given(const char* key) const { return options_.given.contains(key); }

  // Whose settings say the plan.
  const std::string& framework() const {
    return options_.planned_for.empty() ? options_.pinned.framework : options_.planned_for;
  }

  void check_experts() const {
    if (experts_ == 1 && (given("etp") || (given("ep") && options_.pinned.expert > 1)))
      throw InputError(std::string(given("etp") ? "etp" : "ep") + ": the graph \"" + graph_.name +
                       "\" has no experts (expert_linear)");
    if (given("ep") && experts_ % options_.pinned.expert != 0)
      throw InputError("ep=" + std::to_string(options_.pinned.expert) + " does not divide the " +
                       std::to_string(experts_) + " experts of the graph \"" + graph_.name + "\"");
  }

  bool enough(Nanoseconds bound) const {
    const double below = std::max(margin, result_.most_below_estimate);
    return result_.best.count() >= options_.top &&
           static_cast<double>(bound) * (1 - below) > static_cast<double>(result_.best.back().makespan);
  }

  // What is looked at where nothing recomputed exceeds memory, and where that does. torchtitan recomputes all layers or
  // none of them.
  Vector<Recomputation> recomputations() const {
    if (given("recompute")) return {options_.pinned.recompute};
    const std::string& framework = options_.pinned.framework;
    if (framework != this->framework()) return {Recomputation::none, Recomputation::full};
    if (framework == "none") return {Recomputation::none, Recomputation::elementwise, Recomputation::full};
    if (framework == "megatron" && experts_ == 1) return {Recomputation::none, Recomputation::full};
    if (framework == "megatron") return {Recomputation::none, Recomputation::norms, Recomputation::full};
    if (framework == "fsdp") return {Recomputation::none, Recomputation::selective, Recomputation::full};
    return {Recomputation::none, Recomputation::full};
  }

  void add(Nanoseconds bound, Node node) {
    queue_.emplace(bound, nodes_.count());
    nodes_.push_back(std::move(node));
  }

  // [index]: chunks for a stage. No stage has more layers than with one chunk; where stages have equally many layers,
  // chunks do, too.
  Vector<int> chunks(const Parallelism& parallelism) const {
    if (given("vp")) return {options_.pinned.chunks};
    Vector<int> result = {1};
    if (parallelism.pipeline == 1 || framework() == "deepspeed" ||  // whose pipeline has one for each stage
        !parallelism.stage_data.empty() || micro_batches_of(parallelism, graph_) % parallelism.pipeline != 0)
      return result;
    for (int chunks = 2; chunks <= most_chunks && chunks * parallelism.pipeline <= layers_; ++chunks)
      if (layers_ % parallelism.pipeline == 0 ? layers_ % (chunks * parallelism.pipeline) == 0
                                              : most_layers(parallelism, chunks) == most_layers(parallelism, 1))
        result.push_back(chunks);
    if (result.count() == 1 && layers_ % parallelism.pipeline == 0) {  // 7 layers of a stage, or 23
      const int of_stage = layers_ / parallelism.pipeline;
      for (int chunks = most_chunks + 1; chunks <= of_stage && result.count() == 1; ++chunks)
        if (of_stage % chunks == 0) result.push_back(chunks);
    }
    return result;
  }

  // Of a stage.
  int most_layers(Parallelism parallelism, int chunks) const {
    parallelism.chunks = chunks;
    parallelism.layers.clear();
    const Vector<int> of_stage = layers_of_stages(parallelism, layers_);
    return *std::max_element(of_stage.begin(), of_stage.end());
  }

  Vector<int64_t> micro_batch_sizes(int64_t samples, int pipeline) const {
    if (const int number = options_.micro_batches; number > 0)
      return samples % number == 0 ? Vector<int64_t>{samples / number} : Vector<int64_t>{};
    if (given("micro_batch")) {
      if (samples % options_.pinned.micro_batch != 0) return {};
      return {options_.pinned.micro_batch};
    }
    Vector<int64_t> sizes;
    for (int64_t size = 1; size <= samples; size *= 2)
      if (samples % size == 0) sizes.push_back(size);
    if (pipeline == 1 && sizes.back() != samples) sizes.push_back(samples);
    return sizes;
  }

  // Such that the groups of every stage divide them.
  Vector<int64_t> micro_batch_sizes(const Parallelism& parallelism) const {
    Vector<int64_t> sizes;
    for (const int64_t size : micro_batch_sizes(graph_.batch_size / parallelism.data, parallelism.pipeline))
      if (std::all_of(parallelism.stage_data.begin(), parallelism.stage_data.end(),
                      [&](int groups) { return size * parallelism.data % groups == 0; }))
        sizes.push_back(size);
    return sizes;
  }

  int64_t smallest_micro_batch(const Parallelism& parallelism) const {
    const Vector<int64_t> sizes = micro_batch_sizes(parallelism);
    return *std::min_element(sizes.begin(), sizes.end());
  }

  Vector<Synchronization> first_shardings(const Parallelism& parallelism) const {
    if (given("sharding")) return {options_.pinned.synchronization};
    if (parallelism.ranks_of_parameters() == 1) return {Synchronization::all_reduce};
    // torchtitan has the ranks of context parallelism, and of experts, in the group, and no replicas beside others.
    if (framework() == "fsdp" && (parallelism.of_layer() > 1 || parallelism.pipeline > 1 || parallelism.expert > 1))
      return {Synchronization::sharded_parameters};
    return {Synchronization::all_reduce, can_shard(framework(), Synchronization::sharded_optimizer)
                                             ? Synchronization::sharded_optimizer
                                             : Synchronization::sharded_parameters};
  }

  void look_at_waiting() {
    while (!queue_.empty()) {
      const auto [bound, number] = queue_.top();
      if (enough(bound)) break;
      if (ended()) {
        result_.complete = false;
        break;
      }
      queue_.pop();
      const Node node = nodes_[number];
      if (node.simulate) simulate(node);
      else if (node.in_groups) add_if_it_fits(node.parallelism);
      else add_settings(node);
      if (options_.progress)
        options_.progress({seconds_since(begin_), result_.estimated, result_.simulated,
                           result_.best.empty() ? 0 : result_.best[0].makespan});
    }
  }

  // Where the budget ended before a plan was found that fits: of those that are estimated to fit, the fastest. Shapes
  // that are known give estimates without a further simulation.
  void simulate_estimated() {
    constexpr int most = 3;
    for (const int number : nodes_.indices())
      if (!nodes_[number].simulate && !nodes_[number].in_groups) add_settings(Node(nodes_[number]));
    Vector<std::pair<Nanoseconds, int>> others;
    for (int tried = 0; tried < most && !queue_.empty() && result_.best.empty() && !stop_;) {
      const auto waiting = queue_.top();
      queue_.pop();
      if (!nodes_[waiting.second].simulate) others.push_back(waiting);
      else simulate(Node(nodes_[waiting.second])), ++tried;
    }
    for (const auto& waiting : others) queue_.push(waiting);
  }

  // Than there are groups of as many devices as tensor parallelism may take.
  bool few_samples() const {
    return graph_.batch_size < topology_.devices.count() / (given("tp") ? options_.pinned.tensor : node_size_);
  }

  // Ascending: 1, and what is possible beyond. Not without a framework: what ffexec computes again, and keeps, is too
  // much for large models.
  Vector<int> context_degrees() const {
    if (given("cp")) return {options_.pinned.context};
    Vector<int> degrees = {1};
    if (options_.pinned.framework == "none") return degrees;
    const int64_t positions = sequence_length(graph_);
    for (int degree = 2; positions / degree >= least_positions && topology_.devices.count() % degree == 0; degree *= 2)
      degrees.push_back(degree);
    return degrees;
  }

  void add_shapes(const Vector<int>& contexts) {
    const int devices = topology_.devices.count(), most_tensor = node_size_;
    std::map<std::tuple<int, int, int, int, int64_t>, Vector<Parallelism>> shapes;  // by tp, cp, ep, etp, micro-batch
    for (const int context : contexts)
      for (int tensor = 1; tensor <= devices / context; ++tensor) {
        if (devices % (tensor * context) != 0 ||
            (given("tp") ? tensor != options_.pinned.tensor : tensor > most_tensor))
          continue;
        Parallelism shape = options_.pinned;
        shape.tensor = tensor, shape.context = context, shape.chunks = 1;
        for (const Parallelism& stages : with_stages(shape, devices / tensor / context))
          for (const Parallelism& one : with_micro_batches(stages))
            shapes[{tensor, context, one.expert, one.expert_tensor, one.micro_batch}].push_back(one);
      }
    for (auto& [key, of_key] : shapes) {
      if (ended()) {
        result_.complete = false;
        return;
      }
      add_bounded(of_key);
    }
  }

  // With as many stages of equally many groups as divide these, and with stages of different width.
  Vector<Parallelism> with_stages(Parallelism shape, int groups) const {
    Vector<Parallelism> result;
    const int most_stages = shape.stage_data.empty() ? std::min(layers_, groups) : 0;  // of equally many groups
    for (int pipeline = 1; pipeline <= most_stages; ++pipeline) {
      if (groups % pipeline != 0) continue;
      shape.pipeline = pipeline;
      shape.data = groups / pipeline;
      result.push_back(shape);
    }
    if (options_.equal_stages || shape.framework != "none" || experts_ > 1 || options_.pinned.chunks > 1) return result;
    const Vector<Vector<int>> ways =
        shape.stage_data.empty() ? stage_widths(topology_, shape.of_layer()) : Vector<Vector<int>>{shape.stage_data};
    for (const Vector<int>& widths : ways) {
      shape.stage_data = widths;
      shape.pipeline = widths.count();
      shape.data = *std::max_element(widths.begin(), widths.end());
      if (shape.pipeline <= layers_ && std::accumulate(widths.begin(), widths.end(), 0) == groups)
        result.push_back(shape);
    }
    return result;
  }

  // None where the shape is not what is given, or its groups do not divide the batch.
  Vector<Parallelism> with_micro_batches(Parallelism shape) const {
    if ((given("pp") && shape.pipeline != options_.pinned.pipeline) ||
        (given("vp") && options_.pinned.chunks > 1 && shape.pipeline == 1) ||  // chunks are of stages
        (given("dp") && shape.data != options_.pinned.data) || graph_.batch_size % shape.data != 0 ||
        (given("shard_group") && shape.ranks_of_parameters() % shape.shard_group != 0))
      return {};
    if (!given("sharding")) shape.synchronization = Synchronization::all_reduce;
    shape.recompute = recomputations()[0];
    if (shape.framework == "megatron") {
      if (!given("overlap_grad_reduce") && shape.pipeline == 1) shape.overlaps_reductions = true;
      if (!given("overlap_param_gather")) shape.overlaps_gathers = overlaps_reductions(shape);  // which it needs
    }
    Vector<Parallelism> result;
    for (const int64_t size : micro_batch_sizes(shape)) {
      shape.micro_batch = size;
      for (const auto& [parts, tensor] : expert_degrees(shape)) {
        shape.expert = parts, shape.expert_tensor = tensor;
        result.push_back(shape);
      }
    }
    return result;
  }

  // Parts of the experts, which they divide, and the devices of each (Parallelism::expert_tensor): all of those that
  // split other layers, or one. Whole data-parallel groups share the experts, if one has not all of them.
  Vector<std::pair<int, int>> expert_degrees(Parallelism shape) const {
    Vector<int> of_expert = {0};
    if (given("etp")) of_expert = {options_.pinned.expert_tensor};
    else if (experts_ > 1 && shape.tensor > 1 && shape.context > 1) of_expert = {1};  // mostly faster
    else if (experts_ > 1 && shape.tensor > 1) of_expert.push_back(1);
    Vector<std::pair<int, int>> degrees;
    for (const int tensor : of_expert)
      for (int parts = 1; parts <= experts_; ++parts) {
        if (experts_ % parts != 0 || (given("ep") && parts != options_.pinned.expert)) continue;
        shape.expert = parts, shape.expert_tensor = tensor;
        const int devices = parts * shape.of_expert();
        const bool whole_groups = devices % shape.of_layer() == 0 && shape.data % shape.groups_of_experts() == 0;
        if (whole_groups || given("ep") || (parts == 1 && tensor == 0)) degrees.emplace_back(parts, tensor);
      }
    if (degrees.empty()) degrees.emplace_back(options_.pinned.expert, options_.pinned.expert_tensor);  // says why not
    return degrees;
  }

  std::string nothing_divides() const {
    Vector<int> widths = options_.pinned.stage_data;
    if (widths.empty() && given("stage_dp")) widths = Vector<int>(options_.pinned.pipeline, options_.pinned.data);
    if (!widths.empty())
      return "stage_dp=" + colon_separated(widths) + " with tp x cp devices a group must have the " +
             std::to_string(topology_.devices.count()) + " devices, and its groups divide the batch of " +
             std::to_string(graph_.batch_size) + " samples";
    return product_of_degrees(options_.pinned) + " must divide the " + std::to_string(topology_.devices.count()) +
           " devices, and the data-parallel groups and micro-batches the batch of " +
           std::to_string(graph_.batch_size) + " samples" +
           (given("shard_group") ? ", and shard_group=" + std::to_string(options_.pinned.shard_group) +
                                       " the ranks that have the same parameters"
                                 : "");
  }

  // Of the same tp, cp, ep and micro-batch: what layers compute, and their collectives take, is the same for any number
  // of stages.
  void add_bounded(const Vector<Parallelism>& shapes) {
    const ShapeCosts* known = nullptr;
    for (const bool overlaps : {false, true})  // few layers tell little of what overlaps (estimate.h)
      for (const Parallelism& shape : shapes)
        if (!known && overlaps_reductions(shape) == overlaps) known = costs_of(shape);
    if (!known) return;
    for (const Parallelism& shape : shapes) {
      const Vector<int> of_stage = chunks(shape);
      result_.settings += of_stage.count() * recomputations().count() *
                          (given("sharding") || shape.ranks_of_parameters() == 1 ? 1
                           : shape.pipeline > 1                                  ? 2
                                                                                 : 4);
      // Where stages differ in width they may differ in time, too: then without the time that fills the pipeline.
      const double fill = shape.stage_data.empty() ? static_cast<double>(shape.pipeline - 1) / of_stage.back() : 0;
      const double bound = (micro_batches_of(shape, graph_) + fill) * static_cast<double>(known->busy) * shape.data /
                           topology_.devices.count();
      add(static_cast<Nanoseconds>(bound), {shape});
    }
  }

  // Null where the plan is not possible: heads, or a batch that an operator does not divide.
  const ShapeCosts* costs_of(const Parallelism& parallelism) {
    Parallelism own = parallelism;
    own.chunks = 1;
    if (!is_sharded(own.synchronization)) own.shard_group = 0;
    if (!given("layers") || own.pipeline != own.layers.count()) own.layers.clear();
    const Shape shape{own.tensor,      own.pipeline,  own.context,         own.expert,      own.expert_tensor,
                      own.micro_batch, own.recompute, own.synchronization, own.shard_group, own.stage_data};
    const auto found = shapes_.find(shape);
    if (found != shapes_.end()) return found->second ? &*found->second : nullptr;
    if (ended()) {
      result_.complete = false;
      return nullptr;
    }
    std::optional<ShapeCosts>& costs = shapes_[shape];
    const auto begin = std::chrono::steady_clock::now();
    try {
      costs = costs_of_shape(own, fewer_layers_, topology_, costs_, folds_);
      ++result_.estimated;
    } catch (const InputError& error) {
      refused_ = error.what();
    } catch (const MachineError& error) {  // this machine has no memory for it
      refused_ = error.what();
    }
    slowest_s_ = std::max(slowest_s_, seconds_since(begin));
    return costs ? &*costs : nullptr;
  }

  void add_settings(const Node& node) {
    Parallelism parallelism = node.parallelism;
    for (const int chunks_of_stage : chunks(parallelism))
      for (const Synchronization synchronization : first_shardings(parallelism)) {
        parallelism.chunks = chunks_of_stage;
        parallelism.synchronization = synchronization;
        add_if_it_fits(parallelism);
        if (given("layers")) continue;
        parallelism.layers = balanced_layers(parallelism);
        if (!parallelism.layers.empty()) add_if_it_fits(parallelism);
        parallelism.layers.clear();
      }
  }

  // Layers of each chunk with which the busiest stage has least to do: fewer for slow devices, and for those with the
  // embedding or the loss. Empty where that is hardly less than with equally many.
  Vector<int> balanced_layers(const Parallelism& parallelism) {
    constexpr double worth_it = 0.99;
    const int stages = parallelism.pipeline, chunks = parallelism.chunks;
    const ShapeCosts* costs = stages > 1 ? costs_of(parallelism) : nullptr;
    if (!costs || layers_ < stages * chunks) return {};
    const auto busiest_with = [&](const Vector<int>& of_stage) {
      double most = 0;
      for (const int s : of_stage.indices()) most = std::max(most, costs->stages[s].busy_with(of_stage[s]));
      return most;
    };
    Vector<int> of_stage(stages, chunks);
    if (most_chunks_of(layers_) > layers_) --of_stage[0], --of_stage[stages - 1];  // these chunks can be without layers
    for (int left = layers_ - std::accumulate(of_stage.begin(), of_stage.end(), 0); left > 0; --left) {
      const auto after = [&](int s) { return costs->stages[s].busy_with(of_stage[s] + 1); };
      int least = 0;
      for (const int s : of_stage.indices())
        if (after(s) < after(least)) least = s;
      ++of_stage[least];
    }
    if (busiest_with(of_stage) > worth_it * busiest_with(layers_of_stages(parallelism, layers_))) return {};
    // Chunks in the middle get what is left over: those at the ends have the embedding and the loss.
    Vector<int> result(stages * chunks, 0);
    for (const int s : of_stage.indices())
      for (int c = 0; c < chunks; ++c) {
        const int middle = s == stages - 1 ? c : (c - 1 + chunks) % chunks;  // the order of 1, 2, ..., 0
        result[c * stages + s] = of_stage[s] / chunks + (middle < of_stage[s] % chunks ? 1 : 0);
      }
    return result;
  }

  void add_if_it_fits(const Parallelism& parallelism) {
    const std::string name = to_string(parallelism);
    if (!seen_.insert(name).second) return;
    const int count = micro_batches_of(parallelism, graph_);
    Parallelism least = parallelism;
    least.micro_batch = smallest_micro_batch(parallelism);
    const auto with_own_layers = [&](const ShapeCosts* costs) {
      return costs && !parallelism.layers.empty() && !given("layers")
                 ? std::optional(with_layers(*costs, layers_of_stages(parallelism, layers_)))
             : costs ? std::optional(*costs)
                     : std::nullopt;
    };
    const std::optional<ShapeCosts> of_least = with_own_layers(costs_of(least));
    const double samples = static_cast<double>(parallelism.micro_batch) / static_cast<double>(least.micro_batch);
    const bool exceeds = of_least && estimated_memory_share(*of_least, parallelism, count, samples) > surely_exceeds;
    const std::optional<ShapeCosts> costs = exceeds ? of_least : with_own_layers(costs_of(parallelism));
    if (!costs) return;
    const double share = estimated_memory_share(*costs, parallelism, count, exceeds ? samples : 1);
    const Nanoseconds estimate = estimated_time(*costs, parallelism, count);
    if (exceeds || share > surely_exceeds) {
      look_at(parallelism, LookedAt::Outcome::exceeds_memory, estimate, share);
      add_smaller(parallelism);
      return;
    }
    look_at(parallelism, LookedAt::Outcome::estimated, estimate, share);
    add(estimate, {parallelism, true, estimate});
    add_in_groups(parallelism, count * costs->computing);
  }

  // What is exchanged for each micro-batch, among the ranks of a node instead of all. (Groups for the optimizer's state
  // are looked at for the best plans: refinement.h.) `bound`: without what parameters exchange.
  void add_in_groups(Parallelism parallelism, Nanoseconds bound) {
    if (given("shard_group") || parallelism.shard_group > 0 || !shards_gradients(parallelism.synchronization) ||
        !can_shard_in_groups(parallelism.framework, parallelism.synchronization))
      return;
    parallelism.shard_group = smallest_shard_group(parallelism, node_size_);
    if (parallelism.shard_group > 0) add(bound, {.parallelism = parallelism, .in_groups = true});
  }

  // What needs less memory than these, which exceed it.
  void add_smaller(const Parallelism& parallelism) {
    ++result_.exceed_memory;
    Parallelism smaller = parallelism;
    const Vector<Recomputation> kinds = recomputations();
    const auto kind = std::find(kinds.begin(), kinds.end(), parallelism.recompute);
    if (kind != kinds.end() && kind + 1 != kinds.end()) {
      smaller.recompute = kind[1];
      add_if_it_fits(smaller);
      smaller.recompute = parallelism.recompute;
    }
    if (given("sharding") || smaller.ranks_of_parameters() == 1 || smaller.pipeline > 1 || smaller.blocking_launches ||
        !is_sharded(smaller.synchronization) || smaller.synchronization == Synchronization::sharded_parameters)
      return;
    smaller.synchronization = more_sharded(smaller.synchronization);
    if (!given("shard_group")) smaller.shard_group = 0;
    if (can_shard(framework(), smaller.synchronization)) add_if_it_fits(smaller);
  }

  void simulate(const Node& node) {
    std::optional<SettingsPrediction> found;
    const auto begin = std::chrono::steady_clock::now();
    try {
      found = predict_settings(node.parallelism, graph_, topology_, costs_, Extrapolation::steady, &folds_, longest());
    } catch (const InputError& error) {  // chunks
      refused_ = error.what();
      return;
    } catch (const MachineError& error) {
      refused_ = error.what();
      return;
    }
    slowest_s_ = std::max(slowest_s_, seconds_since(begin));
    simulated(*found);
    if (!found->fits()) {
      add_smaller(node.parallelism);
      return;
    }
    const double below = 1 - static_cast<double>(found->makespan) / static_cast<double>(node.estimate);
    result_.most_below_estimate = std::max(result_.most_below_estimate, below);
    if (found->memory_known) add_to_best(*found);
  }

  // What takes longer is not among the best.
  Nanoseconds longest() const {
    return result_.best.count() < options_.top ? std::numeric_limits<Nanoseconds>::max() : result_.best.back().makespan;
  }

  // Nothing cuts an evaluation short, and a larger one may follow.
  bool ended() const {
    return stop_ || (options_.budget_s > 0 && seconds_since(begin_) + 2 * slowest_s_ > options_.budget_s);
  }

  void simulated(const SettingsPrediction& found) {
    ++result_.simulated;
    using enum LookedAt::Outcome;
    if (found.memory_known)
      return look_at(found.parallelism, found.fits() ? fits : exceeds_memory, found.makespan, found.memory_share);
    const auto place = places_.find(to_string(found.parallelism));
    const double share = place == places_.end() ? 0 : result_.looked_at[place->second].memory_share;
    look_at(found.parallelism, slower, found.makespan, share);
  }

  // The last outcome counts.
  void look_at(const Parallelism& parallelism, LookedAt::Outcome outcome, Nanoseconds time, double share) {
    const LookedAt one{parallelism, outcome, time, share};
    const auto [place, is_new] = places_.try_emplace(to_string(parallelism), result_.looked_at.count());
    if (is_new) result_.looked_at.push_back(one);
    else result_.looked_at[place->second] = one;
  }

  // Borders of stages, and recomputation of some layers (refinement.h): of the three best plans, and of others that
  // would be among these if they gained as much as one of them.
  void refine_best() {
    constexpr int least = 3;
    const SettingsRefinement refinement{graph_,
                                        topology_,
                                        costs_,
                                        folds_,
                                        !given("layers"),
                                        !given("layers") && !given("vp"),
                                        !given("recompute") && !given("recompute_layers"),
                                        !given("overlap_grad_reduce"),
                                        !given("overlap_param_gather"),
                                        !given("shard_group"),
                                        [this] { return ended(); }};
    double largest_gain = 0;
    const Vector<SettingsPrediction> found = result_.best;
    for (const int p : found.indices()) {
      const auto makespan = static_cast<double>(found[p].makespan);
      const bool may_be_best =
          p < least || (1 - largest_gain) * makespan < static_cast<double>(result_.best[least - 1].makespan);
      if (!may_be_best || ended()) return;
      const SettingsPrediction better = refined(found[p], refinement, result_.refined);
      if (better.parallelism == found[p].parallelism) continue;
      largest_gain = std::max(largest_gain, 1 - static_cast<double>(better.makespan) / makespan);
      add_to_best(better);
    }
  }

  // The same for settings that mean the same plan: layers may be given as they are by default.
  std::string name_of_plan(Parallelism parallelism) const {
    const Vector<int> layers = std::exchange(parallelism.layers, {});
    if (layers != layers_of_chunks(parallelism, layers_)) parallelism.layers = layers;
    return to_string(parallelism);
  }

  // Refinement may find what the search had found.
  void add_to_best(const SettingsPrediction& found) {
    const auto faster = [](const SettingsPrediction& a, const SettingsPrediction& b) {
      return std::pair(a.makespan, a.memory_share) < std::pair(b.makespan, b.memory_share);
    };
    Vector<SettingsPrediction>& best = result_.best;
    const std::string plan = name_of_plan(found.parallelism);
    if (std::any_of(best.begin(), best.end(), [&](const auto& one) { return name_of_plan(one.parallelism) == plan; }))
      return;
    best.insert(std::upper_bound(best.begin(), best.end(), found, faster), found);
    if (best.count() > options_.top) best.pop_back();
    if (options_.improved) options_.improved(best);
  }

  const Graph& graph_;
  const Topology& topology_;
  const CostOptions& costs_;
  const SettingsSearchOptions& options_;
  const std::atomic<bool>& stop_;
  KnownFolds folds_;
  FewerLayers fewer_layers_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const int layers_, node_size_;  // devices of the largest node
  const int64_t experts_;         // 1: there are none
  double slowest_s_ = 0;          // of the evaluations so far
  std::map<Shape, std::optional<ShapeCosts>> shapes_;
  std::set<std::string> seen_;
  std::map<std::string, int> places_;  // of settings in looked_at
  std::string refused_;                // why the last impossible plan was
  Vector<Node> nodes_;
  std::priority_queue<std::pair<Nanoseconds, int>, Vector<std::pair<Nanoseconds, int>>, std::greater<>> queue_;
  SettingsSearchResult result_;
};

}  // namespace

const LookedAt* with_least_memory(const SettingsSearchResult& result) {
  // Estimates for unequal stages may be too low.
  const auto rank = [](const LookedAt& one) { return std::pair(!one.parallelism.layers.empty(), one.memory_share); };
  const LookedAt* least = nullptr;
  for (const LookedAt& one : result.looked_at)
    if (one.memory_share > 0 && (!least || rank(one) < rank(*least))) least = &one;
  return least;
}

SettingsSearchResult search_settings(const Graph& graph, const Topology& topology, const CostOptions& costs,
                                     const SettingsSearchOptions& options, const std::atomic<bool>& stop) {
  return SettingsSearch(graph, topology, costs, options, stop).run();
}

}  // namespace ff
