#include "executor/data.h"

#include <sys/stat.h>

#include <limits>
#include <numeric>

#include "common/philox.h"
#include "executor/npy_file.h"
#include "executor/runs.h"

namespace ff {
namespace {

class SyntheticData : public DataSource {
 public:
  SyntheticData(const Graph& graph, uint64_t seed) : graph_(graph), seed_(seed) {}
  int64_t samples() const override { return graph_.batch_size; }

  void read(TensorId input, const Block& block, std::span<const int64_t> samples, void* out) const override {
    const Tensor& tensor = graph_.tensors[input];
    const uint64_t stream = random_stream(seed_, tensor.name);
    const int64_t limit = tensor.type == DataType::i32 ? index_limit(graph_, input) : 0;
    Block sample{{0, 1}}, region{{0, 1}};
    for (int axis = 1; axis < block.rank(); ++axis) {
      sample.append({0, tensor.shape[axis]});
      region.append(block[axis]);
    }
    float* floats = static_cast<float*>(out);
    int32_t* integers = static_cast<int32_t*>(out);
    for (int64_t row = block[0].begin; row < block[0].end; ++row) {
      const int64_t first = samples[static_cast<size_t>(row)] * sample.volume();
      for_each_run(sample, region, [&](int64_t offset, int64_t length) {
        for (int64_t i = 0; i < length; ++i) {
          const float uniform = uniform_at(stream, static_cast<uint64_t>(first + offset + i));
          if (tensor.type == DataType::f32) *floats++ = 2 * uniform - 1;
          else *integers++ = static_cast<int32_t>(static_cast<double>(uniform) * static_cast<double>(limit));
        }
      });
    }
  }

 private:
  const Graph& graph_;
  const uint64_t seed_;
};

class NpyData : public DataSource {
 public:
  NpyData(const Graph& graph, const std::string& directory, int64_t least) : graph_(graph) {
    struct stat status {};
    if (stat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
      throw InputError(directory + ": is not a directory, expected one with a .npy file for each input of the graph");
    files_.resize(graph.tensors.size());
    const NpyFile* first = nullptr;
    for (TensorId input : graph.inputs) {
      const Tensor& tensor = graph.tensors[input];
      if (tensor.step > 0) {
        files_[input] = files_[input - 1];  // of the step before
        continue;
      }
      const std::string path = directory + "/" + tensor.data_name + ".npy";
      if (stat(path.c_str(), &status) != 0)
        throw InputError(path + ": missing; the graph \"" + graph.name + "\" has an input \"" + tensor.data_name +
                         "\"");
      files_[input] = std::make_shared<NpyFile>(path);
      const NpyFile& file = *files_[input];
      Shape shape = tensor.shape;
      if (tensor.steps > 0) shape.insert(shape.begin() + 1, tensor.steps);
      file.expect(shape, tensor.type, tensor.data_name);
      if (first && file.samples() != first->samples())
        throw InputError(path + ": has " + std::to_string(file.samples()) + " samples, but " + first->path() + " has " +
                         std::to_string(first->samples()));
      if (file.samples() < least)
        throw InputError(path + ": has " + std::to_string(file.samples()) + " samples, expected at least " +
                         std::to_string(least) + (least > 1 ? " (one batch)" : ""));
      first = &file;
    }
    samples_ = first->samples();
  }
  int64_t samples() const override { return samples_; }

  void read(TensorId input, const Block& block, std::span<const int64_t> samples, void* out) const override {
    const Tensor& tensor = graph_.tensors[input];
    Block stored = block;
    if (tensor.steps > 0) {
      stored = {block[0], {tensor.step, tensor.step + 1}};
      for (int axis = 1; axis < block.rank(); ++axis) stored.append(block[axis]);
    }
    files_[input]->read(stored, samples, tensor.type, out);
    if (tensor.type != DataType::i32) return;
    // Kernels index with labels and tokens: a wrong one would read outside of their tensors.
    const int64_t limit = index_limit(graph_, input), row_elements = block.volume() / block[0].size();
    const int32_t* labels = static_cast<const int32_t*>(out);
    for (int64_t i = 0; i < block.volume(); ++i)
      if (labels[i] < 0 || labels[i] >= limit)
        throw InputError(files_[input]->path() + ": sample " +
                         std::to_string(samples[static_cast<size_t>(block[0].begin + i / row_elements)]) +
                         " has the label " + std::to_string(files_[input]->integer(stored, samples, i)) +
                         ", expected 0 to " + std::to_string(limit - 1));
  }

 private:
  const Graph& graph_;
  Vector<std::shared_ptr<const NpyFile>> files_;  // by tensor
  int64_t samples_ = 0;
};

}  // namespace

std::unique_ptr<DataSource> synthetic_data(const Graph& graph, uint64_t seed) {
  return std::make_unique<SyntheticData>(graph, seed);
}

std::unique_ptr<DataSource> npy_data(const Graph& graph, const std::string& directory, int64_t least) {
  return std::make_unique<NpyData>(graph, directory, least);
}

int64_t index_limit(const Graph& graph, TensorId input) {
  int64_t limit = std::numeric_limits<int32_t>::max();
  for (const TensorUse& use : graph.tensors[input].uses)
    limit = std::min(limit, graph.operators[use.consumer].definition->index_limit(use.input));
  return limit;
}

Vector<int64_t> shuffled_samples(int64_t count, uint64_t seed, int64_t epoch) {
  Vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const uint64_t stream = random_stream(seed, "shuffle");
  for (int64_t i = count - 1; i > 0; --i) {
    const auto bits = philox(stream, static_cast<uint64_t>(i), static_cast<uint64_t>(epoch));
    const uint64_t random = uint64_t{bits[0]} << 32 | bits[1];
    std::swap(order[i], order[random % static_cast<uint64_t>(i + 1)]);
  }
  return order;
}

}  // namespace ff
