#include "search/import/command.h"

#include <chrono>

#include "search/import/reader.h"

namespace ff {

CommandResult run_import(const ImportOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  expect_all_writable({options.out, options.weights}, {options.model});
  importing::Model model = importing::read_onnx_file(options.model);
  const ImportedModel imported = import_model(std::move(model), options);
  write_json_file(options.out, imported.graph);
  if (!options.weights.empty()) write_file_atomically(options.weights, imported.weights);
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CommandResult result;
  result.json = {{"nodes", imported.nodes},
                 {"operators", imported.operators},
                 {"parameters", imported.parameters},
                 {"elapsed_s", elapsed_s}};
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f s", elapsed_s);
  result.text = std::to_string(imported.nodes) + " ONNX nodes became " + std::to_string(imported.operators) +
                " operators with " + std::to_string(imported.parameters) + " parameters in " + seconds + "\n" +
                options.out + ": the graph, of " + std::to_string(options.batch) + " samples\n";
  if (!options.weights.empty()) result.text += options.weights + ": the parameters, for ffexec --load\n";
  if (!imported.has_loss)
    result.text +=
        "the graph has no loss yet, which training needs: add one by hand, or import with --loss "
        "cross-entropy\n";
  return result;
}

}  // namespace ff
