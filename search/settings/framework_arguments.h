// Arguments of Megatron-LM and the TOML file of torchtitan as settings (optimizer/parallelism.h): the way back of
// framework_settings.h.
#pragma once

#include <optional>
#include <string>

#include "common/graph.h"
#include "search/optimizer/parallelism.h"

namespace ff {

struct FrameworkArguments {
  Parallelism parallelism;  // with the framework's conventions
  int64_t batch = 0;        // samples of an iteration; 0: not said
  std::optional<Precision> precision = {};
  std::string optimizer = {};        // "": not said
  double momentum = 0;               // of SGD
  Vector<std::string> ignored = {};  // flags or keys without a meaning for the prediction
  Vector<std::string> notes = {};    // what is predicted otherwise than the framework runs it
};

// As on a command line of pretrain_gpt.py, on so many devices. Flags of the model are compared with the graph. Throws
// InputError for flags that are not known, and for those that settings cannot say.
FrameworkArguments parse_megatron_arguments(const std::string& text, const Graph& graph, int devices);

// Sections [parallelism], [training], [activation_checkpoint] and [optimizer] of a file; others are ignored.
FrameworkArguments load_torchtitan_file(const std::string& path, const Graph& graph, int devices);

}  // namespace ff
