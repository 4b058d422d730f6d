// Plans as people name them: degrees of tensor, pipeline and data parallelism, samples per micro-batch, sharding and
// recomputation, as settings of Megatron-LM or FSDP; and the strategy that they mean for a transformer.
//
//   tp                 devices that split each layer (tensor parallelism: Shoeybi et al. 2019, arXiv 1909.08053)
//   pp                 pipeline stages; the layers are divided into pp x vp chunks of equally many, or where they do
//                      not divide them, with one more in each of those after the first; the embedding is in the
//                      first chunk, what is after the last layer in the last. These two can be without layers
//   vp                 chunks of layers per stage (interleaved: Narayanan et al. 2021, arXiv 2104.04473, section 2.2)
//   micro_batch        samples of a micro-batch on each data-parallel group
//   dp                 devices / (tp x cp x pp); may be given, to be checked
//   stage_dp           without a framework, and with vp=1: data-parallel groups of each stage, as 4:2:1. Then pp is how
//                      many numbers there are, dp the largest of them, and micro_batch is the samples on each group of
//                      a stage with dp groups: a stage with half as many has twice as many samples on each. Each
//                      number divides the samples of a micro-batch
//   sharding           none, optimizer, gradients, parameters (ZeRO-1 to ZeRO-3)
//   sequence_parallel  on: what is between the layers is split by length (Korthikanti et al. 2022, arXiv 2205.05198);
//                      off, with framework=megatron, deepspeed or scaling: each device of a group computes and
//                      keeps all of it
//   layers             layers of each of the pp x vp chunks, as 5:6:6:7, or 0:8:8:8:8:0 with chunks of the embedding
//                      and the loss alone
//   shard_group        with a framework: sharded state is split among so many neighbouring ranks of the dp x cp that
//                      have the same parameters, and each such group has all of it (hybrid sharding); default: among
//                      all
//   recompute          none, norms, elementwise, selective, full; norms: of layers, as Megatron-Core's selective
//                      recomputation of layernorm; elementwise, without a framework: of layers all but products,
//                      attention and what other layers read: norms, activations, products of gates; selective: of each
//                      layer all but every other product and attention, as torchtitan's selective activation
//                      checkpointing by operator; with attention=stored, or another framework than fsdp: of attention's
//                      stored probabilities
//   recompute_layers   with recompute=full: so many of the first layers of each chunk are recomputed; default: all
//   early_stop         with framework=fsdp or composer: on: recompute=full ends where backward has no use for more, as
//                      PyTorch's does since 2.1; off: at a layer's end, as before that
//   compile            with framework=fsdp, composer, deepspeed or scaling: on: torch.compile makes one kernel of a RMS
//                      norm, of the rotation of queries and keys, and with fsdp of a gate; off: they are sequences of
//                      elementwise kernels (see norm_fusion)
//   norm_fusion, rope_fusion, swiglu_fusion
//                      with framework=megatron, deepspeed, scaling, fsdp or composer: are a RMS norm, the rotation of
//                      queries and keys, and a gated layer's activation and product one kernel, or a sequence of
//                      elementwise ones? Default: what compile says; with megatron on, as since January 2024
//                      (--no-rope-fusion, --no-bias-swiglu-fusion); rotation with deepspeed and scaling, and gates
//                      with these and composer, off
//   ep                 parts of the experts, each with devices of its own (GShard: Lepikhin et al. 2020)
//   etp                devices that split each expert (--expert-tensor-parallel-size of Megatron-Core); default: tp. So
//                      many neighbouring devices of a stage, ep x etp, have all experts: a part of the tp x cp of a
//                      data-parallel group, or several groups
//   cp                 devices that split the length of every operator, attention's queries too (context parallelism:
//                      Liu et al. 2023, arXiv 2310.01889)
//   attention          fused: no probabilities are stored, at the rates of FlashAttention-2; with framework=megatron
//                      of cuDNN, where these are known, as TransformerEngine takes its kernels on H100; flash2, cudnn:
//                      the one or the other; flash1: of FlashAttention's first generation; triton: of that, written in
//                      Triton; varlen: flash2, of sequences that are gathered from padded ones and scattered again;
//                      stored: probabilities are, as far as times are concerned
//   loss               with a framework: unfused, a sequence of kernels on f32 logits; fused, one kernel that replaces
//                      the logits by their gradients
//   framework          whose conventions times follow (cost/conventions.h): none, ffexec's; megatron, fsdp, composer
//                      (FSDP by Composer, which computes more cross-entropies, to be logged), deepspeed, internevo,
//                      scaling (Aleph Alpha's). In bf16 weights are gathered in bf16, and gradients reduced in f32
//                      (deepspeed, internevo: bf16); gradients are clipped; collectives of parameters take a part of
//                      the device; fsdp's optimizer is a sequence of kernels
//   overlap_grad_reduce
//                      on: a layer's gradients are reduced once its backward pass is complete; off: when that of all
//                      layers of the device is (StrategySettings::overlaps_reductions); default: on without stages,
//                      unless framework=megatron, deepspeed or scaling, which reduce after backward by themselves
//   overlap_param_gather
//                      with framework=megatron and sharding=optimizer: updated weights are gathered while the next
//                      forward pass computes (--overlap-param-gather); with overlap_grad_reduce=on alone
//   tp_comm_overlap    with framework=megatron: all-gathers and reduce-scatters of tensor parallelism run behind the
//                      products that they belong to (--tp-comm-overlap)
//   tp_grad_overlap    with framework=megatron: on, the default: tensor parallelism sums gradients of inputs beside
//                      the products of weights' gradients, and with sequence parallelism gathers inputs again beside
//                      those of inputs' gradients; off: as Megatron-LM until 2021
//                      (--no-async-tensor-model-parallel-allreduce)
//   fp8                with framework=megatron and precision=bf16: on: products with weights are in fp8, by
//                      TransformerEngine with delayed scaling (FrameworkConventions::fp8); weights: the weights are
//                      kept and gathered in fp8, too (--fp8-param-gather); off, the default
//   launch_blocking    with framework=megatron, deepspeed or scaling: on: the host waits for each kernel, as with
//                      CUDA_LAUNCH_BLOCKING=1; nothing runs beside it
//   reduce             with a framework: the type in which gradients are reduced, f32 or bf16; megatron: and added up
//
// Ranks are numbered as Megatron-LM does: tp varies fastest, then cp, dp and pp, over the devices in the order of the
// topology's links.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/strategy.h"
#include "search/cost/conventions.h"

