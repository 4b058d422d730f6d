#include "search/import/losses.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <limits>
#include <set>

namespace ff::importing {
namespace {

constexpr int64_t not_ignored = std::numeric_limits<int64_t>::min();

// -x[label], or the cross entropy of scores x: of a node SoftmaxCrossEntropyLoss or NegativeLogLikelihoodLoss.
struct LabelLoss {
  std::string scores, labels;
  bool of_scores = true;  // false: of log-probabilities, which are not known to be such of any scores
  bool soft = false;      // the labels are probabilities of all classes
  int64_t ignored = not_ignored;
  std::string reduction;
};

const Node* producer_of(const Model& model, const std::string& value) {
  for (const Node& node : model.nodes)
    for (const std::string& output : node.outputs)
      if (output == value) return &node;
  return nullptr;
}

// x of log(softmax(x)) over the second axis, or "".
std::string scores_of_log_softmax(const Model& model, const std::string& value) {
  const Node* log = producer_of(model, value);
  if (!log) return "";
  const Node* softmax = log->op == "LogSoftmax" ? log : log->op == "Log" ? producer_of(model, log->inputs[0]) : nullptr;
  if (!softmax || (softmax->op != "LogSoftmax" && softmax->op != "Softmax")) return "";
  const auto shape = model.shapes.find(softmax->inputs[0]);
  if (shape == model.shapes.end()) return "";
  const int axis =
      model.axis(*softmax, model.integer(*softmax, "axis", model.opset < 13 ? 1 : -1), shape->second.size());
  if (axis != 1 || (model.opset < 13 && shape->second.size() != 2)) return "";
  return softmax->inputs[0];
}

LabelLoss label_loss(const Model& model, const Node& node) {
  LabelLoss loss;
  if (!node.has_input(0) || !node.has_input(1)) model.fail(node, "lacks scores or labels");
  if (node.has_input(2)) model.fail(node, "has weights of classes, which are not understood");
  loss.scores = node.inputs[0];
  loss.labels = node.inputs[1];
  loss.ignored = model.integer(node, "ignore_index", not_ignored);
  loss.reduction = model.text(node, "reduction", "mean");
  if (loss.reduction != "mean" && loss.reduction != "sum" && loss.reduction != "none")
    model.fail(node, "has the reduction \"" + loss.reduction + "\"");
  const auto scores = model.shapes.find(loss.scores), labels = model.shapes.find(loss.labels);
  if (scores == model.shapes.end() || labels == model.shapes.end())
    model.fail(node, "has scores or labels that do not depend on the samples");
  const auto type = model.types.find(loss.labels);
  loss.soft = type != model.types.end() && type->second == ElementType::f32;
  Shape expected = scores->second;
  if (!loss.soft && expected.size() > 1) expected.erase(expected.begin() + 1);
  if (scores->second.size() < 2 || labels->second != expected)
    model.fail(
        node, "has scores of shape " + to_string(scores->second) + " and labels of shape " + to_string(labels->second));
  if (node.op == "NegativeLogLikelihoodLoss") {
    const std::string before = scores_of_log_softmax(model, loss.scores);
    loss.of_scores = !before.empty() && !loss.soft;
    if (loss.of_scores) loss.scores = before;
  }
  if ((loss.soft || !loss.of_scores) && loss.ignored >= 0)
    model.fail(node, "ignores a label, which is understood of scores and labels that are numbers of classes");
  return loss;
}

// The loss of each row, from what is computed for each class: along the last axis, as older operator sets need it.
std::string loss_of_rows(Lowering& l, const LabelLoss& loss) {
  const Shape shape = l.shape(loss.scores);
  Vector<int64_t> order;
  for (const int axis : shape.indices())
    if (axis != 1) order.push_back(axis);
  order.push_back(1);
  const int64_t last = shape.count() - 1;
  const std::string scores = l.transpose(loss.scores, order);
  const std::string log = loss.of_scores ? l.emit("LogSoftmax", {scores}, {{"axis", last}}) : scores;
  const auto one_hot = [&] {
    const std::string classes = l.add_constant(Constant::of_integers({}, {shape[1]})),
                      values = l.add_constant(Constant::of_floats({2}, {0, 1}));
    return l.emit("OneHot", {loss.labels, classes, values}, {{"axis", last}});
  };
  const std::string labels = loss.soft ? l.transpose(loss.labels, order) : one_hot();
  return l.emit("Neg", {l.emit("ReduceSum", {l.emit("Mul", {log, labels})},
                               {{"axes", Vector<int64_t>{last}}, {"keepdims", int64_t{0}}})});
}

bool is_one_number(const Model& model, const std::string& value) {
  const auto shape = model.shapes.find(value);
  return shape != model.shapes.end() && volume(shape->second) == 1;
}

const Constant* fixed_number(const Model& model, const std::string& value) {
  const Constant* constant = model.constant(value);
  return constant && constant->is_scalar() && constant->is_fixed() ? constant : nullptr;
}

// Takes one output apart.
class LossTerms {
 public:
  LossTerms(Model& model, const std::string& output)
      : model_(model), place_{"", "output", {}, {output}}, rows_(model, place_) {
    open_.push_back({output, 1});
    constexpr int most = 1 << 16;  // sums of sums of the same value are many
    for (int count = 0; !open_.empty(); ++count) {
      if (count == most) model.fail("the loss \"" + output + "\" is a sum of too many terms");
      const Term term = open_.front();
      open_.pop_front();
      if (term.weight != 0) take_apart(term);
    }
    add_offset();
  }

