#include "search/settings/planned_settings.h"

namespace ff {
namespace {

constexpr const char* key = "settings";

}  // namespace

std::optional<Parallelism> planned_settings(const StrategyFile& file) {
  if (file.edited || !file.provenance.contains(key) || !file.provenance[key].is_string()) return std::nullopt;
  try {
    return parse_parallelism(file.provenance[key].get<std::string>());
  } catch (const InputError&) {  // of another program, or edited
    return std::nullopt;
  }
}

Json provenance_of_settings(const Parallelism& parallelism) { return {{key, to_string(parallelism)}}; }

std::string planned_settings_note(const std::string& path, const StrategyFile& file) {
  const std::optional<Parallelism> planned = planned_settings(file);
  if (!planned || planned->framework == "none") return "";
  return path + ": planned as " + to_string(*planned) + "; predicted here as ffexec runs it";
}

}  // namespace ff
