// What is done with each operator of a model. A line has all those with which the same is done, with spaces between
// their names: "MaxPool AveragePool".
#pragma once

#include <cassert>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "common/vector.h"

namespace ff::importing {

template <typename Rule>
std::map<std::string, Rule> operator_table(const Vector<std::pair<const char*, Rule>>& lines) {
  std::map<std::string, Rule> table;
  for (const auto& [names, rule] : lines) {
    std::istringstream stream(names);
    for (std::string name; stream >> name;) {
      [[maybe_unused]] const bool is_new = table.emplace(name, rule).second;
      assert(is_new);
    }
  }
  return table;
}

}  // namespace ff::importing
