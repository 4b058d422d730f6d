// What else ran on the processors while something was measured: such a measurement does not hold later.
#pragma once

#include <set>
#include <string>

namespace ff {

// Time of processors, in seconds, added up over them.
struct ProcessorTime {
  double all = 0;     // idle or not
  double busy = 0;    // in processes, in programs and in the kernel, not in interrupts
  double stolen = 0;  // not given to this virtual machine although it had work
  double own = 0;     // of `busy`, in the processes that measure

  double others_share() const;  // of `all`, in other processes
  double stolen_share() const;
  ProcessorTime& operator+=(const ProcessorTime& other);
  ProcessorTime operator-(const ProcessorTime& begin) const;
};

// So far, of these processors, by /proc/stat; `own`: of this process, on whatever processors. All zero where there is
// no such file. `root`: tests have trees of their own.
ProcessorTime processor_time(const std::set<int>& processors, const std::string& root = "");

// "the machine was busy while this was measured: other processes had 45 % of the time of the 2 processors ...", where
// that is too much for the figures to hold; "" where it is not, or where there was too little time to tell. `spread`:
// of the repetitions, (third - first quartile) / median as it typically was; negative: not known.
std::string busy_note(const ProcessorTime& time, size_t processors, double spread = -1);

}  // namespace ff
