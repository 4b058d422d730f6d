#include "search/optimizer/annotations.h"

#include <algorithm>
#include <numeric>

#include "common/known_names.h"
#include "common/strategy_configurations.h"
#include "search/optimizer/tensor_axes.h"

namespace ff {
namespace {

// One annotation as it holds for one operator.
struct Statement {
  Degrees degrees;                          // 0: nothing said
  std::optional<Vector<DeviceId>> devices;  // of every part
  bool by_name = true;                      // else by "*"
};

// What an annotation is about: an operator, and if it is about one of its tensors, which dimensions split that.
struct Target {
  OperatorId op;
  std::string name;          // as the file calls it
  Vector<int> dimensions;    // of the operator: all, or those that split the tensor
  Vector<std::string> axes;  // of a tensor: [dimension]: the name of the axis that it splits
  bool by_name = true;
};

class Parser {
 public:
  Parser(const Graph& graph, const Topology& topology)
      : graph_(graph), topology_(topology), operators_("operator", names_of(graph.operators)),
        tensors_("tensor", names_of(graph.tensors)), parameters_("parameter", names_of(graph.parameters)),
        merged_(graph.operators.size()), degree_places_(graph.operators.size()), device_places_(graph.operators.size()),
        named_(graph.operators.size(), false) {}

  // Annotations by name first: where one by "*" disagrees with them, it does not hold.
  Vector<std::optional<Annotation>> parse(const Vector<JsonPlace>& items) {
    for (const bool by_name : {true, false})
      for (const JsonPlace& item : items)
        for (const Target& target : targets(item))
          if (target.by_name == by_name) merge(target, statement(item, target), item);
    return std::move(merged_);
  }

 private:
  template <typename Named>
  static Vector<std::string> names_of(const Vector<Named>& all) {
    Vector<std::string> names;
    for (const Named& each : all) names.push_back(each.name);
    return names;
  }

  const OperatorDefinition& definition(OperatorId op) const { return *graph_.operators[op].definition; }

  Vector<Target> targets(const JsonPlace& item) const {
    item.allow_keys(
        {"operators", "tensors", "parameters", "split", "replicate", "shard", "degrees", "devices", "description"},
        "key of an annotation");
    const Vector<std::string> about{"operators", "tensors", "parameters"};
    const auto found = std::find_if(about.begin(), about.end(), [&](const auto& key) { return item.find(key); });
    const auto count = std::count_if(about.begin(), about.end(), [&](const auto& key) { return item.find(key); });
    if (count != 1) item.fail("expected one of \"operators\", \"tensors\" and \"parameters\"");
    Vector<Target> result;
    const JsonPlace names = item.at(*found);
    Vector<JsonPlace> patterns;
    if (names.value().is_string()) patterns.push_back(names);
    else patterns = names.items();
    if (patterns.empty()) names.fail("is empty, expected a name or a pattern");
    for (const JsonPlace& pattern : patterns) {
      if (*found == "operators") add_operators(pattern, result);
      else if (*found == "tensors") add_tensors(pattern, result);
      else add_parameters(pattern, result);
    }
    return result;
  }

  void add_operators(const JsonPlace& pattern, Vector<Target>& result) const {
    for (const KnownNames::Match& match : operators_.matches(pattern)) {
      Target target{match.number, operators_.names()[match.number], {}, {}, match.by_name};
      for (const int d : definition(target.op).dimensions().indices()) target.dimensions.push_back(d);
      result.push_back(std::move(target));
    }
  }

  void add_tensors(const JsonPlace& pattern, Vector<Target>& result) const {
    for (const KnownNames::Match& match : tensors_.matches(pattern)) {
      const Tensor& tensor = graph_.tensors[match.number];
      if (tensor.producer < 0) {
        if (!match.by_name) continue;
        pattern.fail("\"" + tensor.name +
                     "\" is an input of the graph, which is present wherever it is needed; annotate the operators "
                     "that read it");
      }
      const OperatorDefinition& producer = definition(tensor.producer);
      Target target{tensor.producer, tensor.name, {}, {}, match.by_name};
      const Vector<std::string> names = axis_names(tensor.shape.size());
      for (const int d : producer.dimensions().indices()) {
        const int axis = axis_of_output(producer, tensor.output, d);
        target.axes.push_back(axis >= 0 ? names[axis] : "");
        if (axis >= 0) target.dimensions.push_back(d);
      }
      result.push_back(std::move(target));
    }
  }

  void add_parameters(const JsonPlace& pattern, Vector<Target>& result) const {
    for (const KnownNames::Match& match : parameters_.matches(pattern))
      for (const auto& [op, which] : graph_.parameters[match.number].uses) {
        Target target{op, parameters_.names()[match.number], {}, {}, match.by_name};
        for (const int d : definition(op).dimensions().indices())
          if (axis_of_parameter(definition(op), which, d) >= 0) target.dimensions.push_back(d);
        result.push_back(std::move(target));
      }
  }

