// Reads a config.json of Hugging Face's models and writes the operators of a graph: what all families need.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "common/json_file.h"
#include "common/vector.h"

namespace ff {

// Keys that are missing or null have a default, as in Hugging Face's classes of configurations.
class ConfigSettings {
 public:
  explicit ConfigSettings(const JsonPlace& place) : place_(place) {}

  std::optional<JsonPlace> find(const std::string& key) const {
    const std::optional<JsonPlace> found = place_.find(key);
    return found && found->value().is_null() ? std::nullopt : found;
  }
  int64_t integer(const std::string& key) const { return place_.at(key).as_integer(1, int64_t{1} << 31); }
  int64_t integer(const std::string& key, int64_t otherwise) const { return find(key) ? integer(key) : otherwise; }
  // So many layers become operators in seconds; no model has nearly as many.
  int64_t layers(const std::string& key) const { return place_.at(key).as_integer(1, 10'000); }
  int64_t whole(const std::string& key, int64_t otherwise) const {  // or 0
    const auto found = find(key);
    return found ? found->as_integer(0, int64_t{1} << 31) : otherwise;
  }
  double number(const std::string& key, double otherwise, double most = 1e12) const {
    const auto found = find(key);
    return found ? found->as_number(0, most) : otherwise;
  }
  bool flag(const std::string& key, bool otherwise) const {
    const auto found = find(key);
    return found ? found->as_bool() : otherwise;
  }
  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = find(key);
    return found ? found->as_string() : otherwise;
  }
  // The first of these keys that is there; else the last.
  std::string first_of(const Vector<std::string>& keys) const {
    for (const std::string& key : keys)
      if (find(key)) return key;
    return keys.back();
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& message) const {
    if (const auto found = find(key)) found->fail(message);
    place_.fail(key + ": " + message);
  }

 private:
  const JsonPlace& place_;
};

// What a configuration says, as parts of an ffgraph/1 file.
struct ConfigNetwork {
  std::string kind;  // for the description
  int64_t layers;
  Json inputs, operators;
};

// Graph inputs of these names, of `sequence` tokens a sample.
Json inputs_of_tokens(const Vector<std::string>& names, int64_t sequence);

class OperatorWriter {
 public:
  explicit OperatorWriter(const ConfigSettings& settings) : settings_(settings) {}

  // Its output's name.
  std::string add(const std::string& name, const std::string& type, const Vector<std::string>& inputs,
                  const Json& attributes);
  std::string linear(const std::string& name, const std::string& input, int64_t features, bool bias);
  std::string with_dropout(const std::string& name, const std::string& input, double rate);
  // As Hugging Face names the function. For the error: `key` is the setting that has the name, `written` what it says
  // (empty: the name).
  std::string activation(const std::string& prefix, const std::string& input, const std::string& function,
                         const std::string& key, const std::string& written = "");
  // Of the last operator: the group that it shares its parameters with.
  void share_parameters(const std::string& group) { operators_.back()["parameters"] = group; }

  const ConfigSettings& settings() const { return settings_; }
  const Json& operators() const { return operators_; }

 private:
  const ConfigSettings& settings_;
  Json operators_ = Json::array();
};

}  // namespace ff
