#include "search/settings/framework_arguments.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <sstream>

#include "common/errors.h"
#include "common/operators/attention.h"
#include "search/optimizer/baselines/megatron.h"
#include "search/settings/argument_values.h"
#include "search/settings/pipeline_layout.h"

namespace ff {
namespace {

using Flags = std::map<std::string, Vector<std::string>>;  // with the words behind each, in order of names

constexpr int any_number = -1;

// What is read: number of words behind the flag.
const std::map<std::string, int>& flags_with_a_meaning() {
  static const std::map<std::string, int> flags = {{"--tensor-model-parallel-size", 1},
                                                   {"--pipeline-model-parallel-size", 1},
                                                   {"--num-layers-per-virtual-pipeline-stage", 1},
                                                   {"--num-virtual-stages-per-pipeline-rank", 1},
                                                   {"--decoder-first-pipeline-num-layers", 1},
                                                   {"--decoder-last-pipeline-num-layers", 1},
                                                   {"--pipeline-model-parallel-layout", 1},
                                                   {"--account-for-embedding-in-pipeline-split", 0},
                                                   {"--account-for-loss-in-pipeline-split", 0},
                                                   {"--context-parallel-size", 1},
                                                   {"--cp-comm-type", 1},
                                                   {"--expert-model-parallel-size", 1},
                                                   {"--expert-tensor-parallel-size", 1},
                                                   {"--sequence-parallel", 0},
                                                   {"--micro-batch-size", 1},
                                                   {"--global-batch-size", 1},
                                                   {"--use-distributed-optimizer", 0},
                                                   {"--use-megatron-fsdp", 0},
                                                   {"--use-custom-fsdp", 0},
                                                   {"--data-parallel-sharding-strategy", 1},
                                                   {"--num-distributed-optimizer-instances", 1},
                                                   {"--outer-dp-sharding-strategy", 1},
                                                   {"--recompute-granularity", 1},
                                                   {"--recompute-method", 1},
                                                   {"--recompute-num-layers", 1},
                                                   {"--recompute-modules", any_number},
                                                   {"--recompute-activations", 0},
                                                   {"--attention-backend", 1},
                                                   {"--use-flash-attn", 0},
                                                   {"--cross-entropy-loss-fusion", 0},
                                                   {"--overlap-grad-reduce", 0},
                                                   {"--overlap-param-gather", 0},
                                                   {"--grad-reduce-in-bf16", 0},
                                                   {"--fp8-format", 1},
                                                   {"--fp8-recipe", 1},
                                                   {"--fp8-param-gather", 0},
                                                   {"--tp-comm-overlap", 0},
                                                   {"--no-async-tensor-model-parallel-allreduce", 0},
                                                   {"--no-rope-fusion", 0},
                                                   {"--no-bias-swiglu-fusion", 0},
                                                   {"--bf16", 0},
                                                   {"--fp16", 0},
                                                   {"--optimizer", 1},
                                                   {"--sgd-momentum", 1},
                                                   {"--num-layers", 1},
                                                   {"--hidden-size", 1},
                                                   {"--num-attention-heads", 1},
                                                   {"--num-query-groups", 1},
                                                   {"--kv-channels", 1},
                                                   {"--num-experts", 1},
                                                   {"--ffn-hidden-size", 1},
                                                   {"--vocab-size", 1},
                                                   {"--seq-length", 1}};
  return flags;
}

// Flags that change neither what is computed in an iteration as far as predictions know it, nor where.
constexpr const char* without_a_meaning = R"(
  --accumulate-allreduce-grads-in-fp32 --adam-beta1 --adam-beta2 --adam-eps --apply-layernorm-1p --attention-dropout
  --attention-softmax-in-fp32 --bias-gelu-fusion --ckpt-format --clip-grad --data-cache-path --data-path
  --decoder-seq-length --disable-bias-linear --dist-ckpt-format --distributed-backend --distributed-timeout-minutes
  --empty-unused-memory-level --encoder-seq-length --eval-interval --eval-iters --exit-duration-in-mins --exit-interval
  --finetune --fp8-amax-compute-algo --fp8-amax-history-len --fp8-interval --fp8-margin
  --group-query-attention --hidden-dropout --init-method-std --load --log-interval
  --log-memory-to-tensorboard --log-num-zeros-in-grad --log-params-norm --log-throughput
  --log-timers-to-tensorboard --log-validation-ppl-to-tensorboard --lr --lr-decay-iters --lr-decay-samples
  --lr-decay-style --lr-warmup-fraction --lr-warmup-init --lr-warmup-iters --lr-warmup-samples
  --make-vocab-size-divisible-by --mask-prob --max-position-embeddings --merge-file --min-lr --mock-data
  --no-check-for-nan-in-loss-and-grad
  --no-create-attention-mask-in-dataloader --no-gradient-accumulation-fusion --no-load-optim --no-load-rng
  --no-masked-softmax-fusion --no-mmap-bin-files --no-position-embedding --no-save-optim --no-save-rng
  --norm-epsilon --normalization --num-workers --override-opt_param-scheduler
  --position-embedding-type --profile --profile-step-end --profile-step-start --rotary-base
  --rotary-percent --save --save-interval --seed --split --squared-relu --swiglu --tensorboard-dir
  --tensorboard-log-interval --tensorboard-queue-size --test-data-path --timing-log-level --tokenizer-model
  --tokenizer-type --train-data-path --train-iters --train-samples --transformer-impl
  --untie-embeddings-and-output-weights --use-cpu-initialization --use-mcore-models --use-rotary-position-embeddings
  --valid-data-path --vocab-file --wandb-exp-name --wandb-project --wandb-save-dir --weight-decay
  --weight-decay-incr-style
  --moe-aux-loss-coeff --moe-ffn-hidden-size --moe-grouped-gemm --moe-permute-fusion --moe-router-bias-update-rate
  --moe-router-dtype --moe-router-enable-expert-bias --moe-router-fusion --moe-router-load-balancing-type
  --moe-router-pre-softmax --moe-router-score-function --moe-router-topk --moe-router-topk-scaling-factor
  --moe-token-dispatcher-type --moe-z-loss-coeff)";

[[noreturn]] void fail(const std::string& what) { throw InputError(what); }

std::string understood() {
  std::string text;
  for (const auto& [flag, words] : flags_with_a_meaning()) text += (text.empty() ? "" : ", ") + flag;
  return text;
}

// Words, also of lines that end in a backslash; "--flag=value" is two.
Vector<std::string> words_of(const std::string& text) {
  Vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    if (word == "\\") continue;
    const size_t sign = word.find('=');
    if (word.starts_with("--") && sign != std::string::npos) {
      words.push_back(word.substr(0, sign));
      word.erase(0, sign + 1);
    }
    words.push_back(word);
  }
  return words;
}