  // The nodes whose outputs take the place of the model's.
  Vector<Node> nodes() const {
    Vector<Node> all = rows_.nodes;
    all.insert(all.end(), losses_.begin(), losses_.end());
    return all;
  }
  Vector<std::string> outputs() const {
    Vector<std::string> names;
    for (const Node& node : losses_) names.push_back(node.outputs[0]);
    return names;
  }

 private:
  // weight times the mean over all elements of value
  struct Term {
    std::string value;
    double weight;
  };

  void take_apart(const Term& term) {
    const Node* node = producer_of(model_, term.value);
    if (const Constant* number = fixed_number(model_, term.value)) {
      offset_ += term.weight * number->number();
    } else if (!node || !follow(*node, term)) {
      add("MeanLoss", {term.value}, term.weight);
    }
  }

  // Goes on with what the node reads. False: its value is what the mean is of.
  bool follow(const Node& node, const Term& term) {
    static const std::set<std::string> same = {"Identity", "Squeeze",   "Unsqueeze", "Reshape",
                                               "Flatten",  "Transpose", "ReduceMean"};
    const std::string& op = node.op;
    const auto go_on = [&](const std::string& value, double weight) {
      if (model_.constant(value) && !fixed_number(model_, value)) return false;
      open_.push_back({value, weight});
      return true;
    };
    const auto elements = [&](const std::string& value) {
      return static_cast<double>(volume(model_.shapes.at(value)));
    };
    if (node.inputs.empty() || (!model_.shapes.count(node.inputs[0]) && !model_.constant(node.inputs[0]))) return false;
    if (same.count(op)) return go_on(node.inputs[0], term.weight);
    if (op == "Neg") return go_on(node.inputs[0], -term.weight);
    if (op == "Cast") {
      const auto type = model_.types.find(node.inputs[0]);
      return type != model_.types.end() && type->second == ElementType::f32 && go_on(node.inputs[0], term.weight);
    }
    if (op == "ReduceSum" && model_.shapes.count(node.inputs[0]))
      return go_on(node.inputs[0], term.weight * elements(node.inputs[0]) / elements(term.value));
    if (op == "Mul" || op == "Div") return follow_factor(node, term);
    if (op == "Add" || op == "Sub" || op == "Sum" || op == "Mean") return follow_sum(node, term);
    if (op == "Concat") {  // of losses that have been stacked
      for (const std::string& input : node.inputs)
        if (!is_one_number(model_, input)) return false;
      for (const std::string& input : node.inputs) open_.push_back({input, term.weight / node.inputs.count()});
      return true;
    }
    if (op == "SoftmaxCrossEntropyLoss" || op == "NegativeLogLikelihoodLoss") {
      if (term.value != node.outputs[0]) return false;
      add_label_loss(label_loss(model_, node), term.weight);
      return true;
    }
    return false;
  }

