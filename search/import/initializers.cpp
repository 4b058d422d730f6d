#include "search/import/initializers.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "common/errors.h"
#include "common/name_patterns.h"
#include "common/safetensors.h"
#include "search/import/recognition.h"

namespace ff::importing {
namespace {

using Fate = Initializer::Fate;

// One in a list of names that do not all fit into a message.
constexpr size_t most_named = 20;

std::string list_of(const Vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), most_named); ++i) text += (i > 0 ? ", \"" : "\"") + names[i] + "\"";
  if (names.size() > most_named) text += " and " + std::to_string(names.size() - most_named) + " more";
  return text;
}

// The names of a safetensors file, or the lines of a text.
std::set<std::string> names_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw InputError(path + ": cannot open: " + std::strerror(errno));
  const auto size = static_cast<int64_t>(file.tellg());
  std::set<std::string> names;
  std::string beginning(9, '\0');
  file.seekg(0);
  if (size >= 9 && file.read(beginning.data(), 9) && beginning[8] == '{') {
    std::string header(safetensors_header_length(beginning, static_cast<uint64_t>(size), path), '\0');
    file.seekg(8);
    if (!file.read(header.data(), static_cast<std::streamsize>(header.size())))
      throw InputError(path + ": cannot read: " + std::strerror(errno));
    const JsonPlace root = parse_json(header, path);
    root.expect_object();
    for (const auto& [name, place] : root.members())
      if (name != "__metadata__") names.insert(name);
  } else {
    file.clear();
    file.seekg(0);
    for (std::string line; std::getline(file, line);) {
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (line.find('\0') != std::string::npos)
        throw InputError(path + ": is neither a safetensors file nor a text with one name a line");
      if (!line.empty()) names.insert(line);
    }
  }
  if (names.empty()) throw InputError(path + ": has no names of parameters");
  return names;
}

bool fits(const std::string& name, const std::string& pattern) {
  return name == pattern || (is_wildcard(pattern) && matches_wildcard(name, pattern));
}

bool fits_one_of(const std::string& name, const Vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& each) { return fits(name, each); });
}

bool is_trainable(const Constant& constant) { return !constant.parameter.empty(); }

// Could PyTorch have called a parameter so, and not its exporter a value?
bool is_module_name(const std::string& name) {
  return name.find_first_of("/:") == std::string::npos && name.find_first_not_of("0123456789") != std::string::npos;
}

// Outside the training mode PyTorch's exporter keeps one of several initializers with equal values (biases that begin
// as zeros), and writes the others as its copies. They are parameters of their own. What other programs write as a copy
// is the same variable, unless the file that --like names says otherwise.
std::map<std::string, std::string> separate_copies(Model& model, const std::set<std::string>& like) {
  std::map<std::string, std::string> twins;
  Vector<Node> kept;
  for (Node& node : model.nodes) {
    const Constant* source = node.op == "Identity" && node.has_input(0) ? model.constant(node.inputs[0]) : nullptr;
    const std::string& copy = node.outputs[0];
    if (!source || !is_trainable(*source) || !is_module_name(copy) ||
        (model.producer != "pytorch" && !like.count(copy))) {
      kept.push_back(std::move(node));
      continue;
    }
    twins[copy] = node.inputs[0];
    Constant separate = *source;
    separate.parameter = copy;
    model.constants[copy] = std::move(separate);
  }
  model.nodes = std::move(kept);
  return twins;
}

void expect_matches(const Model& model, const Vector<std::string>& patterns, const std::set<std::string>& like) {
  Vector<std::string> names(like.begin(), like.end());
  for (const Initializer& each : model.initializers) names.push_back(each.name);
  for (const std::string& pattern : patterns)
    if (std::none_of(names.begin(), names.end(), [&](const std::string& name) { return fits(name, pattern); })) {
      // As the graph calls it: "cls.weight" of the initializer "cls".
      const std::string stem = pattern.substr(0, pattern.rfind('.'));
      const bool known = std::find(names.begin(), names.end(), stem) != names.end();
      model.fail("no initializer is named \"" + pattern + "\"" +
                 (known ? "; did you mean \"" + stem + "\"?" : suggestion(pattern, names)));
    }
}

