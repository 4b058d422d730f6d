#include "search/cost/measurement.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cctype>
#include <ctime>
#include <exception>
#include <fstream>
#include <thread>

#include "common/errors.h"

namespace ff {
namespace {

ProfileEntry summarize(std::vector<double> samples_us) {
  std::sort(samples_us.begin(), samples_us.end());
  const auto quantile = [&](double q) { return samples_us[static_cast<size_t>(q * static_cast<double>(samples_us.size() - 1))]; };
  return {quantile(0.5), static_cast<int>(samples_us.size()), (quantile(0.75) - quantile(0.25)) / quantile(0.5)};
}

std::string first_line_with(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0 && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "unknown";
}

}  // namespace

// One thread's backend and what it works on: several sets of buffers, taken in turn.
class KernelMeasurement::Lane {
 public:
  Lane(std::unique_ptr<Backend> backend, size_t most_sets) : backend_(std::move(backend)), most_sets_(most_sets) {}
  ~Lane() { clear(); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void clear() {
    for (void* memory : buffers_) backend_->release(memory);
    buffers_.clear();
    patterns_.clear();
    sets_.clear();
    kernel_.reset();
  }

  void prepare_kernel(const OperatorDefinition& definition, const Block& part, KernelUse use, int64_t rotated_bytes) {
    clear();
    kernel_ = backend_->make_kernel({definition, part, std::vector<bool>(definition.inputs().size(), use.input_gradients), "measured", 1});
    int64_t parameter_footprint = 1;
    std::vector<KernelArguments> parameter_sets;
    do {
      parameter_sets.push_back(parameters_of(definition, part, parameter_footprint));
    } while (use.shared_bytes > 0 && static_cast<int64_t>(parameter_sets.size() + 1) * parameter_footprint <= use.shared_bytes &&
             parameter_sets.size() < most_sets_);
    int64_t footprint = 1;
    do {
      if (use.shared_bytes == 0 && sets_.size() == parameter_sets.size())
        parameter_sets.push_back(parameters_of(definition, part, parameter_footprint));
      sets_.push_back(buffers_of(definition, part, use, parameter_sets[sets_.size() % parameter_sets.size()], footprint));
    } while (static_cast<int64_t>(sets_.size() + 1) * (footprint + (use.shared_bytes == 0 ? parameter_footprint : 0)) <= rotated_bytes &&
             sets_.size() < most_sets_);
  }

  void prepare_plain(int count, int64_t bytes, int64_t rotated_bytes) {
    clear();
    do {
      KernelArguments set;
      for (int i = 0; i < count; ++i) set.outputs.push_back(filled(bytes));
      sets_.push_back(set);
    } while (static_cast<int64_t>(sets_.size() + 1) * count * bytes <= rotated_bytes && sets_.size() < most_sets_);
  }

  Backend& backend() { return *backend_; }
  Kernel& kernel() { return *kernel_; }
  KernelArguments& set(int repetition) { return sets_[static_cast<size_t>(repetition) % sets_.size()]; }

 private:
  static constexpr int64_t most_drawn = int64_t{1} << 20;  // elements

  // Random values: of float in [-0.5, 0.5), or, with an index limit, i32 below that.
  float* filled(int64_t bytes, int64_t index_limit = 0) {
    float* memory = static_cast<float*>(backend_->allocate(std::max<int64_t>(bytes, element_bytes)));
    buffers_.push_back(memory);
    const auto [pattern, first] = patterns_.emplace(std::pair(bytes, index_limit), memory);
    if (!first) {  // the same values, which the device copies faster than they are drawn
      const Block all(Shape{bytes / element_bytes});
      backend_->copy_block(pattern->second, all, memory, all, all);
      return memory;
    }
    // The rest of a large buffer repeats what is drawn: drawing and sending it would take longer than all that is measured.
    const int64_t elements = bytes / element_bytes, drawn = std::min(elements, most_drawn);
    std::vector<float> values(static_cast<size_t>(drawn), 0.0f);
    uint32_t state = 12345;  // full Philox would cost more than the kernels
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      const double uniform = (state >> 8) / 16777216.0;
      if (index_limit > 0)
        value = std::bit_cast<float>(static_cast<int32_t>(uniform * static_cast<double>(index_limit)));
      else
        value = static_cast<float>(uniform) - 0.5f;
    }
    if (drawn > 0) backend_->store_from_host(values.data(), memory, {drawn});
    for (int64_t done = drawn, more = 0; done < elements; done += more) {
      more = std::min(done, elements - done);
      const Block part(Shape{more});
      backend_->copy_block(memory, part, memory + done, part, part);
    }
    return memory;
  }

