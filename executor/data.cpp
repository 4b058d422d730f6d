#include "executor/data.h"

#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "common/operators/softmax.h"
#include "common/philox.h"
#include "executor/npy_file.h"
#include "executor/plan/runs.h"

namespace ff {
namespace {

bool rearranges_integers(const OperatorDefinition& definition) {
  return definition.outputs()[0].type == DataType::i32 && definition.inputs()[0].type == DataType::i32;
}

// Of one sample of an operator that rearranges: where each element of its output is from, by what is known of those of
// its input `from`; -1: of another input.
Vector<int64_t> rearranged(const OperatorDefinition& definition, int input, const Vector<int64_t>& from) {
  const TensorSpec &in = definition.inputs()[input], &out = definition.outputs()[0];
  if (definition.type() == "reshape" || definition.type() == "flatten") return from;
  Shape sizes = out.shape;
  sizes[0] = 1;
  Vector<int64_t> result;
  result.reserve(static_cast<size_t>(volume(sizes)));
  for (int64_t element = 0; element < volume(sizes); ++element) {
    Block part(sizes);
    int64_t rest = element;
    for (int axis = part.rank() - 1; axis >= 0; rest /= sizes[axis--])
      part[axis] = {rest % sizes[axis], rest % sizes[axis] + 1};
    const Block block = definition.input_block(input, part);
    int64_t place = 0;
    for (int axis = 1; axis < block.rank(); ++axis) place = place * in.shape[axis] + block[axis].begin;
    result.push_back(block.volume() == 1 ? from[place] : -1);
  }
  return result;
}

constexpr int64_t none_ignored = std::numeric_limits<int64_t>::min();

// Lowers the limits of the elements of a sample, `from` being those that the tensor has, row-major; and finds the label
// that a loss ignores.
void lower_limits(const Graph& graph, TensorId tensor, const Vector<int64_t>& from, Vector<int64_t>& limits,
                  Vector<int64_t>& ignored) {
  for (const TensorUse& use : graph.tensors[tensor].uses) {
    const Operator& op = graph.operators[use.consumer];
    if (rearranges_integers(*op.definition)) {
      lower_limits(graph, op.outputs[0], rearranged(*op.definition, use.input, from), limits, ignored);
      continue;
    }
    const int64_t limit = op.definition->index_limit(use.input);
    const auto* loss = dynamic_cast<const SoftmaxCrossEntropy*>(op.definition.get());
    for (const int64_t element : from) {
      if (element < 0) continue;
      limits[element] = std::min(limits[element], limit);
      if (loss && loss->ignored_label) ignored[element] = *loss->ignored_label;
    }
  }
}

// Calls with (row of the block, number in the sample) of each element of a block, row-major.
template <class Call>
void for_each_in_samples(const Shape& shape, const Block& block, const Call& call) {
  Block sample{{0, 1}}, region{{0, 1}};
  for (int axis = 1; axis < block.rank(); ++axis) {
    sample.append({0, shape[axis]});
    region.append(block[axis]);
  }
  for (int64_t row = block[0].begin; row < block[0].end; ++row)
    for_each_run(sample, region, [&](int64_t offset, int64_t length) {
      for (int64_t i = 0; i < length; ++i) call(row, offset + i);
    });
}

// Of the elements of a sample: values lie below `limits`, or are `ignored`.
struct IndexRange {
  Vector<int64_t> limits, ignored;
};

IndexRange index_range(const Graph& graph, TensorId input) {
  int64_t elements = 1;
  for (const int axis : graph.tensors[input].shape.indices())
    elements *= axis > 0 ? graph.tensors[input].shape[axis] : 1;
  IndexRange range{Vector<int64_t>(elements, int64_t{std::numeric_limits<int32_t>::max()}),
                   Vector<int64_t>(elements, none_ignored)};
  Vector<int64_t> all(elements, 0);
  std::iota(all.begin(), all.end(), 0);
  lower_limits(graph, input, all, range.limits, range.ignored);
  return range;
}

// By graph input, those of integers.
std::map<TensorId, IndexRange> all_index_ranges(const Graph& graph) {
  std::map<TensorId, IndexRange> ranges;
  for (const TensorId input : graph.inputs)
    if (graph.tensors[input].type == DataType::i32) ranges[input] = index_range(graph, input);
  return ranges;
}

class SyntheticData : public DataSource {
 public:
  SyntheticData(const Graph& graph, uint64_t seed) : graph_(graph), seed_(seed), ranges_(all_index_ranges(graph)) {}
  int64_t samples() const override { return graph_.batch_size; }

  void read(TensorId input, const Block& block, std::span<const int64_t> samples, void* out) const override {
    const Tensor& tensor = graph_.tensors[input];
    const uint64_t stream = random_stream(seed_, tensor.name);
    int64_t elements = 1;
    for (const int axis : tensor.shape.indices()) elements *= axis > 0 ? tensor.shape[axis] : 1;
    float* floats = static_cast<float*>(out);
    int32_t* integers = static_cast<int32_t*>(out);
    const Vector<int64_t>* limits = tensor.type == DataType::i32 ? &ranges_.at(input).limits : nullptr;
    for_each_in_samples(tensor.shape, block, [&](int64_t row, int64_t element) {
      const int64_t first = samples[static_cast<size_t>(row)] * elements;
      const float uniform = uniform_at(stream, static_cast<uint64_t>(first + element));
      if (limits)
        *integers++ = static_cast<int32_t>(static_cast<double>(uniform) * static_cast<double>((*limits)[element]));
      else *floats++ = 2 * uniform - 1;
    });
  }

 private:
  const Graph& graph_;
  const uint64_t seed_;
  const std::map<TensorId, IndexRange> ranges_;  // by input
};

class NpyData : public DataSource {
 public:
  NpyData(const Graph& graph, const std::string& directory, int64_t least)
      : graph_(graph), ranges_(all_index_ranges(graph)) {
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
    const Vector<int64_t>&limits = ranges_.at(input).limits, &ignored = ranges_.at(input).ignored;
    const int32_t* labels = static_cast<const int32_t*>(out);
    int64_t i = 0;
    for_each_in_samples(tensor.shape, block, [&](int64_t row, int64_t element) {
      const bool taken = labels[i] >= 0 && labels[i] < limits[element];
      if (!taken && labels[i] != ignored[element])
        throw InputError(files_[input]->path() + ": sample " + std::to_string(samples[static_cast<size_t>(row)]) +
                         " has the label " + std::to_string(files_[input]->integer(stored, samples, i)) +
                         ", expected 0 to " + std::to_string(limits[element] - 1));
      ++i;
    });
  }

 private:
  const Graph& graph_;
  const std::map<TensorId, IndexRange> ranges_;   // by input
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

Vector<int64_t> index_limits(const Graph& graph, TensorId input) { return index_range(graph, input).limits; }

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
