// What ffexec says at the end, for people and for programs.
#pragma once

#include <optional>
#include <string>

#include "common/strategy.h"
#include "executor/trainer.h"
#include "executor/verify.h"

namespace ff {

// The strategy file's prediction of an iteration's time; none when it has none or was edited since.
std::optional<double> predicted_us(const StrategyFile& file);

std::string summary_text(const StrategyFile& file, const RunResult& result,
                         const std::optional<Verification>& verification);
Json summary_json(const StrategyFile& file, const RunResult& result, const std::optional<Verification>& verification);

}  // namespace ff
