#include "search/import/notes.h"

#include <algorithm>

namespace ff::importing {
namespace {

constexpr int64_t first_with_training_flag = 12;  // operator set whose Dropout has an input for it

// Batch normalizations that the file computes with their running statistics.
bool keeps_statistics(const Model& model, const Node& node) {
  if (model.opset < 7) return model.integer(node, "is_test", 0) != 0;
  return model.opset < 14 ? node.outputs.size() == 1 : model.integer(node, "training_mode", 0) == 0;
}

double ratio_of(const Model& model, const Node& node) { return model.number_or_input(node, "ratio", 1, 0.5); }

}  // namespace

bool drops(const Model& model, const Node& node) {
  if (ratio_of(model, node) <= 0) return false;
  if (model.opset < 7) return model.integer(node, "is_test", 0) == 0;
  const Constant* training = node.has_input(2) ? model.constant(node.inputs[2]) : nullptr;
  return training && training->is_scalar() && training->at(0) != 0;
}

Vector<std::string> notes_on(const Model& model, bool cross_entropy) {
  int64_t normalizations = 0, kept = 0, dropouts = 0, left_out = 0;
  Vector<std::string> notes, probabilities;
  for (const Node& node : model.nodes) {
    if (node.op == "BatchNormalization") {
      ++normalizations;
      kept += keeps_statistics(model, node) ? 1 : 0;
    } else if (node.op == "Dropout" && ratio_of(model, node) > 0) {
      ++dropouts;
      left_out += drops(model, node) ? 0 : 1;
    } else if (node.op == "Softmax") {
      for (const std::string& output : model.outputs)
        if (output == node.outputs[0]) probabilities.push_back(output);
    }
  }
  const auto of = [](int64_t count, int64_t all, const char* what) {
    return std::to_string(count) + " of " + std::to_string(all) + " " + what;
  };
  if (kept > 0)
    notes.push_back(of(kept, normalizations,
                       "batch normalizations of the file use their running statistics; here they are trained with "
                       "the statistics of the batch"));
  if (left_out > 0)
    notes.push_back(of(left_out, dropouts, "dropouts of the file are left out: ") +
                    (model.opset < first_with_training_flag
                         ? "operator set " + std::to_string(model.opset) + " cannot say that they drop anything"
                         : "they are not in training mode"));
  for (const std::string& output : probabilities)
    if (cross_entropy)
      notes.push_back("the output \"" + output +
                      "\" is a softmax; the cross entropy takes its numbers as scores, and computes a softmax of them");
  return notes;
}

}  // namespace ff::importing
