#include "search/import/builder.h"

#include <algorithm>

namespace ff::importing {

std::string Builder::unique_name(const std::string& hint) {
  std::string name;
  for (const char c : hint) name += c == '/' || c == ':' ? '.' : c;
  if (name.empty()) name = "operator";
  if (names_.insert(name).second) return name;
  for (int& number = numbers_.try_emplace(name, 1).first->second;;)
    if (const std::string next = name + "_" + std::to_string(++number); names_.insert(next).second) {
      hints_[next] = name;
      return next;
    }
}

void Builder::take_freed_names() {
  std::set<std::string> taken;
  for (const Json& input : inputs_) taken.insert(input["name"].get<std::string>());
  for (const Operator& op : operators_) taken.insert(op.name);
  std::map<std::string, std::string> renamed;
  for (const Operator& op : operators_)
    if (const auto hint = hints_.find(op.name);
        !op.parameters.empty() && hint != hints_.end() && taken.insert(hint->second).second)
      renamed[op.name] = hint->second;
  if (renamed.empty()) return;
  // "NAME", or "NAME:" and "NAME." with what follows: outputs and parameters.
  const auto rename = [&](std::string& text, char separator) {
    const size_t end = separator ? text.rfind(separator) : std::string::npos;
    const auto found = renamed.find(text.substr(0, end));
    if (found != renamed.end()) text = found->second + (end == std::string::npos ? "" : text.substr(end));
  };
  for (Operator& op : operators_) {
    rename(op.name, 0);
    rename(op.group, 0);
    for (Vector<std::string>* tensors : {&op.inputs, &op.outputs})
      for (std::string& tensor : *tensors) rename(tensor, tensor.find(':') == std::string::npos ? 0 : ':');
  }
  for (std::string& tensor : outputs) rename(tensor, tensor.find(':') == std::string::npos ? 0 : ':');
  for (auto& [summand, parameter] : summed) rename(parameter, '.');
  std::map<std::string, Parameter> parameters;
  for (auto& [name, parameter] : parameters_) {
    std::string now = name;
    rename(now, '.');
    parameters.emplace(now, std::move(parameter));
  }
  parameters_ = std::move(parameters);
}

void Builder::add_input(const std::string& name, const Shape& shape, DataType type) {
  Json sizes = Json::array({"batch"});
  for (size_t axis = 1; axis < shape.size(); ++axis) sizes.push_back(shape[axis]);
  inputs_.push_back({{"name", name}, {"shape", sizes}, {"dtype", to_string(type)}});
  shapes_[name] = {shape, type};
}

Vector<Value> Builder::add(const Request& request) {
  Operator op{request.name, request.type, request.inputs, request.attributes, request.group, {},
              {},           {},           request.origin};
  Json json = {{"name", op.name}, {"type", op.type}, {"inputs", op.inputs}, {"attributes", op.attributes}};
  const JsonPlace place(std::make_shared<const Json>(std::move(json)),
                        file_ + ": " + op.origin + " as " + op.type + " \"" + op.name + "\"");
  OperatorRequest checked{op.type, {}, place, place.find("attributes")};
  for (const std::string& input : op.inputs) {
    const auto& [shape, type] = shapes_.at(input);
    checked.inputs.push_back({"", shape, type});
  }
  const auto definition = make_operator(checked);
  op.parameters = definition->parameters();
  Vector<Value> values;
  for (const TensorSpec& output : definition->outputs()) {
    const bool first = op.outputs.empty();
    op.outputs.push_back(first ? op.name : op.name + ":" + output.name);
    op.shapes.push_back(output.shape);
    shapes_[op.outputs.back()] = {output.shape, output.type};
    values.push_back(Value::plain(op.outputs.back(), output.shape, output.type));
  }
  operators_.push_back(std::move(op));
  return values;
}

std::string Builder::reshaped(const std::string& tensor, const Shape& shape, const std::string& hint,
                              const std::string& origin) {
  const Shape& have = shapes_.at(tensor).first;
  if (have == shape) return tensor;
  std::string& known = arranged_[tensor + " " + to_string(shape)];
  if (!known.empty()) return known;
  const Shape sample(shape.begin() + 1, shape.end());
  if (sample.size() == 1 && have.size() > 2)
    known = add_one({unique_name(hint + ".flatten"), "flatten", {tensor}, Json::object(), "", origin}).tensor;
  else known = add_one({unique_name(hint + ".reshape"), "reshape", {tensor}, {{"shape", sample}}, "", origin}).tensor;
  return known;
}

// A transposition of more axes than there are: runs that are not where they should be go to the end, one after the
// other, each by a transposition of [batch, what is before it, it, what is after it].
std::string Builder::arrange_in_steps(const Value& value, const Vector<Axis>& physical, const Vector<Axis>& runs,
                                      const std::string& hint, const std::string& origin) {
  Value current = value;
  Vector<int> now;  // where each atom of the value is
  for (const int atom : value.atoms.indices()) now.push_back(atom);
  size_t kept = 1;
  while (kept + 1 < runs.size() && runs[kept][0] < runs[kept + 1][0]) ++kept;
  for (size_t run = kept + 1; run < runs.size(); ++run) {
    const int first = now[runs[run][0]], behind = first + runs[run].count();
    Vector<Axis> step{{0}};
    Axis parts[3];  // before, after, the run
    for (int atom = 1; atom < current.atoms.count(); ++atom)
      parts[atom < first ? 0 : atom < behind ? 2 : 1].push_back(atom);
    for (const Axis& part : parts)
      if (!part.empty()) step.push_back(part);
    const std::string tensor = arrange(current, step, hint, origin);
    Shape atoms;
    Vector<int> renumbered(current.atoms.size(), 0);
    for (const Axis& part : step)
      for (const int atom : part) {
        renumbered[atom] = atoms.count();
        atoms.push_back(current.atoms[atom]);
      }
    for (int& atom : now) atom = renumbered[atom];
    current.tensor = tensor;
    current.physical = shape(tensor);
    current.atoms = atoms;
  }
  Vector<Axis> wanted = physical;
  for (Axis& axis : wanted)
    for (int& atom : axis) atom = now[atom];
  return arrange(current, wanted, hint, origin);
}

std::string Builder::arrange(const Value& value, const Vector<Axis>& physical, const std::string& hint,
                             const std::string& origin) {
  Axis order;
  Shape shape;
  for (const Axis& axis : physical) {
    order.insert(order.end(), axis.begin(), axis.end());
    shape.push_back(value.size(axis));
  }
  if (physical.empty() || physical[0] != Axis{0})
    throw InputError(file_ + ": " + origin + ": needs the samples on another axis than the first");
  if (shape.size() > 4)
    throw InputError(file_ + ": " + origin + ": needs a tensor of shape " + to_string(shape) +
                     ", expected at most 4 axes");
  if (std::is_sorted(order.begin(), order.end())) return reshaped(value.tensor, shape, hint, origin);
  // Runs of atoms that stay together are one axis of the transposition.
  Vector<Axis> runs;
  for (const int atom : order) {
    const bool together = !runs.empty() && runs.back().back() != 0 && runs.back().back() + 1 == atom;
    if (together) runs.back().push_back(atom);
    else runs.push_back({atom});
  }
  if (runs.size() > 4) return arrange_in_steps(value, physical, runs, hint, origin);
  Vector<Axis> before = runs;
  std::sort(before.begin(), before.end());
  Shape blocks;
  Vector<int> axes;
  for (const Axis& run : before) blocks.push_back(value.size(run));
  for (size_t i = 1; i < runs.size(); ++i)
    axes.push_back(static_cast<int>(std::find(before.begin(), before.end(), runs[i]) - before.begin()));
  const std::string source = reshaped(value.tensor, blocks, hint, origin);
  std::string& known = arranged_[source + " axes " + to_string(Shape(axes.begin(), axes.end()))];
  if (known.empty())
    known = add_one({unique_name(hint + ".transpose"), "transpose", {source}, {{"axes", axes}}, "", origin}).tensor;
  return reshaped(known, shape, hint, origin);
}

Json Builder::graph(const std::string& name) const {
  Json operators = Json::array();
  for (const Operator& op : operators_) {
    Json json = {{"name", op.name}, {"type", op.type}, {"inputs", op.inputs}};
    if (!op.attributes.empty()) json["attributes"] = op.attributes;
    if (!op.group.empty() && op.group != op.name) json["parameters"] = op.group;
    operators.push_back(std::move(json));
  }
  return {{"format", "ffgraph/1"},
          {"name", name},
          {"batch_size", batch_},
          {"inputs", inputs_},
          {"operators", std::move(operators)}};
}

}  // namespace ff::importing
