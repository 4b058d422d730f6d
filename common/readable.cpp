#include "common/readable.h"

#include <cstdio>

namespace ff {

std::string with_number(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  const double value = static_cast<double>(bytes);
  if (bytes < 1000000) return with_number("%.1f kB", value / 1e3);
  if (bytes < 1000000000) return with_number("%.1f MB", value / 1e6);
  return with_number("%.2f GB", value / 1e9);
}

std::string time_text(int64_t ns) {
  const double value = static_cast<double>(ns);
  if (ns < 1000000) return with_number("%.1f us", value / 1e3);
  if (ns < 10000000000) return with_number("%.3f ms", value / 1e6);
  return with_number("%.2f s", value / 1e9);
}

}  // namespace ff
