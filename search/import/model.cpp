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
  result.floats = Floats(std::move(values));
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

Origin Origin::of(Progressions numbers) {
  const auto& runs = numbers.runs();
  if (std::all_of(runs.begin(), runs.end(), [](const auto& run) { return run.first == none; })) return {};
  return {std::make_shared<const Progressions>(std::move(numbers))};
}

bool Constant::is_partly_trained() const { return origin.known() && origin.numbers->has_none(); }

bool Constant::is_parameter() const {
  return origin.known() && computed_from.empty() && !origin.numbers->has_none() && !origin.numbers->repeats();
}

bool Constant::has_origin_of(const Constant& other) const {
  return origin.known() && other.origin.known() && *origin.numbers == *other.origin.numbers;
}

bool Constant::is_same_as(const Constant& other) const {
  return has_origin_of(other) && (!is_partly_trained() || *floats == *other.floats);
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
  if (!constant.origin.known()) return names;
  const Initializer* before = nullptr;
  for (const Progressions::Run& run : constant.origin.numbers->runs())
    for_each_initializer(run, [&](const Initializer& each, const Progressions::Run&) {
      if (&each != before) names.insert(each.name);
      before = &each;
    });
  return names;
}

const Initializer& Model::initializer_of(int64_t number) const {
  return *(std::upper_bound(initializers.begin(), initializers.end(), number,
                            [](int64_t value, const Initializer& each) { return value < each.first; }) -
           1);
}

void Model::for_each_initializer(const Progressions::Run& run,
                                 const std::function<void(const Initializer&, const Progressions::Run&)>& call) const {
  if (run.first == Origin::none) return;
  for (int64_t done = 0; done < run.count;) {
    const int64_t number = run.first + done * run.step;
    const Initializer& each = initializer_of(number);
    int64_t count = run.count - done;
    if (run.step > 0) count = std::min(count, (each.first + volume(each.shape) - 1 - number) / run.step + 1);
    if (run.step < 0) count = std::min(count, (number - each.first) / -run.step + 1);
    call(each, {run.begin + done, number, run.step, count});
    done += count;
  }
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
