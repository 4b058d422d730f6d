#include "tests/support/random_network.h"

#include <algorithm>
#include <map>

#include "common/errors.h"
#include "common/micro_batches.h"

namespace ff {
namespace {

class NetworkWriter {
 public:
  explicit NetworkWriter(RandomSource& random) : random_(random), batch_(between(1, 6)) {}

  Json write() {
    inputs_.push_back({{"name", "image"}, {"shape", Json::array({"batch"})}, {"dtype", "f32"}});
    Shape image{batch_};
    for (int64_t size : {between(1, 4), between(3, 9), between(3, 9)}) {
      inputs_[0]["shape"].push_back(size);
      image.push_back(size);
    }
    tensors_.push_back({"image", {"", image}, 0});
    if (chance(2)) add_sequences();
    for (int64_t steps = between(1, 7); steps > 0; --steps) add_image_operator();
    join_into_flat();
    if (chance(3)) add_recurrence();
    for (int64_t steps = between(0, 5); steps > 0; --steps) add_flat_operator();
    add_losses();
    if (chance(3)) add_loss_at_positions();
    if (chance(3)) add_mixture_of_experts();
    if (chance(3)) add_einsums();
    return {{"format", "ffgraph/1"},
            {"name", "random"},
            {"batch_size", batch_},
            {"inputs", inputs_},
            {"operators", operators_}};
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
    Vector<Named*> fresh, all;
    for (Named& tensor : tensors_)
      if (tensor.spec.shape.size() == rank && tensor.spec.type == DataType::f32) {
        all.push_back(&tensor);
        if (tensor.uses == 0) fresh.push_back(&tensor);
      }
    Vector<Named*>& from = fresh.empty() || chance(3) ? all : fresh;
    return from.empty() ? nullptr : from[between(0, static_cast<int64_t>(from.size()) - 1)];
  }

