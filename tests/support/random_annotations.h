// Random annotations.
#pragma once

#include "common/strategy.h"
#include "tests/support/random_source.h"

namespace ff {

// A valid ffannotations/1 of some of the operators, by name or by a tensor that they produce: all kinds of annotations,
// degrees that divide the number of devices or do not.
Json random_annotations(const Graph& graph, int devices, RandomSource& random);

}  // namespace ff
