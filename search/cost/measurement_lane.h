// One thread's share of a measurement: a backend, a kernel and the buffers that it works on.
#pragma once

#include <map>
#include <memory>

#include "common/kernels/backend.h"
#include "common/vector.h"
#include "search/cost/measurement.h"

namespace ff {

// Holds several sets of buffers, taken in turn, and puts the caches into the state in which training's kernels find
// them: a kernel's predecessor has just written its inputs, while its parameters and what the forward pass left for the
// backward pass are as cold as other work since then has made them.
class MeasurementLane {
 public:
  MeasurementLane(std::unique_ptr<Backend> backend, const MeasurementSettings& settings)
      : backend_(std::move(backend)), settings_(settings) {}
  ~MeasurementLane();
  MeasurementLane(const MeasurementLane&) = delete;
  MeasurementLane& operator=(const MeasurementLane&) = delete;

  void clear();
  void prepare_kernel(const OperatorDefinition& definition, const Block& part, KernelUse use);
  void prepare_plain(int count, int64_t bytes);  // `count` buffers a set, as its outputs

  Backend& backend() { return *backend_; }
  // Of repetition `repetition`. The backward pass has another set than the forward pass: the one whose forward pass is
  // longest ago.
  void run(Phase phase, int repetition);
  const KernelArguments& plain(int repetition) {
    return sets_[static_cast<size_t>(repetition) % sets_.size()].arguments;
  }

  // What is to happen before the phase is timed: other work, then the writing of its inputs.
  void make_ready(Phase phase, int repetition);
  bool other_work();  // false: the settings have none

 private:
  // Random values. Others are made of them by beginning somewhere else.
  struct Pattern {
    const float* values;
    int64_t elements;
  };
  struct Set {
    KernelArguments arguments;
    Vector<std::pair<float*, Pattern>> inputs, output_gradients;
  };

  Set& set_of(Phase phase, int repetition);
  float* allocate(int64_t bytes);
  // `index_limit`: of i32; 0 for f32; bf16_values for bf16.
  const Pattern& pattern_of(int64_t bytes, int64_t index_limit);
  void fill(const Pattern& pattern, float* memory);
  float* filled(int64_t bytes, int64_t index_limit = 0);
  float* filled(DataType type, const Block& block);
  KernelArguments parameters_of(const OperatorDefinition& definition, const Block& part, int64_t& footprint);
  Set buffers_of(const OperatorDefinition& definition, const Block& part, KernelUse use, KernelArguments parameters,
                 int64_t& footprint);

  std::unique_ptr<Backend> backend_;
  const MeasurementSettings settings_;
  std::unique_ptr<Kernel> kernel_;
  // parameters that other operators use too: so soon again that only their own bytes come between
  bool shared_ = false;
  Vector<void*> buffers_;
  std::map<std::pair<int64_t, int64_t>, Pattern> patterns_;  // by bytes and index limit
  Vector<Set> sets_;
  float* other_work_ = nullptr;  // memory of other kernels
  int64_t other_work_done_ = 0;  // bytes of it, in this round
  uint64_t random_ = 1;
};

}  // namespace ff
