// Settings of the network as a whole with which a strategy fits that does not: micro-batches, sharded state,
// recomputation, precision.
#pragma once

#include "search/explain/memory_remedy.h"
#include "search/optimizer/evaluator.h"

namespace ff {

// Each setting that is enough alone. Where none is, the fewest of them that are enough together, of equally many the
// fastest. Of micro-batches and sharding the least that fits. `tasks`: of the strategy as it is; where there are many,
// not everything is tried.
Vector<MemoryRemedy> settings_remedies(const Problem& problem, const Strategy& strategy, int64_t tasks);

}  // namespace ff
