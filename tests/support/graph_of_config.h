// The graph of a Hugging Face config file, given as text.
#pragma once

#include <string>

#include "common/graph.h"
#include "common/json_file.h"
#include "search/import/transformer_config.h"

namespace ff {

inline Graph graph_of_config(const std::string& config, int64_t samples, int64_t length) {
  const TransformerGraph imported = import_transformer(parse_json(config, "config.json"), samples, length);
  return parse_graph(parse_json(imported.graph.dump(), "graph"), samples);
}

}  // namespace ff
