// What a command says, as text and as JSON.
#pragma once

#include <string>

#include "common/json_file.h"

namespace ff {

struct Explanation {
  Json json;
  std::string text;
};

}  // namespace ff
