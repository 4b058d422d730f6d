#include "common/graph.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

namespace ff {
namespace {

struct PendingOperator {
  std::string name;
  JsonPlace place;
  Vector<std::string> inputs;
};

class GraphParser {
 public:
  GraphParser(const JsonPlace& place, int64_t batch_size, DataType activation_type) : place_(place) {
    graph_.activation_type = activation_type;
    expect_format(place, "ffgraph/1");
    place.allow_keys({"$schema", "format", "name", "description", "batch_size", "inputs", "operators", "optimizer"},
                     "key of a graph");
    if (const auto optimizer = place.find("optimizer")) graph_.optimizer = parse_optimizer(*optimizer);
    graph_.name = place.at("name").as_string();
    constexpr int64_t largest = int64_t{1} << 32;
    graph_.batch_size = place.at("batch_size").as_integer(1, largest);
    if (batch_size > largest)
      place.at("batch_size")
          .fail("asked for " + std::to_string(batch_size) + " samples instead, expected at most " +
                std::to_string(largest));
    if (batch_size > 0) graph_.batch_size = batch_size;
    graph_.source = place.shared_value();
  }

  Graph parse() {
    for (const JsonPlace& input : place_.at("inputs").items()) add_input(input);
    if (graph_.inputs.empty()) place_.at("inputs").fail("is empty, expected at least one input");
    read_operators();
    for (size_t index : topological_order()) add_operator(pending_[index]);
    find_gradients();
    return std::move(graph_);
  }

 private:
  void add_input(const JsonPlace& place) {
    place.allow_keys({"name", "shape", "dtype", "steps"}, "key of an input");
    Tensor tensor;
    tensor.name = place.at("name").as_string();
    const auto sizes = place.at("shape").items();
    if (sizes.empty()) place.at("shape").fail("is empty, expected \"batch\" first");
    for (size_t axis = 0; axis < sizes.size(); ++axis) {
      if (axis == 0) {
        if (!sizes[0].value().is_string() || sizes[0].as_string() != "batch")
          sizes[0].fail("found " + sizes[0].value().dump() +
                        ", expected \"batch\": the first axis of an input is the sample");
        tensor.shape.push_back(graph_.batch_size);
      } else {
        tensor.shape.push_back(sizes[axis].as_integer(1, int64_t{1} << 32));
      }
    }
    if (sizes.size() > static_cast<size_t>(Block::max_rank))
      place.at("shape").fail("has " + std::to_string(sizes.size()) + " axes, expected at most " +
                             std::to_string(Block::max_rank));
    const std::string type = place.at("dtype").as_string();
    if (type != "f32" && type != "i32")
      place.at("dtype").fail("found \"" + type + "\"" + suggestion(type, {"f32", "i32"}));
    tensor.type = type == "f32" ? DataType::f32 : DataType::i32;
    check_name(place.at("name"), tensor.name);
    check_size(place.at("shape"), tensor.name, tensor.shape);
    tensor.data_name = tensor.name;
    const auto steps = place.find("steps");
    if (!steps) {
      graph_.inputs.push_back(add_tensor(std::move(tensor)));
      return;
    }
    tensor.steps = steps->as_integer(1, 1 << 16);
    if (sizes.size() > 3)
      place.at("shape").fail("has " + std::to_string(sizes.size()) +
                             " axes, expected at most 3 in addition to the steps");
    for (tensor.step = 0; tensor.step < tensor.steps; ++tensor.step) {
      tensor.name = tensor.data_name + ":" + std::to_string(tensor.step);
      graph_.inputs.push_back(add_tensor(tensor));
    }
  }

  // Sizes multiply far below what 64 bits hold, so that nothing after has to worry.
  static void check_size(const JsonPlace& place, const std::string& name, const Shape& shape) {
    double elements = 1;
    for (int64_t size : shape) elements *= static_cast<double>(size);
    if (elements > 0x1p44) place.fail(name + " would have shape " + to_string(shape) + ", more than 2^44 elements");
  }

  void check_name(const JsonPlace& place, const std::string& name) {
    if (name.empty() || name.find(':') != std::string::npos || name.find('/') != std::string::npos)
      place.fail("found \"" + name + "\", expected a name without \":\" and \"/\"");
    if (!names_.emplace(name, place.pointer()).second)
      place.fail("the name \"" + name + "\" is already that of " + names_.at(name));
  }

  TensorId add_tensor(Tensor tensor) {
    const TensorId id = static_cast<TensorId>(graph_.tensors.size());
    tensor_ids_[tensor.name] = id;
    graph_.tensors.push_back(std::move(tensor));
    return id;
  }