// Parameters that PyTorch has and the file has not may be in it under another name, as part of something else.
void expect_parameters(const Model& model, const Choices& choices, const std::set<std::string>& like) {
  Vector<std::string> missing;
  for (const std::string& name : like)
    if (std::none_of(model.initializers.begin(), model.initializers.end(),
                     [&](const Initializer& each) { return each.name == name; }) &&
        !fits_one_of(name, choices.frozen))
      missing.push_back(name);
  // Where all that the file has bears a name of the model's, the others are not used; a name that the exporter has made
  // up may be one of them, changed.
  const bool renamed = std::any_of(model.initializers.begin(), model.initializers.end(), [&](const Initializer& each) {
    return !is_module_name(each.name) && each.shape.size() > 0;
  });
  if (missing.empty() || !renamed) return;
  model.fail(
      "lacks " + std::to_string(missing.size()) + " parameters that " + choices.like + " has: " + list_of(missing) +
      "; an export with training=TrainingMode.TRAINING and do_constant_folding=False has them, but for those that "
      "the model does not use, which --frozen may name");
}

void choose(const Model& model, Initializer& each, const Choices& choices, const std::set<std::string>& like) {
  const bool trained = fits_one_of(each.name, choices.trained), frozen = fits_one_of(each.name, choices.frozen);
  if (trained && frozen) model.fail("the initializer " + each.text() + " is in --trained and in --frozen");
  each.chosen = trained || frozen || !choices.like.empty();
  if (!each.chosen) return;
  each.fate = trained || (!frozen && like.count(each.name)) ? Fate::trained : Fate::constant;
  if (each.fate == Fate::constant) each.reason = frozen ? "--frozen" : "not in " + choices.like;
}

// Inputs of a node that are a layer's weights.
bool is_weight(const std::string& op, size_t input) {
  static const std::map<std::string, std::set<size_t>> weights = {{"Conv", {1, 2}},
                                                                  {"Gemm", {1, 2}},
                                                                  {"MatMul", {0, 1}},
                                                                  {"Linear", {1, 2}},
                                                                  {"Gather", {0}},
                                                                  {"LSTM", {1, 2, 3, 7}},
                                                                  {"GRU", {1, 2, 3}},
                                                                  {"RNN", {1, 2, 3}},
                                                                  {"ConvTranspose", {1, 2}},
                                                                  {"InstanceNormalization", {1, 2}},
                                                                  {"GroupNormalization", {1, 2}},
                                                                  {"BatchNormalization", {1, 2}},
                                                                  {"LayerNormalization", {1, 2}},
                                                                  {"PRelu", {1}},
                                                                  {"RMSNormalization", {1}}};
  const auto it = weights.find(op);
  return it != weights.end() && it->second.count(input) > 0;
}

bool is_statistics(const std::string& op, size_t input) {
  return op == "BatchNormalization" && (input == 3 || input == 4);
}

// How an initializer is read once everything that can be computed is.
struct Readers {
  bool weight = false, looked_up = false, statistics = false, other = false;
  std::string statistics_node{};
};

std::map<std::string, Readers> uses_in(const Model& model) {
  std::map<std::string, Readers> uses;
  for (const Node& node : model.nodes)
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Constant* constant = model.constant(node.inputs[i]);
      if (!constant) continue;
      for (const std::string& name : model.origins(*constant)) {
        Readers& use = uses[name];
        if (is_weight(node.op, i)) use.weight = true;
        else if (constant->looked_up) use.looked_up = true;
        else if (!is_statistics(node.op, i)) use.other = true;
        else if (!use.statistics) {
          use.statistics = true;
          use.statistics_node = node.text();
        }
      }
      for (const std::string& name : constant->computed_from) uses[name].other = true;
    }
  return uses;
}

