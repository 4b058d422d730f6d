// The command line of `ffsearch import`. For main.cpp alone.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>

#include "common/command_line.h"
#include "search/import/import.h"

namespace ff {

// "NAME=N" into sizes[NAME].
inline void read_size(std::map<std::string, int64_t>& sizes, const std::string& text) {
  const size_t equals = text.rfind('=');
  int64_t size = 0;
  const char* const end = text.data() + text.size();
  if (equals == std::string::npos || equals == 0 || std::from_chars(text.data() + equals + 1, end, size).ptr != end ||
      size < 1 || size > int64_t{1} << 32)
    throw CLI::ValidationError("--size", "found \"" + text + "\", expected NAME=N, such as sequence=128");
  sizes[text.substr(0, equals)] = size;
}

inline void add_import_flags(CLI::App& app, ImportOptions& options) {
  app.add_option("model", options.model,
                 "ONNX file, as torch.onnx.export writes it, or config.json of Hugging Face, or its directory")
      ->required();
  app.add_option("--sequence", options.sequence, "tokens of a sample; of a config.json")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  app.add_option("--batch", options.batch, "batch size: the symbolic dimension, else the first axis of inputs")
      ->required()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  app.add_option("--out", options.out, "graph file to write (ffgraph/1)")->required();
  app.add_option("--weights", options.weights, "safetensors file to write with the parameters, for ffexec --load");
  app.add_option_function<std::string>(
         "--loss", [&options](const std::string&) { options.cross_entropy = true; },
         "loss at each output: cross-entropy; labels are a new input \"label\"")
      ->check(CLI::IsMember({"cross-entropy"}));
  app.add_option("--loss-weights", options.loss_weights,
                 "factors of the losses of the outputs, such as 1,0.4; 0: no loss")
      ->delimiter(',')
      ->check(number_between(0, 1e6, "0 to 1e+06"))
      ->needs("--loss");
  app.add_option_function<Vector<std::string>>(
         "--size",
         [&options](const Vector<std::string>& texts) {
           for (const std::string& text : texts) read_size(options.sizes, text);
         },
         "size of another symbolic dimension, as NAME=N; may repeat")
      ->take_all();
  app.add_option("--like", options.choices.like,
                 "names of what is trained: one a line, or a safetensors file of PyTorch's named_parameters()");
  app.add_option("--trained", options.choices.trained, "initializers that are trained; * matches any characters")
      ->delimiter(',');
  app.add_option("--frozen", options.choices.frozen, "initializers that are not trained; * matches any characters")
      ->delimiter(',');
  // Flags that would have no effect are mistakes.
  app.callback([&app, &options] {
    if (std::filesystem::is_directory(options.model))
      options.model = (std::filesystem::path(options.model) / "config.json").string();
    const bool configuration = is_configuration(options.model);
    if (!configuration && options.sequence > 0)
      throw CLI::ValidationError("--sequence", "is for a config.json; an ONNX file has its sizes");
    for (const char* flag : {"--weights", "--loss", "--loss-weights", "--size", "--like", "--trained", "--frozen"})
      if (configuration && app.count(flag) > 0) throw CLI::ValidationError(flag, "is not for a config.json");
  });
}

}  // namespace ff
