// What a report shows of a simulated iteration, as values.
#pragma once

#include <map>
#include <string>

#include "search/explain/critical_path.h"
#include "search/explain/memory_shortage.h"
#include "search/report/summary.h"

namespace ff::html {

// A device's iteration: what its time goes into. All add up to the iteration.
struct DeviceTime {
  Nanoseconds computing = 0;
  Vector<Nanoseconds> links;      // [link kind]: waits for data on its way, or for a link of the kind to be free
  Nanoseconds others = 0;         // waits while another device computes
  Nanoseconds nothing_to_do = 0;  // before its first and after its last task
};
Vector<DeviceTime> device_times(const Evaluator::Details& details, const TimelineCauses& causes, const LinkKinds& links,
                                int device_count);

// Everything that moves data, by kind and the link that it occupies longest, or by layer.
struct CommunicationUse {
  int64_t count = 0, bytes = 0;
  Nanoseconds busy = 0;     // while at least one of them is on its way
  Nanoseconds exposed = 0;  // of the critical path
};
struct Communication {
  std::map<std::pair<TaskKind, int>, CommunicationUse> by_kind;  // and link kind
  struct Layer {
    std::string name;
    CommunicationUse use;
  };
  Vector<Layer> by_layer;  // the most exposed first, then the busiest
};
Communication communication(const TaskGraphBuilder& builder, const Evaluator::Details& details,
                            const Vector<PathPiece>& pieces, const LinkKinds& links);

// Time of the critical path: computing, and moving data by link kind.
struct Binding {
  Nanoseconds computing = 0, updates = 0;
  Vector<Nanoseconds> links;  // [link kind]
};
Binding binding(const Vector<PathPiece>& pieces, const LinkKinds& links);

// Fraction of the devices' peak arithmetic that forward and backward use.
double fraction_of_peak(const Problem& problem, const Strategy& expanded, Nanoseconds makespan);

// Another strategy, and why it is not the one.
struct Alternative {
  std::string name, note;
  Strategy strategy;
};

// Everything about the one that is reported.
struct Analysis {
  Analysis(Evaluator& evaluator, const Strategy& strategy, const Evaluator::Details& details);

  Evaluator& evaluator;
  const Strategy& strategy;
  const Evaluator::Details& details;
  const LinkKinds links;
  const TimelineCauses causes;
  const Vector<PathPiece> pieces;
  const MemoryPeak peak;
  const Binding bound;
  const Problem& problem() const { return evaluator.problem(); }
  Nanoseconds makespan() const { return details.timeline.makespan; }
};

}  // namespace ff::html