  Statement statement(const JsonPlace& item, const Target& target) const {
    const bool whole = item.find("degrees") || item.find("devices");
    const int kinds = (item.find("split") ? 1 : 0) + (item.find("replicate") ? 1 : 0) + (item.find("shard") ? 1 : 0) +
                      (whole ? 1 : 0);
    if (kinds != 1) item.fail("expected one of \"split\", \"replicate\", \"shard\", and \"degrees\" with \"devices\"");
    if (item.find("parameters") && !item.find("replicate"))
      item.fail(
          "a parameter can be replicated; how it is split follows from the operators that have it: annotate "
          "these");
    if (item.find("tensors") && whole)
      item.fail("\"degrees\" and \"devices\" are an operator's: name it in \"operators\"");
    if (const auto split = item.find("split")) return parse_split(*split, target);
    if (const auto replicate = item.find("replicate")) return parse_replicate(*replicate, target);
    if (const auto shard = item.find("shard")) return parse_shard(*shard, target);
    return parse_configuration(item, target);
  }

  Statement nothing_said(const Target& target) const {
    return {Degrees(definition(target.op).dimensions().size(), 0), std::nullopt, target.by_name};
  }

  Statement parse_split(const JsonPlace& place, const Target& target) const {
    Statement statement = nothing_said(target);
    const auto members = place.members();
    if (members.empty()) place.fail("is empty, expected a dimension and its degree");
    for (const auto& [name, degree] : members)
      statement.degrees[dimension_named(degree, name, target)] =
          checked_degree(degree, degree.as_integer(1, INT32_MAX), name, target);
    return statement;
  }

  Statement parse_replicate(const JsonPlace& place, const Target& target) const {
    if (!place.as_bool()) place.fail("found false, expected true");
    Statement statement = nothing_said(target);
    for (const int d : target.dimensions) statement.degrees[d] = 1;
    return statement;
  }

  // As many parts along one dimension as devices, and nothing else split.
  Statement parse_shard(const JsonPlace& place, const Target& target) const {
    place.allow_keys({"dimension", "devices"}, "key of a shard");
    const JsonPlace name = place.at("dimension"), devices = place.at("devices");
    Statement statement = nothing_said(target);
    statement.devices = parse_devices(devices, topology_);
    if (statement.devices->empty()) devices.fail("is empty, expected at least one device");
    std::fill(statement.degrees.begin(), statement.degrees.end(), 1);
    statement.degrees[dimension_named(name, name.as_string(), target)] =
        checked_degree(devices, statement.devices->count(), name.as_string(), target);
    return statement;
  }

  Statement parse_configuration(const JsonPlace& item, const Target& target) const {
    const JsonPlace devices = item.at("devices");
    Statement statement{parse_degrees(item.at("degrees"), graph_.operators[target.op]),
                        parse_devices(devices, topology_), target.by_name};
    if (const int parts = parts_of(statement.degrees); statement.devices->count() != parts)
      devices.fail("has " + std::to_string(statement.devices->count()) + " devices, expected " + std::to_string(parts) +
                   ": one for each task of " + target.name);
    return statement;
  }

  // A dimension of the operator, or of a tensor also the axis that one of them splits.
  int dimension_named(const JsonPlace& place, const std::string& name, const Target& target) const {
    const OperatorDefinition& op = definition(target.op);
    Vector<std::string> known;
    for (const int d : target.dimensions) {
      if (op.dimensions()[d].name == name) return d;
      known.push_back(op.dimensions()[d].name);
    }
    if (!target.axes.empty())
      for (const int d : target.dimensions)
        if (target.axes[d] == name) return d;
    const std::string operator_text = graph_.operators[target.op].name + " (" + op.type() + ")";
    if (known.empty()) place.fail("no dimension of " + operator_text + " splits " + target.name);
    place.fail((target.axes.empty() ? "unknown parallelizable dimension of " + operator_text
                                    : "no dimension of " + operator_text + " that splits its output") +
               ": \"" + name + "\"" + suggestion(name, known));
  }

  int checked_degree(const JsonPlace& place, int64_t degree, const std::string& name, const Target& target) const {
    const OperatorDefinition& op = definition(target.op);
    const ParallelDimension& dimension = op.dimensions()[dimension_named(place, name, target)];
    if (degree > dimension.size)
      place.fail("found " + std::to_string(degree) + ", but dimension \"" + dimension.name + "\" of " +
                 graph_.operators[target.op].name + " has size " + std::to_string(dimension.size));
    return static_cast<int>(degree);
  }