const Vector<std::string>& flags_without_a_meaning() {
  static const Vector<std::string> flags = words_of(without_a_meaning);
  return flags;
}

Flags flags_of(const std::string& text, Vector<std::string>& ignored) {
  Flags flags;
  const Vector<std::string> words = words_of(text);
  for (int w = 0; w < words.count();) {
    const std::string& flag = words[w++];
    if (!flag.starts_with("--")) fail("found \"" + flag + "\", expected a flag such as --tensor-model-parallel-size");
    Vector<std::string> values;
    while (w < words.count() && !words[w].starts_with("--")) values.push_back(words[w++]);
    const auto known = flags_with_a_meaning().find(flag);
    if (known == flags_with_a_meaning().end()) {
      const Vector<std::string>& others = flags_without_a_meaning();
      if (std::find(others.begin(), others.end(), flag) == others.end()) {
        Vector<std::string> names = others;
        for (const auto& [name, count] : flags_with_a_meaning()) names.push_back(name);
        const std::string near = suggestion(flag, names);
        fail("unknown flag \"" + flag + "\"" +
             (near.starts_with("; did you mean") ? near : "; understood are " + understood()));
      }
      ignored.push_back(flag);
      continue;
    }
    if (known->second == any_number ? values.empty() : values.count() != known->second)
      fail(flag + ": found " + std::to_string(values.size()) + " values, expected " +
           (known->second == any_number ? "at least one" : std::to_string(known->second)));
    if (!flags.emplace(flag, values).second) fail(flag + " is given twice");
  }
  return flags;
}

double fraction_of(const std::string& name, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 1))
    fail(name + ": found \"" + text + "\", expected a number from 0 to 1");
  return value;
}

