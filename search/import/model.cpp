#include "search/import/model.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/errors.h"

namespace ff::importing {

Constant Constant::of_floats(Shape shape, Vector<float> values) {
  assert(static_cast<int64_t>(values.size()) == volume(shape));
  Constant result;
  result.shape = std::move(shape);
  result.floats = std::make_shared<const Vector<float>>(std::move(values));
  return result;
}

Constant Constant::of_integers(Shape shape, Vector<int64_t> values, ElementType type) {
  assert(static_cast<int64_t>(values.size()) == volume(shape));
  Constant result;
  result.type = type;
  result.shape = std::move(shape);
  result.integers = std::make_shared<const Vector<int64_t>>(std::move(values));
  return result;
}

Origin Origin::of(Vector<int64_t> numbers) {
  if (std::all_of(numbers.begin(), numbers.end(), [](int64_t number) { return number == none; })) return {};
  for (int64_t i = 0; i < static_cast<int64_t>(numbers.size()); ++i)
    if (numbers[i] != numbers[0] + i) return {none, std::make_shared<const Vector<int64_t>>(std::move(numbers))};
  return {numbers[0], nullptr};
}

bool Constant::is_partly_trained() const {
  return origin.list && std::find(origin.list->begin(), origin.list->end(), Origin::none) != origin.list->end();
}

bool Constant::is_parameter() const {
  if (!origin.known() || !computed_from.empty()) return false;
  if (!origin.list) return true;
  Vector<int64_t> numbers = *origin.list;
  std::sort(numbers.begin(), numbers.end());
  return numbers.empty() ||
         (numbers[0] != Origin::none && std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end());
}

bool Constant::has_origin_of(const Constant& other) const {
  if (elements() != other.elements() || !origin.known() || !other.origin.known()) return false;
  if (!origin.list && !other.origin.list) return origin.first == other.origin.first;
  for (int64_t i = 0; i < elements(); ++i)
    if (origin.at(i) != other.origin.at(i)) return false;
  return true;
}

double shortest(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double result = 0;
  return std::from_chars(text, end, result).ec == std::errc() ? result : static_cast<double>(value);
}

double Constant::number() const { return floats ? shortest((*floats)[0]) : at(0); }

double Constant::at(int64_t index) const {
  return type == ElementType::f32 ? (*floats)[index] : static_cast<double>((*integers)[index]);
}

Vector<int64_t> Constant::as_integers() const {
  if (integers) return *integers;
  Vector<int64_t> result;
  for (const float value : *floats) result.push_back(std::abs(value) < 0x1p62f ? static_cast<int64_t>(value) : 0);
  return result;
}

const Constant* Model::constant(const std::string& value) const {
  const auto it = constants.find(value);
  return it == constants.end() ? nullptr : &it->second;
}

std::set<std::string> Model::origins(const Constant& constant) const {
  std::set<std::string> names;
  int64_t begin = 0, end = 0;  // the numbers of the initializer before
  for (int64_t i = 0; i < constant.elements() && constant.origin.known(); ++i) {
    const int64_t number = constant.origin.at(i);
    if (number == Origin::none || (number >= begin && number < end)) continue;
    const auto behind = std::upper_bound(initializers.begin(), initializers.end(), number,
                                         [](int64_t value, const Initializer& each) { return value < each.first; });
    const Initializer& found = *(behind - 1);
    names.insert(found.name);
    begin = found.first;
    end = begin + volume(found.shape);
    if (!constant.origin.list) i = end - constant.origin.first - 1;  // the rest of this initializer
  }
  return names;
}

std::map<std::string, const Node*> Model::producers() const {
  std::map<std::string, const Node*> producers;
  for (const Node& node : nodes)
    for (const std::string& output : node.outputs) producers[output] = &node;
  return producers;
}

void Model::fail(const std::string& message) const { throw InputError(file + ": " + message); }
void Model::fail(const Node& node, const std::string& message) const { fail(node.text() + ": " + message); }

namespace {

template <typename T>
const T* find_attribute(const Model& model, const Node& node, const std::string& name, const char* expected) {
  const auto it = node.attributes.find(name);
  if (it == node.attributes.end()) return nullptr;
  const T* value = std::get_if<T>(&it->second);
  if (!value) model.fail(node, "attribute " + name + " is not " + expected);
  return value;
}

}  // namespace

int64_t Model::integer(const Node& node, const std::string& name, int64_t otherwise) const {
  const int64_t* value = find_attribute<int64_t>(*this, node, name, "an integer");
  return value ? *value : otherwise;
}

double Model::number(const Node& node, const std::string& name, double otherwise) const {
  const double* value = find_attribute<double>(*this, node, name, "a number");
  return value ? *value : otherwise;
}

std::string Model::text(const Node& node, const std::string& name, const std::string& otherwise) const {
  const std::string* value = find_attribute<std::string>(*this, node, name, "a string");
  return value ? *value : otherwise;
}

Vector<int64_t> Model::integers(const Node& node, const std::string& name, const Vector<int64_t>& otherwise) const {
  const Vector<int64_t>* value = find_attribute<Vector<int64_t>>(*this, node, name, "a list of integers");
  return value ? *value : otherwise;
}

Vector<int64_t> Model::integers_or_input(const Node& node, const std::string& name, size_t input,
                                         const Vector<int64_t>& otherwise) const {
  if (!node.has_input(input)) return integers(node, name, otherwise);
  const Constant* value = constant(node.inputs[input]);
  if (!value) fail(node, "its input " + std::to_string(input) + " (" + name + ") is not a constant");
  return value->as_integers();
}

double Model::number_or_input(const Node& node, const std::string& name, size_t input, double otherwise) const {
  if (!node.has_input(input)) return number(node, name, otherwise);
  const Constant* value = constant(node.inputs[input]);
  if (!value || !value->is_scalar())
    fail(node, "its input " + std::to_string(input) + " (" + name + ") is not one constant number");
  return value->number();
}

int Model::axis(const Node& node, int64_t axis, size_t rank) const {
  const int64_t axes = static_cast<int64_t>(rank);
  if (axis < -axes || axis >= axes)
    fail(node, "axis " + std::to_string(axis) + " of a tensor of " + std::to_string(rank) + " axes");
  return static_cast<int>(axis < 0 ? axis + axes : axis);
}

void sort_nodes(Model& model) {
  std::set<std::string> known;
  for (const auto& [name, constant] : model.constants) known.insert(name);
  for (const ModelInput& input : model.inputs)
    if (!known.insert(input.name).second) model.fail("the value \"" + input.name + "\" is given twice");
  std::map<std::string, int> writers;
  for (const int n : model.nodes.indices())
    for (const std::string& output : model.nodes[n].outputs) {
      if (output.empty()) continue;
      if (known.count(output) || !writers.emplace(output, n).second)
        model.fail(model.nodes[n], "writes the value \"" + output + "\", which has another writer");
    }
  Vector<Vector<int>> readers(model.nodes.size());
  Vector<int> waiting(model.nodes.size(), 0);
  const auto expect_known = [&](const std::string& value, const std::string& who) {
    if (!known.count(value) && !writers.count(value))
      model.fail(who + " reads the value \"" + value + "\", which nothing writes");
  };
  for (const int n : model.nodes.indices())
    for (const std::string& input : model.nodes[n].inputs) {
      if (input.empty() || known.count(input)) continue;
      expect_known(input, model.nodes[n].text());
      readers[writers.at(input)].push_back(n);
      ++waiting[n];
    }
  for (const std::string& output : model.outputs) expect_known(output, "the output");
  std::set<int> ready;
  for (const int n : model.nodes.indices())
    if (waiting[n] == 0) ready.insert(n);
  Vector<Node> sorted;
  while (!ready.empty()) {
    const int next = *ready.begin();
    ready.erase(ready.begin());
    for (const int reader : readers[next])
      if (--waiting[reader] == 0) ready.insert(reader);
    sorted.push_back(std::move(model.nodes[next]));
  }
  for (const int n : model.nodes.indices())
    if (waiting[n] > 0) model.fail(model.nodes[n], "is part of a cycle");
  model.nodes = std::move(sorted);
}

void remove_dead_nodes(Model& model) {
  std::set<std::string> needed(model.outputs.begin(), model.outputs.end());
  Vector<Node> kept;
  for (int n = model.nodes.count() - 1; n >= 0; --n) {
    Node& node = model.nodes[n];
    if (std::none_of(node.outputs.begin(), node.outputs.end(),
                     [&](const std::string& output) { return needed.count(output) > 0; }))
      continue;
    needed.insert(node.inputs.begin(), node.inputs.end());
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  model.nodes = std::move(kept);
}

}  // namespace ff::importing