  KernelArguments parameters_of(const OperatorDefinition& definition, const Block& part, int64_t& footprint) {
    KernelArguments set;
    footprint = 0;
    for (int p = 0; p < static_cast<int>(definition.parameters().size()); ++p) {
      const int64_t bytes = definition.parameter_block(p, part).volume() * element_bytes;
      const bool trained = definition.parameters()[p].trained;
      set.parameters.push_back(filled(bytes));
      set.parameter_gradients.push_back(trained ? filled(bytes) : nullptr);
      footprint += trained ? 2 * bytes : bytes;
    }
    return set;
  }

  // `set`: with its parameters.
  KernelArguments buffers_of(const OperatorDefinition& definition, const Block& part, KernelUse use, KernelArguments set, int64_t& footprint) {
    footprint = 0;
    const auto filled_block = [&](const Block& block, int64_t index_limit = 0) {
      footprint += block.volume() * element_bytes;
      return filled(block.volume() * element_bytes, index_limit);
    };
    for (int i = 0; i < static_cast<int>(definition.inputs().size()); ++i) {
      const Block block = definition.input_block(i, part);
      const bool indices = definition.inputs()[i].type == DataType::i32;
      set.inputs.push_back(filled_block(block, indices ? definition.index_limit(i) : 0));
      set.input_gradients.push_back(use.input_gradients && definition.differentiable_input(i) ? filled_block(block) : nullptr);
    }
    if (use.shared_bytes > 0) set.accumulate.assign(definition.parameters().size(), 1);
    for (int o = 0; o < static_cast<int>(definition.outputs().size()); ++o) {
      set.outputs.push_back(filled_block(definition.output_block(o, part)));
      if (!definition.is_loss()) set.output_gradients.push_back(filled_block(definition.output_block(o, part)));
    }
    if (definition.has_statistics()) set.statistics = filled(definition.statistics_bytes(part));
    return set;
  }

