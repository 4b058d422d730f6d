#include "search/import/encoder_decoder_config.h"

#include <cmath>

namespace ff {
namespace {

struct T5 {
  int64_t channels, head_channels, heads, inner, encoder_layers, decoder_layers, vocabulary, buckets, max_distance;
  double dropout, epsilon;
  std::string feed_forward;  // as the file says it: "gated-gelu"
  bool tied;
  std::string activation = feed_forward;
  bool gated = false;
};

T5 read_t5(const ConfigSettings& settings) {
  T5 model{settings.integer("d_model"),
           settings.integer("d_kv"),
           settings.integer("num_heads"),
           settings.integer("d_ff"),
           settings.layers("num_layers"),
           settings.layers(settings.first_of({"num_decoder_layers", "num_layers"})),
           settings.integer("vocab_size"),
           settings.integer("relative_attention_num_buckets", 32),
           settings.integer("relative_attention_max_distance", 128),
           settings.number("dropout_rate", 0.1, 1),
           settings.number("layer_norm_epsilon", 1e-6),
           settings.text("feed_forward_proj", "relu"),
           settings.flag("tie_word_embeddings", true)};
  if (const std::string prefix = "gated-"; model.activation.starts_with(prefix)) {
    model.gated = true;
    model.activation.erase(0, prefix.size());
    if (model.activation == "gelu") model.activation = "gelu_new";  // as Hugging Face reads it
  }
  return model;
}

class T5Writer : private OperatorWriter {
 public:
  T5Writer(const T5& model, const ConfigSettings& settings, int64_t sequence)
      : OperatorWriter(settings), model_(model), sequence_(sequence) {}

  Json written() {
    std::string x = tokens("encoder.", "token");
    for (int64_t layer = 1; layer <= model_.encoder_layers; ++layer) {
      const std::string prefix = "encoder.layer" + std::to_string(layer) + ".";
      x = with_attention(prefix, "attention", x, "", "encoder");
      x = with_feed_forward(prefix, x);
    }
    const std::string encoded = end_of("encoder.", x);
    x = tokens("decoder.", "decoder_token");
    for (int64_t layer = 1; layer <= model_.decoder_layers; ++layer) {
      const std::string prefix = "decoder.layer" + std::to_string(layer) + ".";
      x = with_attention(prefix, "attention", x, "", "decoder");
      x = with_attention(prefix, "cross_attention", x, encoded, "");
      x = with_feed_forward(prefix, x);
    }
    x = end_of("decoder.", x);
    if (model_.tied) x = add("scale", "affine", {x}, {{"factor", 1 / std::sqrt(static_cast<double>(model_.channels))}});
    linear("output", x, model_.vocabulary, false);
    if (model_.tied) share_parameters("tokens");
    add("loss", "softmax_cross_entropy", {"output", "label"}, {});
    return operators();
  }

 private:
  std::string tokens(const std::string& prefix, const std::string& input) {
    const std::string rows = add(prefix + "tokens", "embedding", {input},
                                 {{"vocabulary", model_.vocabulary}, {"channels", model_.channels}});
    share_parameters("tokens");
    return with_dropout(prefix + "dropout", rows, model_.dropout);
  }

  std::string end_of(const std::string& prefix, const std::string& x) {
    return with_dropout(prefix + "end_dropout", norm(prefix + "norm", x), model_.dropout);
  }

  std::string norm(const std::string& name, const std::string& x) {
    return add(name, "rms_norm", {x}, {{"epsilon", model_.epsilon}});
  }

  // [length, heads, channels of a head]
  std::string projected(const std::string& name, const std::string& x) {
    const std::string rows = linear(name, x, model_.heads * model_.head_channels, false);
    return add(name + "_heads", "reshape", {rows}, {{"shape", {sequence_, model_.heads, model_.head_channels}}});
  }

  // To x is added what its positions attend to: those of x, or of `others`. `bias`: whose table of relative positions.
  std::string with_attention(const std::string& layer, const std::string& name, const std::string& x,
                             const std::string& others, const std::string& bias) {
    const std::string prefix = layer + name + ".", read = norm(layer + name + "_norm", x);
    const std::string& attended = others.empty() ? read : others;
    const std::string query = projected(prefix + "query", read), key = projected(prefix + "key", attended),
                      value = projected(prefix + "value", attended);
    std::string scores = add(prefix + "scores", "einsum", {query, key}, {{"equation", "bqhd,bkhd->bhqk"}});
    if (!bias.empty()) {
      Json attributes = {{"buckets", model_.buckets}, {"max_distance", model_.max_distance}};
      if (bias == "decoder") attributes["directions"] = "past";
      scores = add(prefix + "bias", "relative_bias", {scores}, attributes);
      share_parameters(bias + ".bias");
    }
    const std::string rows =
        add(prefix + "rows", "reshape", {scores}, {{"shape", {model_.heads * sequence_, sequence_}}});
    const std::string weights =
        with_dropout(prefix + "dropout", add(prefix + "softmax", "softmax", {rows}, {}), model_.dropout);
    const std::string by_head =
        add(prefix + "weights", "reshape", {weights}, {{"shape", {model_.heads, sequence_, sequence_}}});
    const std::string mixed = add(prefix + "values", "einsum", {by_head, value}, {{"equation", "bhqk,bkhd->bqhd"}});
    const std::string joined =
        add(prefix + "joined", "reshape", {mixed}, {{"shape", {sequence_, model_.heads * model_.head_channels}}});
    return added(layer + name, x, linear(layer + name + "_projection", joined, model_.channels, false));
  }

  std::string with_feed_forward(const std::string& prefix, const std::string& x) {
    const std::string read = norm(prefix + "norm", x);
    std::string inner =
        activation(prefix, linear(prefix + (model_.gated ? "gate" : "expand"), read, model_.inner, false),
                   model_.activation, "feed_forward_proj", model_.feed_forward);
    if (model_.gated) inner = add(prefix + "mul", "mul", {inner, linear(prefix + "up", read, model_.inner, false)}, {});
    inner = with_dropout(prefix + "dropout", inner, model_.dropout);
    return added(prefix + "feed_forward", x,
                 linear(prefix + (model_.gated ? "down" : "contract"), inner, model_.channels, false));
  }

  std::string added(const std::string& name, const std::string& x, const std::string& more) {
    return add(name + "_add", "add", {x, with_dropout(name + "_dropout", more, model_.dropout)}, {});
  }

  const T5& model_;
  int64_t sequence_;
};

}  // namespace

ConfigNetwork network_of_t5(const ConfigSettings& settings, int64_t sequence, Vector<std::string>& notes) {
  const T5 model = read_t5(settings);
  notes.push_back(
      "the decoder's attention to itself has no causal mask: shapes and work are the same, but a model that is trained "
      "sees the tokens that it predicts");
  return {"Encoder and decoder", model.encoder_layers + model.decoder_layers,
          inputs_of_tokens({"token", "decoder_token", "label"}, sequence),
          T5Writer(model, settings, sequence).written()};
}

}  // namespace ff
