// What settings mean for a transformer, and which settings a strategy is nearest to.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "common/errors.h"
#include "common/micro_batches.h"
#include "common/name_patterns.h"
#include "common/operators/attention.h"
#include "common/recomputation.h"
#include "search/optimizer/baselines/megatron.h"
#include "search/optimizer/parallelism.h"

namespace ff {
namespace {

void expect_divisible(int64_t whole, int64_t by, const std::string& what) {
  if (by == 0 || whole % by != 0) throw InputError(what);
}

// By operator: the layer that it belongs to.
Vector<int> layer_of_operators(const Graph& graph, const Vector<OperatorId>& layers) {
  Vector<int> result;
  for (const OperatorId op : graph.operator_ids())
    result.push_back(
        std::max<int>(0, static_cast<int>(std::upper_bound(layers.begin(), layers.end(), op) - layers.begin()) - 1));
  return result;
}

constexpr int least_known = 3;  // layers with which it is known what is beside them: they are as long as neighbours

struct PlaceOfLayer {
  int chunk, number;  // number: within the chunk
};

Vector<PlaceOfLayer> places_of_layers(const Vector<int>& of_chunks) {
  Vector<PlaceOfLayer> result;
  for (const int chunk : of_chunks.indices())
    for (int number = 0; number < of_chunks[chunk]; ++number) result.push_back({chunk, number});
  return result;
}

// The embedding and the loss may have a chunk of their own, where it is known which operators are theirs.
void check_chunks(const Parallelism& parallelism, int layers) {
  const int chunks = parallelism.pipeline * parallelism.chunks;
  if (chunks > most_chunks_of(layers))
    throw InputError("pp x vp = " + std::to_string(chunks) + ": there are only " + std::to_string(layers) + " layers");
  const Vector<int> of_chunks = layers_of_chunks(parallelism, layers);
  if (std::find(of_chunks.begin(), of_chunks.end(), 0) != of_chunks.end() && layers < least_known)
    throw InputError("layers: a chunk without layers is that of the embedding or the loss, which are known with " +
                     std::to_string(least_known) + " layers and more, the model has " + std::to_string(layers));
  if (const int most = *std::max_element(of_chunks.begin(), of_chunks.end()); parallelism.recompute_layers > most)
    throw InputError("recompute_layers=" + std::to_string(parallelism.recompute_layers) + ": no chunk has more than " +
                     std::to_string(most) + " layers");
  if (parallelism.layers.empty()) return;
  if (parallelism.layers.count() != chunks)
    throw InputError("layers: found numbers for " + std::to_string(parallelism.layers.count()) +
                     " chunks, expected pp x vp = " + std::to_string(chunks));
  if (const int sum = std::accumulate(parallelism.layers.begin(), parallelism.layers.end(), 0); sum != layers)
    throw InputError("layers: the numbers add up to " + std::to_string(sum) + ", the model has " +
                     std::to_string(layers) + " layers");
  if (has_gap(of_chunks))
    throw InputError(
        "layers: found 0 between other chunks; the first and the last chunk, which have the embedding and "
        "the loss, can be without layers");
}

Vector<int> layer_or_none_of_operators(const Graph& graph, const Vector<OperatorId>& layers) {
  Vector<int> result = layer_of_operators(graph, layers);
  const int count = layers.count();
  if (count < least_known) return result;
  const OperatorId begin = layers[1] - (layers[2] - layers[1]),
                   end = layers[count - 1] + (layers[count - 1] - layers[count - 2]);
  for (const OperatorId op : graph.operator_ids())
    if (op < begin || op >= end) result[op] = no_layer;
  return result;
}

// By operator. What is in front of the first layer is in the first chunk, what is behind the last one in the last.
Vector<int> chunk_of_operators(const Graph& graph, const Vector<OperatorId>& layers, const Vector<PlaceOfLayer>& places,
                               int chunks) {
  Vector<int> result = layer_or_none_of_operators(graph, layers);
  for (const OperatorId op : graph.operator_ids())
    result[op] = result[op] != no_layer ? places[result[op]].chunk : op < layers[1] ? 0 : chunks - 1;
  return result;
}

bool read_by_another_layer(const Graph& graph, const Vector<int>& layer_of, OperatorId op) {
  for (const TensorId tensor : graph.operators[op].outputs)
    for (const TensorUse& use : graph.tensors[tensor].uses)
      if (layer_of[use.consumer] != layer_of[op]) return true;
  return false;
}

// Of each layer what torch.utils.checkpoint computes again under torchtitan's policy: all but attention and every other
// product, from the first on. Queries, keys and values are the first three.
Vector<std::string> recomputation_of_operators(const Graph& graph, const Vector<OperatorId>& layers) {
  const Vector<int> layer_of = layer_or_none_of_operators(graph, layers);
  Vector<std::string> names;
  int products = 0, layer = no_layer;  // products: in the layer so far
  for (const OperatorId op : graph.operator_ids()) {
    if (layer_of[op] != layer) layer = layer_of[op], products = 0;
    if (layer == no_layer) continue;
    const std::string_view type = graph.operators[op].definition->type();
    if (type == "multi_head_attention") products += 3;
    if (type == "linear") ++products;
    const bool keeps = type == "multi_head_attention" || (type == "linear" && products % 2 == 1);
    if (!keeps && is_worth_recomputing(graph, op) && !read_by_another_layer(graph, layer_of, op))
      names.push_back(graph.operators[op].name);
  }
  return name_patterns(names);
}

bool is_read_by_experts(const Graph& graph, OperatorId op) {
  for (const TensorId tensor : graph.operators[op].outputs)
    for (const TensorUse& use : graph.tensors[tensor].uses)
      if (graph.operators[use.consumer].definition->type() == "dispatch") return true;
  return false;
}

// Of layers: norms, or these, activations and products of gates. (Others that only read and write keep nothing for
// backward but what they would read again.)
Vector<std::string> recomputation_of_kinds(const Graph& graph, const Vector<OperatorId>& layers, Recomputation kinds) {
  const Vector<int> layer_of = layer_or_none_of_operators(graph, layers);
  Vector<std::string> names;
  for (const OperatorId op : graph.operator_ids()) {
    const std::string_view type = graph.operators[op].definition->type();
    const auto is_one_of = [&](std::initializer_list<std::string_view> types) {
      return std::find(types.begin(), types.end(), type) != types.end();
    };
    const bool chosen =
        is_one_of({"layer_norm", "rms_norm"}) ||
        (kinds == Recomputation::elementwise && is_one_of({"relu", "tanh", "sigmoid", "gelu", "silu", "mul"}));
    if (layer_of[op] != no_layer && chosen && is_worth_recomputing(graph, op) &&
        !read_by_another_layer(graph, layer_of, op))
      names.push_back(graph.operators[op].name);
  }
  return name_patterns(names);
}

// Of layers: norms in front of experts. Megatron-LM's others are part of the product that reads them.
Vector<std::string> recomputation_before_experts(const Graph& graph, const Vector<OperatorId>& layers) {
  const Vector<bool> norms = recomputed_operators(graph, recomputation_of_kinds(graph, layers, Recomputation::norms));
  Vector<std::string> names;
  for (const OperatorId op : graph.operator_ids())
    if (norms[op] && is_read_by_experts(graph, op)) names.push_back(graph.operators[op].name);
  return name_patterns(names);
}

// Of whole layers, as Megatron-LM and FSDP recompute: what another layer reads is kept. Of each chunk, as many of its
// first layers.
Vector<std::string> recomputation_of_layers(const Graph& graph, const Vector<OperatorId>& layers_begin,
                                            const Vector<PlaceOfLayer>& places, int layers) {
  const Vector<int> layer_of = layer_or_none_of_operators(graph, layers_begin);
  Vector<std::string> names;
  for (const OperatorId op : graph.operator_ids())
    if (layer_of[op] != no_layer && places[layer_of[op]].number < layers && is_worth_recomputing(graph, op) &&
        !read_by_another_layer(graph, layer_of, op))
      names.push_back(graph.operators[op].name);
  return name_patterns(names);
}

// Do the devices that have all experts divide those of a stage, and are they whole data-parallel groups, or parts of
// one?
bool experts_are_placed(const Parallelism& parallelism) {
  const int devices = parallelism.expert * parallelism.of_expert(), of_group = parallelism.of_layer();
  return of_group * parallelism.data % devices == 0 && (devices % of_group == 0 || of_group % devices == 0);
}

void check_experts(const Graph& graph, const Parallelism& parallelism) {
  if (parallelism.expert == 1 && parallelism.of_expert() == parallelism.tensor) return;
  const std::string parts = "ep=" + std::to_string(parallelism.expert),
                    of_expert = "etp=" + std::to_string(parallelism.of_expert());
  bool experts = false;
  for (const Operator& op : graph.operators)
    if (const int d = experts_dimension(*op.definition); d >= 0) {
      experts = true;
      const int64_t size = op.definition->dimensions()[d].size;
      expect_divisible(
          size, parallelism.expert,
          parts + " does not divide the " + std::to_string(size) + " experts of operator \"" + op.name + "\"");
    }
  if (!experts)
    throw InputError((parallelism.expert > 1 ? parts : of_expert) + ": the graph \"" + graph.name +
                     "\" has no experts (expert_linear)");
  expect_divisible(parallelism.tensor, parallelism.of_expert(),
                   of_expert + " does not divide tp=" + std::to_string(parallelism.tensor));
  if (!experts_are_placed(parallelism))
    throw InputError(parts + (parallelism.of_expert() > 1 ? "," + of_expert : "") + ": " +
                     std::to_string(parallelism.expert * parallelism.of_expert()) +
                     " devices would have all experts, expected a divisor of the " +
                     std::to_string(parallelism.of_layer() * parallelism.data) +
                     " devices of a stage that divides tp x cp = " + std::to_string(parallelism.of_layer()) +
                     " or is a multiple of it");
}

void check_context(const Graph& graph, int context) {
  for (const Operator& op : graph.operators) {
    if (op.definition->type() != "multi_head_attention") continue;
    if (const int64_t positions = graph.tensors[op.outputs[0]].shape[1]; positions < context)
      throw InputError("cp=" + std::to_string(context) + ": operator \"" + op.name + "\" has only " +
                       std::to_string(positions) + " positions");
  }
}

// Each rank of context parallelism has a part of the first half and one of the second (arguments.py of Megatron-LM,
// parallel_dims.py of torchtitan), which ranks of tensor parallelism split.
void check_length(const Graph& graph, const Parallelism& parallelism) {
  if (parallelism.framework != "megatron" && parallelism.framework != "fsdp") return;
  const int parts = (parallelism.context > 1 ? 2 * parallelism.context : 1) *
                    (parallelism.sequence_parallel ? parallelism.tensor : 1);
  for (const Operator& op : graph.operators) {
    if (op.definition->type() != "multi_head_attention") continue;
    const int64_t positions = graph.tensors[op.outputs[0]].shape[1];
    expect_divisible(positions, parts,
                     "tp=" + std::to_string(parallelism.tensor) + ", cp=" + std::to_string(parallelism.context) +
                         ": framework=" + parallelism.framework + " has " + std::to_string(parts) +
                         " equal parts of a sample, which do not divide the " + std::to_string(positions) +
                         " positions of operator \"" + op.name + "\"");
  }
}

void check_heads(const Graph& graph, int tensor) {
  for (const Operator& op : graph.operators) {
    const auto* const attention = dynamic_cast<const MultiHeadAttention*>(op.definition.get());
    const char* const heads = attention && attention->group > 1 ? " key-value heads" : " heads";
    for (const ParallelDimension& dimension : op.definition->dimensions())
      if (dimension.name == "head")
        expect_divisible(dimension.size, tensor,
                         "tp=" + std::to_string(tensor) + " does not divide the " + std::to_string(dimension.size) +
                             heads + " of operator \"" + op.name + "\"");
  }
}

}  // namespace

void check_shard_group(const Parallelism& parallelism) {
  const int ranks = parallelism.ranks_of_parameters();
  if (parallelism.shard_group > 0)
    expect_divisible(ranks, parallelism.shard_group,
                     "shard_group=" + std::to_string(parallelism.shard_group) + " does not divide the " +
                         std::to_string(ranks) + (parallelism.context > 1 ? " data- and context" : " data") +
                         "-parallel ranks");
}

// schedules.py of Megatron-Core.
void check_rounds(const Parallelism& parallelism, int64_t batch) {
  if (parallelism.framework != "megatron" || parallelism.chunks == 1) return;
  const int64_t micro_batches = batch / parallelism.data / parallelism.micro_batch;
  expect_divisible(micro_batches, parallelism.pipeline,
                   "vp=" + std::to_string(parallelism.chunks) + ": framework=megatron has rounds of as many " +
                       "micro-batches as stages, and pp=" + std::to_string(parallelism.pipeline) +
                       " does not divide the " + std::to_string(micro_batches) + " micro-batches");
}

Vector<OperatorId> transformer_layers(const Graph& graph) {
  const OperatorId count = graph.operators.count();
  Vector<OperatorId> attention;
  Vector<int> change(count + 1, 0);  // in tensors that are read after an operator
  for (const OperatorId op : graph.operator_ids()) {
    if (graph.operators[op].definition->type() == "multi_head_attention") attention.push_back(op);
    for (const TensorId output : graph.operators[op].outputs) {
      OperatorId last = op;
      for (const TensorUse& use : graph.tensors[output].uses) last = std::max(last, use.consumer);
      if (last > op) ++change[op], --change[last];
    }
  }
  if (attention.empty()) return {};
  Vector<int> read_behind;
  for (int crossing = 0; const OperatorId op : graph.operator_ids()) read_behind.push_back(crossing += change[op]);
  Vector<OperatorId> layers = {0};
  for (int a = 0; a + 1 < attention.count(); ++a) {
    OperatorId least = attention[a];
    for (OperatorId op = attention[a]; op < attention[a + 1]; ++op)
      if (read_behind[op] <= read_behind[least]) least = op;
    layers.push_back(least + 1);
  }
  return layers;
}

// Where the chunks cannot be of equally many layers, those behind the first have one more: the first one has the
// embedding, and the last one, where there is a layer less for it too, the output.
Vector<int> layers_of_chunks(const Parallelism& parallelism, int layers) {
  if (!parallelism.layers.empty()) return parallelism.layers;
  const int chunks = parallelism.pipeline * parallelism.chunks;
  Vector<int> result(chunks, layers / chunks);
  for (int more = 1; more <= layers % chunks; ++more) ++result[more];
  return result;
}

bool has_gap(const Vector<int>& of_chunks) {
  return of_chunks.count() > 2 && std::find(of_chunks.begin() + 1, of_chunks.end() - 1, 0) != of_chunks.end() - 1;
}

int most_chunks_of(int layers) { return layers < least_known ? layers : layers + 2; }

Vector<int> layers_of_stages(const Parallelism& parallelism, int layers) {
  Vector<int> of_stage(parallelism.pipeline, 0);
  const Vector<int> of_chunk = layers_of_chunks(parallelism, layers);
  for (const int chunk : of_chunk.indices()) of_stage[chunk % parallelism.pipeline] += of_chunk[chunk];
  return of_stage;
}

Vector<int> stages_of_places(const Parallelism& parallelism) {
  Vector<int> result;
  for (int stage = 0; stage < parallelism.pipeline; ++stage)
    result.resize(result.size() + static_cast<size_t>(parallelism.of_layer() * parallelism.groups_of_stage(stage)),
                  stage);
  return result;
}

std::string product_of_degrees(const Parallelism& parallelism) {
  return parallelism.context > 1 ? "tp x cp x pp" : "tp x pp";
}

Vector<int> layer_or_none_of_operators(const Graph& graph) {
  return layer_or_none_of_operators(graph, transformer_layers(graph));
}

namespace {

void check_stages_of_own_width(Parallelism& parallelism, int devices) {
  parallelism.data = *std::max_element(parallelism.stage_data.begin(), parallelism.stage_data.end());
  const int taken = stages_of_places(parallelism).count();
  if (taken != devices)
    throw InputError("stage_dp=" + colon_separated(parallelism.stage_data) + ": with " +
                     std::to_string(parallelism.of_layer()) + " devices a group these are " + std::to_string(taken) +
                     " devices, the topology has " + std::to_string(devices));
}

void set_data_degree(Parallelism& parallelism, int devices) {
  const int model = parallelism.of_layer() * parallelism.pipeline;
  const std::string product = product_of_degrees(parallelism) + " = " + std::to_string(model);
  expect_divisible(devices, model, product + " does not divide the " + std::to_string(devices) + " devices");
  if (parallelism.data > 0 && parallelism.data != devices / model)
    throw InputError("dp=" + std::to_string(parallelism.data) + ": " + std::to_string(devices) + " devices and " +
                     product + " make it " + std::to_string(devices / model));
  parallelism.data = devices / model;
}

}  // namespace

void complete(Parallelism& parallelism, int64_t batch, int devices) {
  if (parallelism.stage_data.empty()) set_data_degree(parallelism, devices);
  else check_stages_of_own_width(parallelism, devices);
  expect_divisible(
      batch, parallelism.data,
      "the batch of " + std::to_string(batch) + " samples is not divisible by dp=" + std::to_string(parallelism.data));
  const int64_t of_group = batch / parallelism.data;
  if (parallelism.micro_batch == 0) parallelism.micro_batch = of_group;
  expect_divisible(of_group, parallelism.micro_batch,
                   "micro_batch=" + std::to_string(parallelism.micro_batch) + " does not divide the " +
                       std::to_string(of_group) + " samples of each data-parallel group");
  const int64_t samples = parallelism.micro_batch * parallelism.data;
  for (const int groups : parallelism.stage_data)
    expect_divisible(samples, groups,
                     "stage_dp: " + std::to_string(groups) + " groups do not divide the " + std::to_string(samples) +
                         " samples of a micro-batch");
}

ParallelPlan plan_of(Parallelism& parallelism, const Graph& graph, const Topology& topology) {
  const Vector<OperatorId> layers = transformer_layers(graph);
  if (layers.empty())
    throw InputError("the graph \"" + graph.name + "\" has no multi_head_attention: the settings are for transformers");
  complete(parallelism, graph.batch_size, topology.devices.count());
  check_heads(graph, parallelism.tensor);
  check_context(graph, parallelism.context);
  check_length(graph, parallelism);
  check_experts(graph, parallelism);
  check_chunks(parallelism, layers.count());
  const Vector<PlaceOfLayer> places = places_of_layers(layers_of_chunks(parallelism, layers.count()));
  const Vector<int> chunk_of = chunk_of_operators(graph, layers, places, parallelism.pipeline * parallelism.chunks);
  ParallelPlan plan;
  plan.settings.synchronization = sharding_of_micro_batches(parallelism);
  plan.settings.overlaps_reductions = overlaps_reductions(parallelism);
  if (parallelism.framework != "none") plan.settings.least_collective_size = 2;
  plan.settings.micro_batches = static_cast<int>(graph.batch_size / parallelism.data / parallelism.micro_batch);
  if (parallelism.recompute == Recomputation::full)
    plan.settings.recompute = recomputation_of_layers(
        graph, layers, places, parallelism.recompute_layers > 0 ? parallelism.recompute_layers : layers.count());
  else if (recomputes_operators(parallelism)) plan.settings.recompute = recomputation_of_operators(graph, layers);
  else if (parallelism.recompute == Recomputation::norms && parallelism.framework == "megatron") {
    plan.settings.recompute = recomputation_before_experts(graph, layers);
    if (plan.settings.recompute.empty())
      throw InputError(
          "recompute=norms: Megatron-LM's norms are part of the product that reads them (Transformer Engine), but "
          "before experts, and the graph \"" +
          graph.name + "\" has none: nothing would be computed again");
  } else if (parallelism.recompute == Recomputation::norms || parallelism.recompute == Recomputation::elementwise)
    plan.settings.recompute = recomputation_of_kinds(graph, layers, parallelism.recompute);
  const Graph of_micro_batch = graph_of_micro_batch(graph, plan.settings.micro_batches);
  const Vector<DeviceId> order = topology.by_links();
  Vector<int> begin = {0};  // of stages, in this order
  for (int stage = 0; stage < parallelism.pipeline; ++stage)
    begin.push_back(begin.back() + parallelism.of_layer() * parallelism.groups_of_stage(stage));
  plan.strategy = tensor_parallel(
      of_micro_batch, {parallelism.tensor, parallelism.context, parallelism.expert, parallelism.of_expert()},
      [&](OperatorId op) {
        const int stage = chunk_of[op] % parallelism.pipeline;
        return std::span(order.begin() + begin[stage], order.begin() + begin[stage + 1]);
      });
  return plan;
}

namespace {

// Devices on which operators are, one after the other.
struct Place {
  Vector<DeviceId> devices;  // ascending
  int layers = 0;
};

// Places of attention, where they change.
class Places {
 public:
  void add_layer(Vector<DeviceId> devices) {
    sort_and_unique(devices);
    stages_.insert(devices);
    if (places_.empty() || places_.back().devices != devices) places_.push_back({devices, 0});
    ++places_.back().layers;
  }

