// A strategy that a search knows of before it begins.
#pragma once

#include <optional>
#include <string>

#include "search/optimizer/evaluator.h"

namespace ff {

struct Candidate {
  std::string name;  // of an algorithm, or "random"
  Strategy strategy;
  std::optional<Prediction> prediction = {};  // exact, where it is known already
};

}  // namespace ff
