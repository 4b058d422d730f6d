// A line of text by printf's format.
#pragma once

#include <cstdio>
#include <string>

namespace ff {

std::string line(const char* format, auto... values) {
  char text[600];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace ff