class Megatron {
 public:
  Megatron(const std::string& text, const Graph& graph, int devices)
      : graph_(graph), layers_(transformer_layers(graph).count()), devices_(devices),
        flags_(flags_of(text, result_.ignored)) {}

  FrameworkArguments parsed() {
    if (layers_ == 0)
      fail("the graph \"" + graph_.name + "\" has no multi_head_attention: the settings are for transformers");
    check_model();
    check_experts();
    Parallelism& own = result_.parallelism;
    own.framework = "megatron";
    own.tensor = static_cast<int>(number("--tensor-model-parallel-size", 1));
    own.pipeline = static_cast<int>(number("--pipeline-model-parallel-size", 1));
    own.micro_batch = number("--micro-batch-size", 1);
    own.context = static_cast<int>(number("--context-parallel-size", 1));
    const std::string exchanged = text("--cp-comm-type", "p2p");
    if (own.context > 1 && exchanged != "all_gather")
      result_.notes.push_back("--cp-comm-type " + exchanged + (has("--cp-comm-type") ? "" : ", the default,") +
                              " is predicted as all_gather");
    own.expert = static_cast<int>(number("--expert-model-parallel-size", 1));
    own.expert_tensor = static_cast<int>(number("--expert-tensor-parallel-size", own.tensor));
    result_.batch = number("--global-batch-size", 0);
    if (has(layout)) {
      read_layout();
    } else {
      read_chunks();
      read_borders();
    }
    read_sharding();
    read_instances();
    read_recomputation();
    const std::map<std::string, std::string> backends = {
        {"auto", "fused"}, {"flash", "flash2"}, {"fused", "cudnn"}, {"unfused", "stored"}, {"local", "stored"}};
    const auto backend = backends.find(text("--attention-backend", has("--use-flash-attn") ? "flash" : "auto"));
    if (backend == backends.end())
      fail("--attention-backend: found \"" + text("--attention-backend", "") +
           "\", expected one of auto, flash, fused, unfused, local");
    own.attention = backend->second;
    own.fused_loss = has("--cross-entropy-loss-fusion");
    own.overlaps_reductions = has("--overlap-grad-reduce");
    own.overlaps_gathers = has("--overlap-param-gather");
    if (own.overlaps_gathers && own.synchronization != Synchronization::sharded_optimizer)
      fail("--overlap-param-gather: needs --use-distributed-optimizer");
    if (own.overlaps_gathers && !has("--overlap-grad-reduce"))
      fail("--overlap-param-gather: needs --overlap-grad-reduce");
    if (has("--grad-reduce-in-bf16")) own.reduce = "bf16";
    if (has("--bf16") && has("--fp16")) fail("--bf16 and --fp16 exclude each other");
    if (has("--bf16") || has("--fp16")) result_.precision = Precision::bf16;
    if (has("--fp16")) result_.notes.push_back("--fp16: predicted as bf16, without the scaling of the loss");
    if (const std::string format = text("--fp8-format", ""); !format.empty()) {
      if (format != "hybrid" && format != "e4m3") fail("--fp8-format: found \"" + format + "\", expected hybrid, e4m3");
      if (const std::string recipe = text("--fp8-recipe", "delayed"); recipe != "delayed")
        result_.notes.push_back("--fp8-recipe " + recipe + ": predicted as delayed");
      own.fp8 = true;
    }
    own.fp8_weights = has("--fp8-param-gather");
    if (own.fp8_weights && !own.fp8) fail("--fp8-param-gather: needs --fp8-format");
    if (has("--no-rope-fusion")) own.fuses_rope = false;
    if (has("--no-bias-swiglu-fusion")) own.fuses_swiglu = false;
    read_optimizer();
    own.sequence_parallel = own.tensor == 1 || has("--sequence-parallel");
    // With sequence parallelism Megatron-LM overlaps them all the same.
    if (has("--no-async-tensor-model-parallel-allreduce") && own.tensor > 1 && !own.sequence_parallel)
      own.overlaps_input_gradients = false;
    own.overlaps_tensor_parallel = own.tensor > 1 && has("--tp-comm-overlap");
    if (own.overlaps_tensor_parallel && !own.sequence_parallel) fail("--tp-comm-overlap: needs --sequence-parallel");
    return std::move(result_);
  }

