// What the parts of calibration share: values of all ranks, times, and numbers as people read them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>

#include "executor/transport/control_data.h"
#include "executor/transport/transport.h"

namespace ff {

// On rank 0.
template <typename Value>
Vector<Value> gather_values(Transport& transport, const Value& mine) {
  Vector<Value> all;
  for (const std::string& bytes : transport.gather(to_bytes(Vector<Value>{mine})))
    all.push_back(from_bytes<Value>(bytes)[0]);
  return all;
}

inline double rounded(double value) {
  if (value <= 0) return 0;
  const double scale = std::pow(10, 3 - std::floor(std::log10(value)));  // four digits
  return std::round(value * scale) / scale;
}

inline std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

inline std::string rank_name(int rank) { return "rank" + std::to_string(rank); }

// Wall time of `function`.
template <typename Function>
double time_us(const Function& function) {
  const auto begin = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

inline double median(Vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace ff
