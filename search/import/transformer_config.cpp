#include "search/import/transformer_config.h"

#include <algorithm>
#include <cmath>

#include "common/errors.h"

namespace ff {
namespace {

// Keys that are missing or null have a default, as in Hugging Face's classes of configurations.
class Settings {
 public:
  explicit Settings(const JsonPlace& place) : place_(place) {}

  std::optional<JsonPlace> find(const std::string& key) const {
    const std::optional<JsonPlace> found = place_.find(key);
    return found && found->value().is_null() ? std::nullopt : found;
  }
  int64_t integer(const std::string& key) const { return place_.at(key).as_integer(1, int64_t{1} << 31); }
  int64_t integer(const std::string& key, int64_t otherwise) const { return find(key) ? integer(key) : otherwise; }
  double number(const std::string& key, double otherwise, double most = 1e12) const {
    const auto found = find(key);
    return found ? found->as_number(0, most) : otherwise;
  }
  bool flag(const std::string& key, bool otherwise) const {
    const auto found = find(key);
    return found ? found->as_bool() : otherwise;
  }
  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = find(key);
    return found ? found->as_string() : otherwise;
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& message) const {
    if (const auto found = find(key)) found->fail(message);
    place_.fail(key + ": " + message);
  }

 private:
  const JsonPlace& place_;
};

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
  bool parallel = false;  // attention and feed-forward read the same values, and are added together
  bool one_norm = false;  // parallel: of both
  bool tied = false;      // the output's weight is the embedding's
  bool embedding_norm = false;
  double embedding_dropout = 0, layer_dropout = 0;
  bool post_norm = false;  // sums are normalized, and not what attention and feed-forward read: BERT
  bool causal = true;
  int64_t segments = 0;     // kinds of a token (BERT's token types); 0: there is no such input
  bool head_layer = false;  // in front of the output: a linear layer, the activation, and normalization
  // Feed-forward by experts, of which a token takes some; 0: there are none
  int64_t experts = 0, experts_of_token = 0;
  double balance_weight = 0;
  int64_t image = 0, patch = 0, image_channels = 0, classes = 0;  // of images (ViT); 0: of tokens
};

constexpr const char* no_alibi =
    " is left out: attention has no linear biases; shapes are the same and work nearly, but a model that is trained "
    "has no "
    "positions";

// By the names that most families have. `inner` "": it follows from the channels.
Family family_of(const Settings& settings, const std::string& inner, int64_t positions) {
  return {settings.integer("hidden_size"),
          settings.integer("num_hidden_layers"),
          settings.integer("num_attention_heads"),
          0,
          inner.empty() ? 0 : settings.integer(inner),
          settings.integer("vocab_size"),
          settings.integer("max_position_embeddings", positions)};
}

void note_attention_dropout(const Settings& settings, const std::string& key, double otherwise,
                            Vector<std::string>& notes) {
  if (settings.number(key, otherwise, 1) > 0)
    notes.push_back(key + " is left out: attention has no dropout of its probabilities");
}

void read_rotary(const Settings& settings, Family& family, double part, Vector<std::string>& notes) {
  family.rotary_base = settings.number("rope_theta", settings.number("rotary_emb_base", 10000));
  for (const std::string& key : {std::string("rope_scaling"), std::string("rope_parameters")})
    if (const auto scaling = settings.find(key)) {
      const Settings inside(*scaling);
      family.rotary_base = inside.number("rope_theta", family.rotary_base);
      const std::string type = inside.text("rope_type", inside.text("type", "default"));
      if (type != "default")
        notes.push_back(key + " \"" + type +
                        "\" is left out: rotary positions are not scaled; shapes and work are the same");
    }
  const int64_t head_channels = family.channels / family.heads;
  const int64_t turned = static_cast<int64_t>(static_cast<double>(head_channels) * part);
  if (turned != head_channels) family.rotary_channels = turned;
}

