// What the same strategy would take if the machine or the batch were another one.
#pragma once

#include <string>

#include "search/optimizer/evaluator.h"

namespace ff {

struct WhatIf {
  std::string text;  // as asked
  Nanoseconds predicted = 0;
  double fullness = 0;  // of the fullest device's memory; 0 where no memory is limited
  int64_t batch_size = 0;
};

// A line each: what can be asked.
//   link KIND bandwidth xF, link KIND latency xF   every link of a kind (link_kinds.h)
//   memory xF                                      what each device has of it
//   batch N                                        so many samples an iteration
//   device D xF                                    D: number or name; F times as fast, whatever it computes
//   node N xF                                      the same for all devices of a node; N: number or name
const Vector<std::string>& what_if_forms();

// Throws InputError, which lists the forms, for any other text, and for a batch that the strategy cannot split.
WhatIf what_if(const Problem& problem, const Strategy& strategy, const std::string& text);

// The same change, of what is given to a search. Devices that are not as fast as others get a model of their own.
// Throws InputError as what_if does.
struct ChangedProblem {
  Topology topology;
  int64_t batch = 0;  // 0: as it was
};
ChangedProblem changed_problem(const Topology& topology, const std::string& text);

// The problem's graph with another batch size. Throws InputError where the strategy cannot split it.
Graph with_batch(const Problem& problem, const Strategy& strategy, int64_t batch);

}  // namespace ff