  // What is in front of the first layer and behind the last one may have chunks of its own: where all stages have
  // equally many then.
  Places with_ends(Vector<DeviceId> first, Vector<DeviceId> last, int of_layer) const {
    sort_and_unique(first);
    sort_and_unique(last);
    Places result = *this;
    if (first != places_[0].devices && is_stage(first, of_layer))
      result.places_.insert(result.places_.begin(), Place{first, 0});
    if (last != places_.back().devices && is_stage(last, of_layer)) result.places_.push_back({last, 0});
    result.stages_.insert({result.places_[0].devices, result.places_.back().devices});
    return result.count() % result.stages() == 0 ? result : *this;
  }

  int stages() const { return static_cast<int>(std::ssize(stages_)); }
  int count() const { return places_.count(); }
  // [stage]: groups of so many devices, where stages with one chunk each have different numbers of these, and all
  // devices together. Empty: they have not.
  Vector<int> groups_of_stages(int of_layer, int devices) const {
    if (count() != stages()) return {};
    Vector<int> groups;
    for (const Place& place : places_) {
      if (place.devices.count() % of_layer != 0) return {};
      groups.push_back(place.devices.count() / of_layer);
    }
    const bool all_devices = std::accumulate(groups.begin(), groups.end(), 0) * of_layer == devices;
    const bool equal = std::all_of(groups.begin(), groups.end(), [&](int one) { return one == groups[0]; });
    return all_devices && !equal ? groups : Vector<int>();
  }
  Vector<int> layers() const {
    Vector<int> result;
    for (const Place& place : places_) result.push_back(place.layers);
    return result;
  }

