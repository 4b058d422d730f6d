// Where batches come from: synthetic numbers, or a directory with one .npy file for each graph input.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/graph.h"

namespace ff {

class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual int64_t samples() const = 0;  // synthetic data has one batch
  // Elements of `block` of a graph input, row-major, to `out`; row r of the batch is sample samples[r].
  virtual void read(TensorId input, const Block& block, std::span<const int64_t> samples, void* out) const = 0;
};

// One batch by Philox from (seed, input name, element index): f32 uniform in [-1, 1), i32 uniform below the number of classes.
std::unique_ptr<DataSource> synthetic_data(const Graph& graph, uint64_t seed);

// DIRECTORY/NAME.npy for each graph input. Every rank maps the files and reads its own blocks. Throws InputError when a file is
// missing or unfit, or when the files disagree; `least` is the smallest acceptable number of samples (a batch, for training).
std::unique_ptr<DataSource> npy_data(const Graph& graph, const std::string& directory, int64_t least);

// Classes of the loss operator that reads these labels; for other i32 inputs 2.
int64_t label_classes(const Graph& graph, TensorId labels);

// The samples 0 .. count - 1 in the order of an epoch: a Fisher-Yates shuffle drawn by Philox from (seed, epoch), alike on all ranks.
std::vector<int64_t> shuffled_samples(int64_t count, uint64_t seed, int64_t epoch);

}  // namespace ff
