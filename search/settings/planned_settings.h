// Strategy files of plans that were made with the conventions of a training framework. A file is what ffexec runs, and
// predicted so; its provenance keeps the settings.
#pragma once

#include <optional>
#include <string>

#include "common/strategy.h"
#include "search/optimizer/parallelism.h"

namespace ff {

// Nothing where the file does not say them, or degrees or devices were edited since.
std::optional<Parallelism> planned_settings(const StrategyFile& file);
// For `provenance`, of settings with a framework.
Json provenance_of_settings(const Parallelism& parallelism);
// Says that a prediction of the file is not that of its settings; "" where it is.
std::string planned_settings_note(const std::string& path, const StrategyFile& file);

}  // namespace ff