 private:
  // One of layers, or one of whole groups of other devices.
  bool is_stage(const Vector<DeviceId>& devices, int of_layer) const {
    if (stages_.contains(devices)) return true;
    return devices.count() % of_layer == 0 &&
           std::all_of(stages_.begin(), stages_.end(), [&](const Vector<DeviceId>& stage) {
             return std::none_of(stage.begin(), stage.end(),
                                 [&](DeviceId one) { return std::binary_search(devices.begin(), devices.end(), one); });
           });
  }

  Vector<Place> places_;
  std::set<Vector<DeviceId>> stages_;
};

// The borders of the chunks, where they are not those of equally many layers.
void set_nearest_layers(Parallelism& nearest, const Vector<int>& counts, int layers) {
  if (counts.count() != nearest.pipeline * nearest.chunks) return;
  if (counts != layers_of_chunks(nearest, layers)) nearest.layers = counts;
}

// As many of the first layers of each chunk as the plan recomputes most nearly.
void set_nearest_recomputation(Parallelism& nearest, const Graph& graph, const Vector<std::string>& patterns) {
  if (patterns.empty()) return;
  const Vector<bool> found = recomputed_operators(graph, patterns);
  const Vector<OperatorId> layers = transformer_layers(graph);
  for (const Recomputation kind : {Recomputation::norms, Recomputation::elementwise})
    if (recomputed_operators(graph, recomputation_of_kinds(graph, layers, kind)) == found) {
      nearest.recompute = kind;
      return;
    }
  if (recomputed_operators(graph, recomputation_before_experts(graph, layers)) == found) {
    nearest.recompute = Recomputation::norms;
    return;
  }
  const bool selective = recomputed_operators(graph, recomputation_of_operators(graph, layers)) == found;
  nearest.recompute = selective ? Recomputation::selective : Recomputation::full;
  if (selective) return;
  const Vector<int> of_chunks = layers_of_chunks(nearest, layers.count());
  const Vector<PlaceOfLayer> places = places_of_layers(of_chunks);
  const auto differences = [&](const Vector<std::string>& names) {
    const Vector<bool> other = recomputed_operators(graph, names);
    int count = 0;
    for (const OperatorId op : other.indices()) count += other[op] != found[op];
    return count;
  };
  const int most = *std::max_element(of_chunks.begin(), of_chunks.end());
  int least = std::min(differences(recomputation_of_layers(graph, layers, places, layers.count())),
                       differences(full_recomputation(graph)));
  for (int number = 1; number < most && least > 0; ++number) {
    const int different = differences(recomputation_of_layers(graph, layers, places, number));
    if (different >= least) continue;
    least = different;
    nearest.recompute_layers = number;
  }
}

// How a strategy splits its layers.
struct LayersOfStrategy {
  Parallelism degrees;  // tensor, context, expert, expert_tensor
  Places places;
  int count = 0;
};

// What there is most of; of several the first in order.
template <typename Key>
const Key& most_frequent(const std::map<Key, int>& counts) {
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// Degrees of most of the layers; each layer where most of its operators are.
LayersOfStrategy layers_of(const Graph& graph, const Strategy& strategy) {
  LayersOfStrategy result;
  std::map<std::pair<int, int>, int> of_attention, of_experts;  // head and length; parts, and devices of each
  const Vector<OperatorId> layers = transformer_layers(graph);
  if (layers.empty()) return result;
  Vector<std::map<Vector<DeviceId>, int>> devices(layers.size());  // [layer]
  const Vector<int> layer_of = layer_or_none_of_operators(graph, layers);
  for (const OperatorId op : graph.operator_ids()) {
    const OperatorDefinition& definition = *graph.operators[op].definition;
    const auto& dimensions = definition.dimensions();
    const Degrees& degrees = strategy[op].degrees;
    if (layer_of[op] != no_layer) {
      Vector<DeviceId> place = strategy[op].devices;
      sort_and_unique(place);
      ++devices[layer_of[op]][std::move(place)];
    }
    if (const int d = experts_dimension(definition); d >= 0 && definition.type() == "expert_linear") {
      int tensor = 1;
      for (const int other : dimensions.indices())
        if (other != d && dimensions[other].kind != DimensionKind::sample) tensor = std::max(tensor, degrees[other]);
      ++of_experts[{degrees[d], tensor}];
    }
    if (definition.type() != "multi_head_attention") continue;
    ++result.count;
    std::pair<int, int> split{1, 1};
    for (const int d : dimensions.indices()) {
      if (dimensions[d].name == "head") split.first = degrees[d];
      if (dimensions[d].name == "length") split.second = degrees[d];
    }
    ++of_attention[split];
  }
  if (!of_attention.empty()) std::tie(result.degrees.tensor, result.degrees.context) = most_frequent(of_attention);
  if (!of_experts.empty()) std::tie(result.degrees.expert, result.degrees.expert_tensor) = most_frequent(of_experts);
  for (const auto& of_layer : devices)
    if (!of_layer.empty()) result.places.add_layer(most_frequent(of_layer));
  return result;
}

// The number of stages nearest to the plan's (of two as near the smaller one) with which groups of equally many devices
// are all devices, and divide the batch; one that does not, where none does.
int nearest_stages(const Parallelism& degrees, int stages, int layers, int64_t batch, int devices) {
  int nearest = 1;
  bool divides_batch = false;
  for (int pipeline = 1; pipeline <= std::min(most_chunks_of(layers), devices / degrees.of_layer()); ++pipeline) {
    if (devices % (degrees.of_layer() * pipeline) != 0) continue;
    const bool divides = batch % (devices / (degrees.of_layer() * pipeline)) == 0;
    if (divides < divides_batch) continue;
    if (divides > divides_batch || std::abs(pipeline - stages) < std::abs(nearest - stages)) nearest = pipeline;
    divides_batch = divides;
  }
  return nearest;
}

// The degrees, with stages and groups that together have all devices.
void set_nearest_stages(Parallelism& nearest, const Places& places, int layers, int64_t batch, int devices,
                        StageWidths widths) {
  if (widths == StageWidths::any && nearest.expert == 1 && nearest.expert_tensor == 0) {
    const Vector<int> groups = places.groups_of_stages(nearest.of_layer(), devices);
    const int most = groups.empty() ? 0 : *std::max_element(groups.begin(), groups.end());
    if (most > 0 && batch % most == 0) {
      nearest.stage_data = groups;
      nearest.pipeline = groups.count();
      nearest.data = most;
      return;
    }
  }
  nearest.pipeline = nearest_stages(nearest, places.stages(), layers, batch, devices);
  nearest.chunks = nearest.pipeline > 1 ? std::max(1, places.count() / nearest.pipeline) : 1;
  while (nearest.chunks > 1 && most_chunks_of(layers) < nearest.pipeline * nearest.chunks) --nearest.chunks;
  nearest.data = devices / (nearest.of_layer() * nearest.pipeline);
}

bool divides_micro_batches(const Parallelism& parallelism) {
  return std::all_of(parallelism.stage_data.begin(), parallelism.stage_data.end(),
                     [&](int groups) { return parallelism.micro_batch * parallelism.data % groups == 0; });
}

}  // namespace

int64_t sequence_length(const Graph& graph) {
  int64_t longest = 0;
  for (const Operator& op : graph.operators)
    if (op.definition->type() == "multi_head_attention")
      longest = std::max(longest, graph.tensors[op.outputs[0]].shape[1]);
  return longest;
}

Parallelism nearest_parallelism(const Graph& graph, const Topology& topology, const Strategy& strategy,
                                const StrategySettings& settings, StageWidths widths) {
  auto [nearest, places, layers] = layers_of(graph, strategy);
  if (layers == 0)
    throw InputError("the graph \"" + graph.name + "\" has no multi_head_attention: settings are for transformers");
  const int devices = topology.devices.count();
  while (nearest.tensor > 1 && devices % nearest.tensor != 0) --nearest.tensor;
  while (nearest.context > 1 && devices % nearest.of_layer() != 0) --nearest.context;
  if (layers >= least_known)
    places = places.with_ends(strategy[0].devices, strategy.back().devices, nearest.of_layer());
  while (nearest.expert_tensor > 0 && nearest.tensor % nearest.expert_tensor != 0) --nearest.expert_tensor;
  if (nearest.expert_tensor == nearest.tensor) nearest.expert_tensor = 0;
  set_nearest_stages(nearest, places, layers, graph.batch_size, devices, widths);
  while (!experts_are_placed(nearest)) {
    if (nearest.expert > 1) --nearest.expert;
    else nearest.expert_tensor = 0;
  }
  const int64_t of_group = graph.batch_size / nearest.data;
  if (graph.batch_size % nearest.data != 0)
    throw InputError("the batch of " + std::to_string(graph.batch_size) + " samples is not divisible by the " +
                     std::to_string(nearest.data) + " data-parallel groups of the nearest settings");
  nearest.micro_batch = std::max<int64_t>(1, of_group / settings.micro_batches);
  while (of_group % nearest.micro_batch != 0) --nearest.micro_batch;
  if (!divides_micro_batches(nearest))
    return nearest_parallelism(graph, topology, strategy, settings, StageWidths::equal);
  nearest.synchronization =
      is_sharded(settings.synchronization) ? settings.synchronization : Synchronization::all_reduce;
  if (settings.overlaps_reductions != overlaps_by_default(nearest))
    nearest.overlaps_reductions = settings.overlaps_reductions;
  set_nearest_layers(nearest, places.layers(), layers);
  set_nearest_recomputation(nearest, graph, settings.recompute);
  return nearest;
}

}  // namespace ff
