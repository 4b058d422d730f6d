// Small transformers with gated layers, from the config files of models of that kind; batches of 16 sequences of 2,048.
#pragma once

#include "tests/support/graph_of_config.h"

namespace ff {

// Two layers, of 4 x 1024^2 and 3 x 1024 x 2048 weights.
inline Graph gated_layers() {
  return graph_of_config(
      R"({"model_type":"llama","hidden_size":1024,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":64,)"
      R"("intermediate_size":2048,"max_position_embeddings":2048,"rms_norm_eps":1e-05})",
      16, 2048);
}

// The same with four experts in each layer, two of them for a token.
inline Graph layers_of_experts() {
  return graph_of_config(
      R"({"model_type":"mixtral","hidden_size":1024,"num_hidden_layers":2,"num_attention_heads":4,)"
      R"("num_key_value_heads":4,"intermediate_size":2048,"vocab_size":64,"max_position_embeddings":2048,)"
      R"("rms_norm_eps":1e-05,"num_local_experts":4,"num_experts_per_tok":2})",
      16, 2048);
}

}  // namespace ff