  void merge(const Target& target, const Statement& statement, const JsonPlace& item) {
    const OperatorId op = target.op;
    std::optional<Annotation>& known = merged_[op];
    if (!known) {
      known = Annotation{Degrees(statement.degrees.size(), 0), std::nullopt, item.pointer()};
      degree_places_[op].resize(statement.degrees.size());
    }
    // In the order of the file: the later one is where the contradiction shows.
    if (const std::string problem = contradiction(op, statement); !problem.empty()) {
      if (!statement.by_name && named_[op]) return;
      item.fail(problem);
    }
    named_[op] = named_[op] || statement.by_name;
    for (const int d : statement.degrees.indices())
      if (statement.degrees[d] > 0 && known->degrees[d] == 0) {
        known->degrees[d] = statement.degrees[d];
        degree_places_[op][d] = item.pointer();
      }
    if (statement.devices && !known->devices) {
      known->devices = statement.devices;
      device_places_[op] = item.pointer();
    }
  }

  // "" where there is none.
  std::string contradiction(OperatorId op, const Statement& statement) const {
    const Annotation& known = *merged_[op];
    const std::string& name = graph_.operators[op].name;
    for (const int d : statement.degrees.indices())
      if (statement.degrees[d] > 0 && known.degrees[d] > 0 && statement.degrees[d] != known.degrees[d])
        return "splits \"" + definition(op).dimensions()[d].name + "\" of " + name + " " +
               std::to_string(statement.degrees[d]) + (statement.degrees[d] == 1 ? " way" : " ways") + ", but " +
               degree_places_[op][d] + " splits it " + std::to_string(known.degrees[d]) +
               (known.degrees[d] == 1 ? " way" : " ways");
    if (statement.devices && known.devices && *statement.devices != *known.devices)
      return "puts " + name + " on devices " + devices_to_json(*statement.devices).dump() + ", but " +
             device_places_[op] + " puts it on devices " + devices_to_json(*known.devices).dump();
    return "";
  }

  const Graph& graph_;
  const Topology& topology_;
  const KnownNames operators_, tensors_, parameters_;
  Vector<std::optional<Annotation>> merged_;   // by OperatorId
  Vector<Vector<std::string>> degree_places_;  // [operator][dimension]: who said it
  Vector<std::string> device_places_;
  Vector<bool> named_;  // an annotation by name holds for this operator
};

}  // namespace

bool Annotation::allows(const Configuration& configuration) const {
  for (const int d : degrees.indices())
    if (degrees[d] > 0 && degrees[d] != configuration.degrees[d]) return false;
  return !devices || *devices == configuration.devices;
}

bool Annotation::decides() const {
  return std::any_of(degrees.begin(), degrees.end(), [](int degree) { return degree > 1; }) ||
         std::none_of(degrees.begin(), degrees.end(), [](int degree) { return degree == 0; });
}

Annotations load_annotations(const std::string& path, const Graph& graph, const Topology& topology) {
  return parse_annotations(read_json_file(path), graph, topology);
}

Annotations parse_annotations(const JsonPlace& place, const Graph& graph, const Topology& topology) {
  expect_format(place, "ffannotations/1");
  place.allow_keys({"$schema", "format", "description", "annotations"}, "key of annotations");
  if (const auto description = place.find("description")) description->as_string();
  return {place.file(), Parser(graph, topology).parse(place.at("annotations").items())};
}

Configuration completed(const Annotation& annotation, const OperatorDefinition& definition, int devices) {
  Configuration configuration{annotation.degrees, {}};
  int room = devices, sample = -1;
  for (const int d : annotation.degrees.indices()) {
    if (annotation.degrees[d] > 0) {
      room /= annotation.degrees[d];
      continue;
    }
    configuration.degrees[d] = 1;
    if (sample < 0 && definition.dimensions()[d].kind == DimensionKind::sample) sample = d;
  }
  if (sample >= 0)
    for (int degree = 1; degree <= room && degree <= definition.dimensions()[sample].size; ++degree)
      if (devices % degree == 0) configuration.degrees[sample] = degree;
  if (annotation.devices) configuration.devices = *annotation.devices;
  else
    for (int part = 0, parts = parts_of(configuration.degrees); part < parts; ++part)
      configuration.devices.push_back(part % devices);
  return configuration;
}

Strategy keep_annotations(Strategy strategy, const Annotations* annotations, const Graph& graph,
                          const Topology& topology) {
  if (annotations)
    for (const OperatorId op : strategy.indices())
      if (!annotations->allow(op, strategy[op]))
        strategy[op] = completed(*annotations->find(op), *graph.operators[op].definition, topology.devices.count());
  return strategy;
}

}  // namespace ff