  bool follow_factor(const Node& node, const Term& term) {
    const Constant *first = fixed_number(model_, node.inputs[0]), *second = fixed_number(model_, node.inputs[1]);
    if (node.op == "Div") {
      if (!second || second->at(0) == 0) return false;
      open_.push_back({node.inputs[0], term.weight / second->number()});
    } else if (second || first) {
      open_.push_back({node.inputs[second ? 0 : 1], term.weight * (second ? second : first)->number()});
    }
    return second || (first && node.op == "Mul");
  }

  bool follow_sum(const Node& node, const Term& term) {
    const bool one = is_one_number(model_, term.value);
    const auto number = [&](size_t i) { return fixed_number(model_, node.inputs[i]) != nullptr; };
    if (!one && !(node.inputs.size() == 2 && (number(0) || number(1)))) return false;
    for (const int i : node.inputs.indices()) {
      const double sign = node.op == "Sub" && i == 1 ? -1 : 1;
      open_.push_back({node.inputs[i], sign * term.weight / (node.op == "Mean" ? node.inputs.count() : 1)});
    }
    return true;
  }

  void add_label_loss(const LabelLoss& loss, double weight) {
    const Shape labels = model_.shapes.at(loss.labels);
    double rows = static_cast<double>(volume(labels));
    if (loss.soft) rows /= static_cast<double>(labels[1]);
    const double factor = loss.reduction == "sum" ? rows : 1;
    if (loss.soft || !loss.of_scores) return add("MeanLoss", {loss_of_rows(rows_, loss)}, weight * factor);
    if (weight < 0) model_.fail("the loss \"" + place_.outputs[0] + "\" has a cross entropy with a factor below zero");
    add("CrossEntropyLoss", {loss.scores, loss.labels}, weight * factor);
    if (loss.ignored == not_ignored) return;
    losses_.back().attributes["ignored_label"] = loss.ignored;
    losses_.back().attributes["mean_over"] = std::string(loss.reduction == "mean" ? "counted" : "all");
  }

  void add(const std::string& op, const Vector<std::string>& inputs, double weight) {
    const std::string& output = place_.outputs[0];
    const std::string name = std::isalpha(static_cast<unsigned char>(output[0])) ? output : "loss";
    losses_.push_back(
        {name, op, inputs, {place_.outputs[0] + "#loss" + std::to_string(losses_.size())}, {{"weight", weight}}});
    model_.shapes[losses_.back().outputs[0]] = {};
    model_.types[losses_.back().outputs[0]] = ElementType::f32;
  }

  // A constant summand of the loss is one of all elements of a term.
  void add_offset() {
    if (offset_ == 0) return;
    for (Node& loss : losses_) {
      if (loss.op != "MeanLoss") continue;
      loss.inputs[0] =
          rows_.emit("Add", {loss.inputs[0], rows_.number(offset_ / std::get<double>(loss.attributes["weight"]))});
      return;
    }
    model_.fail("the loss \"" + place_.outputs[0] + "\" has a constant summand, which is understood of means alone");
  }

