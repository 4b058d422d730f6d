#include "search/import/transformer_config.h"

#include <algorithm>
#include <cmath>

#include "common/errors.h"
#include "common/operators/routing.h"
#include "search/import/config_file.h"
#include "search/import/encoder_decoder_config.h"

namespace ff {
namespace {

// What the families have in common and differ in.
struct Family {
  int64_t channels, layers, heads, key_value_heads, inner, vocabulary, positions;
  bool rms_norm = false;  // else layer_norm
  double epsilon = 1e-5;
  bool learned_positions = false, no_positions = false;  // else rotary ones
  double rotary_base = 10000;
  int64_t rotary_channels = 0;  // 0: all of a head
  bool attention_bias = true, projection_bias = true, inner_bias = true, output_bias = false;
  bool gated = false;  // act(gate x) * up x in front of the last product
  std::string activation = {};
  bool parallel = false;       // attention and feed-forward read the same values, and are added together
  bool one_norm = false;       // parallel: of both
  bool tied = false;           // the output's weight is the embedding's
  bool norms_in_front = true;  // of attention and feed-forward
  bool norms_behind = false;   // of both, before they are added
  bool embedding_norm = false;
  double embedding_dropout = 0, layer_dropout = 0;
  bool post_norm = false;  // sums are normalized, and not what attention and feed-forward read: BERT
  bool causal = true;
  int64_t segments = 0;     // kinds of a token (BERT's token types); 0: there is no such input
  bool head_layer = false;  // in front of the output: a linear layer, the activation, and normalization
  // Feed-forward by experts, of which a token takes some; 0: there are none
  int64_t experts = 0, experts_of_token = 0, expert_inner = 0;
  bool normalized_gates = true;  // divided by their sum
  double balance_weight = 0;
  int64_t shared_inner = 0;        // of a feed-forward that all tokens take besides; 0: there is none
  bool shared_gate = false;        // multiplied by a sigmoid of the token
  Vector<bool> dense_layers = {};  // those without experts; empty: none
  int64_t image = 0, patch = 0, image_channels = 0, classes = 0;  // of images (ViT); 0: of tokens

  int64_t head_width = 0;  // channels of a head; 0: the channels over the heads