  std::unique_ptr<Backend> backend_;
  size_t most_sets_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<void*> buffers_;
  std::map<std::pair<int64_t, int64_t>, const float*> patterns_;  // first buffer of so many bytes with such an index limit
  std::vector<KernelArguments> sets_;
};

KernelMeasurement::KernelMeasurement(MakeBackend make_backend, MeasurementSettings settings) : settings_(settings) {
  for (int lane = 0; lane < std::max(1, settings.concurrent); ++lane) lanes_.push_back(std::make_unique<Lane>(make_backend(), settings.most_sets));
}

KernelMeasurement::~KernelMeasurement() = default;

std::vector<ProfileEntry> KernelMeasurement::time(int phases, const std::function<void(Lane&)>& prepare,
                                                  const std::function<void(Lane&, int, int)>& work) {
  std::atomic<int> ready{0};
  std::atomic<bool> done{false};
  std::vector<std::exception_ptr> failures(lanes_.size());
  std::vector<std::vector<double>> samples(static_cast<size_t>(phases));
  const auto guarded = [&](size_t lane, const std::function<void()>& body) {
    try {
      body();
    } catch (...) {
      failures[lane] = std::current_exception();
      done = true;
    }
  };
  const auto warm_up = [&](size_t lane) {
    prepare(*lanes_[lane]);
    lanes_[lane]->backend().wait();
    for (int repetition = 0; repetition < 2; ++repetition)
      for (int phase = 0; phase < phases; ++phase) work(*lanes_[lane], phase, repetition);
    lanes_[lane]->backend().wait();
    ++ready;
    while (ready < static_cast<int>(lanes_.size()) && !done) std::this_thread::yield();
  };
  std::vector<std::thread> others;
  for (size_t lane = 1; lane < lanes_.size(); ++lane)
    others.emplace_back([&, lane] {
      guarded(lane, [&] {
        warm_up(lane);
        for (int repetition = 0; !done; ++repetition)
          for (int phase = 0; phase < phases && !done; ++phase) work(*lanes_[lane], phase, repetition);
      });
    });
  guarded(0, [&] {
    warm_up(0);
    double measured_ms = 0;
    for (int repetition = 0; !done && repetition < settings_.most_samples &&
                             (repetition < settings_.least_samples || measured_ms < settings_.least_ms);
         ++repetition)
      for (int phase = 0; phase < phases; ++phase) {
        lanes_[0]->backend().start_stopwatch();
        work(*lanes_[0], phase, repetition);
        const double us = lanes_[0]->backend().stop_stopwatch_us();
        samples[static_cast<size_t>(phase)].push_back(us);
        measured_ms += us / 1e3;
      }
  });
  done = true;
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  std::vector<ProfileEntry> entries;
  for (auto& phase : samples) entries.push_back(summarize(std::move(phase)));
  for (auto& lane : lanes_) lane->clear();
  return entries;
}

KernelMeasurement::Result KernelMeasurement::kernel(const OperatorDefinition& definition, const Block& part, bool backward, KernelUse use) {
  std::vector<Phase> phases;
  if (definition.has_statistics()) phases.push_back(Phase::forward_statistics);
  phases.push_back(Phase::forward);
  if (backward && definition.has_statistics()) phases.push_back(Phase::backward_statistics);
  if (backward) phases.push_back(Phase::backward);
  const auto entries = time(
      static_cast<int>(phases.size()), [&](Lane& lane) { lane.prepare_kernel(definition, part, use, settings_.rotated_bytes); },
      [&phases](Lane& lane, int phase, int repetition) {
        Kernel& kernel = lane.kernel();
        KernelArguments& set = lane.set(repetition);
        switch (phases[static_cast<size_t>(phase)]) {
          case Phase::forward_statistics: kernel.forward_statistics(set); break;
          case Phase::forward: kernel.forward(set); break;
          case Phase::backward_statistics: kernel.backward_statistics(set); break;
          case Phase::backward: kernel.backward(set); break;
        }
      });
  Result result;
  for (size_t i = 0; i < phases.size(); ++i) result[phases[i]] = entries[i];
  return result;
}

ProfileEntry KernelMeasurement::copy(int64_t bytes) {
  const Shape shape{bytes / element_bytes};
  return time(
      1, [&](Lane& lane) { lane.prepare_plain(2, bytes, settings_.rotated_bytes); },
      [&](Lane& lane, int, int repetition) {
        KernelArguments& set = lane.set(repetition);
        lane.backend().copy_block(set.outputs[0], Block(shape), set.outputs[1], Block(shape), Block(shape));
      })[0];
}

ProfileEntry KernelMeasurement::update(int64_t bytes) {
  const SgdSettings settings{1e-6f, 0.9f, 1e-4f};
  return time(
      1, [&](Lane& lane) { lane.prepare_plain(3, bytes, settings_.rotated_bytes); },
      [&](Lane& lane, int, int repetition) {
        KernelArguments& set = lane.set(repetition);
        lane.backend().sgd_update(set.outputs[0], set.outputs[1], set.outputs[2], bytes / element_bytes, settings);
      })[0];
}

void measure_rates(KernelMeasurement& measurement, Profile& profile) {
  for (int64_t bytes : {int64_t{64}, int64_t{4} << 10, int64_t{32} << 10, int64_t{256} << 10, int64_t{2} << 20, int64_t{16} << 20, int64_t{64} << 20}) {
    const std::string size = " " + std::to_string(bytes);
    if (!profile.entries.count("copy" + size)) profile.entries["copy" + size] = measurement.copy(bytes);
    if (!profile.entries.count("update" + size)) profile.entries["update" + size] = measurement.update(bytes);
  }
}

MeasurementSettings gpu_settings(int gpu, Precision precision) {
  MeasurementSettings settings;
  settings.gpu = gpu;
  settings.precision = precision;
  settings.rotated_bytes = 3 * describe_cuda_device(gpu).l2_cache_bytes;
  settings.most_sets = 64;
  return settings;
}

bool names_model(const std::string& gpu_name, const std::string& model) {
  const auto lower = [](std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  };
  const std::string name = lower(gpu_name), wanted = lower(model);
  const auto in_word = [&](size_t at) { return at < name.size() && std::isalnum(static_cast<unsigned char>(name[at])); };
  for (size_t at = name.find(wanted); at != std::string::npos; at = name.find(wanted, at + 1))
    if ((at == 0 || !in_word(at - 1)) && !in_word(at + wanted.size())) return true;
  return false;
}

int gpu_of_model(const std::string& model) {
  int count = 0;
  try {
    count = cuda_device_count();
  } catch (const MachineError&) {
    return -1;
  }
  for (int gpu = 0; gpu < count; ++gpu)
    if (names_model(describe_cuda_device(gpu).name, model)) return gpu;
  return -1;
}

Json describe_this_machine(const MeasurementSettings& settings) {
  utsname system{};
  uname(&system);
  char date[16] = "";
  const std::time_t now = std::time(nullptr);
  std::tm calendar{};
  std::strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &calendar));
  if (settings.gpu >= 0) {
    const CudaDescription gpu = describe_cuda_device(settings.gpu);
    return {{"where", system.nodename},
            {"processor", gpu.name},
            {"driver", gpu.driver},
            {"clocks", gpu.clocks},
            {"libraries", {{"CUDA", gpu.runtime}, {"cuDNN", gpu.cudnn}, {"cuBLAS", gpu.cublas}}},
            {"precision", settings.precision == Precision::tf32 ? "tf32" : "fp32"},
            {"date", date},
            {"threads", 1},
            {"concurrent", settings.concurrent}};
  }
  return {{"where", system.nodename},
          {"processor", first_line_with("/proc/cpuinfo", "model name")},
          {"libraries", {{"oneDNN", cpu_library_version()}}},
          {"date", date},
          {"threads", settings.threads},
          {"concurrent", settings.concurrent}};
}

}  // namespace ff