  void read_operators() {
    for (const JsonPlace& place : place_.at("operators").items()) {
      place.allow_keys({"name", "type", "inputs", "attributes", "parameters"}, "key of an operator");
      PendingOperator op{place.at("name").as_string(), place, {}};
      check_name(place.at("name"), op.name);
      for (const JsonPlace& input : place.at("inputs").items()) op.inputs.push_back(input.as_string());
      pending_.push_back(std::move(op));
    }
    if (pending_.empty()) place_.at("operators").fail("is empty, expected at least one operator");
  }

  // The producer that an input names: its index in pending_, or -1 for a graph input.
  int producer_of(const PendingOperator& op, size_t input, const std::map<std::string, int>& by_name) const {
    const std::string name = op.inputs[input].substr(0, op.inputs[input].find(':'));
    if (const auto it = by_name.find(name); it != by_name.end()) return it->second;
    if (tensor_ids_.count(op.inputs[input])) return -1;
    if (tensor_ids_.count(name))
      op.place.at("inputs").items()[input].fail("\"" + name + "\" is an input of the graph and has no output \"" +
                                                op.inputs[input] + "\"");
    Vector<std::string> known;
    for (TensorId id : graph_.inputs) {
      const Tensor& tensor = graph_.tensors[id];
      if (tensor.steps > 0 && tensor.data_name == name)
        op.place.at("inputs").items()[input].fail("\"" + op.inputs[input] + "\" is no step of the input \"" + name +
                                                  "\"; its steps are \"" + name + ":0\" to \"" + name + ":" +
                                                  std::to_string(tensor.steps - 1) + "\"");
      known.push_back(tensor.name);
    }
    for (const PendingOperator& other : pending_) known.push_back(other.name);
    op.place.at("inputs").items()[input].fail("no operator or input is named \"" + name + "\"" +
                                              suggestion(name, known));
  }

  // Kahn's algorithm; among ready operators the first of the file comes first.
  Vector<size_t> topological_order() const {
    std::map<std::string, int> by_name;
    for (size_t i = 0; i < pending_.size(); ++i) by_name[pending_[i].name] = static_cast<int>(i);
    Vector<Vector<size_t>> successors(pending_.size());
    Vector<int> waiting(pending_.size(), 0);
    for (size_t i = 0; i < pending_.size(); ++i)
      for (size_t input = 0; input < pending_[i].inputs.size(); ++input)
        if (const int producer = producer_of(pending_[i], input, by_name); producer >= 0) {
          successors[producer].push_back(i);
          ++waiting[i];
        }
    Vector<size_t> order;
    std::set<size_t> ready;
    for (size_t i = 0; i < pending_.size(); ++i)
      if (waiting[i] == 0) ready.insert(i);
    while (!ready.empty()) {
      const size_t next = *ready.begin();
      ready.erase(ready.begin());
      order.push_back(next);
      for (size_t successor : successors[next])
        if (--waiting[successor] == 0) ready.insert(successor);
    }
    if (order.size() < pending_.size()) fail_at_cycle(waiting, by_name);
    return order;
  }

  [[noreturn]] void fail_at_cycle(const Vector<int>& waiting, const std::map<std::string, int>& by_name) const {
    // From any operator that still waits, walk to an input's producer that still waits, until one comes again.
    size_t at = 0;
    while (waiting[at] == 0) ++at;
    Vector<size_t> path;
    while (std::find(path.begin(), path.end(), at) == path.end()) {
      path.push_back(at);
      for (size_t input = 0; input < pending_[at].inputs.size(); ++input)
        if (const int producer = producer_of(pending_[at], input, by_name); producer >= 0 && waiting[producer] > 0) {
          at = static_cast<size_t>(producer);
          break;
        }
    }
    std::string cycle = pending_[at].name;
    for (size_t i = path.size(); i-- > 0 && path[i] != at;) cycle += " -> " + pending_[path[i]].name;
    pending_[at].place.at("inputs").fail("the graph has a cycle: " + cycle + " -> " + pending_[at].name);
  }

