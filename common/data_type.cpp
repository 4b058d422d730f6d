#include "common/data_type.h"

#include "common/errors.h"

namespace ff {

std::string_view to_string(DataType type) {
  switch (type) {
    case DataType::f32: return "f32";
    case DataType::i32: return "i32";
    case DataType::bf16: return "bf16";
  }
  return "";
}

std::string_view to_string(Precision precision) {
  switch (precision) {
    case Precision::fp32: return "fp32";
    case Precision::tf32: return "tf32";
    case Precision::bf16: return "bf16";
  }
  return "";
}

Precision precision_of(const std::string& name) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16})
    if (to_string(precision) == name) return precision;
  throw InputError("found \"" + name + "\"" + suggestion(name, {"fp32", "tf32", "bf16"}));
}

}  // namespace ff