Family gpt2(const Settings& settings, Vector<std::string>& notes) {
  Family family{settings.integer("n_embd"),     settings.integer("n_layer"),    settings.integer("n_head"), 0, 0,
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

// LLaMA, Mistral and Qwen2, which differ in biases and windows.
Family llama(const Settings& settings, const std::string& type, int64_t sequence, Vector<std::string>& notes) {
  Family family = family_of(settings, "intermediate_size", 2048);
  family.key_value_heads = settings.integer("num_key_value_heads", family.heads);
  family.rms_norm = family.gated = true;
  family.epsilon = settings.number("rms_norm_eps", 1e-6);
  family.attention_bias = type == "qwen2" || settings.flag("attention_bias", false);
  family.projection_bias = type != "qwen2" && settings.flag("attention_bias", false);
  family.inner_bias = settings.flag("mlp_bias", false);
  family.activation = settings.text("hidden_act", "silu");
  family.tied = settings.flag("tie_word_embeddings", false);
  if (settings.integer("head_dim", family.channels / family.heads) != family.channels / family.heads)
    settings.refuse("head_dim",
                    "expected " + std::to_string(family.channels / family.heads) + ", the channels over the heads");
  const bool window =
      type == "mistral" || type == "mixtral" || type == "phi3" || settings.flag("use_sliding_window", false);
  if (window && settings.integer("sliding_window", sequence) < sequence)
    settings.refuse("sliding_window",
                    "attention has no windows: expected at least the sequence, " + std::to_string(sequence));
  note_attention_dropout(settings, "attention_dropout", 0, notes);
  read_rotary(settings, family, 1, notes);
  return family;
}

Family gpt_neox(const Settings& settings, Vector<std::string>& notes) {
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

Family phi(const Settings& settings, Vector<std::string>& notes) {
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

Family opt(const Settings& settings, Vector<std::string>& notes) {
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
  return family;
}

Family bloom(const Settings& settings, int64_t sequence, Vector<std::string>& notes) {
  const char* const channels = settings.find("n_embed") ? "n_embed" : "hidden_size";
  const char* const heads = settings.find("n_head") ? "n_head" : "num_attention_heads";
  const char* const layers = settings.find("n_layer") ? "n_layer" : "num_hidden_layers";
  Family family{settings.integer(channels),
                settings.integer(layers),
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

Family mpt(const Settings& settings, Vector<std::string>& notes) {
  Family family{settings.integer("d_model"),    settings.integer("n_layers"),         settings.integer("n_heads"), 0, 0,
                settings.integer("vocab_size"), settings.integer("max_seq_len", 2048)};
  family.inner = static_cast<int64_t>(settings.number("expansion_ratio", 4, 64) * static_cast<double>(family.channels));
  family.learned_positions = settings.flag("learned_pos_emb", true);
  const bool biases = !settings.flag("no_bias", true);
  family.attention_bias = family.projection_bias = family.inner_bias = biases;
  family.activation = "gelu";
  family.tied = settings.flag("tie_word_embeddings", true);
  family.layer_dropout = settings.number("resid_pdrop", 0, 1);
  if (!biases) notes.push_back("layer norms have biases, which the model's have not: a few parameters more");
  if (const auto attention = settings.find("attn_config")) {
    const Settings inside(*attention);
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

Family gptj(const Settings& settings, Vector<std::string>& notes) {
  Family family{settings.integer("n_embd"),     settings.integer("n_layer"),          settings.integer("n_head"), 0, 0,
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
  if (turned != family.channels / family.heads) family.rotary_channels = turned;
  return family;
}

Family falcon(const Settings& settings, int64_t sequence, Vector<std::string>& notes) {
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

Family starcoder2(const Settings& settings, int64_t sequence, Vector<std::string>& notes) {
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

Family gemma(const Settings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "gemma", sequence, notes);
  family.activation = settings.text("hidden_activation", settings.text("hidden_act", "gelu_pytorch_tanh"));
  family.tied = settings.flag("tie_word_embeddings", true);
  notes.push_back("embeddings are not multiplied by the root of the hidden size: shapes and work are the same");
  return family;
}

Family mixtral(const Settings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "mixtral", sequence, notes);
  family.experts = settings.integer("num_local_experts", 8);
  family.experts_of_token = settings.integer("num_experts_per_tok", 2);
  if (family.experts_of_token > 2 || family.experts_of_token > family.experts)
    settings.refuse("num_experts_per_tok", "top_k_gating chooses 1 or 2 experts for a token");
  if (family.activation != "silu") settings.refuse("hidden_act", "expected \"silu\", between the layers of experts");
  const auto experts = static_cast<double>(family.experts);
  family.balance_weight = settings.number("router_aux_loss_coef", 0.001, 1) * experts * experts;
  notes.push_back(
      "experts have places for as many tokens as each gets if they are used evenly; what goes beyond is dropped, where "
      "the model drops none");
  return family;
}

// Qwen3 normalizes queries and keys, which attention does not.
Family qwen3(const Settings& settings, int64_t sequence, Vector<std::string>& notes) {
  Family family = llama(settings, "qwen3", sequence, notes);
  notes.push_back("normalization of queries and keys is left out, with its " +
                  std::to_string(2 * family.channels / family.heads * family.layers) + " parameters");
  return family;
}

// BERT as it is trained on masked words. The loss is that of every position.
Family bert(const Settings& settings, Vector<std::string>& notes) {
  Family family = family_of(settings, "intermediate_size", 512);
  family.epsilon = settings.number("layer_norm_eps", 1e-12);
  family.learned_positions = family.embedding_norm = family.post_norm = family.head_layer = true;
  family.causal = false;
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

Family vit(const Settings& settings, Vector<std::string>& notes) {
  Family family{settings.integer("hidden_size"),
                settings.integer("num_hidden_layers"),
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

class GraphWriter {
 public:
  GraphWriter(const Family& family, const Settings& settings) : family_(family), settings_(settings) {}

  Json operators() {
    std::string x = family_.image > 0 ? patches() : tokens();
    if (family_.learned_positions) x = add("positions", "position_embedding", {x}, {});
    if (family_.embedding_norm) x = norm("embedding_norm", x);
    x = with_dropout("dropout", x, family_.embedding_dropout);
    for (int64_t layer = 1; layer <= family_.layers; ++layer) x = add_layer("layer" + std::to_string(layer) + ".", x);
    if (!family_.post_norm) x = norm("norm", x);
    if (family_.head_layer) x = norm("head.norm", activation("head.", linear("head", x, family_.channels, true)));
    if (family_.image > 0) {
      x = add("class.slice", "slice", {x}, {{"axis", 1}, {"begin", 0}, {"end", 1}});
      x = add("class", "reshape", {x}, {{"shape", {family_.channels}}});
      linear("output", x, family_.classes, true);
    } else {
      linear("output", x, family_.vocabulary, family_.output_bias);
      if (family_.tied) operators_.back()["parameters"] = "tokens";
    }
    add("loss", "softmax_cross_entropy", {"output", "label"}, {});
    return operators_;
  }

 private:
  std::string tokens() {
    add("tokens", "embedding", {"token"}, {{"vocabulary", family_.vocabulary}, {"channels", family_.channels}});
    if (family_.tied) operators_.back()["parameters"] = "tokens";
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

  // Its output's name.
  std::string add(const std::string& name, const std::string& type, const Vector<std::string>& inputs,
                  const Json& attributes) {
    Json json = {{"name", name}, {"type", type}, {"inputs", inputs}};
    if (!attributes.empty()) json["attributes"] = attributes;
    operators_.push_back(std::move(json));
    return name;
  }
  std::string linear(const std::string& name, const std::string& input, int64_t features, bool bias) {
    Json attributes = {{"out_features", features}};
    if (!bias) attributes["bias"] = false;
    return add(name, "linear", {input}, attributes);
  }
  std::string norm(const std::string& name, const std::string& input) {
    return add(name, family_.rms_norm ? "rms_norm" : "layer_norm", {input}, {{"epsilon", family_.epsilon}});
  }
  std::string with_dropout(const std::string& name, const std::string& input, double rate) {
    return rate > 0 ? add(name, "dropout", {input}, {{"rate", rate}}) : input;
  }
  std::string activation(const std::string& prefix, const std::string& input) {
    const std::string& name = family_.activation;
    if (name == "silu" || name == "swish") return add(prefix + "silu", "silu", {input}, {});
    if (name == "relu") return add(prefix + "relu", "relu", {input}, {});
    if (name == "gelu") return add(prefix + "gelu", "gelu", {input}, {});
    if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh")
      return add(prefix + "gelu", "gelu", {input}, {{"approximate", "tanh"}});
    settings_.refuse(
        settings_.find("hidden_act") ? "hidden_act" : "activation_function",
        "found \"" + name + "\"" + suggestion(name, {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"}));
  }

  std::string attention(const std::string& prefix, const std::string& input) {
    Json attributes = {{"heads", family_.heads}};
    if (family_.key_value_heads > 0 && family_.key_value_heads != family_.heads)
      attributes["key_value_heads"] = family_.key_value_heads;
    if (family_.causal) attributes["causal"] = true;
    if (!family_.learned_positions && !family_.no_positions) attributes["rotary_base"] = family_.rotary_base;
    if (family_.rotary_channels > 0) attributes["rotary_channels"] = family_.rotary_channels;
    if (!family_.attention_bias) attributes["bias"] = false;
    add(prefix + "attention", "multi_head_attention", {input}, attributes);
    return linear(prefix + "projection", prefix + "attention", family_.channels, family_.projection_bias);
  }

  std::string feed_forward(const std::string& prefix, const std::string& input) {
    std::string inner;
    if (family_.gated) {
      const std::string gate = activation(prefix, linear(prefix + "gate", input, family_.inner, family_.inner_bias));
      const std::string up = linear(prefix + "up", input, family_.inner, family_.inner_bias);
      inner = add(prefix + "mul", "mul", {gate, up}, {});
    } else {
      inner = activation(prefix, linear(prefix + "expand", input, family_.inner, family_.inner_bias));
    }
    return linear(prefix + (family_.gated ? "down" : "contract"), inner, family_.channels, family_.inner_bias);
  }

  std::string experts(const std::string& prefix, const std::string& input) {
    Json gating = {{"top_k", family_.experts_of_token}};
    if (family_.experts_of_token == 2) gating["random_routing"] = false;
    const std::string gate = linear(prefix + "gate", input, family_.experts, false);
    const std::string slots = add(prefix + "gating", "top_k_gating", {gate}, gating);
    if (family_.balance_weight > 0)
      add(prefix + "balance", "load_balancing_loss", {gate}, {{"weight", family_.balance_weight}});
    const std::string rows = add(prefix + "dispatch", "dispatch", {input, slots}, {});
    const auto of_experts = [&](const std::string& name, const std::string& read, int64_t features) {
      return add(prefix + name, "expert_linear", {read}, {{"out_features", features}, {"bias", false}});
    };
    const std::string gated =
        add(prefix + "silu", "silu", {of_experts("experts.gate", rows, family_.inner)}, {{"sample_axis", 1}});
    const std::string up = of_experts("experts.up", rows, family_.inner);
    const std::string inner = add(prefix + "mul", "mul", {gated, up}, {{"sample_axis", 1}});
    const std::string down = of_experts("experts.down", inner, family_.channels);
    return add(prefix + "combine", "combine", {down, slots, slots + ":weight"}, {});
  }

  std::string add_post_norm_layer(const std::string& prefix, const std::string& x) {
    const double rate = family_.layer_dropout;
    const std::string attended = with_dropout(prefix + "dropout1", attention(prefix, x), rate);
    const std::string first = norm(prefix + "norm1", add(prefix + "add1", "add", {x, attended}, {}));
    const std::string fed = with_dropout(prefix + "dropout2", feed_forward(prefix, first), rate);
    return norm(prefix + "norm2", add(prefix + "add2", "add", {first, fed}, {}));
  }

  std::string add_layer(const std::string& prefix, const std::string& x) {
    if (family_.post_norm) return add_post_norm_layer(prefix, x);
    const double rate = family_.layer_dropout;
    const std::string first = norm(prefix + "norm1", x);
    const std::string attended = with_dropout(prefix + "dropout1", attention(prefix, first), rate);
    const std::string added = add(prefix + "add1", "add", {x, attended}, {});
    const std::string& read = family_.parallel ? x : added;
    const std::string second = family_.one_norm ? first : norm(prefix + "norm2", read);
    const std::string fed = with_dropout(
        prefix + "dropout2", family_.experts > 0 ? experts(prefix, second) : feed_forward(prefix, second), rate);
    return add(prefix + "add2", "add", {added, fed}, {});
  }

  const Family& family_;
  const Settings& settings_;
  Json operators_ = Json::array();
};

Family read_family(const JsonPlace& config, const Settings& settings, int64_t sequence, Vector<std::string>& notes) {
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
  if (type == "gemma") return gemma(settings, sequence, notes);
  if (type == "gpt_bigcode") {
    Family family = gpt2(settings, notes);
    if (settings.flag("multi_query", true)) family.key_value_heads = 1;
    return family;
  }
  if (type == "mixtral") return mixtral(settings, sequence, notes);
  if (type == "qwen3") return qwen3(settings, sequence, notes);
  if (type == "bert") return bert(settings, notes);
  if (type == "vit") return vit(settings, notes);
  if (type == "llama" || type == "mistral" || type == "qwen2" || type == "phi3")
    return llama(settings, type, sequence, notes);
  config.at("model_type").fail("found \"" + type + "\"" + suggestion(type, transformer_families()));
}

}  // namespace

Vector<std::string> transformer_families() {
  return {"bert",    "bloom", "falcon", "gemma", "gpt2", "gpt_bigcode", "gpt_neox", "gptj",       "llama", "mistral",
          "mixtral", "mpt",   "opt",    "phi",   "phi3", "qwen2",       "qwen3",    "starcoder2", "vit"};
}

TransformerGraph import_transformer(const JsonPlace& config, int64_t batch, int64_t sequence) {
  const Settings settings(config);
  TransformerGraph result;
  const std::string type = config.at("model_type").as_string();
  if (type == "vit" && sequence > 0)
    throw InputError("--sequence: is for language models; " + config.file() + " is of a model of images");
  if (type != "vit" && sequence == 0) throw InputError("--sequence: is needed for " + config.file());
  const Family family = read_family(config, settings, sequence, result.notes);
  const bool of_images = family.image > 0;
  if (!of_images && sequence > family.positions)
    throw InputError("--sequence: found " + std::to_string(sequence) + ", the model has " +
                     std::to_string(family.positions) + " positions");
  if (!of_images && family.learned_positions && sequence < family.positions)
    result.notes.push_back("the table of positions has " + std::to_string(sequence) +
                           " rows, as the sequence; the model's has " + std::to_string(family.positions));
  result.layers = family.layers;
  const std::string name = settings.text("_name_or_path", "");
  const Json input = {"batch", sequence};
  Json inputs = Json::array();
  if (of_images) {
    inputs.push_back(
        {{"name", "image"}, {"shape", {"batch", family.image_channels, family.image, family.image}}, {"dtype", "f32"}});
    inputs.push_back({{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}});
  } else {
    for (const char* const one : {"token", "segment", "label"})
      if (one != std::string("segment") || family.segments > 0)
        inputs.push_back({{"name", one}, {"shape", input}, {"dtype", "i32"}});
  }
  const std::string kind = of_images       ? "Classifier of images"
                           : family.causal ? "Causal language model"
                                           : "Language model";
  result.graph = {{"format", "ffgraph/1"},
                  {"name", name.empty() ? type : name.substr(name.find_last_of('/') + 1)},
                  {"description", kind + " of family " + type + ", by ffsearch import from " +
                                      config.file().substr(config.file().find_last_of('/') + 1) + "."},
                  {"batch_size", batch},
                  {"inputs", std::move(inputs)},
                  {"operators", GraphWriter(family, settings).operators()}};
  return result;
}

}  // namespace ff
