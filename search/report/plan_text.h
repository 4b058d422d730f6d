// A strategy as lines that people read, and as lines in which they edit it.
//
//   layer[0-35].attention         sample 8 x head 8 on devices 0-63
//   layer[0-35].norm1 .. loss     sample 64 on devices 0-63, propagated
//
// A line is a group of operators that are alike (whose names differ in numbers alone) and have the same configuration,
// or, with "..", all groups from one to another, where neighbouring groups have the same configuration.
#pragma once

#include <string>

#include "common/strategy.h"

namespace ff {

struct PlanGroup {
  std::string name;  // patterns (name_patterns.h) with ", " between them, which stand for exactly these operators
  Vector<OperatorId> operators;
};
// In the order of their first operators. `origins` may be empty: not known.
Vector<PlanGroup> plan_groups(const Graph& graph, const Strategy& strategy,
                              const Vector<ConfigurationOrigin>& origins = {});

std::string plan_text(const Graph& graph, const Strategy& strategy, const Vector<ConfigurationOrigin>& origins);

// An edit is a line of that form with a colon after the operators:
//
//   layer*.attention: sample 4 x head 2 on 0-7
//   layer[0-35].norm1 .. loss: whole on device 3
//   fc1: sample 2 (3:1) on devices 0,1
//
// The configurations that the edit gives to the operators that it names. Throws InputError, which names the edit, the
// operator and what is wrong.
Vector<Change> parse_edit(const std::string& edit, const Graph& graph, const Topology& topology,
                          const Strategy& strategy, const Vector<ConfigurationOrigin>& origins = {});

}  // namespace ff