namespace ff {

// What layers compute again before backward.
enum class Recomputation { none, norms, elementwise, selective, full };

struct Parallelism {
  int tensor = 1, pipeline = 1, chunks = 1, data = 0;  // data 0: as many groups as there are devices for
  int64_t micro_batch = 0;                             // samples; 0: all of a group's
  Synchronization synchronization = Synchronization::all_reduce;
  Recomputation recompute = Recomputation::none;
  bool sequence_parallel = true, fused_loss = false;
  bool overlaps_tensor_parallel = false, overlaps_gathers = false;
  bool fp8 = false, fp8_weights = false;  // products with weights are; weights are kept and gathered in fp8 alone
  std::string attention = "fused", framework = "none";
  std::string reduce = "";                            // "f32", "bf16"; empty: as the framework does by itself
  Vector<int> layers = {};                            // [chunk]; empty: as many as in the others, or one more
  int recompute_layers = 0;                           // of each chunk; 0: all
  std::optional<bool> overlaps_reductions = {};       // of gradients with backward; none: ff::overlaps_reductions
  std::optional<bool> overlaps_input_gradients = {};  // none: as the framework does by itself
  std::optional<bool> fuses_norms = {}, fuses_rope = {}, fuses_swiglu = {};  // none: as the framework does by itself
  bool early_stop = true;  // of recomputation, where the framework's can end early
  bool compiled = true;    // by torch.compile, where the framework is PyTorch's
  int expert = 1, context = 1;
  int expert_tensor = 0;  // devices that split an expert; 0: as many as other layers
  int shard_group = 0;    // ranks that split the state; 0: all of data x context
  bool blocking_launches = false;
  Vector<int> stage_data = {};                                // [stage]: data-parallel groups; empty: `data` of each
  int of_layer() const { return tensor * context; }           // devices of a data-parallel group that split each layer
  int ranks_of_parameters() const { return data * context; }  // that have the same ones; with stage_data, at most
  int groups_of_stage(int stage) const { return stage_data.empty() ? data : stage_data[stage]; }
  int equal_parts() const;            // in how many the data-parallel groups of each stage can be divided
  Parallelism part(int parts) const;  // one of so many
  int of_expert() const { return expert_tensor > 0 ? expert_tensor : tensor; }
  int groups_of_experts() const { return std::max(1, expert * of_expert() / of_layer()); }  // that split them
  bool operator==(const Parallelism&) const = default;
};

// "none", "norms", ...
std::string_view name_of(Recomputation recomputation);

// "tp=8,pp=4,micro_batch=1". Throws InputError for unknown keys and values, and for what plans cannot say.
Parallelism parse_parallelism(const std::string& text);
// One of its keys, whatever the others. Throws InputError for an unknown value; a key of the precision changes nothing.
void set_value(Parallelism& parallelism, const std::string& key, const std::string& value);
// What such a text says of the precision, which is not part of the plan but of what its tasks cost. Throws likewise.
std::optional<Precision> precision_of_settings(const std::string& text);
// "4:2:1"
std::string colon_separated(const Vector<int>& numbers);
// Do layers compute single operators again, not whole layers (recompute=selective)?
bool recomputes_operators(const Parallelism& parallelism);
// Are gradients reduced beside backward if nothing is said of it?
bool overlaps_by_default(const Parallelism& parallelism);
// As given, or by default. Megatron-LM reduces after backward without --overlap-grad-reduce (finalize_model_grads in
// train_step; before 2023 allreduce_gradients), and so do DeepSpeed's pipelines (TrainSchedule: ReduceTiedGrads and
// ReduceGrads at the end).
bool overlaps_reductions(const Parallelism& parallelism);
// Are its conventions those of PyTorch's FSDP?
bool runs_fsdp(const Parallelism& parallelism);
// What micro-batches find sharded. With stages FSDP gathers weights in front of the first one and keeps them, and
// reduces gradients after the last one, as with a sharded optimizer (backward_maybe_with_nosync in
// torch/distributed/pipelining/stage.py; get_fsdp_reshard_after_forward_policy in torchtitan's distributed/fsdp.py).
Synchronization sharding_of_micro_batches(const Parallelism& parallelism);
// Are weights gathered while the next forward pass computes? As asked for, where a sharded optimizer updates them.
bool gathers_for_forward(const Parallelism& parallelism);
// Are RMS norms, the rotation of queries and keys, and gated layers a kernel each? As asked for, or as the framework
// does.
bool fuses_norms(const Parallelism& parallelism);
bool fuses_rope(const Parallelism& parallelism);
bool fuses_swiglu(const Parallelism& parallelism);
struct Fusion {
  const char* key;
  std::optional<bool> Parallelism::*given;
  bool (*is_on)(const Parallelism&);
};
constexpr Fusion fusions[] = {{"norm_fusion", &Parallelism::fuses_norms, fuses_norms},
                              {"rope_fusion", &Parallelism::fuses_rope, fuses_rope},
                              {"swiglu_fusion", &Parallelism::fuses_swiglu, fuses_swiglu}};
// The keys of such a text, and those that follow: pp and dp from stage_dp, what overlaps from launch_blocking.
std::set<std::string> keys_of_parallelism(const std::string& text);
// Of the framework and the kind of attention. Of a batch of so many samples, once the data-parallel groups are known.
FrameworkConventions conventions_of(const Parallelism& parallelism, int64_t batch = 0);
// All settings, in the same notation; and by key. Those at their default may not be there.
std::string to_string(const Parallelism& parallelism);
std::map<std::string, std::string> values_by_key(const Parallelism& parallelism);

// Throws InputError where the shard group does not divide the ranks that have the same parameters, which are known.
// Costs follow it only where it does.
void check_shard_group(const Parallelism& parallelism);
// Throws InputError where Megatron-LM's interleaved schedule would refuse the micro-batches of these settings, which
// have all their values.
void check_rounds(const Parallelism& parallelism, int64_t batch);

// Positions at which layers begin, as operators: of those between two multi_head_attention operators the one after
// which the fewest tensors are read further on, and the last of these. Empty: there is no attention.
Vector<OperatorId> transformer_layers(const Graph& graph);

// The longest that attention reads; 0: there is none.
int64_t sequence_length(const Graph& graph);

// By operator: its layer; no_layer in front of the first one (embeddings) and behind the last one, where layers are as
// long as their neighbours; with fewer than three of them that is not known.
constexpr int no_layer = -1;
Vector<int> layer_or_none_of_operators(const Graph& graph);

// The layers of each chunk, in order; of each stage, in all of its chunks.
Vector<int> layers_of_chunks(const Parallelism& parallelism, int layers);
// Is a chunk between the first and the last one without layers? That cannot be.
bool has_gap(const Vector<int>& of_chunks);
// Into how many chunks so many layers can be divided.
int most_chunks_of(int layers);
Vector<int> layers_of_stages(const Parallelism& parallelism, int layers);
// [place in the order of the topology's links]: its stage. The data-parallel degree is known.
Vector<int> stages_of_places(const Parallelism& parallelism);

// "tp x pp", or with context parallelism "tp x cp x pp", for messages.
std::string product_of_degrees(const Parallelism& parallelism);

// `parallelism` gets its data-parallel degree and its micro-batch. Throws InputError where devices or batch are not
// divisible.
void complete(Parallelism& parallelism, int64_t batch, int devices);

// What the settings mean; they are completed. Throws InputError where devices, batch, layers or heads are not
// divisible.
struct ParallelPlan {
  Strategy strategy;  // of one micro-batch
  StrategySettings settings;
};
ParallelPlan plan_of(Parallelism& parallelism, const Graph& graph, const Topology& topology);

// May stages have different numbers of data-parallel groups (stage_dp)?
enum class StageWidths { equal, any };

// The settings nearest to a strategy, by how its attention is split and placed; they may mean another strategy. Throws
// InputError where the graph has no attention, or none of the settings is near.
Parallelism nearest_parallelism(const Graph& graph, const Topology& topology, const Strategy& strategy,
                                const StrategySettings& settings, StageWidths widths = StageWidths::any);

}  // namespace ff
