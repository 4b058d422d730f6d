#include "tests/support/random_network.h"

#include <algorithm>

namespace ff {
namespace {

class NetworkWriter {
 public:
  explicit NetworkWriter(std::mt19937& random) : random_(random), batch_(between(1, 6)) {}

  Json write() {
    inputs_.push_back({{"name", "image"}, {"shape", Json::array({"batch"})}, {"dtype", "f32"}});
    Shape image{batch_};
    for (int64_t size : {between(1, 4), between(3, 9), between(3, 9)}) {
      inputs_[0]["shape"].push_back(size);
      image.push_back(size);
    }
    tensors_.push_back({"image", {"", image}, 0});
    for (int64_t steps = between(1, 7); steps > 0; --steps) add_image_operator();
    flatten_images();
    for (int64_t steps = between(0, 5); steps > 0; --steps) add_flat_operator();
    add_losses();
    if (chance(3)) add_sequence();
    return {{"format", "ffgraph/1"}, {"name", "random"}, {"batch_size", batch_}, {"inputs", inputs_}, {"operators", operators_}};
  }

 private:
  struct Named {
    std::string name;
    TensorSpec spec;
    int uses;
  };

  int64_t between(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
  bool chance(int one_in) { return between(1, one_in) == 1; }

  // A tensor of this rank, rather one that nothing uses yet.
  Named* pick(size_t rank) {
    std::vector<Named*> fresh, all;
    for (Named& tensor : tensors_)
      if (tensor.spec.shape.size() == rank) {
        all.push_back(&tensor);
        if (tensor.uses == 0) fresh.push_back(&tensor);
      }
    std::vector<Named*>& from = fresh.empty() || chance(3) ? all : fresh;
    return from.empty() ? nullptr : from[static_cast<size_t>(between(0, static_cast<int64_t>(from.size()) - 1))];
  }

  // Adds the operator and returns its first output, or "" if its definition refuses (a kernel larger than its input).
  std::string add(const std::string& type, const std::vector<std::string>& inputs, Json attributes) {
    std::vector<TensorSpec> specs;
    for (const std::string& name : inputs)
      for (const Named& tensor : tensors_)
        if (tensor.name == name) specs.push_back(tensor.spec);
    Json op = {{"name", type.substr(0, 4) + std::to_string(operators_.size())}, {"type", type}, {"inputs", inputs}};
    if (!attributes.empty()) op["attributes"] = attributes;
    const JsonPlace place(std::make_shared<const Json>(op), "random");
    std::unique_ptr<OperatorDefinition> definition;
    try {
      definition = make_operator({type, specs, place, place.find("attributes")});
    } catch (const InputError&) {
      return "";
    }
    for (Named& tensor : tensors_)
      tensor.uses += static_cast<int>(std::count(inputs.begin(), inputs.end(), tensor.name));
    if (!definition->parameters().empty() && chance(2)) share(op, *definition, attributes);
    const std::string name = op["name"];
    tensors_.push_back({name, definition->outputs()[0], 0});
    operators_.push_back(op);
    return name;
  }

  // Joins the parameter group of an earlier operator with the same parameters.
  void share(Json& op, const OperatorDefinition& definition, const Json& attributes) {
    std::string key = definition.type() + (attributes.contains("bias") ? attributes["bias"].dump() : "");
    for (const ParameterSpec& parameter : definition.parameters()) key += parameter.name + to_string(parameter.shape);
    for (const auto& [other, group] : groups_)
      if (other == key) {
        op["parameters"] = group;
        return;
      }
    op["parameters"] = "group" + std::to_string(groups_.size());
    groups_.emplace_back(key, op["parameters"]);
  }

  Json window(bool pool) {
    const int64_t kernel_height = between(1, 3), kernel_width = between(1, 3);
    const int64_t most = pool ? 2 : 1;  // pooling: at most half of the kernel; convolution: less than the kernel
    Json attributes = {{"kernel", {kernel_height, kernel_width}}, {"stride", {between(1, 3), between(1, 2)}}};
    attributes["padding"] = pool ? Json{between(0, kernel_height / most), between(0, kernel_width / most)}
                                 : Json{between(0, kernel_height - 1), between(0, kernel_width - 1)};
    return attributes;
  }

  void add_image_operator() {
    Named* from = pick(4);
    const std::string input = from->name;
    const Shape shape = from->spec.shape;
    switch (between(0, 8)) {
      case 0:
      case 1:
      case 2: {
        Json attributes = window(false);
        const int64_t groups = shape[1] % 2 == 0 && chance(3) ? 2 : 1;
        attributes["out_channels"] = groups * between(1, 3);
        if (groups > 1) attributes["groups"] = groups;
        if (chance(3)) attributes["bias"] = false;
        if (chance(2)) attributes["activation"] = "relu";
        add("conv2d", {input}, attributes);
        break;
      }
      case 3: {
        Json attributes = window(true);
        attributes["method"] = chance(2) ? "max" : "average";
        if (attributes["method"] == "average" && chance(2)) attributes["count_padding"] = true;
        else if (chance(2)) attributes["ceil"] = true;
        add("pool2d", {input}, attributes);
        break;
      }
      case 4: add(std::vector<std::string>{"relu", "tanh", "sigmoid", "gelu"}[static_cast<size_t>(between(0, 3))], {input}, {}); break;
      case 5: add("local_response_normalization", {input}, {{"size", 1 + 2 * between(0, 2)}, {"alpha", 0.1}, {"bias", 1.5}}); break;
      case 6: add_with_equal(input, shape); break;
      case 7: add_concat(input, shape); break;
      case 8: add("dropout", {input}, {{"rate", 0.3}}); break;
    }
  }

  void add_with_equal(const std::string& input, const Shape& shape) {
    std::vector<std::string> inputs{input};
    for (const Named& tensor : tensors_)
      if (tensor.spec.shape == shape && inputs.size() < 3 && (tensor.name != input || chance(3))) inputs.push_back(tensor.name);
    if (inputs.size() == 2 && chance(3)) add(chance(2) ? "sub" : "mul", inputs, {});
    else if (inputs.size() > 1) add("add", inputs, {});
  }

  void add_concat(const std::string& input, const Shape& shape) {
    const int64_t axis = between(1, static_cast<int64_t>(shape.size()) - 1);
    std::vector<std::string> inputs{input};
    for (const Named& tensor : tensors_) {
      Shape same = tensor.spec.shape;
      if (same.size() != shape.size() || inputs.size() >= 3) continue;
      same[static_cast<size_t>(axis)] = shape[static_cast<size_t>(axis)];
      if (same == shape && chance(2)) inputs.push_back(tensor.name);
    }
    add("concat", inputs, {{"axis", axis}});
  }

  void flatten_images() {
    std::vector<std::string> flat;
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (tensors_[i].spec.shape.size() == 4 && (tensors_[i].uses == 0 || chance(6))) flat.push_back(tensors_[i].name);
    for (const std::string& name : flat) add("flatten", {name}, {});
  }

  void add_flat_operator() {
    Named* from = pick(2);
    const std::string input = from->name;
    const Shape shape = from->spec.shape;
    switch (between(0, 6)) {
      case 0:
      case 1:
      case 2: add_linear(input); break;
      case 3: add(std::vector<std::string>{"relu", "tanh", "sigmoid", "softmax"}[static_cast<size_t>(between(0, 3))], {input}, {}); break;
      case 4: add_with_equal(input, shape); break;
      case 5: add_concat(input, shape); break;
      case 6: add("dropout", {input}, {{"rate", 0.5}}); break;
    }
  }

  std::string add_linear(const std::string& input, int64_t out = 0) {
    Json attributes = {{"out_features", out > 0 ? out : between(1, 7)}};
    if (chance(3)) attributes["bias"] = false;
    if (chance(3)) attributes["activation"] = "relu";
    return add("linear", {input}, attributes);
  }

  void add_losses() {
    const int64_t losses = between(1, 2);
    for (int64_t i = 0; i < losses; ++i) {
      const std::string logits = add_linear(pick(2)->name, between(2, 5));
      const std::string labels = "label" + std::to_string(i);
      inputs_.push_back({{"name", labels}, {"shape", Json::array({"batch"})}, {"dtype", "i32"}});
      tensors_.push_back({labels, {"", {batch_}, DataType::i32}, 0});
      add("softmax_cross_entropy", {logits, labels}, i == 0 ? Json() : Json{{"weight", 0.3}});
    }
  }

  // [batch, length, channel]: linear layers with shared parameters, and a loss at every position.
  void add_sequence() {
    const int64_t length = between(1, 4), features = between(1, 4);
    inputs_.push_back({{"name", "sequence"}, {"shape", Json::array({"batch", length, features})}, {"dtype", "f32"}});
    inputs_.push_back({{"name", "targets"}, {"shape", Json::array({"batch", length})}, {"dtype", "i32"}});
    tensors_.push_back({"sequence", {"", {batch_, length, features}}, 0});
    tensors_.push_back({"targets", {"", {batch_, length}, DataType::i32}, 0});
    const std::string hidden = add_linear("sequence", 4), again = add_linear(hidden, 4);
    add("softmax_cross_entropy", {chance(2) ? add_linear(again, 4) : again, "targets"}, {});
  }

  std::mt19937& random_;
  const int64_t batch_;
  Json inputs_ = Json::array(), operators_ = Json::array();
  std::vector<Named> tensors_;
  std::vector<std::pair<std::string, std::string>> groups_;  // (signature, name)
};

}  // namespace

Json random_network(std::mt19937& random) { return NetworkWriter(random).write(); }

Strategy random_strategy(const Graph& graph, int devices, std::mt19937& random) {
  const auto between = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  std::vector<DeviceId> allowed;
  for (DeviceId device = 0; device < devices; ++device)
    if (between(1, 5) > 1) allowed.push_back(device);
  if (allowed.empty()) allowed.push_back(between(0, devices - 1));
  Strategy strategy;
  for (const Operator& op : graph.operators) {
    Configuration configuration;
    int parts = 1;
    for (const ParallelDimension& dimension : op.definition->dimensions()) {
      const int most = static_cast<int>(std::min<int64_t>(dimension.size, std::max(1, 8 / parts)));
      const int degree = between(1, 2) == 1 ? 1 : between(1, std::min(most, 4));
      configuration.degrees.push_back(degree);
      parts *= degree;
    }
    for (int part = 0; part < parts; ++part)
      configuration.devices.push_back(allowed[static_cast<size_t>(between(0, static_cast<int>(allowed.size()) - 1))]);
    strategy.push_back(std::move(configuration));
  }
  return strategy;
}

}  // namespace ff
