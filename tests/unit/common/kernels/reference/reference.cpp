#include "tests/unit/common/kernels/reference/reference.h"

namespace ff::reference {

static constexpr OperatorFunction<Reference(const OperatorDefinition&, const Randomness&)> factories[] = {
#define FF_ROW(type, family) {#type, make_##family##_reference},
    FF_OPERATORS(FF_ROW)
#undef FF_ROW
};

Reference make_reference(const OperatorDefinition& definition, const Randomness& randomness) {
  return function_of(definition.type(), factories)(definition, randomness);
}

}  // namespace ff::reference