  int64_t head_channels() const { return head_width > 0 ? head_width : channels / heads; }
};

constexpr const char* no_alibi =
    " is left out: attention has no linear biases; shapes are the same and work nearly, but a model that is trained "
    "has no "
    "positions";

constexpr const char* norms_have_biases = "layer norms have biases, which the model's have not: a few parameters more";

// By the names that most families have. `inner` "": it follows from the channels.
Family family_of(const ConfigSettings& settings, const std::string& inner, int64_t positions) {
  return {settings.integer("hidden_size"),
          settings.layers("num_hidden_layers"),
          settings.integer("num_attention_heads"),
          0,
          inner.empty() ? 0 : settings.integer(inner),
          settings.integer("vocab_size"),
          settings.integer("max_position_embeddings", positions)};
}

void note_attention_dropout(const ConfigSettings& settings, const std::string& key, double otherwise,
                            Vector<std::string>& notes) {
  if (settings.number(key, otherwise, 1) > 0)
    notes.push_back(key + " is left out: attention has no dropout of its probabilities");
}

void read_rotary(const ConfigSettings& settings, Family& family, double part, Vector<std::string>& notes) {
  family.rotary_base = settings.number("rope_theta", settings.number("rotary_emb_base", 10000));
  for (const std::string& key : {std::string("rope_scaling"), std::string("rope_parameters")})
    if (const auto scaling = settings.find(key)) {
      const ConfigSettings inside(*scaling);
      family.rotary_base = inside.number("rope_theta", family.rotary_base);
      const std::string type = inside.text("rope_type", inside.text("type", "default"));
      if (type != "default")
        notes.push_back(key + " \"" + type +
                        "\" is left out: rotary positions are not scaled; shapes and work are the same");
    }
  const int64_t turned = static_cast<int64_t>(static_cast<double>(family.head_channels()) * part);
  if (turned != family.head_channels()) family.rotary_channels = turned;
}

Family gpt2(const ConfigSettings& settings, Vector<std::string>& notes) {
  Family family{settings.integer("n_embd"),     settings.layers("n_layer"),     settings.integer("n_head"), 0, 0,
                settings.integer("vocab_size"), settings.integer("n_positions")};
  family.inner = settings.integer("n_inner", 4 * family.channels);
  family.epsilon = settings.number("layer_norm_epsilon", 1e-5);
  family.learned_positions = true;
  family.activation = settings.text("activation_function", "gelu_new");
  family.tied = settings.flag("tie_word_embeddings", true);
  family.embedding_dropout = settings.number("embd_pdrop", 0.1, 1);
  family.layer_dropout = settings.number("resid_pdrop", 0.1, 1);
  note_attention_dropout(settings, "attn_pdrop", 0.1, notes);
  if (settings.flag("scale_attn_by_inverse_layer_idx", false))
    settings.refuse("scale_attn_by_inverse_layer_idx", "expected false: attention has one scale in all layers");
  return family;
}

// LLaMA, and what is like it but for biases, windows and what others below change.
Family llama(const ConfigSettings& settings, const std::string& type, int64_t sequence, Vector<std::string>& notes) {
  Family family = family_of(settings, "intermediate_size",
                            type == "gemma3_text"       ? 131072
                            : type.starts_with("gemma") ? 8192
                                                        : 2048);
  family.key_value_heads = settings.integer("num_key_value_heads", family.heads);
  family.rms_norm = family.gated = true;
  family.epsilon = settings.number("rms_norm_eps", 1e-6);
  family.attention_bias = type == "qwen2" || settings.flag("attention_bias", false);
  family.projection_bias = type != "qwen2" && settings.flag("attention_bias", false);
  family.inner_bias = settings.flag("mlp_bias", false);
  family.activation = settings.text("hidden_act", "silu");
  family.tied = settings.flag("tie_word_embeddings", false);
  const int64_t otherwise = type.starts_with("gemma") ? 256 : type == "qwen3" ? 128 : 0;
  if (const int64_t width = settings.integer("head_dim", otherwise); width * family.heads != family.channels)
    family.head_width = width;
  const bool window =
      type == "mistral" || type == "mixtral" || type == "phi3" || settings.flag("use_sliding_window", false);
  if (window && settings.integer("sliding_window", sequence) < sequence)
    settings.refuse("sliding_window",
                    "attention has no windows: expected at least the sequence, " + std::to_string(sequence));
  note_attention_dropout(settings, "attention_dropout", 0, notes);
  const bool turns_half = type.starts_with("glm") || type == "nemotron";
  const bool turns_all = !turns_half && type != "stablelm";
  read_rotary(settings, family, turns_all ? 1 : settings.number("partial_rotary_factor", turns_half ? 0.5 : 0.25, 1),
              notes);
  return family;
}

Family gpt_neox(const ConfigSettings& settings, Vector<std::string>& notes) {
  Family family = family_of(settings, "intermediate_size", 2048);
  family.epsilon = settings.number("layer_norm_eps", 1e-5);
  family.activation = settings.text("hidden_act", "gelu");
  family.parallel = settings.flag("use_parallel_residual", true);
  family.attention_bias = family.projection_bias = settings.flag("attention_bias", true);
  family.tied = settings.flag("tie_word_embeddings", false);
  family.layer_dropout = settings.number("hidden_dropout", 0, 1);
  note_attention_dropout(settings, "attention_dropout", 0, notes);
  read_rotary(settings, family, settings.number("rotary_pct", 0.25, 1), notes);
  return family;
}

Family phi(const ConfigSettings& settings, Vector<std::string>& notes) {
  Family family = family_of(settings, "intermediate_size", 2048);
  family.key_value_heads = settings.integer("num_key_value_heads", family.heads);
  family.epsilon = settings.number("layer_norm_eps", 1e-5);
  family.activation = settings.text("hidden_act", "gelu_new");
  family.parallel = family.one_norm = family.output_bias = true;
  family.tied = settings.flag("tie_word_embeddings", false);
  family.embedding_dropout = settings.number("embd_pdrop", 0, 1);
  family.layer_dropout = settings.number("resid_pdrop", 0, 1);
  if (settings.flag("qk_layernorm", false))
    settings.refuse("qk_layernorm", "expected false: attention does not normalize queries and keys");
  note_attention_dropout(settings, "attention_dropout", 0, notes);
  read_rotary(settings, family, settings.number("partial_rotary_factor", 0.5, 1), notes);
  return family;
}

Family opt(const ConfigSettings& settings, Vector<std::string>& notes) {
  Family family = family_of(settings, "ffn_dim", 2048);
  family.learned_positions = true;
  family.attention_bias = family.projection_bias = family.inner_bias = settings.flag("enable_bias", true);
  family.activation = settings.text("activation_function", "relu");
  family.tied = settings.flag("tie_word_embeddings", true);
  family.layer_dropout = settings.number("dropout", 0.1, 1);
  if (!settings.flag("do_layer_norm_before", true))
    settings.refuse("do_layer_norm_before", "expected true: layers are normalized in front of attention");
  if (settings.integer("word_embed_proj_dim", family.channels) != family.channels)
    settings.refuse("word_embed_proj_dim", "expected " + std::to_string(family.channels) + ", the hidden size");
  note_attention_dropout(settings, "attention_dropout", 0, notes);
  notes.push_back("the table of positions has two rows less than OPT's, which no position reads");
  return family;
}

Family bloom(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  const char* const channels = settings.find("n_embed") ? "n_embed" : "hidden_size";
  const char* const heads = settings.find("n_head") ? "n_head" : "num_attention_heads";
  const char* const layers = settings.find("n_layer") ? "n_layer" : "num_hidden_layers";
  Family family{settings.integer(channels),
                settings.layers(layers),
                settings.integer(heads),
                0,
                0,
                settings.integer("vocab_size"),
                sequence};
  family.inner = 4 * family.channels;
  family.epsilon = settings.number("layer_norm_epsilon", 1e-5);
  family.no_positions = family.embedding_norm = true;
  family.activation = "gelu_new";
  family.tied = settings.flag("tie_word_embeddings", true);
  family.layer_dropout = settings.number("hidden_dropout", 0, 1);
  notes.push_back(std::string("alibi") + no_alibi);
  if (settings.flag("apply_residual_connection_post_layernorm", false))
    settings.refuse("apply_residual_connection_post_layernorm", "expected false: sums are of what is not normalized");
  note_attention_dropout(settings, "attention_dropout", 0, notes);
  return family;
}

Family mpt(const ConfigSettings& settings, Vector<std::string>& notes) {
  Family family{settings.integer("d_model"),    settings.layers("n_layers"),          settings.integer("n_heads"), 0, 0,
                settings.integer("vocab_size"), settings.integer("max_seq_len", 2048)};
  family.inner = static_cast<int64_t>(settings.number("expansion_ratio", 4, 64) * static_cast<double>(family.channels));
  family.learned_positions = settings.flag("learned_pos_emb", true);
  const bool biases = !settings.flag("no_bias", true);
  family.attention_bias = family.projection_bias = family.inner_bias = biases;
  family.activation = "gelu";
  family.tied = settings.flag("tie_word_embeddings", true);
  family.layer_dropout = settings.number("resid_pdrop", 0, 1);
  if (!biases) notes.push_back(norms_have_biases);
  if (const auto attention = settings.find("attn_config")) {
    const ConfigSettings inside(*attention);
    family.key_value_heads =
        inside.integer("kv_n_heads", inside.text("attn_type", "") == "multiquery_attention" ? 1 : family.heads);
    if (inside.flag("alibi", false)) {
      family.learned_positions = false;
      family.no_positions = true;
      notes.push_back(std::string("alibi") + no_alibi);
    }
    if (inside.flag("qk_ln", false))
      inside.refuse("qk_ln", "expected false: attention does not normalize queries and keys");
    if (inside.find("clip_qkv")) notes.push_back("clip_qkv is left out: queries, keys and values are not clipped");
    note_attention_dropout(inside, "attn_pdrop", 0, notes);
  }
  return family;
}

Family gptj(const ConfigSettings& settings, Vector<std::string>& notes) {
  Family family{settings.integer("n_embd"),     settings.layers("n_layer"),           settings.integer("n_head"), 0, 0,
                settings.integer("vocab_size"), settings.integer("n_positions", 2048)};
  family.inner = settings.integer("n_inner", 4 * family.channels);
  family.epsilon = settings.number("layer_norm_epsilon", 1e-5);
  family.activation = settings.text("activation_function", "gelu_new");
  family.parallel = family.one_norm = family.output_bias = true;
  family.attention_bias = family.projection_bias = false;
  family.tied = settings.flag("tie_word_embeddings", false);
  family.embedding_dropout = settings.number("embd_pdrop", 0, 1);
  family.layer_dropout = settings.number("resid_pdrop", 0, 1);
  note_attention_dropout(settings, "attn_pdrop", 0, notes);
  const int64_t turned = settings.integer("rotary_dim", 64);
  if (turned != family.head_channels()) family.rotary_channels = turned;
  return family;
}

Family falcon(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = family_of(settings, "", std::max<int64_t>(2048, sequence));
  const bool newer = settings.flag("new_decoder_architecture", false);
  family.inner = settings.integer("ffn_hidden_size", 4 * family.channels);
  family.key_value_heads = newer                                ? settings.integer("num_kv_heads", family.heads)
                           : settings.flag("multi_query", true) ? 1
                                                                : family.heads;
  family.epsilon = settings.number("layer_norm_epsilon", 1e-5);
  family.activation = "gelu";
  family.parallel = newer || settings.flag("parallel_attn", true);
  family.one_norm = family.parallel && (!newer || settings.integer("num_ln_in_parallel_attn", 2) == 1);
  family.attention_bias = family.projection_bias = family.inner_bias = settings.flag("bias", false);
  family.tied = settings.flag("tie_word_embeddings", true);
  family.layer_dropout = settings.number("hidden_dropout", 0, 1);
  if (settings.flag("alibi", false)) {
    family.no_positions = true;
    notes.push_back(std::string("alibi") + no_alibi);
  }
  note_attention_dropout(settings, "attention_dropout", 0, notes);
  if (!family.no_positions) read_rotary(settings, family, 1, notes);
  return family;
}

Family starcoder2(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "starcoder2", sequence, notes);
  family.rms_norm = family.gated = false;
  family.epsilon = settings.number("norm_epsilon", 1e-5);
  family.attention_bias = family.projection_bias = family.inner_bias = settings.flag("use_bias", true);
  family.activation = settings.text("hidden_act", "gelu_pytorch_tanh");
  family.tied = settings.flag("tie_word_embeddings", true);
  family.embedding_dropout = settings.number("embedding_dropout", 0, 1);
  family.layer_dropout = settings.number("residual_dropout", 0, 1);
  return family;
}

Family gemma(const ConfigSettings& settings, const std::string& type, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, type, sequence, notes);
  family.activation = settings.text("hidden_activation", settings.text("hidden_act", "gelu_pytorch_tanh"));
  family.tied = settings.flag("tie_word_embeddings", true);
  notes.push_back("embeddings are not multiplied by the root of the hidden size: shapes and work are the same");
  return family;
}

