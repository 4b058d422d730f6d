#include "search/import/transformer_config.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "common/graph.h"

namespace ff {
namespace {

TransformerGraph imported(const std::string& config, int64_t sequence) {
  return import_transformer(parse_json(config, "config.json"), 1, sequence);
}

int64_t parameters(const std::string& config, int64_t sequence) {
  const Graph graph = parse_graph(parse_json(imported(config, sequence).graph.dump(), "graph"));
  int64_t count = 0;
  for (const Parameter& parameter : graph.parameters) count += volume(parameter.spec.shape);
  return count;
}

std::string message(const std::string& config, int64_t sequence) {
  try {
    imported(config, sequence);
    return "no error";
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string gpt2(int channels, int layers, int heads) {
  return R"({"model_type":"gpt2","n_embd":)" + std::to_string(channels) + R"(,"n_layer":)" + std::to_string(layers) +
         R"(,"n_head":)" + std::to_string(heads) +
         R"(,"n_positions":1024,"n_inner":null,"vocab_size":50257,"activation_function":"gelu_new"})";
}

struct Llama {
  std::string type = "llama";
  int channels, layers, heads, key_value_heads, inner, vocabulary;
  std::string more = "";
  std::string text() const {
    return R"({"model_type":")" + type + R"(","hidden_act":"silu","hidden_size":)" + std::to_string(channels) +
           R"(,"num_hidden_layers":)" + std::to_string(layers) + R"(,"num_attention_heads":)" + std::to_string(heads) +
           R"(,"num_key_value_heads":)" + std::to_string(key_value_heads) + R"(,"intermediate_size":)" +
           std::to_string(inner) + R"(,"vocab_size":)" + std::to_string(vocabulary) +
           R"(,"max_position_embeddings":131072,"rms_norm_eps":1e-05)" + more + "}";
  }
};

std::string gpt_neox(int channels, int layers, int heads, int vocabulary) {
  return R"({"model_type":"gpt_neox","hidden_act":"gelu","hidden_size":)" + std::to_string(channels) +
         R"(,"num_hidden_layers":)" + std::to_string(layers) + R"(,"num_attention_heads":)" + std::to_string(heads) +
         R"(,"intermediate_size":)" + std::to_string(4 * channels) + R"(,"vocab_size":)" + std::to_string(vocabulary) +
         R"(,"max_position_embeddings":2048,"rotary_pct":0.25})";
}

}  // namespace

// As the models' cards and repositories have them.
TEST_CASE("transformers from config.json have as many parameters as the published models") {
  CHECK(parameters(gpt2(768, 12, 12), 1024) == 124'439'808);
  CHECK(parameters(gpt2(1024, 24, 16), 1024) == 354'823'168);
  CHECK(parameters(gpt2(1280, 36, 20), 1024) == 774'030'080);
  CHECK(parameters(gpt2(1600, 48, 25), 1024) == 1'557'611'200);
  CHECK(parameters(Llama{"llama", 4096, 32, 32, 32, 11008, 32000}.text(), 64) == 6'738'415'616);       // LLaMA 2 7B
  CHECK(parameters(Llama{"llama", 5120, 40, 40, 40, 13824, 32000}.text(), 64) == 13'015'864'320);      // LLaMA 2 13B
  CHECK(parameters(Llama{"llama", 8192, 80, 64, 8, 28672, 32000}.text(), 64) == 68'976'648'192);       // LLaMA 2 70B
  CHECK(parameters(Llama{"llama", 4096, 32, 32, 8, 14336, 128256}.text(), 64) == 8'030'261'248);       // LLaMA 3 8B
  CHECK(parameters(Llama{"llama", 8192, 80, 64, 8, 28672, 128256}.text(), 64) == 70'553'706'496);      // LLaMA 3 70B
  CHECK(parameters(Llama{"llama", 16384, 126, 128, 8, 53248, 128256}.text(), 64) == 405'853'388'800);  // LLaMA 3 405B
  CHECK(parameters(Llama{"mistral", 4096, 32, 32, 8, 14336, 32000, R"(,"sliding_window":4096)"}.text(), 4096) ==
        7'241'732'096);                                                                           // Mistral 7B v0.1
  CHECK(parameters(Llama{"qwen2", 3584, 28, 28, 4, 18944, 152064}.text(), 64) == 7'615'616'512);  // Qwen2 7B
  CHECK(parameters(Llama{"qwen2", 896, 24, 14, 2, 4864, 151936, R"(,"tie_word_embeddings":true)"}.text(), 64) ==
        494'032'768);                                                      // Qwen2 0.5B
  CHECK(parameters(gpt_neox(6144, 44, 64, 50432), 64) == 20'554'567'680);  // GPT-NeoX 20B
  CHECK(parameters(gpt_neox(2048, 24, 16, 50304), 64) == 1'414'647'808);   // Pythia 1.4B
  CHECK(parameters(R"({"model_type":"phi","hidden_act":"gelu_new","hidden_size":2560,"num_hidden_layers":32,
      "num_attention_heads":32,"intermediate_size":10240,"vocab_size":51200,"max_position_embeddings":2048,
      "partial_rotary_factor":0.4})",
                   64) == 2'779'683'840);  // Phi-2
}

TEST_CASE("transformers from config.json: what is not in the graph is a note, or refused") {
  CHECK(imported(gpt2(64, 1, 2), 512).notes ==
        Vector<std::string>{"attn_pdrop is left out: attention has no dropout of its probabilities",
                            "the table of positions has 512 rows, as the sequence; the model's has 1024"});
  const Llama scaled{"llama", 64, 1, 2, 1, 128, 100, R"(,"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3"})"};
  const TransformerGraph found = imported(scaled.text(), 8);
  CHECK(found.notes == Vector<std::string>{"rope_scaling \"llama3\" is left out: rotary positions are not scaled; "
                                           "shapes and work are the same"});
  CHECK(found.graph["operators"][2]["attributes"]["rotary_base"] == 500000);
  CHECK(message(gpt2(64, 1, 2), 2048) == "--sequence: found 2048, the model has 1024 positions");
  CHECK(message(Llama{"mistral", 64, 1, 2, 1, 128, 100, R"(,"sliding_window":16)"}.text(), 32) ==
        "config.json: /sliding_window: attention has no windows: expected at least the sequence, 32");
  CHECK(message(gpt2(769, 1, 12), 8) == "config.json: /n_embd: 769 is not divisible by n_head, 12");
  CHECK(message(Llama{"llama", 4097, 1, 32, 32, 128, 100}.text(), 8) ==
        "config.json: /hidden_size: 4097 is not divisible by num_attention_heads, 32");
  CHECK(message(Llama{"llama", 4097, 1, 32, 32, 128, 100, R"(,"head_dim":128)"}.text(), 8) == "no error");
  CHECK(message(Llama{"llama", 64, 1, 4, 3, 128, 100}.text(), 8) ==
        "config.json: /num_key_value_heads: the 3 key-value heads do not divide num_attention_heads, 4");
  CHECK(message(Llama{"llama", 64, 1, 4, 4, 128, 100, R"(,"head_dim":15)"}.text(), 8) ==
        "config.json: /head_dim: rotary positions turn 15 of the 15 channels of a head, expected an even number up "
        "to 15");
  CHECK(message(Llama{"llama", 60, 1, 4, 4, 128, 100}.text(), 8) ==
        "config.json: /hidden_size: rotary positions turn 15 of the 15 channels of a head, expected an even number up "
        "to 15");
  CHECK(message(Llama{"llama", 64, 10'001, 4, 4, 128, 100}.text(), 8) ==
        "config.json: /num_hidden_layers: found 10001, expected an integer from 1 to 10000");
  CHECK(message(Llama{"deepseek", 64, 2, 4, 4, 128, 100,
                      R"(,"n_routed_experts":4,"num_experts_per_tok":2,"first_k_dense_replace":3)"}
                    .text(),
                8) == "config.json: /first_k_dense_replace: found 3, the model has 2 layers");
  CHECK(message(Llama{"lama", 64, 1, 2, 1, 128, 100}.text(), 32) ==
        "config.json: /model_type: found \"lama\"; did you mean \"llama\"?");
}

}  // namespace ff