  void add_operator(const PendingOperator& pending) {
    OperatorRequest request{pending.place.at("type").as_string(), {}, pending.place, pending.place.find("attributes")};
    Operator op;
    Vector<DataType> types;  // of the inputs
    op.name = pending.name;
    for (size_t input = 0; input < pending.inputs.size(); ++input) {
      const TensorId id = resolve(pending, input);
      const Tensor& tensor = graph_.tensors[id];
      op.inputs.push_back(id);
      types.push_back(tensor.type);
      // What operators are asked for knows numbers and indices alone.
      request.inputs.push_back(
          {"", tensor.shape, is_floating(tensor.type) ? DataType::f32 : tensor.type, tensor.routing});
    }
    std::unique_ptr<OperatorDefinition> definition = make_operator(request);
    definition->set_types(types, graph_.activation_type);
    op.definition = std::move(definition);
    op.function = function_of(request, types);
    const OperatorId id = static_cast<OperatorId>(graph_.operators.size());
    for (size_t input = 0; input < op.inputs.size(); ++input)
      graph_.tensors[op.inputs[input]].uses.push_back({id, static_cast<int>(input)});
    for (size_t output = 0; output < op.definition->outputs().size(); ++output) {
      const TensorSpec& spec = op.definition->outputs()[output];
      check_size(pending.place, op.name, spec.shape);
      const std::string suffix = output == 0 ? "" : ":" + spec.name;
      Tensor tensor;
      tensor.name = op.name + suffix;
      tensor.shape = spec.shape;
      tensor.type = spec.type;
      tensor.routing = spec.routing;
      tensor.producer = id;
      tensor.output = static_cast<int>(output);
      op.outputs.push_back(add_tensor(std::move(tensor)));
      if (output == 0 && !spec.name.empty()) tensor_ids_[op.name + ":" + spec.name] = op.outputs[0];
    }
    add_parameters(pending, op, id);
    if (op.definition->is_loss()) graph_.losses.push_back(id);
    graph_.operators.push_back(std::move(op));
  }

  int function_of(const OperatorRequest& request, const Vector<DataType>& types) {
    std::string text = request.type + (request.attributes ? request.attributes->value().dump() : "");
    for (const TensorSpec& input : request.inputs) text += to_string(input.shape);
    for (const DataType type : types) text += to_string(type);
    return functions_.try_emplace(text, static_cast<int>(functions_.size())).first->second;
  }

  TensorId resolve(const PendingOperator& op, size_t input) const {
    const std::string& name = op.inputs[input];
    if (const auto it = tensor_ids_.find(name); it != tensor_ids_.end()) return it->second;
    const std::string producer = name.substr(0, name.find(':'));
    Vector<std::string> known;
    for (const auto& [tensor, id] : tensor_ids_)
      if (tensor.rfind(producer + ":", 0) == 0 || tensor == producer) known.push_back(tensor);
    op.place.at("inputs").items()[input].fail("\"" + producer + "\" has no output \"" + name + "\"" +
                                              suggestion(name, known));
  }

  void add_parameters(const PendingOperator& pending, Operator& op, OperatorId id) {
    const auto group_place = pending.place.find("parameters");
    const std::string group = group_place ? group_place->as_string() : pending.name;
    const auto& specs = op.definition->parameters();
    if (group_place && specs.empty()) group_place->fail(op.definition->type() + " has no parameters to share");
    for (size_t i = 0; i < specs.size(); ++i) {
      const std::string name = (specs[i].trained ? group : pending.name) + "." + specs[i].name;
      check_size(pending.place, name, specs[i].shape);
      auto [it, added] = parameter_ids_.emplace(name, static_cast<ParameterId>(graph_.parameters.size()));
      if (added) graph_.parameters.push_back({name, specs[i], {}});
      Parameter& parameter = graph_.parameters[it->second];
      if (parameter.spec.shape != specs[i].shape)
        (group_place ? *group_place : pending.place)
            .fail("parameter " + name + " would have shape " + to_string(specs[i].shape) + ", but " +
                  graph_.operators[parameter.uses[0].first].name + " gives it shape " +
                  to_string(parameter.spec.shape));
      parameter.uses.emplace_back(id, static_cast<int>(i));
      op.parameters.push_back(it->second);
    }
  }

  void find_gradients() {
    Vector<bool> reaches_loss(graph_.operators.size(), false);
    for (size_t i = graph_.operators.size(); i-- > 0;) {
      const Operator& op = graph_.operators[i];
      if (op.definition->is_loss()) reaches_loss[i] = true;
      for (TensorId output : op.outputs)
        for (const TensorUse& use : graph_.tensors[output].uses)
          if (reaches_loss[use.consumer] && graph_.operators[use.consumer].definition->differentiable_input(use.input))
            reaches_loss[i] = true;
    }
    Vector<bool> trained(graph_.tensors.size(), false);  // parameters lie upstream
    for (size_t i = 0; i < graph_.operators.size(); ++i) {
      Operator& op = graph_.operators[i];
      bool has_trained_input = false;
      for (size_t input = 0; input < op.inputs.size(); ++input)
        if (trained[op.inputs[input]] && op.definition->differentiable_input(static_cast<int>(input)))
          has_trained_input = true;
      const bool has_trained_parameter =
          std::any_of(op.parameters.begin(), op.parameters.end(),
                      [&](ParameterId parameter) { return graph_.parameters[parameter].spec.trained; });
      const bool trained_here = has_trained_input || has_trained_parameter;
      op.has_backward = trained_here && reaches_loss[i];
      for (TensorId output : op.outputs) {
        trained[output] = trained_here && !op.definition->is_loss();
        for (const TensorUse& use : graph_.tensors[output].uses)
          if (trained[output] && reaches_loss[use.consumer] &&
              graph_.operators[use.consumer].definition->differentiable_input(use.input))
            graph_.tensors[output].has_gradient = true;
      }
    }
    constexpr const char* needed = "; training needs one of type softmax_cross_entropy or mean_loss";
    if (graph_.losses.empty()) place_.at("operators").fail("no operator is a loss" + std::string(needed));
    // One that only steers what others learn is not enough.
    if (std::none_of(graph_.losses.begin(), graph_.losses.end(), [&](OperatorId op) {
          const OperatorDefinition& loss = *graph_.operators[op].definition;
          return loss.counts_correct() || loss.type() == "mean_loss";
        }))
      place_.at("operators")
          .fail("its only loss is of type " + graph_.operators[graph_.losses[0]].definition->type() + needed);
  }

