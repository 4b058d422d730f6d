// Where batches come from: synthetic numbers, or a directory with one .npy file for each graph input.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "common/graph.h"
#include "common/vector.h"

namespace ff {

class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual int64_t samples() const = 0;  // synthetic data has one batch
  // Elements of `block` of a graph input, row-major, to `out`; row r of the batch is sample samples[r].
  virtual void read(TensorId input, const Block& block, std::span<const int64_t> samples, void* out) const = 0;
};

// One batch by Philox from (seed, input name, element index): f32 uniform in [-1, 1), i32 uniform below index_limits.
std::unique_ptr<DataSource> synthetic_data(const Graph& graph, uint64_t seed);

// DIRECTORY/NAME.npy for each graph input (of one with steps the second axis is the step). Every rank maps the files
// and reads its own blocks. Throws InputError when a file is missing or unfit, or when the files disagree; `least` is
// the smallest acceptable number of samples (a batch, for training).
std::unique_ptr<DataSource> npy_data(const Graph& graph, const std::string& directory, int64_t least);

// Labels and tokens run from 0 to below this, by element of a sample: the fewest classes or words of the losses and
// embeddings that read it of this i32 input, perhaps after it has been cut, joined or reshaped.
Vector<int64_t> index_limits(const Graph& graph, TensorId input);

// The samples 0 .. count - 1 in the order of an epoch: a Fisher-Yates shuffle drawn by Philox from (seed, epoch), alike
// on all ranks.
Vector<int64_t> shuffled_samples(int64_t count, uint64_t seed, int64_t epoch);

}  // namespace ff
