#include "search/cost/measurement_lane.h"

#include <algorithm>
#include <bit>

#include "common/kernels/bf16.h"
#include "common/kernels/converted_kernel.h"

namespace ff {
namespace {

constexpr int64_t most_drawn = int64_t{1} << 20;  // elements

constexpr int64_t bf16_values = -1;
constexpr int64_t values_of(DataType type) { return type == DataType::bf16 ? bf16_values : 0; }
// Buffers are filled in words.
int64_t words(int64_t bytes) { return (bytes + element_bytes - 1) / element_bytes; }

bool is_backward(Phase phase) { return phase == Phase::backward || phase == Phase::backward_statistics; }

}  // namespace

MeasurementLane::~MeasurementLane() {
  clear();
  if (other_work_) backend_->release(other_work_);
}

void MeasurementLane::clear() {
  for (void* memory : buffers_) backend_->release(memory);
  buffers_.clear();
  patterns_.clear();
  sets_.clear();
  kernel_.reset();
  shared_ = false;
}

void MeasurementLane::prepare_kernel(const OperatorDefinition& definition, const Block& part, KernelUse use) {
  clear();
  shared_ = use.shared_bytes > 0;
  const Vector<bool> gradients(definition.inputs().size(), use.input_gradients);
  const int64_t conversions = conversion_bytes(definition, part, true, gradients);
  kernel_ = make_typed_kernel(*backend_, {definition, part, gradients, "measured", 1},
                              conversions > 0 ? allocate(conversions) : nullptr);
  int64_t parameter_footprint = 1;
  Vector<KernelArguments> parameter_sets;
  do {
    parameter_sets.push_back(parameters_of(definition, part, parameter_footprint));
  } while (use.shared_bytes > 0 &&
           static_cast<int64_t>(parameter_sets.size() + 1) * parameter_footprint <= use.shared_bytes &&
           parameter_sets.size() < settings_.most_sets);
  int64_t footprint = 1;
  do {
    if (use.shared_bytes == 0 && sets_.size() == parameter_sets.size())
      parameter_sets.push_back(parameters_of(definition, part, parameter_footprint));
    sets_.push_back(buffers_of(definition, part, use, parameter_sets[sets_.size() % parameter_sets.size()], footprint));
  } while (static_cast<int64_t>(sets_.size() + 1) * (footprint + (use.shared_bytes == 0 ? parameter_footprint : 0)) <=
               settings_.rotated_bytes &&
           sets_.size() < settings_.most_sets);
}

void MeasurementLane::prepare_plain(int count, int64_t bytes) {
  clear();
  do {
    Set set;
    for (int i = 0; i < count; ++i) set.arguments.outputs.push_back(filled(bytes));
    sets_.push_back(std::move(set));
  } while (static_cast<int64_t>(sets_.size() + 1) * count * bytes <= settings_.rotated_bytes &&
           sets_.size() < settings_.most_sets);
}

MeasurementLane::Set& MeasurementLane::set_of(Phase phase, int repetition) {
  return sets_[(static_cast<size_t>(repetition) + (is_backward(phase) ? 1 : 0)) % sets_.size()];
}

void MeasurementLane::run(Phase phase, int repetition) {
  const KernelArguments& arguments = set_of(phase, repetition).arguments;
  switch (phase) {
    case Phase::forward_statistics: kernel_->forward_statistics(arguments); break;
    case Phase::forward: kernel_->forward(arguments); break;
    case Phase::backward_statistics: kernel_->backward_statistics(arguments); break;
    case Phase::backward: kernel_->backward(arguments); break;
  }
}

void MeasurementLane::make_ready(Phase phase, int repetition) {
  if (!other_work()) return;
  const Set& set = set_of(phase, repetition);
  for (const auto& [memory, pattern] : is_backward(phase) ? set.output_gradients : set.inputs) fill(pattern, memory);
}

bool MeasurementLane::other_work() {
  if (settings_.other_work_bytes == 0) return false;
  if (!other_work_) {
    other_work_ = static_cast<float*>(backend_->allocate(settings_.other_memory_bytes));
    backend_->fill_zero(other_work_, settings_.other_memory_bytes);
  }
  const int64_t memory =
      shared_ ? std::min(settings_.other_work_bytes, settings_.other_memory_bytes) : settings_.other_memory_bytes;
  if (other_work_done_ >= memory) other_work_done_ = 0;
  const int64_t elements = std::min(settings_.other_work_bytes, memory - other_work_done_) / element_bytes / 2;
  float* const read = other_work_ + other_work_done_ / element_bytes;
  const Block half(Shape{elements});
  if (elements > 0) backend_->copy_block(read, half, read + elements, half, half);
  other_work_done_ += settings_.other_work_bytes;
  return true;
}

float* MeasurementLane::allocate(int64_t bytes) {
  float* memory = static_cast<float*>(backend_->allocate(std::max<int64_t>(bytes, element_bytes)));
  buffers_.push_back(memory);
  return memory;
}

// Of float in [-0.5, 0.5), of two bf16 in that range a word, or, with an index limit, i32 below that.
const MeasurementLane::Pattern& MeasurementLane::pattern_of(int64_t bytes, int64_t index_limit) {
  const auto [it, is_new] = patterns_.try_emplace({bytes, index_limit});
  if (!is_new) return it->second;
  float* memory = allocate(words(bytes) * element_bytes);
  // The rest of a large buffer repeats what is drawn: drawing and sending it would take longer than all that is
  // measured.
  const int64_t elements = words(bytes), drawn = std::min(elements, most_drawn);
  Vector<float> values(drawn, 0.0f);
  uint32_t state = 12345;  // full Philox would cost more than the kernels
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    const double uniform = (state >> 8) / 16777216.0;
    if (index_limit > 0) value = std::bit_cast<float>(static_cast<int32_t>(uniform * static_cast<double>(index_limit)));
    else value = static_cast<float>(uniform) - 0.5f;
    if (index_limit == bf16_values)
      value = std::bit_cast<float>(uint32_t{bf16_of(value)} << 16 | uint32_t{bf16_of(-0.5f * value)});
  }
  if (drawn > 0) backend_->store_from_host(values.data(), memory, {drawn});
  for (int64_t done = drawn, more = 0; done < elements; done += more) {
    more = std::min(done, elements - done);
    const Block part(Shape{more});
    backend_->copy_block(memory, part, memory + done, part, part);
  }
  return it->second = {memory, elements};
}