 private:
  static constexpr const char* layout = "--pipeline-model-parallel-layout";
  static constexpr const char *embedding_counts = "--account-for-embedding-in-pipeline-split",
                              *loss_counts = "--account-for-loss-in-pipeline-split";
  bool has(const std::string& flag) const { return flags_.contains(flag); }
  std::string text(const std::string& flag, const std::string& otherwise) const {
    const auto found = flags_.find(flag);
    return found == flags_.end() ? otherwise : found->second[0];
  }
  int64_t number(const std::string& flag, int64_t otherwise) const {
    return has(flag) ? number_of(flag, text(flag, "")) : otherwise;
  }

  void check_model() const {
    const auto check = [&](const std::string& flag, int64_t own, const std::string& what) {
      if (has(flag) && number(flag, 0) != own)
        fail(flag + " " + text(flag, "") + ": the graph \"" + graph_.name + "\" has " + std::to_string(own) + " " +
             what);
    };
    check("--num-layers", layers_, "layers");
    for (const Operator& op : graph_.operators) {
      if (op.definition->type() != "multi_head_attention") continue;
      const Shape& shape = graph_.tensors[op.outputs[0]].shape;
      check("--seq-length", shape[1], "tokens in a sample");
      check("--hidden-size", shape[2], "channels");
      const auto& attention = dynamic_cast<const MultiHeadAttention&>(*op.definition);
      check("--num-attention-heads", attention.heads, "heads");
      check("--num-query-groups", attention.key_value_heads, "key-value heads");
      check("--kv-channels", attention.head_channels, "channels of a head");
      break;
    }
    check_products(check);
  }

  // Of layers without experts the largest product is that of the MLP. Megatron-LM pads vocabularies.
  template <typename Check>
  void check_products(const Check& check) const {
    constexpr int64_t most_padding = 8192;
    const Vector<int> layer_of = layer_or_none_of_operators(graph_);
    int64_t of_mlp = 0, vocabulary = 0;
    for (const OperatorId op : graph_.operator_ids()) {
      if (graph_.operators[op].definition->type() != "linear") continue;
      const int64_t channels = graph_.tensors[graph_.operators[op].outputs[0]].shape.back();
      if (layer_of[op] != no_layer) of_mlp = std::max(of_mlp, channels);
      else vocabulary = channels;
    }
    const int64_t stated = number("--vocab-size", vocabulary);
    if (vocabulary > 0 && (stated > vocabulary || stated + most_padding < vocabulary))
      check("--vocab-size", vocabulary, "words");
    if (of_mlp > 0) check("--ffn-hidden-size", of_mlp, "channels in its MLP");
  }

  void check_experts() const {
    const int64_t experts = experts_of(graph_);
    if (has("--num-experts") && number("--num-experts", 1) != experts)
      fail("--num-experts " + text("--num-experts", "") + ": the graph \"" + graph_.name + "\" has " +
           (experts == 1 ? "none" : std::to_string(experts)));
  }

  void read_chunks() {
    Parallelism& own = result_.parallelism;
    const char *const of_chunk = "--num-layers-per-virtual-pipeline-stage",
                      *const of_rank = "--num-virtual-stages-per-pipeline-rank";
    if (has(of_chunk) && has(of_rank)) fail(std::string(of_chunk) + " and " + of_rank + " exclude each other");
    own.chunks = static_cast<int>(number(of_rank, 1));
    if (has(of_chunk)) {
      const int64_t layers = number(of_chunk, 1), counted = layers_ + counted_ends();
      if (counted % (own.pipeline * layers) != 0)
        fail(std::string(of_chunk) + " " + std::to_string(layers) + ": the " + std::to_string(counted) +
             (counted == layers_ ? " layers" : " layers, with embedding or loss,") +
             " are not divisible by it and the " + std::to_string(own.pipeline) + " stages");
      own.chunks = static_cast<int>(counted / (own.pipeline * layers));
    }
    if (own.chunks > 1 && own.pipeline == 1)
      fail(std::string(has(of_chunk) ? of_chunk : of_rank) + ": needs --pipeline-model-parallel-size above 1");
  }