  // Adds the operator and returns its first output, or "" if its definition refuses (a kernel larger than its input).
  std::string add(const std::string& type, const Vector<std::string>& inputs, Json attributes) {
    Vector<TensorSpec> specs;
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
    for (size_t o = 0; o < definition->outputs().size() && !definition->is_loss(); ++o)
      tensors_.push_back({o == 0 ? name : name + ":" + definition->outputs()[o].name, definition->outputs()[o], 0});
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
    switch (between(0, 12)) {
      case 0:
      case 1:
      case 2: {
        Json attributes = window(false);
        const int64_t groups = shape[1] % 2 == 0 && chance(3) ? 2 : 1;
        attributes["out_channels"] = groups * (chance(4) ? 16 : between(1, 3));  // 16: whole vectors of channels
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
      case 4: add(Vector<std::string>{"relu", "tanh", "sigmoid", "gelu"}[between(0, 3)], {input}, {}); break;
      case 5:
        add("local_response_normalization", {input}, {{"size", 1 + 2 * between(0, 2)}, {"alpha", 0.1}, {"bias", 1.5}});
        break;
      case 6: add_with_equal(input, shape); break;
      case 7: add_concat(input, shape); break;
      case 8: add("dropout", {input}, {{"rate", 0.3}}); break;
      case 9: add("mean", {input}, {}); break;
      case 10: add_rearrangement(input, shape); break;
      case 11: add_batch_norm(input); break;
      case 12: add_operator_of_imports(input, shape); break;
    }
  }

  // What imported networks have: functions of straight pieces, squeeze-and-excitation, layer scale, normalization of
  // each position, a class token.
  void add_operator_of_imports(const std::string& input, const Shape& shape) {
    const bool image = shape.size() == 4;
    switch (between(0, 6)) {
      case 5: {
        const std::string type =
            Vector<std::string>{"elu", "softplus", "mish", "log", "sin", "pow", "exp"}[between(0, 6)];
        if (type == "exp") add(type, {add("tanh", {input}, {})}, {});
        else if (type == "pow")
          add(type, {add("affine", {add("sigmoid", {input}, {})}, {{"offset", 0.5}})}, {{"exponent", -0.5}});
        else if (type == "elu") add(type, {input}, {{"alpha", 0.7}});
        else if (type != "log") add(type, {input}, {});
        else add(type, {add("affine", {add("sigmoid", {input}, {})}, {{"offset", 0.5}})}, {});
        break;
      }
      case 6:
        if (!image) return;  // any four axes are scores by head
        add("relative_bias", {input},
            {{"buckets", 2 * between(2, 4)},
             {"directions", Vector<std::string>{"both", "past", "signed"}[between(0, 2)]},
             {"boundaries", chance(2) ? Json::array({1}) : Json::array()}});
        break;
      case 0: {
        const std::string type =
            Vector<std::string>{"affine", "clip", "leaky_relu", "hard_sigmoid", "hard_swish"}[between(0, 4)];
        Json attributes = Json::object();
        if (type == "affine") attributes = {{"factor", -0.5}, {"offset", 0.25}};
        if (type == "clip") attributes = {{"least", -0.5}, {"most", 1}};
        add(type, {input}, attributes);
        break;
      }
      case 1: {
        const std::string squeezed = add("mean", {input}, {});
        const Json axes = image ? Json{0, 1} : Json{0, 2};
        if (!squeezed.empty()) add(chance(2) ? "broadcast_mul" : "broadcast_add", {input, squeezed}, {{"axes", axes}});
        break;
      }
      case 2: add("broadcast_mul", {input}, {{"axes", Json::array({image ? 1 : 2})}}); break;
      case 3: add("broadcast_add", {input}, {{"axes", image ? Json{2, 3} : Json{1, 2}}}); break;
      default:
        if (!image) add("prefix", {input}, {{"rows", between(1, 2)}});
        else if (shape[1] >= 4) add("layer_norm", {input}, {{"epsilon", 0.1}});
    }
  }

  void add_batch_norm(const std::string& input) {
    for (const Named& tensor : tensors_) {
      const Shape& shape = tensor.spec.shape;
      // Of very few elements little but rounding is left, which a relu would turn into something.
      if (tensor.name == input && volume(shape) / shape[shape.size() == 3 ? 2 : 1] < 4) return;
    }
    Json attributes = {{"epsilon", 0.1}};
    // Zeros around what has been normalized are its mean, and so is a channel that was constant before: whether a relu
    // takes them for more than 0 is rounding.
    const bool of_zeros = input.starts_with("pad") || input.starts_with("batc");
    if (chance(3) && !of_zeros) attributes["activation"] = "relu";
    add("batch_norm", {input}, attributes);
  }

  // slice, split, pad, transpose, reshape.
  void add_rearrangement(const std::string& input, const Shape& shape) {
    const int64_t rank = static_cast<int64_t>(shape.size()), axis = between(1, rank - 1), size = shape[axis];
    switch (between(0, 4)) {
      case 0: {
        const int64_t begin = between(0, size - 1);
        add("slice", {input}, {{"axis", axis}, {"begin", begin}, {"end", between(begin + 1, size)}});
        break;
      }
      case 1: {
        const int64_t first = between(1, size);
        add("split", {input}, {{"axis", axis}, {"sizes", first < size ? Json{first, size - first} : Json{size}}});
        break;
      }
      case 2: {
        Json padding = Json::array();
        for (int64_t a = 1; a < rank; ++a) padding.push_back({between(0, 2), between(0, 2)});
        add("pad", {input}, {{"padding", padding}});
        break;
      }
      case 3: {
        Vector<int64_t> axes;
        for (int64_t a = 1; a < rank; ++a) axes.push_back(a);
        std::shuffle(axes.begin(), axes.end(), random_);
        add("transpose", {input}, {{"axes", axes}});
        break;
      }
      case 4: {
        Json sizes = Json::array();  // the last two axes become one, or a new one of size 1 comes
        for (int64_t a = 1; a < rank; ++a) sizes.push_back(shape[a]);
        if (rank > 2 && chance(2)) {
          const int64_t last = sizes.back();
          sizes.erase(sizes.size() - 1);
          sizes.back() = sizes.back().get<int64_t>() * last;
        } else if (rank < 4) {
          sizes.insert(sizes.begin(), 1);
        }
        add("reshape", {input}, {{"shape", sizes}});
        break;
      }
    }
  }

  void declare(const std::string& name, const Shape& sample, const char* type, int64_t steps = 0) {
    Json shape = Json::array({"batch"});
    Shape whole{batch_};
    for (int64_t size : sample) {
      shape.push_back(size);
      whole.push_back(size);
    }
    inputs_.push_back({{"name", name}, {"shape", shape}, {"dtype", type}});
    if (steps > 0) inputs_.back()["steps"] = steps;
    const DataType data_type = std::string(type) == "i32" ? DataType::i32 : DataType::f32;
    for (int64_t step = 0; step < std::max<int64_t>(steps, 1); ++step)
      tensors_.push_back({steps > 0 ? name + ":" + std::to_string(step) : name, {"", whole, data_type}, 0});
  }

  // [batch, length, channel], from tokens.
  void add_sequences() {
    declare("tokens", {between(2, 5)}, "i32");
    add("embedding", {"tokens"}, {{"vocabulary", 7}, {"channels", 2 * between(1, 3)}});
    for (int64_t steps = between(1, 5); steps > 0; --steps) add_sequence_operator();
  }

  void add_sequence_operator() {
    Named* from = pick(3);
    const std::string input = from->name;
    const Shape shape = from->spec.shape;
    switch (between(0, 13)) {
      case 0: {
        Json attributes = {{"out_channels", between(1, 4)}, {"kernel", between(1, 3)}, {"stride", between(1, 2)}};
        attributes["padding"] = between(0, attributes["kernel"].get<int64_t>() - 1);
        if (chance(3)) attributes["activation"] = "relu";
        add("conv1d", {input}, attributes);
        break;
      }
      case 1: {
        const int64_t kernel = between(1, 3);
        add("pool1d", {input},
            {{"kernel", kernel},
             {"stride", between(1, 2)},
             {"padding", between(0, kernel / 2)},
             {"method", chance(2) ? "max" : "average"}});
        break;
      }
      case 2:
      case 3:
        add("multi_head_attention", {input}, {{"heads", shape[2] % 2 == 0 ? between(1, 2) : 1}, {"causal", chance(2)}});
        break;
      case 4: add("position_embedding", {input}, {}); break;
      case 5:
        if (shape[2] >= 4) add("layer_norm", {input}, {{"epsilon", 0.1}});
        break;
      case 6: add_matmul(input, shape); break;
      case 7: add("mean", {input}, {}); break;
      case 8: add_rearrangement(input, shape); break;
      case 9: add_linear(input); break;
      case 10: add_with_equal(input, shape); break;
      case 11: add_batch_norm(input); break;
      case 12: add_operator_of_llama(input, shape); break;
      case 13: add_operator_of_imports(input, shape); break;
    }
  }

  // rms_norm, silu, or an attention with grouped queries and perhaps rotary positions.
  void add_operator_of_llama(const std::string& input, const Shape& shape) {
    switch (between(0, 3)) {
      case 0:
        if (shape[2] >= 4) add("rms_norm", {input}, {{"epsilon", 0.1}});
        break;
      case 1: add("silu", {input}, {}); break;
      default: {
        const int64_t heads = 2 * between(1, 2);
        Json attributes = {{"heads", heads}, {"key_value_heads", heads == 4 ? between(1, 2) : 1}};
        if (chance(2)) attributes["rotary_base"] = 100;
        if (chance(2)) attributes["causal"] = true;
        if (chance(2)) attributes["bias"] = false;
        const std::string wide = add_linear(input, heads * 2 * between(1, 2));
        if (!wide.empty()) add("multi_head_attention", {wide}, attributes);
        break;
      }
    }
  }

  void add_matmul(const std::string& input, const Shape& shape) {
    for (const Named& tensor : tensors_) {
      if (tensor.spec.shape.size() != 3 || tensor.spec.type != DataType::f32 || (tensor.uses > 0 && chance(2)))
        continue;
      if (tensor.spec.shape[2] == shape[2])
        return void(add("matmul", {input, tensor.name}, {{"transpose", true}, {"scale", 0.5}}));
      if (tensor.spec.shape[1] == shape[2]) return void(add("matmul", {input, tensor.name}, {{"scale", 0.3}}));
    }
  }

  // An unrolled LSTM over the steps of an input, and attention over its states.
  void add_recurrence() {
    const int64_t steps = between(2, 4), hidden = between(1, 5);
    const bool words = chance(2);
    if (words) declare("step", {}, "i32", steps);
    else declare("step", {between(1, 4)}, "f32", steps);
    Vector<std::string> states;
    std::string last;
    for (int64_t t = 0; t < steps; ++t) {
      std::string x = "step:" + std::to_string(t);
      if (words) x = add_in_group("embedding", {x}, {{"vocabulary", 5}, {"channels", 3}}, "words");
      Vector<std::string> inputs{x};
      if (t > 0) inputs.insert(inputs.end(), {last, last + ":c"});
      last = add_in_group("lstm", inputs, {{"hidden", hidden}}, "recurrent");
      states.push_back(last);
    }
    if (chance(2)) {
      const std::string stacked = add("stack", states, {});
      add("attention", {pick(2)->name, stacked}, {{"out_features", between(1, 4)}});
    }
  }

  std::string add_in_group(const std::string& type, const Vector<std::string>& inputs, const Json& attributes,
                           const std::string& group) {
    const std::string name = add(type, inputs, attributes);
    operators_.back()["parameters"] = group;
    return name;
  }

  void add_with_equal(const std::string& input, const Shape& shape) {
    Vector<std::string> inputs{input};
    for (const Named& tensor : tensors_)
      if (tensor.spec.shape == shape && tensor.spec.type == DataType::f32 && inputs.size() < 3 &&
          (tensor.name != input || chance(3)))
        inputs.push_back(tensor.name);
    if (inputs.size() == 2 && chance(3)) add(chance(2) ? "sub" : "mul", inputs, {});
    else if (inputs.size() > 1) add("add", inputs, {});
  }

  void add_concat(const std::string& input, const Shape& shape) {
    const int64_t axis = between(1, static_cast<int64_t>(shape.size()) - 1);
    Vector<std::string> inputs{input};
    for (const Named& tensor : tensors_) {
      Shape same = tensor.spec.shape;
      if (same.size() != shape.size() || tensor.spec.type != DataType::f32 || inputs.size() >= 3) continue;
      same[axis] = shape[axis];
      if (same == shape && chance(2)) inputs.push_back(tensor.name);
    }
    add("concat", inputs, {{"axis", axis}});
  }

  // Images and sequences become [batch, channel].
  void join_into_flat() {
    Vector<std::string> flat;
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (tensors_[i].spec.shape.size() >= 3 && (tensors_[i].uses == 0 || chance(6)) &&
          tensors_[i].spec.type == DataType::f32)
        flat.push_back(tensors_[i].name);
    for (const std::string& name : flat) add("flatten", {name}, {});
  }

  void add_flat_operator() {
    Named* from = pick(2);
    const std::string input = from->name;
    const Shape shape = from->spec.shape;
    switch (between(0, 9)) {
      case 0:
      case 1:
      case 2: add_linear(input); break;
      case 3: add(Vector<std::string>{"relu", "tanh", "sigmoid", "softmax"}[between(0, 3)], {input}, {}); break;
      case 4: add_with_equal(input, shape); break;
      case 5: add_concat(input, shape); break;
      case 6: add("dropout", {input}, {{"rate", 0.5}}); break;
      case 7: add_rearrangement(input, shape); break;
      case 8:
        if (shape[1] >= 4) add("layer_norm", {input}, {{"epsilon", 0.1}});
        break;
      case 9: add_batch_norm(input); break;
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
      Json attributes = i == 0 ? Json::object() : Json{{"weight", 0.3}};
      if (chance(4)) attributes.update({{"ignored_label", 1}, {"mean_over", chance(2) ? "counted" : "all"}});
      add("softmax_cross_entropy", {logits, labels}, attributes);
      if (chance(4)) add("mean_loss", {add("tanh", {logits}, {})}, {{"weight", 0.2}});
    }
  }

  // [batch, length, channel]: linear layers with shared parameters, and a loss at every position.
  void add_loss_at_positions() {
    const int64_t length = between(1, 4), features = between(1, 4);
    inputs_.push_back({{"name", "sequence"}, {"shape", Json::array({"batch", length, features})}, {"dtype", "f32"}});
    inputs_.push_back({{"name", "targets"}, {"shape", Json::array({"batch", length})}, {"dtype", "i32"}});
    tensors_.push_back({"sequence", {"", {batch_, length, features}}, 0});
    tensors_.push_back({"targets", {"", {batch_, length}, DataType::i32}, 0});
    const std::string hidden = add_linear("sequence", 4), again = add_linear(hidden, 4);
    add("softmax_cross_entropy", {chance(2) ? add_linear(again, 4) : again, "targets"}, {});
  }

  // Experts for the tokens of an input. The logits come straight from the input, so that they differ little between
  // strategies: where two logits, or the number drawn for a second choice and its bound, lie within that difference, a
  // token takes another way, and nothing agrees any longer. Of some thousand tokens that has not happened yet.
  void add_mixture_of_experts() {
    const int64_t length = between(1, 5), features = between(2, 6), experts = between(2, 5),
                  top_k = std::min(experts, between(1, 3));
    const bool normalized = top_k > 1 && !chance(3);
    Vector<int64_t> divisors;
    for (int64_t samples = 1; samples <= batch_; ++samples)
      if (batch_ % samples == 0) divisors.push_back(samples);
    const int64_t group_samples = divisors[between(0, divisors.count() - 1)];
    declare("routed", {length, features}, "f32");
    const std::string logits = add("linear", {"routed"}, {{"out_features", experts}});
    const std::string slots = add("top_k_gating", {logits},
                                  {{"top_k", top_k},
                                   {"capacity_factor", 0.4 * static_cast<double>(between(1, 4))},
                                   {"group_samples", group_samples},
                                   {"normalize", normalized},
                                   {"random_routing", top_k == 2 && normalized && chance(2)}});
    std::string rows = add("dispatch", {"routed", slots}, {});
    const bool copies = (length + features + experts) % 2 == 0;  // not drawn: other seeds' networks stay as they were
    if (copies) rows = add("identity", {rows}, {{"sample_axis", 1}});
    rows = add("expert_linear", {rows}, {{"out_features", between(1, 5)}, {"activation", "relu"}});
    if (chance(2)) rows = add("tanh", {rows}, {});
    rows = add("expert_linear", {rows}, {{"out_features", features}, {"bias", chance(2)}});
    if (copies) rows = add("identity", {rows}, {{"sample_axis", 1}});
    const std::string combined = add("combine", {rows, slots, slots + ":weight"}, {});
    const std::string sum = add("add", {combined, "routed"}, {});
    if (chance(2)) add("load_balancing_loss", {logits}, {{"group_samples", group_samples}, {"weight", 0.2}});
    declare("routed_targets", {length}, "i32");
    add("softmax_cross_entropy", {add_linear(sum, 4), "routed_targets"}, {});
  }

  std::string add_einsum(const std::string& equation, const Vector<std::string>& inputs, const Json& sizes = {}) {
    Json attributes = {{"equation", equation}};
    if (!sizes.is_null()) attributes["sizes"] = sizes;
    return add("einsum", inputs, attributes);
  }

  // GShard's layer of experts with masks (Lepikhin et al. 2020, arXiv 2006.16668, algorithm 2), tensors of five axes,
  // and a product that sums over the batch.
  void add_einsums() {
    const int64_t length = between(1, 4), features = between(1, 5), experts = between(1, 4);
    declare("grouped", {length, features}, "f32");
    declare("mask", {length, experts, between(1, 3)}, "f32");
    const std::string gates = add("softmax", {add_einsum("GSM,ME->GSE", {"grouped"}, {{"E", experts}})}, {});
    const std::string weights = add_einsum("GSE,GSEC->GSEC", {gates, "mask"});
    std::string rows = add_einsum("GSEC,GSM->EGCM", {"mask", "grouped"});
    rows = add_einsum("EGCM,EMH->EGCH", {rows}, {{"H", between(1, 5)}});
    if (chance(2)) rows = add("relu", {rows}, {});
    rows = add_einsum("EGCH,EHM->GECM", {rows}, {{"M", features}});
    const std::string combined = add_einsum("GSEC,GECM->GSM", {weights, rows});
    std::string sum = add("add", {combined, "grouped"}, {});
    if (chance(3)) {
      const std::string over_batch = add_einsum("abc,abd->bcd", {sum, "grouped"});
      sum = add("tanh", {add_einsum("abc,bcd->dba", {sum, over_batch})}, {});
      sum = add_einsum("dba,dc->abc", {sum}, {{"c", between(1, 4)}});
    } else if (chance(2)) {
      const std::string wide = add_einsum("abc,cde->abcde", {sum}, {{"d", 2}, {"e", between(1, 3)}});
      sum = add_einsum("abcde,cdef->abf", {wide}, {{"f", between(1, 4)}});
    }
    declare("grouped_targets", {length}, "i32");
    add("softmax_cross_entropy", {add_linear(sum, 4), "grouped_targets"}, {});
  }

  RandomSource& random_;
  const int64_t batch_;
  Json inputs_ = Json::array(), operators_ = Json::array();
  Vector<Named> tensors_;
  Vector<std::pair<std::string, std::string>> groups_;  // (signature, name)
};

}  // namespace

Json random_network(RandomSource& random) { return NetworkWriter(random).write(); }

Graph random_graph(RandomSource& random) {
  return parse_graph(JsonPlace(std::make_shared<const Json>(random_network(random)), "random"));
}

std::optional<Graph> micro_batch_graph(const Graph& graph, int micro_batches) {
  try {
    return graph_of_micro_batch(graph, micro_batches);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

Strategy random_strategy(const Graph& graph, int devices, RandomSource& random) {
  const auto between = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  Vector<DeviceId> allowed;
  for (DeviceId device = 0; device < devices; ++device)
    if (between(1, 5) > 1) allowed.push_back(device);
  if (allowed.empty()) allowed.push_back(between(0, devices - 1));
  // In every second strategy most operators are split over all devices, a part each: their exchanges are collectives.
  const bool aligned = between(1, 2) == 1;
  // In every fourth one parts have unequal shares, mostly the same ones wherever there are as many.
  const bool unequal = between(1, 4) == 1;
  const auto shares = [&](int degree) {
    Vector<int> drawn;
    for (int index = 0; index < degree; ++index) drawn.push_back(between(1, 4));
    return drawn;
  };
  std::map<int, Vector<int>> common;  // by degree
  Strategy strategy;
  for (const Operator& op : graph.operators) {
    Configuration configuration;
    int parts = 1;
    for (const ParallelDimension& dimension : op.definition->dimensions()) {
      const int most = static_cast<int>(std::min<int64_t>(dimension.size, std::max(1, 8 / parts)));
      int degree = between(1, 2) == 1 ? 1 : between(1, std::min(most, 4));
      if (aligned && between(1, 2) == 1 && devices / parts <= dimension.size && devices % parts == 0)
        degree = devices / parts;
      configuration.degrees.push_back(degree);
      parts *= degree;
    }
    for (const int d : configuration.degrees.indices()) {
      const int degree = configuration.degrees[d];
      if (!unequal || degree == 1 || between(1, 3) == 1) continue;
      Degrees with_shares = configuration.degrees;
      if (common[degree].empty()) common[degree] = shares(degree);
      with_shares.set_shares(d, between(1, 4) == 1 ? shares(degree) : common[degree]);
      if (with_shares.leave_none_empty(d, op.definition->dimensions()[d].size)) configuration.degrees = with_shares;
    }
    const bool each_alone = aligned && parts <= devices && between(1, 4) > 1;
    const int first = between(1, 3) == 1 ? between(0, devices - 1) : 0, step = between(1, 3) == 1 ? devices - 1 : 1;
    for (int part = 0; part < parts; ++part)
      configuration.devices.push_back(each_alone ? (first + part * step) % devices
                                                 : allowed[between(0, static_cast<int>(allowed.size()) - 1)]);
    strategy.push_back(std::move(configuration));
  }
  return strategy;
}

Vector<int> random_task_order(const TaskGraph& tasks, RandomSource& random) {
  Vector<int32_t> waiting = tasks.predecessor_count;
  Vector<int> ready, order;
  for (size_t t = 0; t < tasks.tasks.size(); ++t)
    if (waiting[t] == 0) ready.push_back(static_cast<int>(t));
  while (!ready.empty()) {
    std::swap(ready[std::uniform_int_distribution<size_t>(0, ready.size() - 1)(random)], ready.back());
    const int task = ready.back();
    ready.pop_back();
    order.push_back(task);
    for (int32_t s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s)
      if (--waiting[tasks.successors[s]] == 0) ready.push_back(tasks.successors[s]);
  }
  return order;
}

DrawnStrategy random_expanded_strategy(const Graph& graph, int micro_batches, int devices, RandomSource& random) {
  const std::optional<Graph> of_one = micro_batches > 1 ? micro_batch_graph(graph, micro_batches) : std::nullopt;
  if (!of_one) return {random_strategy(graph, devices, random), 1};
  return {expanded(graph, random_strategy(*of_one, devices, random), micro_batches), micro_batches};
}

}  // namespace ff
