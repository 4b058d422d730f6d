#include "search/cost/profile.h"

#include <algorithm>
#include <charconv>

namespace ff {

Profile load_profile(const std::string& path) {
  const JsonPlace place = read_json_file(path);
  expect_format(place, "ffprofile/1");
  place.allow_keys({"$schema", "format", "device_model", "measured", "entries"}, "key of a profile");
  Profile profile;
  profile.file = path;
  profile.device_model = place.at("device_model").as_string();
  const JsonPlace measured = place.at("measured");
  measured.allow_keys(
      {"where", "processor", "driver", "clocks", "libraries", "precision", "date", "threads", "concurrent"},
      "key of measured");
  if (const auto precision = measured.find("precision"))
    if (const std::string name = precision->as_string(); name != "fp32" && name != "tf32" && name != "bf16")
      precision->fail("found \"" + name + "\"" + suggestion(name, {"fp32", "tf32", "bf16"}));
  profile.measured = measured.value();
  for (const auto& [signature, entry] : place.at("entries").members()) {
    entry.allow_keys({"us", "samples", "iqr_over_median"}, "key of a profile entry", {{"spread", "iqr_over_median"}});
    profile.entries[signature] = {entry.at("us").as_positive_number(),
                                  static_cast<int>(entry.at("samples").as_integer(1, INT32_MAX)),
                                  entry.at("iqr_over_median").as_number(0, 1e9)};
  }
  return profile;
}

void save_profile(const std::string& path, const Profile& profile) {
  const auto rounded = [](double value) { return std::round(value * 1000) / 1000; };
  Json entries = Json::object();
  for (const auto& [signature, entry] : profile.entries)
    entries[signature] = {{"us", std::max(0.001, rounded(entry.us))},
                          {"samples", entry.samples},
                          {"iqr_over_median", rounded(entry.iqr_over_median)}};
  write_json_file(path, {{"format", "ffprofile/1"},
                         {"device_model", profile.device_model},
                         {"measured", profile.measured},
                         {"entries", entries}});
}

namespace {

// Of what is not f32: " bf16", and which inputs are f32 all the same.
std::string types_text(const OperatorDefinition& definition) {
  if (definition.activation_type() == DataType::f32) return "";
  std::string text = " " + std::string(to_string(definition.activation_type()));
  for (const int input : definition.inputs().indices())
    if (definition.inputs()[input].type == DataType::f32) text += " input" + std::to_string(input) + "=f32";
  return text;
}

}  // namespace

std::string kernel_signature(const OperatorDefinition& definition, const Block& part, Phase phase, KernelUse use) {
  const std::string signature =
      definition.signature(part) +
      (use.shared_bytes > 0 ? " shared=" + std::to_string(std::max<int64_t>(1, use.shared_bytes >> 20)) + "M" : "") +
      (use.fp8 ? " fp8=" + std::to_string(use.fp8_input_bytes) : "") + types_text(definition);
  switch (phase) {
    case Phase::forward_statistics: return "forward-statistics " + signature;
    case Phase::forward: return "forward " + signature;
    case Phase::backward_statistics: return "backward-statistics " + signature;
    case Phase::backward: break;
  }
  return (use.input_gradients ? "backward " : "backward-parameters ") + signature;
}

std::optional<double> interpolated_us(const Profile& profile, const std::string& work, int64_t bytes) {
  std::map<int64_t, double> points;
  const std::string prefix = work + " ";
  for (auto it = profile.entries.lower_bound(prefix); it != profile.entries.end() && it->first.rfind(prefix, 0) == 0;
       ++it) {
    int64_t size = 0;
    const char* digits = it->first.data() + prefix.size();
    const char* end = it->first.data() + it->first.size();
    if (std::from_chars(digits, end, size).ptr == end && size > 0) points[size] = it->second.us;
  }
  if (points.empty()) return std::nullopt;
  const auto above = points.lower_bound(bytes);
  if (above == points.end())
    return std::prev(above)->second * static_cast<double>(bytes) / static_cast<double>(std::prev(above)->first);
  if (above == points.begin()) return above->second;
  const auto below = std::prev(above);
  const double fraction = static_cast<double>(bytes - below->first) / static_cast<double>(above->first - below->first);
  return below->second + fraction * (above->second - below->second);
}

}  // namespace ff