// The pattern from a random place on, then its beginning: from the same values each time a processor would learn which
// way branches go.
void MeasurementLane::fill(const Pattern& pattern, float* memory) {
  if (pattern.elements == 0) return;
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  const int64_t first = static_cast<int64_t>((random_ >> 33) % static_cast<uint64_t>(pattern.elements));
  const auto copy = [&](int64_t from, int64_t to, int64_t count) {
    const Block part(Shape{count});
    if (count > 0) backend_->copy_block(pattern.values + from, part, memory + to, part, part);
  };
  copy(first, 0, pattern.elements - first);
  copy(0, pattern.elements - first, first);
}

float* MeasurementLane::filled(int64_t bytes, int64_t index_limit) {
  const Pattern& pattern = pattern_of(bytes, index_limit);
  float* memory = allocate(words(bytes) * element_bytes);
  fill(pattern, memory);
  return memory;
}

float* MeasurementLane::filled(DataType type, const Block& block) {
  return filled(bytes_of(type, block), values_of(type));
}

KernelArguments MeasurementLane::parameters_of(const OperatorDefinition& definition, const Block& part,
                                               int64_t& footprint) {
  KernelArguments arguments;
  footprint = 0;
  for (int p = 0; p < static_cast<int>(definition.parameters().size()); ++p) {
    const Block block = definition.parameter_block(p, part);
    const DataType type = definition.parameter_type(p);
    const bool trained = definition.parameters()[p].trained;
    arguments.parameters.push_back(filled(type, block));
    arguments.parameter_gradients.push_back(trained ? filled(DataType::f32, block) : nullptr);
    footprint += bytes_of(type, block) + (trained ? bytes_of(DataType::f32, block) : 0);
  }
  return arguments;
}

// `parameters`: arguments that have them already.
MeasurementLane::Set MeasurementLane::buffers_of(const OperatorDefinition& definition, const Block& part, KernelUse use,
                                                 KernelArguments parameters, int64_t& footprint) {
  Set set{std::move(parameters), {}, {}};
  KernelArguments& arguments = set.arguments;
  footprint = 0;
  const auto filled_block = [&](DataType type, const Block& block, int64_t index_limit = 0) {
    footprint += bytes_of(type, block);
    return index_limit > 0 ? filled(bytes_of(type, block), index_limit) : filled(type, block);
  };
  for (int i = 0; i < static_cast<int>(definition.inputs().size()); ++i) {
    const Block block = definition.input_block(i, part);
    const DataType type = definition.inputs()[i].type;
    const int64_t index_limit = type == DataType::i32 ? definition.index_limit(i) : 0;
    float* input = filled_block(type, block, index_limit);
    arguments.inputs.push_back(input);
    set.inputs.emplace_back(input, pattern_of(bytes_of(type, block), index_limit > 0 ? index_limit : values_of(type)));
    const bool wanted = use.input_gradients && definition.differentiable_input(i);
    arguments.input_gradients.push_back(wanted ? filled_block(type, block) : nullptr);
  }
  if (use.shared_bytes > 0) arguments.accumulate.assign(definition.parameters().size(), 1);
  for (int o = 0; o < static_cast<int>(definition.outputs().size()); ++o) {
    const Block block = definition.output_block(o, part);
    const DataType type = definition.outputs()[o].type;
    arguments.outputs.push_back(filled_block(type, block));
    if (definition.is_loss()) continue;
    float* gradient = filled_block(type, block);
    arguments.output_gradients.push_back(gradient);
    set.output_gradients.emplace_back(gradient, pattern_of(bytes_of(type, block), values_of(type)));
  }
  const int64_t statistics =
      std::max(definition.statistics_bytes(part, false), definition.statistics_bytes(part, true));
  if (statistics == 0) return set;
  if (definition.gathers_statistics())  // of about so many parts of this size
    for (int d = 0; d < part.rank(); ++d)
      if (definition.statistics_span(d))
        arguments.statistics_slots *=
            static_cast<int>((definition.dimensions()[d].size + part[d].size() - 1) / part[d].size());
  arguments.statistics = filled(arguments.statistics_slots * statistics);
  return set;
}

}  // namespace ff