// Of norms of queries and keys with a factor for each channel of all heads.
int64_t normalized_channels(const Family& family) {
  return (family.heads + family.key_value_heads) * family.head_channels();
}

void note_left_out_norms(const Family& family, int64_t parameters_of_layer, Vector<std::string>& notes) {
  notes.push_back("normalization of queries and keys is left out, with its " +
                  std::to_string(parameters_of_layer * family.layers) + " parameters");
}

// Where some layers attend to a window of the last positions and others to all.
void note_windows(const ConfigSettings& settings, int64_t window, int64_t sequence, Vector<std::string>& notes) {
  window = settings.integer("sliding_window", window);
  if (window < sequence)
    notes.push_back("sliding_window is left out: all layers attend to all " + std::to_string(sequence) +
                    " positions, some of the model's to " + std::to_string(window) + ", which is less work");
}

// The second and third generation: norms on both sides of attention and feed-forward.
Family gemma_of_windows(const ConfigSettings& settings, const std::string& type, int64_t sequence,
                        Vector<std::string>& notes) {
  Family family = gemma(settings, type, sequence, notes);
  family.norms_behind = true;
  const bool third = type != "gemma2";
  if (third) note_left_out_norms(family, 2 * family.head_channels(), notes);
  for (const char* const key : {"attn_logit_softcapping", "final_logit_softcapping"})
    if (settings.number(key, 0) > 0)
      notes.push_back(std::string(key) + " is left out: logits are not capped; shapes are the same and work nearly");
  note_windows(settings, 4096, sequence, notes);
  return family;
}

