#include "search/import/config_file.h"

#include "common/errors.h"

namespace ff {

Json inputs_of_tokens(const Vector<std::string>& names, int64_t sequence) {
  Json inputs = Json::array();
  for (const std::string& name : names)
    inputs.push_back({{"name", name}, {"shape", {"batch", sequence}}, {"dtype", "i32"}});
  return inputs;
}

std::string OperatorWriter::add(const std::string& name, const std::string& type, const Vector<std::string>& inputs,
                                const Json& attributes) {
  Json json = {{"name", name}, {"type", type}, {"inputs", inputs}};
  if (!attributes.empty()) json["attributes"] = attributes;
  operators_.push_back(std::move(json));
  return name;
}

std::string OperatorWriter::linear(const std::string& name, const std::string& input, int64_t features, bool bias) {
  Json attributes = {{"out_features", features}};
  if (!bias) attributes["bias"] = false;
  return add(name, "linear", {input}, attributes);
}

std::string OperatorWriter::with_dropout(const std::string& name, const std::string& input, double rate) {
  return rate > 0 ? add(name, "dropout", {input}, {{"rate", rate}}) : input;
}

std::string OperatorWriter::activation(const std::string& prefix, const std::string& input, const std::string& function,
                                       const std::string& key, const std::string& written) {
  if (function == "silu" || function == "swish") return add(prefix + "silu", "silu", {input}, {});
  if (function == "relu") return add(prefix + "relu", "relu", {input}, {});
  if (function == "gelu") return add(prefix + "gelu", "gelu", {input}, {});
  if (function == "gelu_new" || function == "gelu_fast" || function == "gelu_pytorch_tanh")
    return add(prefix + "gelu", "gelu", {input}, {{"approximate", "tanh"}});
  if (function == "relu2") {  // squared
    const std::string relu = add(prefix + "relu", "relu", {input}, {});
    return add(prefix + "square", "mul", {relu, relu}, {});
  }
  settings_.refuse(key, "found \"" + (written.empty() ? function : written) + "\"" +
                            suggestion(function, {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "silu"}));
}

}  // namespace ff