  void read_layout() {
    Parallelism& own = result_.parallelism;
    for (const char* const other :
         {"--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank",
          "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers", embedding_counts, loss_counts})
      if (has(other)) fail(std::string(layout) + " and " + other + " exclude each other");
    std::string value = text(layout, "");
    for (const char quote : {'"', '\''}) std::erase(value, quote);
    const Vector<int> layers = [&] {
      try {
        return layers_of_layout(value);
      } catch (const InputError& error) {
        throw InputError(std::string(layout) + ": " + error.what());
      }
    }();
    if (layers.count() % own.pipeline != 0)
      fail(std::string(layout) + ": has " + std::to_string(layers.size()) + " parts, which the " +
           std::to_string(own.pipeline) + " stages do not divide");
    own.chunks = layers.count() / own.pipeline;
    own.layers = layers;
    if (const int sum = std::accumulate(layers.begin(), layers.end(), 0); sum != layers_)
      fail(std::string(layout) + ": has " + std::to_string(sum) + " layers, the graph \"" + graph_.name + "\" " +
           std::to_string(layers_));
    if (own.chunks > 1 && own.pipeline == 1) fail(std::string(layout) + ": needs several stages");
    if (layers == layers_of_chunks({.pipeline = own.pipeline, .chunks = own.chunks}, layers_)) own.layers.clear();
  }

  // The embedding and the loss may each count as a layer of the first and the last chunk.
  int counted_ends() const { return has(embedding_counts) + has(loss_counts); }

  void read_counted_ends() {
    Parallelism& own = result_.parallelism;
    const int counted = layers_ + counted_ends(), chunks = own.pipeline * own.chunks;
    if (counted % chunks != 0)
      fail(std::string(has(embedding_counts) ? embedding_counts : loss_counts) + ": " + std::to_string(counted) +
           " layers, with embedding or loss, are not divided by " + std::to_string(chunks) + " chunks");
    own.layers = Vector<int>(chunks, counted / chunks);
    own.layers[0] -= has(embedding_counts);
    own.layers[chunks - 1] -= has(loss_counts);
    if (own.layers == layers_of_chunks({.pipeline = own.pipeline, .chunks = own.chunks}, layers_)) own.layers.clear();
  }

  void read_borders() {
    Parallelism& own = result_.parallelism;
    if (counted_ends() > 0) return read_counted_ends();
    const char *const of_first = "--decoder-first-pipeline-num-layers", *const of_last =
                                                                            "--decoder-last-pipeline-num-layers";
    if (!has(of_first) && !has(of_last)) return;
    if (own.chunks > 1 || own.pipeline == 1)
      fail(std::string(has(of_first) ? of_first : of_last) + ": is for several stages of one chunk each");
    const int64_t first = number(of_first, 0), last = number(of_last, 0);
    const int others = own.pipeline - (first > 0) - (last > 0);
    const int64_t left = layers_ - first - last;
    if (left < others || (others == 0 ? left != 0 : left % others != 0))
      fail(std::string(has(of_first) ? of_first : of_last) + ": leaves " + std::to_string(left) + " layers to " +
           std::to_string(others) + " stages, expected as many for each");
    if (first > 0) own.layers.push_back(static_cast<int>(first));
    for (int stage = 0; stage < others; ++stage) own.layers.push_back(static_cast<int>(left / others));
    if (last > 0) own.layers.push_back(static_cast<int>(last));
    if (own.layers == layers_of_chunks({.pipeline = own.pipeline}, layers_)) own.layers.clear();
  }

  void read_sharding() {
    Parallelism& own = result_.parallelism;
    if (has("--use-distributed-optimizer")) own.synchronization = Synchronization::sharded_optimizer;
    const char* const strategy = "--data-parallel-sharding-strategy";
    if (!has("--use-megatron-fsdp") && !has("--use-custom-fsdp")) {
      if (has(strategy)) fail(std::string(strategy) + ": needs --use-megatron-fsdp");
      return;
    }
    const std::map<std::string, Synchronization> strategies = {
        {"no_shard", Synchronization::all_reduce},
        {"optim", Synchronization::sharded_optimizer},
        {"optim_grads", Synchronization::sharded_gradients},
        {"optim_grads_params", Synchronization::sharded_parameters}};
    const auto found = strategies.find(text(strategy, "no_shard"));
    if (found == strategies.end())
      fail(std::string(strategy) + ": found \"" + text(strategy, "") +
           "\", expected one of no_shard, optim, optim_grads, optim_grads_params");
    own.synchronization = found->second;
  }