// The second generation normalizes what attention and feed-forward give, and not what they read.
Family olmo2(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "olmo2", sequence, notes);
  family.epsilon = settings.number("rms_norm_eps", 1e-5);
  family.norms_in_front = false;
  family.norms_behind = true;
  note_left_out_norms(family, normalized_channels(family), notes);
  return family;
}

// GLM-4: glm without, glm4 with norms behind attention and feed-forward.
Family glm(const ConfigSettings& settings, const std::string& type, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, type, sequence, notes);
  family.projection_bias = false;
  family.norms_behind = type == "glm4";
  return family;
}

Family cohere(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "cohere", sequence, notes);
  family.rms_norm = false;
  family.epsilon = settings.number("layer_norm_eps", 1e-5);
  family.parallel = family.one_norm = true;
  family.tied = settings.flag("tie_word_embeddings", true);
  if (settings.flag("use_qk_norm", false)) note_left_out_norms(family, normalized_channels(family), notes);
  notes.push_back(norms_have_biases);
  notes.push_back("logits are not multiplied by logit_scale: shapes and work are the same");
  return family;
}

Family granite(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "granite", sequence, notes);
  for (const char* const key :
       {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"})
    if (settings.find(key))
      notes.push_back(std::string(key) + " is left out: values are not scaled; shapes and work are the same");
  return family;
}

Family internlm(const ConfigSettings& settings, const std::string& type, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, type, sequence, notes);
  family.attention_bias = family.projection_bias = settings.flag("bias", type == "internlm");
  return family;
}

Family stablelm(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "stablelm", sequence, notes);
  family.rms_norm = false;
  family.epsilon = settings.number("layer_norm_eps", 1e-5);
  family.attention_bias = settings.flag("use_qkv_bias", false);
  family.projection_bias = false;
  family.parallel = family.one_norm = settings.flag("use_parallel_residual", false);
  family.layer_dropout = settings.number("hidden_dropout", 0, 1);
  if (settings.flag("qk_layernorm", false)) note_left_out_norms(family, normalized_channels(family), notes);
  return family;
}

Family nemotron(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "nemotron", sequence, notes);
  family.rms_norm = family.gated = false;
  family.epsilon = settings.number("norm_eps", 1e-5);
  family.activation = settings.text("hidden_act", "relu2");
  return family;
}

Family smollm3(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "smollm3", sequence, notes);
  family.tied = settings.flag("tie_word_embeddings", true);
  if (settings.find("no_rope_layers") || settings.find("no_rope_layer_interval"))
    notes.push_back(
        "all layers have rotary positions, some of the model's have none: shapes are the same and work "
        "nearly");
  return family;
}

// `weight`: the key of the factor of the loss that balances the experts, and its default.
void set_experts(Family& family, const ConfigSettings& settings, int64_t inner, const std::string& weight,
                 double default_weight, Vector<std::string>& notes) {
  family.expert_inner = inner;
  if (family.experts_of_token > std::min<int64_t>(most_choices, family.experts))
    settings.refuse(
        "num_experts_per_tok",
        "expected at most " + std::to_string(std::min<int64_t>(most_choices, family.experts)) +
            (family.experts < most_choices ? ", the number of experts" : ", as many as top_k_gating chooses"));
  if (family.experts_of_token == 1) family.normalized_gates = false;
  if (family.activation != "silu") settings.refuse("hidden_act", "expected \"silu\", between the layers of experts");
  const auto experts = static_cast<double>(family.experts);
  family.balance_weight = settings.number(weight, default_weight, 1) * experts * experts;
  notes.push_back(
      "experts have places for as many tokens as each gets if they are used evenly; what goes beyond is dropped, where "
      "the model drops none");
}

Family mixtral(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "mixtral", sequence, notes);
  family.experts = settings.integer("num_local_experts", 8);
  family.experts_of_token = settings.integer("num_experts_per_tok", 2);
  set_experts(family, settings, family.inner, "router_aux_loss_coef", 0.001, notes);
  return family;
}

Family olmoe(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "olmoe", sequence, notes);
  family.epsilon = settings.number("rms_norm_eps", 1e-5);
  family.experts = settings.integer("num_experts", 64);
  family.experts_of_token = settings.integer("num_experts_per_tok", 8);
  family.normalized_gates = settings.flag("norm_topk_prob", false);
  set_experts(family, settings, family.inner, "router_aux_loss_coef", 0.01, notes);
  note_left_out_norms(family, normalized_channels(family), notes);
  if (settings.find("clip_qkv")) notes.push_back("clip_qkv is left out: queries, keys and values are not clipped");
  return family;
}

