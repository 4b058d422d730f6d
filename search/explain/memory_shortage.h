// Where memory goes: what a device keeps at the moment when it needs most, and what would make a strategy fit that does
// not.
#pragma once

#include <functional>
#include <string>

#include "search/explain/memory_remedy.h"
#include "search/optimizer/evaluator.h"

namespace ff {

struct MemoryItem {
  std::string name;
  int64_t bytes = 0;
};

struct MemoryPeak {
  DeviceId device = 0;  // the fullest one
  int64_t needed = 0, capacity = 0;
  std::string task;            // at which its arena is fullest
  Vector<MemoryItem> kinds;    // what is there then, by kind; adds up to `needed`
  Vector<MemoryItem> largest;  // of the arena: "activation of layer[0-23].norm"; the largest first
  double fullness() const { return capacity > 0 ? static_cast<double>(needed) / static_cast<double>(capacity) : 0; }
};

// Of the device that needs the largest fraction of its memory, or, where none is limited, most bytes.
MemoryPeak memory_peak(Evaluator& evaluator, const Evaluator::Details& details);

// Of each sort the smallest that fits, so far as there is one: another order and on-demand transfer buffers; another
// configuration of one operator, or else of the operators that are alike (of these the fastest), or else of several
// such groups; a smaller batch; settings (settings_remedies.h). `details` are as the strategy's file says.
Vector<MemoryRemedy> memory_remedies(Evaluator& evaluator, const Strategy& strategy, const Evaluator::Details& details);

}  // namespace ff