  // Groups of ranks that each have all of the sharded state.
  void read_instances() {
    Parallelism& own = result_.parallelism;
    const char *const flag = "--num-distributed-optimizer-instances", *const outer = "--outer-dp-sharding-strategy";
    if (text(outer, "no_shard") != "no_shard")
      fail(std::string(outer) + ": found \"" + text(outer, "") + "\", expected no_shard");
    const int64_t instances = number(flag, 1);
    if (instances == 1) return;
    if (!is_sharded(own.synchronization))
      fail(std::string(flag) + ": needs --use-distributed-optimizer or --use-megatron-fsdp");
    const int ranks = devices_ / (own.tensor * own.pipeline);  // that have the same parameters
    if (ranks % instances != 0)
      fail(std::string(flag) + " " + std::to_string(instances) + ": does not divide the " + std::to_string(ranks) +
           " ranks that share parameters");
    own.shard_group = static_cast<int>(ranks / instances);
  }

  Recomputation recomputed_modules() {
    std::string modules;
    if (!has("--recompute-modules")) modules = "core_attn";
    else
      for (const std::string& module : flags_.at("--recompute-modules"))
        modules += (modules.empty() ? "" : " ") + module;
    if (modules == "layernorm") {
      if (experts_of(graph_) > 1) return Recomputation::norms;
      result_.notes.push_back(
          "--recompute-modules layernorm: norms are part of the product that reads them (Transformer Engine), but "
          "before experts, which the graph does not have: predicted without");
      return Recomputation::none;
    }
    if (modules != "core_attn") fail("--recompute-modules: found \"" + modules + "\", expected core_attn or layernorm");
    return Recomputation::selective;
  }

  // A momentum needs memory, of SGD alone.
  void read_optimizer() {
    const std::string optimizer = text("--optimizer", "adam");
    if (optimizer != "adam" && optimizer != "sgd") fail("--optimizer: found \"" + optimizer + "\", expected adam, sgd");
    result_.optimizer = optimizer == "adam" ? "adamw" : optimizer;
    if (optimizer == "sgd") result_.momentum = fraction_of("--sgd-momentum", text("--sgd-momentum", "0.9"));
    else if (has("--sgd-momentum")) result_.ignored.push_back("--sgd-momentum");
  }

  void read_recomputation() {
    Parallelism& own = result_.parallelism;
    const std::string granularity = text("--recompute-granularity", has("--recompute-activations") ? "selective" : "");
    if (granularity == "selective") {
      own.recompute = recomputed_modules();
      return;
    }
    if (has("--recompute-modules")) fail("--recompute-modules needs --recompute-granularity selective");
    if (granularity.empty()) {
      if (has("--recompute-method") || has("--recompute-num-layers"))
        fail("--recompute-method and --recompute-num-layers need --recompute-granularity full");
      return;
    }
    if (granularity != "full") fail("--recompute-granularity: found \"" + granularity + "\", expected full, selective");
    own.recompute = Recomputation::full;
    const std::string method = text("--recompute-method", "uniform");
    const int64_t layers = number("--recompute-num-layers", 1);
    if (method == "block") {
      const Vector<int> of_chunks = layers_of_chunks(own, layers_);
      if (layers < *std::max_element(of_chunks.begin(), of_chunks.end()))
        own.recompute_layers = static_cast<int>(layers);
    } else if (method != "uniform") {
      fail("--recompute-method: found \"" + method + "\", expected uniform, block");
    } else if (layers > 1) {
      result_.notes.push_back("--recompute-num-layers " + std::to_string(layers) +
                              ": checkpoints are predicted where they need the least memory, not at each " +
                              std::to_string(layers) + " layers");
    }
  }

  const Graph& graph_;
  const int layers_, devices_;
  FrameworkArguments result_;
  Flags flags_;
};

}  // namespace

FrameworkArguments parse_megatron_arguments(const std::string& text, const Graph& graph, int devices) {
  try {
    return Megatron(text, graph, devices).parsed();
  } catch (const InputError& error) {
    throw InputError(std::string("--megatron: ") + error.what());
  }
}

}  // namespace ff