// Qwen2 and Qwen3 with experts: these in each `decoder_sparse_step`-th layer but those of `mlp_only_layers`.
Family qwen_experts(const ConfigSettings& settings, const std::string& dense_type, int64_t sequence,
                    Vector<std::string>& notes) {
  const bool third = dense_type == "qwen3";
  Family family = llama(settings, third ? "qwen3_moe" : dense_type, sequence, notes);
  family.experts = settings.integer("num_experts", third ? 128 : 60);
  family.experts_of_token = settings.integer("num_experts_per_tok", third ? 8 : 4);
  family.normalized_gates = settings.flag("norm_topk_prob", false);
  const int64_t step = settings.integer("decoder_sparse_step", 1);
  for (int64_t layer = 1; layer <= family.layers; ++layer) family.dense_layers.push_back(layer % step != 0);
  if (const auto dense = settings.find("mlp_only_layers"))
    for (const JsonPlace& layer : dense->items()) family.dense_layers[layer.as_integer(0, family.layers - 1)] = true;
  if (!third) {
    family.shared_inner = settings.integer("shared_expert_intermediate_size", 5632);
    family.shared_gate = true;
  }
  set_experts(family, settings, settings.integer("moe_intermediate_size", third ? 768 : 1408), "router_aux_loss_coef",
              0.001, notes);
  if (third) note_left_out_norms(family, 2 * family.head_channels(), notes);
  return family;
}

// DeepSeekMoE (Dai et al. 2024, arXiv 2401.06066), the first generation: fine experts beside shared ones.
Family deepseek(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "deepseek", sequence, notes);
  family.experts = settings.integer("n_routed_experts");
  family.experts_of_token = settings.integer("num_experts_per_tok");
  family.normalized_gates = settings.flag("norm_topk_prob", false);
  const int64_t inner = settings.integer("moe_intermediate_size", 1407);
  if (settings.find("n_shared_experts")) family.shared_inner = inner * settings.integer("n_shared_experts");
  const int64_t dense = settings.whole("first_k_dense_replace", 0), step = settings.integer("moe_layer_freq", 1);
  if (dense > family.layers)
    settings.refuse("first_k_dense_replace",
                    "found " + std::to_string(dense) + ", the model has " + std::to_string(family.layers) + " layers");
  for (int64_t layer = 0; layer < family.layers; ++layer)
    family.dense_layers.push_back(layer < dense || layer % step != 0);
  if (const std::string scores = settings.text("scoring_func", "softmax"); scores != "softmax")
    settings.refuse("scoring_func", "found \"" + scores + "\", expected \"softmax\"");
  set_experts(family, settings, inner, "aux_loss_alpha", 0.001, notes);
  return family;
}

// Qwen3 normalizes queries and keys, which attention does not.
Family qwen3(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "qwen3", sequence, notes);
  note_left_out_norms(family, 2 * family.head_channels(), notes);
  return family;
}

// BERT as it is trained on masked words. The loss is that of every position.
Family bert(const ConfigSettings& settings, Vector<std::string>& notes) {
  Family family = family_of(settings, "intermediate_size", 512);
  family.epsilon = settings.number("layer_norm_eps", 1e-12);
  family.learned_positions = family.embedding_norm = family.post_norm = family.head_layer = true;
  family.causal = settings.flag("is_decoder", false);
  family.segments = settings.integer("type_vocab_size", 2);
  family.activation = settings.text("hidden_act", "gelu");
  family.tied = settings.flag("tie_word_embeddings", true);
  family.embedding_dropout = family.layer_dropout = settings.number("hidden_dropout_prob", 0.1, 1);
  if (const std::string positions = settings.text("position_embedding_type", "absolute"); positions != "absolute")
    settings.refuse("position_embedding_type", "found \"" + positions + "\", expected \"absolute\"");
  note_attention_dropout(settings, "attention_probs_dropout_prob", 0.1, notes);
  notes.push_back("the output has no bias, and the loss is that of every position, not of masked ones");
  return family;
}

Family vit(const ConfigSettings& settings, Vector<std::string>& notes) {
  Family family{settings.integer("hidden_size"),
                settings.layers("num_hidden_layers"),
                settings.integer("num_attention_heads"),
                0,
                settings.integer("intermediate_size"),
                0,
                0};
  family.image = settings.integer("image_size", 224);
  family.patch = settings.integer("patch_size", 16);
  family.image_channels = settings.integer("num_channels", 3);
  if (family.image % family.patch != 0)
    settings.refuse("patch_size", "expected a divisor of the image's size, " + std::to_string(family.image));
  family.classes = 1000;
  if (const auto labels = settings.find("id2label")) family.classes = static_cast<int64_t>(labels->value().size());
  else if (!settings.find("num_labels"))
    notes.push_back("1,000 classes, as ImageNet has: neither id2label nor num_labels is given");
  family.classes = settings.integer("num_labels", family.classes);
  family.epsilon = settings.number("layer_norm_eps", 1e-12);
  family.learned_positions = true;
  family.causal = false;
  family.activation = settings.text("hidden_act", "gelu");
  family.attention_bias = settings.flag("qkv_bias", true);
  family.embedding_dropout = family.layer_dropout = settings.number("hidden_dropout_prob", 0, 1);
  note_attention_dropout(settings, "attention_probs_dropout_prob", 0, notes);
  return family;
}

class GraphWriter : private OperatorWriter {
 public:
  GraphWriter(const Family& family, const ConfigSettings& settings, int64_t sequence)
      : OperatorWriter(settings), family_(family), sequence_(sequence) {}

