#include "tests/support/random_settings.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <numeric>

#include "tests/support/graph_of_config.h"

namespace ff {

Graph tiny_transformer(int64_t samples) {
  auto file = std::make_shared<Json>(Json::parse(std::ifstream(FF_SOURCE_DIR "/graphs/llama-tiny.json")));
  for (Json& op : (*file)["operators"])
    if (op["type"] == "multi_head_attention") op["attributes"]["key_value_heads"] = 4;
  return parse_graph(JsonPlace(std::move(file), "llama-tiny.json"), samples);
}

Graph tiny_tied_transformer(int64_t samples) {
  constexpr const char* config =
      R"({"model_type":"gpt2","vocab_size":96,"n_layer":4,"n_embd":32,"n_head":4,"n_positions":64,)"
      R"("activation_function":"gelu_new"})";
  return graph_of_config(config, samples, 16);
}

Graph tiny_mixture(int64_t samples) {
  constexpr const char* config =
      R"({"model_type":"mixtral","hidden_act":"silu","hidden_size":32,"num_hidden_layers":4,"num_attention_heads":4,)"
      R"("num_key_value_heads":4,"intermediate_size":64,"vocab_size":64,"max_position_embeddings":64,)"
      R"("rms_norm_eps":1e-05,"num_local_experts":4,"num_experts_per_tok":2})";
  return graph_of_config(config, samples, 16);
}

namespace {

// Of each stage; the embedding or the loss may be alone in theirs.
Vector<int> random_layers(RandomSource& random, int layers, int stages) {
  Vector<int> result(stages, 1);
  for (const int end : {0, stages - 1})
    if (stages > 1) result[end] = static_cast<int>(random.between(0, 1));
  if (stages == 2 && result[0] == 0) result[1] = 1;
  const int given = std::accumulate(result.begin(), result.end(), 0);
  for (int more = layers - given; more > 0; --more) {
    int stage = random.between(0, stages - 1);
    while (result[stage] == 0) stage = (stage + 1) % stages;
    ++result[stage];
  }
  return result;
}

// Three stages, one of half of the devices.
void set_random_widths(RandomSource& random, const Graph& graph, int devices, Parallelism& settings) {
  const int groups = devices / settings.of_layer();
  if (groups % 4 != 0 || graph.batch_size % (groups / 2) != 0) return;
  settings.stage_data.assign(3, groups / 4);
  settings.stage_data[random.between(0, 2)] = groups / 2;
  settings.pipeline = 3;
  settings.data = groups / 2;
  settings.micro_batch = graph.batch_size / settings.data;
  if (settings.micro_batch % 2 == 0 && random.between(0, 1) == 1) settings.micro_batch /= 2;
  const int layers = transformer_layers(graph).count();
  settings.layers = layers >= 4 ? random_layers(random, layers, 3) : Vector<int>();
}

}  // namespace

std::optional<Parallelism> random_settings(RandomSource& random, const Graph& graph, int devices, bool has_experts) {
  Parallelism result;
  if (has_experts) result.expert = 1 << random.between(0, 2);
  result.tensor = 1 << random.between(0, 2);
  result.pipeline = 1 << random.between(0, 2);
  result.context = 1 << std::max<int64_t>(0, random.between(-2, has_experts ? 1 : 2));
  if (has_experts && random.between(0, 1) == 1) result.expert_tensor = 1 << random.between(0, 2);
  if (devices % (result.of_layer() * result.pipeline) != 0) return std::nullopt;
  result.data = devices / (result.of_layer() * result.pipeline);
  if (graph.batch_size % result.data != 0) return std::nullopt;
  result.micro_batch = graph.batch_size / result.data / (1 << random.between(0, 2));
  if (result.micro_batch == 0 || graph.batch_size % (result.data * result.micro_batch) != 0) return std::nullopt;
  constexpr Synchronization kinds[] = {Synchronization::all_reduce, Synchronization::sharded_optimizer,
                                       Synchronization::sharded_gradients, Synchronization::sharded_parameters};
  result.synchronization = kinds[random.between(0, 3)];
  result.recompute = random.between(0, 1) == 1 ? Recomputation::full : Recomputation::none;
  if (random.between(0, 1) == 1) result.overlaps_reductions = random.between(0, 1) == 1;
  const int layers = transformer_layers(graph).count();
  if (layers >= 4 && result.pipeline > 1 && random.between(0, 2) == 0)
    result.layers = random_layers(random, layers, result.pipeline);
  if (random.between(0, 1) == 1) {
    if (!has_experts && random.between(0, 2) == 0) set_random_widths(random, graph, devices, result);
    return result;
  }
  constexpr const char* frameworks[] = {"megatron", "fsdp", "composer", "deepspeed", "internevo", "scaling"};
  result.framework = frameworks[random.between(0, 5)];  // two devices exchange by collectives
  if (is_sharded(result.synchronization) && random.between(0, 1) == 1) result.shard_group = 1 << random.between(0, 3);
  return result;
}

}  // namespace ff
