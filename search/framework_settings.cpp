#include "search/framework_settings.h"

#include "common/json_file.h"

namespace ff {
namespace {

std::string text_of(int64_t number) { return std::to_string(number); }

FrameworkSettings megatron_arguments(const Parallelism& plan, const Graph& graph, int layers) {
  FrameworkSettings settings;
  std::string& text = settings.text;
  text = "--tensor-model-parallel-size " + text_of(plan.tensor) + "\n--pipeline-model-parallel-size " +
         text_of(plan.pipeline) + "\n";
  if (plan.chunks > 1)
    text += "--num-layers-per-virtual-pipeline-stage " + text_of(layers / (plan.pipeline * plan.chunks)) + "\n";
  if (plan.tensor > 1) text += "--sequence-parallel\n";
  text +=
      "--micro-batch-size " + text_of(plan.micro_batch) + "\n--global-batch-size " + text_of(graph.batch_size) + "\n";
  if (is_sharded(plan.synchronization)) text += "--use-distributed-optimizer\n";
  if (shards_gradients(plan.synchronization))
    settings.not_there.push_back("sharding=" + std::string(sharding_name(plan.synchronization)) +
                                 ": --use-distributed-optimizer shards the optimizer's state alone");
  if (plan.recompute) text += "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n";
  return settings;
}

FrameworkSettings torchtitan_file(const Parallelism& plan, const Graph& graph) {
  FrameworkSettings settings;
  const bool shards = shards_parameters(plan.synchronization);
  settings.text = "[training]\nlocal_batch_size = " + text_of(graph.batch_size / plan.data) +
                  "\nglobal_batch_size = " + text_of(graph.batch_size) +
                  "\n\n[parallelism]\ndata_parallel_replicate_degree = " + text_of(shards ? 1 : plan.data) +
                  "\ndata_parallel_shard_degree = " + text_of(shards ? plan.data : 1) +
                  "\ntensor_parallel_degree = " + text_of(plan.tensor) +
                  "\npipeline_parallel_degree = " + text_of(plan.pipeline) + "\n";
  if (plan.pipeline > 1)
    settings.text += "pipeline_parallel_schedule = \"" + std::string(plan.chunks > 1 ? "Interleaved1F1B" : "1F1B") +
                     "\"\npipeline_parallel_microbatch_size = " + text_of(plan.micro_batch) + "\n";
  else if (graph.batch_size / plan.data != plan.micro_batch)
    settings.not_there.push_back("micro_batch=" + text_of(plan.micro_batch) +
                                 ": set local_batch_size to it, and gradients accumulate up to global_batch_size");
  settings.text += "\n[activation_checkpoint]\nmode = \"" + std::string(plan.recompute ? "full" : "none") + "\"\n";
  if (is_sharded(plan.synchronization) && !shards)
    settings.not_there.push_back("sharding=" + std::string(sharding_name(plan.synchronization)) +
                                 ": data parallelism keeps all state or shards parameters too");
  return settings;
}

FrameworkSettings deepspeed_file(const Parallelism& plan, const Graph& graph) {
  FrameworkSettings settings;
  const int stage = static_cast<int>(plan.synchronization) - static_cast<int>(Synchronization::sharded_optimizer) + 1;
  Json json = {{"train_batch_size", graph.batch_size},
               {"train_micro_batch_size_per_gpu", plan.micro_batch},
               {"gradient_accumulation_steps", graph.batch_size / plan.data / plan.micro_batch},
               {"zero_optimization", {{"stage", is_sharded(plan.synchronization) ? stage : 0}}}};
  settings.text = json.dump(2) + "\n";
  for (const auto& [key, degree] : {std::pair("tp", plan.tensor), std::pair("pp", plan.pipeline)})
    if (degree > 1)
      settings.not_there.push_back(std::string(key) + "=" + text_of(degree) +
                                   ": not in DeepSpeed's configuration file, the model's code says it");
  if (plan.recompute)
    settings.not_there.push_back("recompute=full: not in DeepSpeed's configuration file, the model's code says it");
  return settings;
}

}  // namespace

FrameworkSettings framework_settings(const std::string& framework, const Parallelism& parallelism, const Graph& graph,
                                     int layers) {
  if (framework == "megatron") return megatron_arguments(parallelism, graph, layers);
  return framework == "torchtitan" ? torchtitan_file(parallelism, graph) : deepspeed_file(parallelism, graph);
}

}  // namespace ff
