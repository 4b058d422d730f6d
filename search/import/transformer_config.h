// ffsearch import config.json: the operator graph of a transformer from the configuration file that Hugging Face's
// models have, without weights. The graph trains a language model (embeddings, layers, output, cross-entropy), or a
// classifier of images (ViT).
#pragma once

#include <string>

#include "common/json_file.h"
#include "common/vector.h"

namespace ff {

struct TransformerGraph {
  Json graph;  // ffgraph/1
  int64_t layers = 0;
  Vector<std::string> notes;  // what of the configuration is not in the graph
};

// The values of model_type that are known.
Vector<std::string> transformer_families();

// `batch` samples of `sequence` tokens; 0: images. Throws InputError for a family or a setting that the operators
// cannot express, and for sequences that are longer than the model's positions. A setting that changes values alone and
// neither shapes nor work (dropout of attention's probabilities, scaled rotary frequencies) is left out with a note.
TransformerGraph import_transformer(const JsonPlace& config, int64_t batch, int64_t sequence);

}  // namespace ff