  Json written() {
    std::string x = family_.image > 0 ? patches() : tokens();
    if (family_.learned_positions) x = add("positions", "position_embedding", {x}, {});
    if (family_.embedding_norm) x = norm("embedding_norm", x);
    x = with_dropout("dropout", x, family_.embedding_dropout);
    for (int64_t layer = 1; layer <= family_.layers; ++layer) x = add_layer(layer, x);
    if (!family_.post_norm) x = norm("norm", x);
    if (family_.head_layer) x = norm("head.norm", activated("head.", linear("head", x, family_.channels, true)));
    if (family_.image > 0) {
      x = add("class.slice", "slice", {x}, {{"axis", 1}, {"begin", 0}, {"end", 1}});
      x = add("class", "reshape", {x}, {{"shape", {family_.channels}}});
      linear("output", x, family_.classes, true);
    } else {
      linear("output", x, family_.vocabulary, family_.output_bias);
      if (family_.tied) share_parameters("tokens");
    }
    add("loss", "softmax_cross_entropy", {"output", "label"}, {});
    return operators();
  }

 private:
  std::string tokens() {
    add("tokens", "embedding", {"token"}, {{"vocabulary", family_.vocabulary}, {"channels", family_.channels}});
    if (family_.tied) share_parameters("tokens");
    if (family_.segments == 0) return "tokens";
    add("segments", "embedding", {"segment"}, {{"vocabulary", family_.segments}, {"channels", family_.channels}});
    return add("tokens_and_segments", "add", {"tokens", "segments"}, {});
  }

  // Squares of an image as a sequence, behind a trained row for the class.
  std::string patches() {
    const int64_t side = family_.image / family_.patch;
    const Json square = {family_.patch, family_.patch};
    add("patches", "conv2d", {"image"}, {{"out_channels", family_.channels}, {"kernel", square}, {"stride", square}});
    add("patches.rows", "reshape", {"patches"}, {{"shape", {family_.channels, side * side}}});
    add("patches.sequence", "transpose", {"patches.rows"}, {{"axes", {2, 1}}});
    return add("class_token", "prefix", {"patches.sequence"}, {});
  }

  std::string norm(const std::string& name, const std::string& input) {
    return add(name, family_.rms_norm ? "rms_norm" : "layer_norm", {input}, {{"epsilon", family_.epsilon}});
  }
  std::string activated(const std::string& prefix, const std::string& input) {
    return activation(prefix, input, family_.activation,
                      settings().find("hidden_act") ? "hidden_act" : "activation_function");
  }

  std::string attention(const std::string& prefix, const std::string& input) {
    Json attributes = {{"heads", family_.heads}};
    if (family_.key_value_heads > 0 && family_.key_value_heads != family_.heads)
      attributes["key_value_heads"] = family_.key_value_heads;
    if (family_.head_width > 0) attributes["head_channels"] = family_.head_width;
    if (family_.causal) attributes["causal"] = true;
    if (!family_.learned_positions && !family_.no_positions) attributes["rotary_base"] = family_.rotary_base;
    if (family_.rotary_channels > 0) attributes["rotary_channels"] = family_.rotary_channels;
    if (!family_.attention_bias) attributes["bias"] = false;
    add(prefix + "attention", "multi_head_attention", {input}, attributes);
    return linear(prefix + "projection", prefix + "attention", family_.channels, family_.projection_bias);
  }

  std::string feed_forward(const std::string& prefix, const std::string& input, int64_t features) {
    std::string inner;
    if (family_.gated) {
      const std::string gate = activated(prefix, linear(prefix + "gate", input, features, family_.inner_bias));
      const std::string up = linear(prefix + "up", input, features, family_.inner_bias);
      inner = add(prefix + "mul", "mul", {gate, up}, {});
    } else {
      inner = activated(prefix, linear(prefix + "expand", input, features, family_.inner_bias));
    }
    return linear(prefix + (family_.gated ? "down" : "contract"), inner, family_.channels, family_.inner_bias);
  }

  std::string experts(const std::string& prefix, const std::string& input) {
    Json gating = {{"top_k", family_.experts_of_token}};
    if (family_.experts_of_token == 2 && family_.normalized_gates) gating["random_routing"] = false;
    if (family_.experts_of_token > 1 && !family_.normalized_gates) gating["normalize"] = false;
    const std::string gate = linear(prefix + "gate", input, family_.experts, false);
    const std::string slots = add(prefix + "gating", "top_k_gating", {gate}, gating);
    if (family_.balance_weight > 0)
      add(prefix + "balance", "load_balancing_loss", {gate}, {{"weight", family_.balance_weight}});
    // As the devices of one expert share its channels: exchanges between experts, and among these devices, are apart.
    const auto copy = [&](const std::string& name, const std::string& read) {
      return add(prefix + name, "identity", {read}, {{"sample_axis", 1}});
    };
    const std::string rows = copy("experts.in", add(prefix + "dispatch", "dispatch", {input, slots}, {}));
    const auto of_experts = [&](const std::string& name, const std::string& read, int64_t features) {
      return add(prefix + name, "expert_linear", {read}, {{"out_features", features}, {"bias", false}});
    };
    const std::string gated =
        add(prefix + "silu", "silu", {of_experts("experts.gate", rows, family_.expert_inner)}, {{"sample_axis", 1}});
    const std::string up = of_experts("experts.up", rows, family_.expert_inner);
    const std::string inner = add(prefix + "mul", "mul", {gated, up}, {{"sample_axis", 1}});
    const std::string down = copy("experts.out", of_experts("experts.down", inner, family_.channels));
    const std::string combined = add(prefix + "combine", "combine", {down, slots, slots + ":weight"}, {});
    return family_.shared_inner > 0 ? add(prefix + "experts.add", "add", {combined, shared(prefix, input)}, {})
                                    : combined;
  }