  JsonPlace place_;
  Graph graph_;
  Vector<PendingOperator> pending_;
  std::map<std::string, std::string> names_;
  std::map<std::string, TensorId> tensor_ids_;
  std::map<std::string, int> functions_;
  std::map<std::string, ParameterId> parameter_ids_;
};

}  // namespace

Vector<bool> Graph::inputs_with_gradient(OperatorId op) const {
  Vector<bool> result;
  for (const int input : operators[op].inputs.indices()) result.push_back(input_has_gradient(op, input));
  return result;
}

int64_t Graph::parameter_count() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters)
    if (parameter.spec.trained) count += volume(parameter.spec.shape);
  return count;
}

Json Graph::file() const {
  Json result = *source;
  result["batch_size"] = batch_size;
  return result;
}

Graph parse_graph(const JsonPlace& place, int64_t batch_size, DataType activation_type) {
  Graph graph = GraphParser(place, batch_size, activation_type).parse();
  graph.variants = std::make_shared<GraphVariants>();
  return graph;
}

// With other batches and types. A search asks for the same ones again and again, and reading takes longer than copying.
struct GraphVariants {
  using Key = std::tuple<std::shared_ptr<const Json>, int64_t, DataType>;
  static constexpr int most_operators = 50'000;  // in all, some hundred megabytes

  std::mutex mutex;
  std::map<Key, std::shared_ptr<const Graph>> known;  // without variants of their own
  int operators = 0;
  // By the source and its new optimizer.
  std::map<std::pair<std::shared_ptr<const Json>, std::string>, std::shared_ptr<const Json>> with_optimizer;
};

void set_optimizer(Graph& graph, const OptimizerSettings& optimizer) {
  graph.optimizer = optimizer;
  const Json text = optimizer_to_json(optimizer);
  const std::lock_guard lock(graph.variants->mutex);
  std::shared_ptr<const Json>& source = graph.variants->with_optimizer[{graph.source, text.dump()}];
  if (!source) {
    auto changed = std::make_shared<Json>(*graph.source);
    (*changed)["optimizer"] = text;
    source = std::move(changed);
  }
  graph.source = source;
}

namespace {

Graph variant(const Graph& graph, int64_t batch_size, DataType type, const std::string& place) {
  const GraphVariants::Key key{graph.source, batch_size, type};
  GraphVariants& variants = *graph.variants;
  std::shared_ptr<const Graph> found;
  {
    const std::lock_guard lock(variants.mutex);
    if (const auto known = variants.known.find(key); known != variants.known.end()) found = known->second;
  }
  if (!found) {
    Graph read = parse_graph(JsonPlace(graph.source, place), batch_size, type);
    read.variants = nullptr;
    found = std::make_shared<const Graph>(std::move(read));
    const std::lock_guard lock(variants.mutex);
    if (variants.operators > GraphVariants::most_operators) variants.known.clear(), variants.operators = 0;
    if (variants.known.emplace(key, found).second) variants.operators += found->operators.count();
  }
  Graph result = *found;
  result.variants = graph.variants;
  return result;
}

}  // namespace

Graph with_batch_size(const Graph& graph, int64_t batch_size, const std::string& place) {
  if (batch_size == graph.batch_size) return graph;
  return variant(graph, batch_size, graph.activation_type, place);
}
Graph with_activation_type(const Graph& graph, DataType type) {
  return variant(graph, graph.batch_size, type, "graph");
}
Graph load_graph(const std::string& path, int64_t batch_size) { return parse_graph(read_json_file(path), batch_size); }

}  // namespace ff