  Model& model_;
  const Node place_;
  Lowering rows_;  // nodes that terms need
  std::deque<Term> open_;
  Vector<Node> losses_;
  double offset_ = 0;
};

}  // namespace

bool find_losses(Model& model) {
  Vector<std::string> losses;
  for (const std::string& output : model.outputs) {
    const auto shape = model.shapes.find(output);
    if (shape != model.shapes.end() && shape->second.empty() && !model.constant(output)) losses.push_back(output);
  }
  if (losses.empty()) return false;
  model.outputs.clear();
  for (const std::string& output : losses) {
    const LossTerms terms(model, output);
    for (const Node& node : terms.nodes()) model.nodes.push_back(node);
    for (const std::string& each : terms.outputs()) model.outputs.push_back(each);
  }
  remove_dead_nodes(model);
  return true;
}

// Elsewhere than in a loss: what each row has.
bool lower_label_loss(Lowering& l) {
  const LabelLoss loss = label_loss(l.model, l.node);
  if (loss.reduction != "none")
    l.fail("is understood as a loss, with factors and as a summand, but the model goes on computing with it");
  if (loss.ignored >= 0) l.fail("ignores a label, which is understood only of a mean or a sum over the batch");
  l.give(0, loss_of_rows(l, loss));
  return true;
}

void convert_mean_loss(Conversion& c, const Node& node) {
  Value x = c.value(node, 0);
  if (x.type != DataType::f32) c.fail(node, "is a loss of integers");
  if (x.physical.size() > 4) {
    Axis others;
    for (int atom = 1; atom < x.atoms.count(); ++atom) others.push_back(atom);
    x = c.arranged(node, x, {{0}, others});
  }
  const double weight = c.model.number(node, "weight", 1);
  c.add(node, "mean_loss", {x.tensor}, weight == 1 ? Json::object() : Json{{"weight", weight}});
}

void convert_cross_entropy_loss(Conversion& c, const Node& node) {
  Value scores = c.value(node, 0), labels = c.value(node, 1);
  if (labels.type != DataType::i32) c.fail(node, "has labels that are no integers");
  const auto place_of_samples = [](const Axis& axis) { return std::find(axis.begin(), axis.end(), 0) - axis.begin(); };
  for (int axis = 0; axis < labels.axes.count(); ++axis) {
    const int other = axis == 0 ? 0 : axis + 1;
    if (!refine(scores, other, labels, axis) ||
        place_of_samples(scores.axes[other]) != place_of_samples(labels.axes[axis]))
      c.fail(node, "has scores and labels whose axes are made up differently");
  }
  const auto rows = [](const Value& value, int but) {
    Axis others;
    for (const int axis : value.axes.indices())
      for (const int atom : value.axes[axis])
        if (axis != but && atom != 0) others.push_back(atom);
    return others.empty() ? Vector<Axis>{{0}} : Vector<Axis>{{0}, others};
  };
  Vector<Axis> physical = rows(scores, 1);
  physical.push_back(scores.axes[1]);
  if (place_of_samples(physical.back()) < physical.back().count())
    c.fail(node, "has its samples on the axis of the classes");
  Json attributes = Json::object();
  if (const double weight = c.model.number(node, "weight", 1); weight != 1) attributes["weight"] = weight;
  if (node.attributes.count("ignored_label")) {
    attributes["ignored_label"] = c.model.integer(node, "ignored_label", 0);
    if (c.model.text(node, "mean_over", "counted") != "counted") attributes["mean_over"] = "all";
  }
  const std::string logits = c.arranged(node, scores, physical).tensor;
  c.add(node, "softmax_cross_entropy", {logits, c.arranged(node, labels, rows(labels, -1)).tensor}, attributes);
}

// Rows of a table that is the identity, or has two other numbers.
void convert_one_hot(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  const Constant &depth = c.required_constant(node, 1, "the depth"),
                 &numbers = c.required_constant(node, 2, "the values");
  constexpr int64_t most = 1 << 12;
  const int64_t classes = depth.is_scalar() ? depth.as_integers()[0] : 0;
  if (x.type != DataType::i32) c.fail(node, "is of numbers, not of indices");
  if (classes < 1 || classes > most || numbers.elements() != 2)
    c.fail(node, "has " + std::to_string(classes) + " classes, expected up to " + std::to_string(most));
  Vector<float> table(static_cast<size_t>(classes * classes), static_cast<float>(numbers.at(0)));
  for (int64_t i = 0; i < classes; ++i) table[i * classes + i] = static_cast<float>(numbers.at(1));
  Axis others;
  for (int atom = 1; atom < x.atoms.count(); ++atom) others.push_back(atom);
  Value result = others.empty() ? c.arranged(node, x, {{0}}) : c.arranged(node, x, {{0}, others});
  result.tensor = c.add_with_parameters(node, "embedding", {result.tensor},
                                        {{"vocabulary", classes}, {"channels", classes}, {"trained", false}},
                                        {{"weight", Constant::of_floats({classes, classes}, std::move(table)), false}})
                      .tensor;
  result.physical = c.builder.shape(result.tensor);
  result.type = DataType::f32;
  const int axis = c.model.axis(node, c.model.integer(node, "axis", -1), x.axes.size() + 1);
  result.axes.insert(result.axes.begin() + axis, Axis{result.atoms.count()});
  result.atoms.push_back(classes);
  c.set(node, 0, result);
}

void skip_log_softmax(Model& model) {
  const auto producers = model.producers();
  for (std::string& output : model.outputs)
    if (const auto it = producers.find(output);
        it != producers.end() && it->second->op == "LogSoftmax" && it->second->has_input(0)) {
      const Node& node = *it->second;
      const auto shape = model.shapes.find(node.inputs[0]);
      const int rank = shape == model.shapes.end() ? 0 : shape->second.count();
      const int axis =
          rank ? model.axis(node, model.integer(node, "axis", model.opset < 13 ? 1 : -1), shape->second.size()) : -1;
      if (axis == (rank >= 4 ? 1 : rank - 1)) output = node.inputs[0];
    }
  remove_dead_nodes(model);
}

void add_losses(const Model& model, Conversion& conversion, const Vector<double>& weights) {
  if (weights.size() > model.outputs.size())
    model.fail("has " + std::to_string(model.outputs.size()) + " outputs, but " + std::to_string(weights.size()) +
               " weights of losses are given");
  std::map<Shape, std::string> labels;
  for (const int i : model.outputs.indices()) {
    const std::string& output = model.outputs[i];
    const double weight = i < weights.count() ? weights[i] : 1;
    const auto it = conversion.values.find(output);
    if (it == conversion.values.end()) model.fail("the output \"" + output + "\" does not depend on the samples");
    if (weight == 0) continue;
    if (it->second.axes.empty())
      model.fail("the output \"" + output + "\" is a loss already: import it without --loss");
    const Value& scores = it->second;
    const Node place{"output " + output, "loss", {}, {output}};
    if (scores.type != DataType::f32 || scores.axes.size() < 2)
      model.fail("the output \"" + output + "\" has shape " + to_string(scores.shape()) +
                 ", expected scores of classes");
    // Positions as the model's output has them, however it lies: labels are in that order.
    const int classes = scores.axes.size() >= 4 ? 1 : scores.axes.count() - 1;
    Vector<Axis> physical{{0}, {}, scores.axes[classes]};
    for (const int axis : scores.axes.indices())
      for (const int atom : scores.axes[axis])
        if (axis != classes && atom != 0) physical[1].push_back(atom);
    if (std::find(physical[2].begin(), physical[2].end(), 0) != physical[2].end())
      model.fail("the output \"" + output + "\" has its samples on axis " + std::to_string(classes) +
                 ", expected classes there");
    if (physical[1].empty()) physical.erase(physical.begin() + 1);
    const Value rows = conversion.arranged(place, scores, physical);
    const Shape shape(rows.physical.begin(), rows.physical.end() - 1);
    std::string& label = labels[shape];
    if (label.empty()) {
      label = conversion.builder.unique_name("label");
      conversion.builder.add_input(label, shape, DataType::i32);
    }
    Json attributes = Json::object();
    if (weight != 1) attributes["weight"] = weight;
    conversion.builder.add({conversion.builder.unique_name("loss"),
                            "softmax_cross_entropy",
                            {rows.tensor, label},
                            attributes,
                            "",
                            "output \"" + output + "\""});
  }
}

}  // namespace ff::importing