  // Of all tokens.
  std::string shared(const std::string& prefix, const std::string& input) {
    const std::string all = feed_forward(prefix + "shared.", input, family_.shared_inner);
    if (!family_.shared_gate) return all;
    const std::string logit = linear(prefix + "shared.share", input, 1, false);
    const std::string row = add(prefix + "shared.row", "reshape", {logit}, {{"shape", {sequence_}}});
    const std::string share = add(prefix + "shared.sigmoid", "sigmoid", {row}, {});
    return add(prefix + "shared.weighted", "broadcast_mul", {all, share}, {{"axes", {0, 1}}});
  }

  std::string add_post_norm_layer(const std::string& prefix, const std::string& x) {
    const double rate = family_.layer_dropout;
    const std::string attended = with_dropout(prefix + "dropout1", attention(prefix, x), rate);
    const std::string first = norm(prefix + "norm1", add(prefix + "add1", "add", {x, attended}, {}));
    const std::string fed = with_dropout(prefix + "dropout2", feed_forward(prefix, first, family_.inner), rate);
    return norm(prefix + "norm2", add(prefix + "add2", "add", {first, fed}, {}));
  }

  std::string add_layer(int64_t layer, const std::string& x) {
    const std::string prefix = "layer" + std::to_string(layer) + ".";
    if (family_.post_norm) return add_post_norm_layer(prefix, x);
    const double rate = family_.layer_dropout;
    const std::string first = family_.norms_in_front ? norm(prefix + "norm1", x) : x;
    const auto normalized = [&](const std::string& name, const std::string& y) {
      return family_.norms_behind ? norm(prefix + name, y) : y;
    };
    const std::string attended =
        with_dropout(prefix + "dropout1", normalized("norm_behind1", attention(prefix, first)), rate);
    const std::string added = add(prefix + "add1", "add", {x, attended}, {});
    const std::string& read = family_.parallel ? x : added;
    const std::string second = family_.one_norm ? first : family_.norms_in_front ? norm(prefix + "norm2", read) : read;
    const bool dense = family_.experts == 0 || (!family_.dense_layers.empty() && family_.dense_layers[layer - 1]);
    const std::string computed = dense ? feed_forward(prefix, second, family_.inner) : experts(prefix, second);
    const std::string fed = with_dropout(prefix + "dropout2", normalized("norm_behind2", computed), rate);
    return add(prefix + "add2", "add", {added, fed}, {});
  }

  const Family& family_;
  int64_t sequence_;
};

Family read_family(const JsonPlace& config, const ConfigSettings& settings, int64_t sequence,
                   Vector<std::string>& notes) {
  const std::string type = config.at("model_type").as_string();
  if (type == "gpt2") return gpt2(settings, notes);
  if (type == "gpt_neox") return gpt_neox(settings, notes);
  if (type == "phi") return phi(settings, notes);
  if (type == "opt") return opt(settings, notes);
  if (type == "bloom") return bloom(settings, sequence, notes);
  if (type == "mpt") return mpt(settings, notes);
  if (type == "gptj") return gptj(settings, notes);
  if (type == "falcon") return falcon(settings, sequence, notes);
  if (type == "starcoder2") return starcoder2(settings, sequence, notes);
  if (type == "gemma") return gemma(settings, type, sequence, notes);
  if (type == "gemma2" || type == "gemma3_text") return gemma_of_windows(settings, type, sequence, notes);
  if (type == "olmo2") return olmo2(settings, sequence, notes);
  if (type == "glm" || type == "glm4") return glm(settings, type, sequence, notes);
  if (type == "cohere") return cohere(settings, sequence, notes);
  if (type == "granite") return granite(settings, sequence, notes);
  if (type == "internlm" || type == "internlm2") return internlm(settings, type, sequence, notes);
  if (type == "stablelm") return stablelm(settings, sequence, notes);
  if (type == "nemotron") return nemotron(settings, sequence, notes);
  if (type == "smollm3") return smollm3(settings, sequence, notes);
  if (type == "gpt_bigcode") {
    Family family = gpt2(settings, notes);
    if (settings.flag("multi_query", true)) family.key_value_heads = 1;
    return family;
  }
  if (type == "mixtral") return mixtral(settings, sequence, notes);
  if (type == "olmoe") return olmoe(settings, sequence, notes);
  if (type == "qwen2_moe") return qwen_experts(settings, "qwen2", sequence, notes);
  if (type == "qwen3_moe") return qwen_experts(settings, "qwen3", sequence, notes);
  if (type == "deepseek") return deepseek(settings, sequence, notes);
  if (type == "qwen3") return qwen3(settings, sequence, notes);
  if (type == "bert") return bert(settings, notes);
  if (type == "vit") return vit(settings, notes);
  if (type == "llama" || type == "mistral" || type == "qwen2" || type == "phi3")
    return llama(settings, type, sequence, notes);
  if (settings.find("kv_lora_rank") || type == "deepseek_v2" || type == "deepseek_v3")
    config.at("model_type")
        .fail("found \"" + type +
              "\", whose multi-head latent attention is not supported: no operator has keys and values of a common "
              "low rank");
  const Vector<std::string> families = transformer_families();
  if (const auto text = settings.find("text_config"); text && text->value().is_object())
    if (const std::string inner = ConfigSettings(*text).text("model_type", "");
        std::find(families.begin(), families.end(), inner) != families.end())
      config.at("model_type")
          .fail("found \"" + type +
                "\"; its language model is known: import what \"text_config\" has, of model_type \"" + inner +
                "\", as a file of its own");
  config.at("model_type").fail("found \"" + type + "\"" + suggestion(type, families));
}

