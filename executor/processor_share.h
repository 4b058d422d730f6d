// How the ranks of a host share its processors: which threads each can have, and what it means when they are too few.
#pragma once

#include <string>

#include "common/processors.h"
#include "executor/transport/transport.h"

namespace ff {

// What a rank may use, and where.
struct RankProcessors {
  int node = 0;  // NodePlace::node
  std::string host;
  Processors processors;
};

// By rank, in processors: what is a rank's own when all ranks compute at once. A processor that several ranks may use
// is divided evenly among them, and so is the quota of a node.
Vector<double> processor_shares(const Vector<RankProcessors>& ranks);

// What this does to predictions, where a rank's threads are more than the processors that it may use, or more than its
// share of them; "" where all threads have processors. `cores`: of each rank's device model.
std::string processors_note(const Vector<RankProcessors>& ranks, const Vector<int>& cores);

// Those of all ranks, on every rank. All ranks call.
Vector<RankProcessors> gather_processors(Transport& transport);

}  // namespace ff
