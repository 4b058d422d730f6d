// ffsearch import: an ONNX model becomes an operator graph of ours, and its initializers a safetensors file that
// `ffexec --load` continues from.
//
//   read_onnx_file -> number_initializers (initializers.h) -> bind_inputs, infer_shapes_and_fold (analysis.h)
//     -> run_passes (passes.h) -> decide_initializers; if it finds more constants, the same again
//     -> a converter a node (convert.h) -> losses -> graph_passes (graph_passes.h) -> settle_initializers -> files
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/json_file.h"
#include "search/import/initializers.h"

namespace ff {

struct ImportOptions {
  std::string model;  // ONNX, or a transformer's config.json (transformer_config.h)
  int64_t batch = 0;
  int64_t sequence = 0;      // of a config.json: tokens of a sample; 0: not given
  std::string out, weights;  // files to write; weights "": none
  bool cross_entropy = false;
  Vector<double> loss_weights;           // by output; others have 1
  std::map<std::string, int64_t> sizes;  // of symbolic dimensions, by name
  importing::Choices choices;            // of what is trained
};

// Is it a transformer's configuration? Else an ONNX file.
inline bool is_configuration(const std::string& path) {
  constexpr std::string_view ending = ".json";
  return path.size() >= ending.size() && path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
}

struct ImportedModel {
  Json graph;  // ffgraph/1
  // What the safetensors file of its weights has.
  std::map<std::string, std::string> metadata;
  Vector<std::pair<std::string, importing::Constant>> weights;
  int64_t nodes = 0;                      // of the ONNX graph
  int64_t operators = 0, parameters = 0;  // parameters: numbers that are trained
  bool has_loss = false;
  Vector<importing::Initializer> initializers;  // of floats, and what has become of them
  Vector<std::string> notes;                    // what is otherwise than in the file (notes.h)
};

// Throws InputError for what the importer does not understand.
ImportedModel import_model(importing::Model model, const ImportOptions& options);
// Throws MachineError.
void write_weights(const std::string& path, const ImportedModel& model);

}  // namespace ff
