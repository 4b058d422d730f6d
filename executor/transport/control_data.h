// Plain values as control data (Transport::gather, broadcast).
#pragma once

#include <cstring>
#include <string>

#include "common/vector.h"

namespace ff {

template <typename Value>
std::string to_bytes(const Vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

template <typename Value>
Vector<Value> from_bytes(const std::string& bytes) {
  Vector<Value> values(bytes.size() / sizeof(Value));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Value));
  return values;
}

}  // namespace ff