// What attention would refuse, by the keys of the file.
void check_heads(const Family& family, const ConfigSettings& settings) {
  const std::string channels = settings.first_of({"n_embd", "n_embed", "d_model", "hidden_size"}),
                    heads = settings.first_of({"n_head", "n_heads", "num_attention_heads"});
  if (family.head_width == 0 && family.channels % family.heads != 0)
    settings.refuse(channels, std::to_string(family.channels) + " is not divisible by " + heads + ", " +
                                  std::to_string(family.heads));
  if (family.key_value_heads > 0 && family.heads % family.key_value_heads != 0)
    settings.refuse(settings.first_of({"num_key_value_heads", "num_kv_heads", "attn_config"}),
                    "the " + std::to_string(family.key_value_heads) + " key-value heads do not divide " + heads + ", " +
                        std::to_string(family.heads));
  if (family.learned_positions || family.no_positions) return;
  const int64_t turned = family.rotary_channels > 0 ? family.rotary_channels : family.head_channels();
  if (turned % 2 != 0 || turned > family.head_channels())
    settings.refuse(settings.first_of({"rotary_dim", "rotary_pct", "partial_rotary_factor", "head_dim", channels}),
                    "rotary positions turn " + std::to_string(turned) + " of the " +
                        std::to_string(family.head_channels()) + " channels of a head, expected an even number up to " +
                        std::to_string(family.head_channels()));
}

ConfigNetwork network_of(const Family& family, const ConfigSettings& settings, int64_t sequence) {
  ConfigNetwork result{family.causal ? "Causal language model" : "Language model", family.layers, {}, {}};
  if (family.image > 0) {
    result.kind = "Classifier of images";
    result.inputs = Json::array(
        {{{"name", "image"}, {"shape", {"batch", family.image_channels, family.image, family.image}}, {"dtype", "f32"}},
         {{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}}});
  } else {
    result.inputs = family.segments > 0 ? inputs_of_tokens({"token", "segment", "label"}, sequence)
                                        : inputs_of_tokens({"token", "label"}, sequence);
  }
  result.operators = GraphWriter(family, settings, sequence).written();
  return result;
}

ConfigNetwork read_network(const JsonPlace& config, const ConfigSettings& settings, int64_t sequence,
                           Vector<std::string>& notes) {
  if (const std::string type = config.at("model_type").as_string(); type == "t5" || type == "mt5")
    return network_of_t5(settings, sequence, notes);
  const Family family = read_family(config, settings, sequence, notes);
  check_heads(family, settings);
  if (family.image > 0) return network_of(family, settings, sequence);
  if (sequence > family.positions)
    throw InputError("--sequence: found " + std::to_string(sequence) + ", the model has " +
                     std::to_string(family.positions) + " positions");
  if (family.learned_positions && sequence < family.positions)
    notes.push_back("the table of positions has " + std::to_string(sequence) +
                    " rows, as the sequence; the model's has " + std::to_string(family.positions));
  return network_of(family, settings, sequence);
}

}  // namespace

Vector<std::string> transformer_families() {
  return {"bert",      "bloom",    "cohere",     "deepseek",    "falcon",   "gemma",     "gemma2",   "gemma3_text",
          "glm",       "glm4",     "gpt2",       "gpt_bigcode", "gpt_neox", "gptj",      "granite",  "internlm",
          "internlm2", "llama",    "mistral",    "mixtral",     "mpt",      "mt5",       "nemotron", "olmo2",
          "olmoe",     "opt",      "phi",        "phi3",        "qwen2",    "qwen2_moe", "qwen3",    "qwen3_moe",
          "smollm3",   "stablelm", "starcoder2", "t5",          "vit"};
}

TransformerGraph import_transformer(const JsonPlace& config, int64_t batch, int64_t sequence) {
  const ConfigSettings settings(config);
  const std::string type = config.at("model_type").as_string();
  if (type == "vit" && sequence > 0)
    throw InputError("--sequence: is for language models; " + config.file() + " is of a model of images");
  if (type != "vit" && sequence == 0) throw InputError("--sequence: is needed for " + config.file());
  TransformerGraph result;
  ConfigNetwork network = read_network(config, settings, sequence, result.notes);
  result.layers = network.layers;
  const auto behind_slash = [](const std::string& path) { return path.substr(path.find_last_of('/') + 1); };
  const std::string name = settings.text("_name_or_path", "");
  result.graph = {{"format", "ffgraph/1"},
                  {"name", name.empty() ? type : behind_slash(name)},
                  {"description", network.kind + " of family " + type + ", by ffsearch import from " +
                                      behind_slash(config.file()) + "."},
                  {"batch_size", batch},
                  {"inputs", std::move(network.inputs)},
                  {"operators", std::move(network.operators)}};
  return result;
}

}  // namespace ff