const char* const without_gradient = "no gradient reaches them";

}  // namespace

void number_initializers(Model& model, const Choices& choices) {
  const std::set<std::string> like = choices.like.empty() ? std::set<std::string>{} : names_in(choices.like);
  const auto twins = separate_copies(model, like);
  std::map<std::string, std::string> readers;
  for (const Node& node : model.nodes)
    for (const std::string& input : node.inputs) readers.emplace(input, node.text());
  int64_t first = 0;
  for (auto& [name, constant] : model.constants) {
    if (!is_trainable(constant)) continue;
    constant.origin = {std::make_shared<const Progressions>(Progressions::consecutive(first, constant.elements()))};
    Initializer each{name, constant.shape, first};
    if (const auto reader = readers.find(name); reader != readers.end()) each.reader = reader->second;
    if (const auto twin = twins.find(name); twin != twins.end()) each.twin = twin->second;
    choose(model, each, choices, like);
    first += constant.elements();
    model.initializers.push_back(std::move(each));
  }
  expect_matches(model, choices.trained, {});
  expect_matches(model, choices.frozen, like);
  expect_parameters(model, choices, like);
}

bool decide_initializers(Model& model, const Model& prepared, const Choices& choices) {
  const std::map<std::string, Readers> uses = uses_in(prepared);
  bool more = false;
  Vector<const Initializer*> open;
  for (Initializer& each : model.initializers) {
    const auto it = uses.find(each.name);
    const Readers use = it == uses.end() ? Readers{} : it->second;
    if (each.fate == Fate::trained && use.statistics)
      model.fail("the initializer " + each.text() + " is trained by choice, but " + use.statistics_node +
                 " keeps its running statistics there; --like is to have the names of named_parameters(), not of "
                 "state_dict()");
    if (each.fate == Fate::trained && !use.weight && !fits_one_of(each.name, choices.trained) &&
        is_mask(model, each.name))
      model.fail("the initializer " + each.text() + " is in " + choices.like +
                 ", but has the numbers of a mask; --like is to have the names of named_parameters(), not of "
                 "state_dict(); --trained trains it all the same");
    if (each.fate != Fate::open) continue;
    const std::string recognised = use.weight ? "" : recognised_buffer(model, each.name);
    const auto constant = [&](const std::string& reason) {
      each.fate = Fate::constant;
      each.reason = reason;
    };
    if (use.weight || (use.looked_up && recognised.empty())) each.fate = Fate::trained;
    else if (it == uses.end()) constant(recognised.empty() ? without_gradient : recognised);
    else if (use.statistics && !use.other) constant("running statistics");
    else if (!use.looked_up && !recognised.empty()) {
      constant(recognised);
      more = true;
    } else open.push_back(&each);
  }
  if (open.empty()) return more;
  std::string text = "does not say whether " + std::to_string(open.size()) +
                     (open.size() == 1 ? " initializer is trained; no layer reads it as a weight:"
                                       : " initializers are trained; no layer reads them as a weight:");
  for (size_t i = 0; i < std::min(open.size(), most_named); ++i)
    text += "\n  " + open[i]->text() + ", first read by " + open[i]->reader;
  if (open.size() > most_named) text += "\n  and " + std::to_string(open.size() - most_named) + " more";
  model.fail(text +
             "\n--trained NAME,... or --frozen NAME,... decides (* matches any characters), or --like FILE with the "
             "names of PyTorch's parameters");
}

void freeze_initializers(Model& model) {
  for (const Initializer& each : model.initializers) {
    if (each.fate != Fate::constant) continue;
    Constant& constant = model.constants.at(each.name);
    constant.parameter.clear();
    constant.origin = {};
    constant.frozen = {each.name};
  }
}

