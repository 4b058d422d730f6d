// Other jobs on the same devices, co-located with the one that is planned; they repeat their iterations.
#pragma once

#include <memory>
#include <string>

#include "search/optimizer/evaluator.h"
#include "search/problem_files.h"
#include "search/report/summary.h"

namespace ff {

// What a job takes of every device and channel.
struct JobLoad {
  Vector<double> busy;           // [resource, numbers as in duration.h]: fraction of an iteration
  Vector<int64_t> memory_bytes;  // [device]
};
// Ranks on processors look for their data again and again while they wait, so that these are always busy: a processor
// that two jobs share gives half of its time to each.
JobLoad load_of(const Evaluator::Details& details, const Topology& topology);

// What they leave. A device or channel that they keep busy for the fraction u of the time has 1 - u of its rate for
// one more job, but at least the share that each of n jobs gets where all take turns, 1/n; and the memory that is left.
// An estimate: jobs are taken to use everything evenly over time. `file` stays that of the topology.
Topology left_by(const Topology& topology, const Vector<JobLoad>& loads);

// The jobs of strategy files, on a topology that is not their own but has as many devices.
class Background {
 public:
  Background() = default;
  // Throws InputError.
  Background(const Vector<std::string>& files, const Topology& topology, const CostOptions& costs);

  bool empty() const { return jobs_.empty(); }
  // What is left for another job.
  Topology left_of(const Topology& topology) const;

  // What each job takes with the other jobs of the background, and with one more that was planned for what they leave.
  Vector<BackgroundEffect> effects(const Topology& topology, const Topology& left,
                                   const Evaluator::Details& planned) const;

 private:
  struct Job {
    std::string file;
    std::unique_ptr<Loaded> loaded;
    Strategy strategy;
    JobLoad load;
  };
  Nanoseconds makespan(const Job& job, const Topology& topology, const Vector<JobLoad>& loads) const;

  Vector<Job> jobs_;
  CostMode mode_ = CostMode::automatic;
};

}  // namespace ff
