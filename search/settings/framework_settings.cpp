#include "search/settings/framework_settings.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <span>

#include "common/json_file.h"
#include "common/operators/attention.h"
#include "search/optimizer/baselines/megatron.h"
#include "search/settings/pipeline_layout.h"
#include "search/settings/torchtitan_stages.h"

namespace ff {
namespace {

std::string text_of(int64_t number) { return std::to_string(number); }

// Groups of ranks that each have all of the sharded state; 1: all ranks share it. With context parallelism its ranks
// are among those that do.
int replicas_of_state(const Parallelism& plan) {
  return plan.shard_group > 0 && is_sharded(plan.synchronization) ? plan.ranks_of_parameters() / plan.shard_group : 1;
}

// Layers of each chunk where the embedding, or the loss, counts as one of them, so that the first chunk, or the last
// one, has one layer less than the others; 0: else.
int layers_beside_embedding_and_loss(const Vector<int>& counts) {
  if (counts.count() < 3) return 0;
  const int most = *std::max_element(counts.begin(), counts.end());
  const auto is_most = [&](int count) { return count == most; };
  const bool ends = counts[0] >= most - 1 && counts.back() >= most - 1;
  return ends && std::all_of(counts.begin() + 1, counts.end() - 1, is_most) ? most : 0;
}

bool are_equal(std::span<const int> counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

// Of Megatron-Core.
bool needs_layout(const Parallelism& plan, int layers) {
  const Vector<int> counts = layers_of_chunks(plan, layers);
  if (are_equal(counts) || layers_beside_embedding_and_loss(counts) > 0) return false;
  return plan.chunks > 1 || counts[0] == 0 || counts.back() == 0 ||
         (counts.count() > 3 && !are_equal(std::span(counts).subspan(1, counts.size() - 2)));
}

// Megatron-LM has numbers of layers for the first and the last stage, if the others have equally many; else a layout.
void add_borders(FrameworkSettings& settings, const Parallelism& plan, int layers) {
  const Vector<int> counts = layers_of_chunks(plan, layers);
  if (needs_layout(plan, layers)) {
    settings.text += "--pipeline-model-parallel-layout '" + pipeline_layout(counts) + "'\n";
    return;
  }
  if (are_equal(counts)) return;
  if (const int others = layers_beside_embedding_and_loss(counts); others > 0) {
    if (counts[0] < others) settings.text += "--account-for-embedding-in-pipeline-split\n";
    if (counts.back() < others) settings.text += "--account-for-loss-in-pipeline-split\n";
    return;
  }
  settings.text += "--decoder-first-pipeline-num-layers " + text_of(counts[0]) +
                   "\n--decoder-last-pipeline-num-layers " + text_of(counts.back()) + "\n";
}

// Of the settings of kernels, those that no framework's settings say.
void add_kernels_that_are_not_there(FrameworkSettings& settings, const Parallelism& plan, Precision precision) {
  if (plan.blocking_launches)
    settings.not_there.push_back(
        "launch_blocking=on: an environment variable says it, "
        "CUDA_LAUNCH_BLOCKING=1");
  if (plan.attention == "flash1" || plan.attention == "triton" || plan.attention == "varlen")
    settings.not_there.push_back("attention=" + plan.attention + ": which kernels attention has is not said");
  if (precision == Precision::tf32)
    settings.not_there.push_back("precision=tf32: products are said to be computed in fp32");
}

void add_fp8_that_is_not_there(FrameworkSettings& settings, const Parallelism& plan) {
  if (plan.fp8) settings.not_there.push_back("fp8: products in fp8 are those of Megatron-LM");
}

FrameworkSettings megatron_arguments(const Parallelism& plan, const Graph& graph, int layers, Precision precision) {
  FrameworkSettings settings;
  std::string& text = settings.text;
  text = "--tensor-model-parallel-size " + text_of(plan.tensor) + "\n--pipeline-model-parallel-size " +
         text_of(plan.pipeline) + "\n";
  if (const int of_chunk = plan.chunks > 1 ? layers_beside_embedding_and_loss(layers_of_chunks(plan, layers)) : 0)
    text += "--num-layers-per-virtual-pipeline-stage " + text_of(of_chunk) + "\n";
  else if (plan.chunks > 1 && !needs_layout(plan, layers))
    text += "--num-virtual-stages-per-pipeline-rank " + text_of(plan.chunks) + "\n";
  if (plan.tensor > 1 && plan.sequence_parallel) text += "--sequence-parallel\n";
  if (plan.context > 1) text += "--context-parallel-size " + text_of(plan.context) + "\n--cp-comm-type all_gather\n";
  if (plan.expert > 1 || plan.of_expert() != plan.tensor)
    text += "--expert-model-parallel-size " + text_of(plan.expert) + "\n--expert-tensor-parallel-size " +
            text_of(plan.of_expert()) + "\n";
  text +=
      "--micro-batch-size " + text_of(plan.micro_batch) + "\n--global-batch-size " + text_of(graph.batch_size) + "\n";
  if (is_sharded(plan.synchronization)) text += "--use-distributed-optimizer\n";
  if (shards_gradients(plan.synchronization))
    text += std::string("--use-megatron-fsdp\n--data-parallel-sharding-strategy ") +
            (shards_parameters(plan.synchronization) ? "optim_grads_params\n" : "optim_grads\n") +
            "--ckpt-format fsdp_dtensor\n";
  if (const int replicas = replicas_of_state(plan); replicas > 1)
    text += "--num-distributed-optimizer-instances " + text_of(replicas) + "\n";
  if (plan.recompute_layers > 0)
    text += "--recompute-granularity full\n--recompute-method block\n--recompute-num-layers " +
            text_of(plan.recompute_layers) + "\n";
  else if (plan.recompute == Recomputation::full)
    text += "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n";
  else if (plan.recompute == Recomputation::norms && experts_of(graph) == 1)
    settings.not_there.push_back(
        "recompute=norms: Megatron-LM's norms are part of the product that reads them, but before experts");
  else if (plan.recompute == Recomputation::norms)
    text += "--recompute-granularity selective\n--recompute-modules layernorm\n";
  else if (plan.recompute == Recomputation::selective && plan.attention == "stored")
    text += "--recompute-granularity selective\n";
  if (plan.recompute == Recomputation::elementwise)
    settings.not_there.push_back("recompute=elementwise: Megatron-LM recomputes norms before experts, or whole layers");
  const std::map<std::string, std::string> backends = {{"stored", "unfused"}, {"flash2", "flash"}, {"cudnn", "fused"}};
  if (const auto backend = backends.find(plan.attention); backend != backends.end())
    text += "--attention-backend " + backend->second + "\n";
  if (plan.fused_loss) text += "--cross-entropy-loss-fusion\n";
  if (overlaps_reductions(plan)) text += "--overlap-grad-reduce\n";
  if (gathers_for_forward(plan)) text += "--overlap-param-gather\n";
  if (plan.reduce == "bf16") text += "--grad-reduce-in-bf16\n";
  if (plan.overlaps_tensor_parallel && plan.tensor > 1) text += "--tp-comm-overlap\n";
  if (plan.fp8) text += "--fp8-format hybrid\n";
  if (plan.fp8_weights && is_sharded(plan.synchronization)) text += "--fp8-param-gather\n";
  else if (plan.fp8_weights)
    settings.not_there.push_back("fp8=weights: Megatron-LM has weights in fp8 with a distributed optimizer alone");
  if (plan.fp8 && plan.recompute == Recomputation::norms && experts_of(graph) > 1)
    text += "--fp8-recipe tensorwise\n";  // with "delayed", the default, it does not compute norms again
  if (plan.expert > 1 && plan.tensor > 1 && !plan.sequence_parallel)
    settings.not_there.push_back(
        "sequence_parallel=off: Megatron-LM takes ep and tp together with --sequence-parallel");
  if (plan.overlaps_input_gradients == false && plan.tensor > 1) {
    text += "--no-async-tensor-model-parallel-allreduce\n";
    if (plan.sequence_parallel)
      settings.not_there.push_back("tp_grad_overlap=off: Megatron-LM overlaps with --sequence-parallel all the same");
  }
  if (plan.fuses_rope == false) text += "--no-rope-fusion\n";
  if (plan.fuses_norms == false) settings.not_there.push_back("norm_fusion=off: which kernels norms have is not said");
  if (plan.fuses_swiglu == false) text += "--no-bias-swiglu-fusion\n";
  if (precision == Precision::bf16) text += "--bf16\n";
  if (graph.optimizer && graph.optimizer->kind == OptimizerKind::sgd) {
    char momentum[32];
    std::snprintf(momentum, sizeof momentum, "%g", graph.optimizer->momentum);
    text += std::string("--optimizer sgd\n--sgd-momentum ") + momentum + "\n";
  }
  add_kernels_that_are_not_there(settings, plan, precision);
  add_borders(settings, plan, layers);
  return settings;
}

void add_stages_of_torchtitan(FrameworkSettings& settings, const Parallelism& plan, int layers) {
  const Vector<int> of_chunks = layers_of_chunks(plan, layers);
  const std::optional<TorchtitanStages> stages = torchtitan_stages(of_chunks, plan.pipeline);
  if (!stages) {
    settings.text += "module_fqns_per_model_part = " + torchtitan_modules(of_chunks) + "\n";
    return;
  }
  settings.text += "pipeline_parallel_first_stage_less_layers = " + text_of(stages->first_less) +
                   "\npipeline_parallel_last_stage_less_layers = " + text_of(stages->last_less) + "\n";
  if (stages->layers_per_chunk > 0)
    settings.text += "pipeline_parallel_layers_per_stage = " + text_of(stages->layers_per_chunk) + "\n";
}

void add_recomputation_of_torchtitan(FrameworkSettings& settings, const Parallelism& plan, int layers) {
  const int every = plan.recompute_layers > 0 ? recomputed_every(plan, layers) : 0;
  const bool some = every > 0, full = plan.recompute == Recomputation::full;
  const bool by_operator = plan.recompute == Recomputation::selective;
  settings.text += std::string("\n[activation_checkpoint]\nmode = \"") +
                   (some || by_operator ? "selective"
                    : full              ? "full"
                                        : "none") +
                   "\"\n";
  if (some || by_operator)
    settings.text += "selective_ac_option = \"" + (some ? text_of(every) : std::string("op")) + "\"\n";
  if (full) settings.text += std::string("early_stop = ") + (plan.early_stop ? "true" : "false") + "\n";
  if (some)
    settings.not_there.push_back("recompute_layers=" + text_of(plan.recompute_layers) +
                                 ": torchtitan computes as many layers of a stage again, but layer " + text_of(every) +
                                 " of every " + text_of(every) + " instead of the first ones");
  else if (plan.recompute_layers > 0)
    settings.not_there.push_back("recompute_layers=" + text_of(plan.recompute_layers) +
                                 ": torchtitan computes all layers again, none, or every so many of a stage");
  if (plan.recompute == Recomputation::norms || plan.recompute == Recomputation::elementwise)
    settings.not_there.push_back("recompute=" + std::string(name_of(plan.recompute)) +
                                 ": torchtitan recomputes all operators, or all but some products");
}

void add_optimizer_and_limits(FrameworkSettings& settings, const Parallelism& plan, const Graph& graph) {
  if (graph.optimizer && graph.optimizer->kind == OptimizerKind::sgd)
    settings.not_there.push_back("optimizer sgd: torchtitan has Adam and AdamW");
  else if (graph.optimizer)
    settings.text += std::string("\n[optimizer]\nname = \"") +
                     (graph.optimizer->kind == OptimizerKind::adam ? "Adam" : "AdamW") + "\"\n";
  for (const Fusion& fusion : fusions)
    if (const std::optional<bool> given = plan.*fusion.given)
      settings.not_there.push_back(std::string(fusion.key) + (*given ? "=on" : "=off") +
                                   ": which kernels are fused is not said, but for [compile]");
  if (plan.attention == "flash2" || plan.attention == "cudnn")
    settings.not_there.push_back("attention=" + plan.attention + ": which kernels attention has is not said");
  if (plan.attention == "stored")
    settings.not_there.push_back("attention=stored: torchtitan's attention does not store its probabilities");
  add_fp8_that_is_not_there(settings, plan);
  if (plan.fused_loss) settings.not_there.push_back("loss=fused: which kernels the loss has is not said");
  if (!plan.reduce.empty())
    settings.not_there.push_back("reduce=" + plan.reduce + ": in which type gradients are reduced is not said");
  if (!plan.sequence_parallel && plan.tensor > 1)
    settings.not_there.push_back("sequence_parallel=off: torchtitan's tensor parallelism splits the sequence");
}

bool is_language_model(const Graph& graph) {
  return std::all_of(graph.operators.begin(), graph.operators.end(), [](const Operator& op) {
    const auto* attention = dynamic_cast<const MultiHeadAttention*>(op.definition.get());
    return !attention || attention->causal;
  });
}

// Without stages gradients accumulate over micro-batches, with them a local batch passes through the pipeline.
FrameworkSettings torchtitan_file(const Parallelism& plan, const Graph& graph, int layers, Precision precision) {
  FrameworkSettings settings;
  const bool shards = shards_parameters(plan.synchronization);
  const int replicas = !shards ? plan.data : std::gcd(replicas_of_state(plan), plan.data);
  if (shards && replicas != replicas_of_state(plan))
    settings.not_there.push_back("shard_group=" + text_of(plan.shard_group) +
                                 ": torchtitan shards among all ranks of context parallelism");
  if (!shards && plan.context > 1)
    settings.not_there.push_back(
        "sharding: torchtitan shards parameters among the ranks of context parallelism, these plans do not");
  else if (!shards && plan.data > 1 && (plan.tensor > 1 || plan.pipeline > 1))  // parallelize_llama
    settings.not_there.push_back("sharding: torchtitan's replicas (DDP) go with no other parallelism, unless sharded");
  if (plan.data / replicas * plan.context * plan.tensor % plan.expert != 0)  // parallel_dims.py: _validate
    settings.not_there.push_back("ep=" + text_of(plan.expert) +
                                 ": torchtitan has experts among the ranks that shard parameters, cp and tp alone");
  settings.text =
      "# torchtitan up to 0.2. Later versions have [parallelism] as flags: --parallelism.tensor_parallel_degree 2\n"
      "[training]\nlocal_batch_size = " +
      text_of(plan.pipeline > 1 ? graph.batch_size / plan.data : plan.micro_batch) +
      "\nglobal_batch_size = " + text_of(graph.batch_size) + "\nseq_len = " + text_of(sequence_length(graph)) +
      (precision == Precision::bf16 ? "" : "\nmixed_precision_param = \"float32\"") +
      "\n\n[parallelism]\ndata_parallel_replicate_degree = " + text_of(replicas) +
      "\ndata_parallel_shard_degree = " + text_of(plan.data / replicas) +
      "\ntensor_parallel_degree = " + text_of(plan.tensor) + "\npipeline_parallel_degree = " + text_of(plan.pipeline) +
      "\n";
  if (plan.context > 1) settings.text += "context_parallel_degree = " + text_of(plan.context) + "\n";
  if (plan.expert == 1 && plan.of_expert() != plan.tensor)
    settings.not_there.push_back("etp=" + text_of(plan.of_expert()) +
                                 ": torchtitan splits experts as other layers where expert_parallel_degree is 1");
  if (plan.expert > 1)
    settings.text += "expert_parallel_degree = " + text_of(plan.expert) +
                     "\nexpert_tensor_parallel_degree = " + text_of(plan.of_expert()) + "\n";
  if (plan.pipeline > 1)
    settings.text += "pipeline_parallel_schedule = \"" + std::string(plan.chunks > 1 ? "Interleaved1F1B" : "1F1B") +
                     "\"\npipeline_parallel_microbatch_size = " + text_of(plan.micro_batch) + "\n";
  if (plan.pipeline > 1) add_stages_of_torchtitan(settings, plan, layers);
  add_recomputation_of_torchtitan(settings, plan, layers);
  settings.text += std::string("\n[compile]\nenable = ") + (plan.compiled ? "true" : "false") + "\n";
  if (!overlaps_reductions(plan) && plan.pipeline == 1)
    settings.not_there.push_back("overlap_grad_reduce=off: torchtitan reduces gradients during backward");
  add_optimizer_and_limits(settings, plan, graph);
  add_kernels_that_are_not_there(settings, plan, precision);
  if (is_sharded(plan.synchronization) && !shards)
    settings.not_there.push_back("sharding=" + std::string(sharding_name(plan.synchronization)) +
                                 ": data parallelism keeps all state or shards parameters too");
  return settings;
}

// What the model's code says, with the layers of its pipeline stages.
void add_code_of_deepspeed(FrameworkSettings& settings, const Parallelism& plan) {
  const char* const by_code = ": not in DeepSpeed's configuration file, the model's code says it";
  for (const auto& [key, degree] : {std::pair("tp", plan.tensor), std::pair("pp", plan.pipeline),
                                    std::pair("cp", plan.context), std::pair("ep", plan.expert)})
    if (degree > 1) settings.not_there.push_back(std::string(key) + "=" + text_of(degree) + by_code);
  if (!plan.layers.empty()) settings.not_there.push_back("layers=" + colon_separated(plan.layers) + by_code);
  if (plan.recompute != Recomputation::none)
    settings.not_there.push_back("recompute=" + std::string(name_of(plan.recompute)) + by_code);
  if (plan.chunks > 1)
    settings.not_there.push_back("vp=" + text_of(plan.chunks) + ": DeepSpeed's pipeline has one chunk for each stage");
}

FrameworkSettings deepspeed_file(const Parallelism& plan, const Graph& graph, Precision precision) {
  FrameworkSettings settings;
  const int stage = static_cast<int>(plan.synchronization) - static_cast<int>(Synchronization::sharded_optimizer) + 1;
  Json json = {{"train_batch_size", graph.batch_size},
               {"train_micro_batch_size_per_gpu", plan.micro_batch},
               {"gradient_accumulation_steps", graph.batch_size / plan.data / plan.micro_batch},
               {"zero_optimization", {{"stage", is_sharded(plan.synchronization) ? stage : 0}}}};
  if (plan.shard_group > 0 && shards_parameters(plan.synchronization))
    json["zero_optimization"]["mics_shard_size"] = plan.shard_group;
  else if (plan.shard_group > 0)
    settings.not_there.push_back("shard_group=" + text_of(plan.shard_group) +
                                 ": DeepSpeed has groups (MiCS) with sharded parameters alone");
  add_fp8_that_is_not_there(settings, plan);
  if (is_sharded(plan.synchronization)) json["zero_optimization"]["overlap_comm"] = overlaps_reductions(plan);
  else if (plan.overlaps_reductions)
    settings.not_there.push_back(std::string("overlap_grad_reduce=") + (*plan.overlaps_reductions ? "on" : "off") +
                                 ": DeepSpeed says it with sharding (overlap_comm)");
  if (precision == Precision::bf16) json["bf16"] = {{"enabled", true}};
  if (!plan.reduce.empty())
    settings.not_there.push_back("reduce=" + plan.reduce + ": which optimizer wraps the weights is not said");
  add_kernels_that_are_not_there(settings, plan, precision);
  add_code_of_deepspeed(settings, plan);
  settings.text = json.dump(2) + "\n";
  return settings;
}

}  // namespace

FrameworkSettings framework_settings(const std::string& framework, const Parallelism& parallelism, const Graph& graph,
                                     int layers, Precision precision) {
  FrameworkSettings settings = framework == "megatron"     ? megatron_arguments(parallelism, graph, layers, precision)
                               : framework == "torchtitan" ? torchtitan_file(parallelism, graph, layers, precision)
                                                           : deepspeed_file(parallelism, graph, precision);
  if (framework != "deepspeed" && !is_language_model(graph))
    settings.not_there.push_back(std::string("the model: its attention reads all positions, and ") +
                                 (framework == "megatron" ? "pretrain_gpt.py" : "torchtitan") +
                                 " trains models that read those before alone");
  return settings;
}

std::string convention_of(const std::string& framework) { return framework == "torchtitan" ? "fsdp" : framework; }

}  // namespace ff