void expect_no_hidden_ties(const Model& model) {
  const auto is_computed = [](const Initializer& each) { return each.name.rfind("onnx::", 0) == 0; };
  const auto are_equal = [&](const Initializer& a, const Initializer& b) {
    if (a.shape != Shape{b.shape[1], b.shape[0]}) return false;
    const Vector<float>&x = *model.constant(a.name)->floats, &y = *model.constant(b.name)->floats;
    for (int64_t row = 0; row < a.shape[0]; ++row)
      for (int64_t column = 0; column < a.shape[1]; ++column)
        if (x[row * a.shape[1] + column] != y[column * a.shape[0] + row]) return false;
    return std::any_of(x.begin(), x.end(), [&](float value) { return value != x[0]; });
  };
  for (const Initializer& computed : model.initializers)
    for (const Initializer& other : model.initializers)
      if (is_computed(computed) && !is_computed(other) && !computed.chosen && computed.fate == Fate::trained &&
          other.fate == Fate::trained && computed.shape.size() == 2 && other.shape.size() == 2 &&
          are_equal(computed, other))
        model.fail("the initializer " + computed.text() + " is " + other.text() +
                   " transposed: PyTorch's exporter has made two of one parameter, which would be trained apart. "
                   "Export with do_constant_folding=False; if they are two, --trained '" +
                   computed.name + "'");
}

namespace {

// Of initializers: the first parameter that has a part of it.
std::map<std::string, std::string> places_of(const Model& model, const Builder& builder) {
  std::map<std::string, std::string> places;
  for (const auto& [name, parameter] : builder.parameters())
    if (parameter.trained)
      for (const std::string& origin : model.origins(parameter.constant)) places.emplace(origin, name);
  return places;
}

bool is_some_number_trained_twice(const Model& model, const Builder& builder) {
  std::map<const Initializer*, Progressions> trained;
  for (const auto& [name, parameter] : builder.parameters()) {
    if (!parameter.trained) continue;
    for (const Progressions::Run& run : parameter.constant.origin.numbers->runs())
      model.for_each_initializer(run, [&](const Initializer& each, const Progressions::Run& part) {
        trained[&each].add(part.first, part.step, part.count);
      });
  }
  return std::any_of(trained.begin(), trained.end(), [](const auto& each) { return each.second.repeats(); });
}

}  // namespace

std::optional<TrainedApart> trained_apart(const Model& model, const Builder& builder) {
  if (model.initializers.empty() || !is_some_number_trained_twice(model, builder)) return std::nullopt;
  const Initializer& last = model.initializers.back();
  std::vector<bool> taken(static_cast<size_t>(last.first + volume(last.shape)), false);
  for (const auto& [name, parameter] : builder.parameters()) {
    const Constant& constant = parameter.constant;
    if (!parameter.trained) continue;
    for (int64_t i = 0; i < constant.elements(); ++i) {
      const auto number = static_cast<size_t>(constant.origin.at(i));
      if (!taken[number]) {
        taken[number] = true;
        continue;
      }
      const Initializer& found = model.initializer_of(constant.origin.at(i));
      const std::string place = places_of(model, builder).at(found.name);
      return TrainedApart{
          found.name,
          "the initializer " + found.text() + ", first read by " + found.reader + ", would be trained apart " +
              (place == name ? "in several places of \"" + name + "\"" : "in \"" + place + "\" and \"" + name + "\"")};
    }
  }
  return std::nullopt;
}

void settle_initializers(Model& model, const Builder& builder) {
  const std::map<std::string, std::string> places = places_of(model, builder);
  for (Initializer& each : model.initializers) {
    if (each.fate != Fate::trained || places.count(each.name)) continue;
    const auto sum = builder.summed.find(each.name);
    if (sum == builder.summed.end()) each.fate = Fate::constant;
    each.reason = sum == builder.summed.end() ? without_gradient : sum->second;
  }
}

}  // namespace ff::importing
