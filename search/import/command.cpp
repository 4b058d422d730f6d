#include "search/import/command.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "common/graph.h"
#include "search/import/reader.h"
#include "search/import/transformer_config.h"

namespace ff {

namespace {

using importing::Initializer;
using Fate = Initializer::Fate;

bool is_summand(const Initializer& each) { return each.fate == Fate::trained && !each.reason.empty(); }

// "a [3], b [4] and 5 more".
std::string text_of(const Vector<const Initializer*>& list) {
  constexpr size_t most_named = 3;
  std::string text;
  for (size_t i = 0; i < std::min(list.size(), most_named); ++i)
    text += (i > 0 ? ", " : "") + list[i]->name + " " + to_string(list[i]->shape);
  if (list.size() > most_named) text += " and " + std::to_string(list.size() - most_named) + " more";
  return text;
}

// What has become of the float initializers, but for those that are trained under their names.
std::string text_of_initializers(const Vector<Initializer>& initializers) {
  int64_t trained = 0, constants = 0;
  std::map<std::string, Vector<const Initializer*>> by_reason, by_sum;
  Vector<const Initializer*> separated;
  for (const Initializer& each : initializers) {
    ++(each.fate == Fate::constant ? constants : trained);
    if (each.fate == Fate::constant) by_reason[each.reason].push_back(&each);
    if (is_summand(each)) by_sum[each.reason].push_back(&each);
    if (each.fate == Fate::trained && !each.twin.empty()) separated.push_back(&each);
  }
  if (initializers.empty()) return "";
  std::string text =
      "initializers of floats: " + std::to_string(trained) + " trained, " + std::to_string(constants) + " constant\n";
  for (const auto& [reason, list] : by_reason) text += "  constant, " + reason + ": " + text_of(list) + "\n";
  for (const auto& [sum, list] : by_sum) text += "  trained as a summand of " + sum + ": " + text_of(list) + "\n";
  if (!separated.empty())
    text += "  merged by the exporter, as their values are equal, and separate again: " + text_of(separated) + "\n";
  return text;
}

Json json_of(const Vector<Initializer>& initializers) {
  Json trained = Json::array(), constants = Json::array();
  for (const Initializer& each : initializers) {
    Json json = {{"name", each.name}, {"shape", each.shape}};
    if (each.fate == Fate::constant) json["reason"] = each.reason;
    if (is_summand(each)) json["summand_of"] = each.reason;
    if (!each.twin.empty()) json["merged_with"] = each.twin;
    (each.fate == Fate::constant ? constants : trained).push_back(std::move(json));
  }
  return {{"trained", std::move(trained)}, {"constant", std::move(constants)}};
}

}  // namespace

namespace {

CommandResult import_configuration(const ImportOptions& options) {
  expect_all_writable({options.out}, {options.model});
  TransformerGraph made = import_transformer(read_json_file(options.model), options.batch, options.sequence);
  const Graph graph = parse_graph(parse_json(made.graph.dump(), options.model + ", as a graph"));
  int64_t parameters = 0;
  for (const Parameter& parameter : graph.parameters)
    if (parameter.spec.trained) parameters += volume(parameter.spec.shape);
  write_json_file(options.out, made.graph);
  CommandResult result;
  result.json = {{"operators", graph.operators.size()}, {"layers", made.layers}, {"parameters", parameters}};
  result.text = graph.name + ": " + std::to_string(made.layers) + " layers became " +
                std::to_string(graph.operators.size()) + " operators with " + std::to_string(parameters) +
                " parameters\n" + options.out + ": the graph, of " + std::to_string(options.batch) + " samples" +
                (options.sequence > 0 ? " of " + std::to_string(options.sequence) + " tokens" : "") +
                ", with the loss\n";
  result.notes = std::move(made.notes);
  return result;
}

}  // namespace

CommandResult run_import(const ImportOptions& options) {
  if (is_configuration(options.model)) return import_configuration(options);
  const auto start = std::chrono::steady_clock::now();
  expect_all_writable({options.out, options.weights}, {options.model});
  ImportedModel imported = import_model(importing::read_onnx_file(options.model), options);
  write_json_file(options.out, imported.graph);
  if (!options.weights.empty()) write_weights(options.weights, imported);
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CommandResult result;
  result.json = {{"nodes", imported.nodes},
                 {"operators", imported.operators},
                 {"parameters", imported.parameters},
                 {"initializers", json_of(imported.initializers)},
                 {"elapsed_s", elapsed_s}};
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f s", elapsed_s);
  result.text = std::to_string(imported.nodes) + " ONNX nodes became " + std::to_string(imported.operators) +
                " operators with " + std::to_string(imported.parameters) + " parameters in " + seconds + "\n" +
                options.out + ": the graph, of " + std::to_string(options.batch) + " samples\n";
  if (!options.weights.empty()) result.text += options.weights + ": the parameters, for ffexec --load\n";
  result.text += text_of_initializers(imported.initializers);
  result.notes = std::move(imported.notes);
  if (!imported.has_loss)
    result.text +=
        "the graph has no loss yet, which training needs: add one by hand, import with --loss cross-entropy, or export "
        "the model with its loss\n";
  return result;
}

}  // namespace ff
