#include "common/readable.h"

#include <cstdio>

namespace ff {

std::string bytes_text(int64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  const double value = static_cast<double>(bytes);
  char text[64];
  if (bytes < 1000000) std::snprintf(text, sizeof text, "%.1f kB", value / 1e3);
  else if (bytes < 1000000000) std::snprintf(text, sizeof text, "%.1f MB", value / 1e6);
  else std::snprintf(text, sizeof text, "%.2f GB", value / 1e9);
  return text;
}

std::string time_text(int64_t ns) {
  const double value = static_cast<double>(ns);
  char text[64];
  if (ns < 1000000) std::snprintf(text, sizeof text, "%.1f us", value / 1e3);
  else if (ns < 10000000000) std::snprintf(text, sizeof text, "%.3f ms", value / 1e6);
  else std::snprintf(text, sizeof text, "%.2f s", value / 1e9);
  return text;
}

}  // namespace ff
