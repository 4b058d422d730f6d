#include "search/cost/measurement.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <ctime>
#include <exception>
#include <fstream>
#include <thread>

#include "common/errors.h"
#include "common/kernels/batched_updates.h"
#include "search/cost/measurement_lane.h"

namespace ff {
namespace {

ProfileEntry summarize(Vector<double> samples_us) {
  std::sort(samples_us.begin(), samples_us.end());
  const auto quantile = [&](double q) {
    return samples_us[static_cast<size_t>(q * static_cast<double>(samples_us.size() - 1))];
  };
  return {quantile(0.5), static_cast<int>(samples_us.size()), (quantile(0.75) - quantile(0.25)) / quantile(0.5)};
}

std::string first_line_with(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0 && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "unknown";
}

// Of each phase as many as the settings ask for, unless something is `done` before.
template <typename Work>
Vector<Vector<double>> samples_us(MeasurementLane& lane, const MeasurementSettings& settings, int phases,
                                  const Work& make_ready, const Work& work, const std::atomic<bool>& done) {
  Vector<Vector<double>> samples(phases);
  double measured_ms = 0;
  for (int repetition = 0; !done && repetition < settings.most_samples &&
                           (repetition < settings.least_samples || measured_ms < settings.least_ms);
       ++repetition)
    for (int phase = 0; phase < phases; ++phase) {
      make_ready(lane, phase, repetition);
      lane.backend().start_stopwatch();
      work(lane, phase, repetition);
      const double us = lane.backend().stop_stopwatch_us();
      samples[phase].push_back(us);
      measured_ms += us / 1e3;
    }
  return samples;
}

// The same, of a GPU: in rows of settings.row_us.
template <typename Work>
Vector<Vector<double>> samples_in_rows_us(MeasurementLane& lane, const MeasurementSettings& settings,
                                          const Vector<bool>& follows, const Work& work) {
  Vector<Vector<double>> samples;
  for (const int phase : follows.indices()) {
    const auto row = [&](int count, int least, bool with_phase) {
      return lane.backend().times_in_row_us(count, least, [&](int repetition) {
        if (follows[phase]) work(lane, phase - 1, repetition);
        if (with_phase) work(lane, phase, repetition);
      });
    };
    const double alone_us = std::max(1e-3, row(1, 1, true)[0]);
    const int count = static_cast<int>(std::clamp(settings.row_us / alone_us, 1.0, 100.0));
    const int wanted = static_cast<int>(std::clamp<double>(settings.least_ms * 1e3 / (count * alone_us),
                                                           settings.least_samples, settings.most_samples));
    samples.push_back(row(count, wanted, true));
    if (!follows[phase]) continue;
    const double before_us = summarize(row(count, settings.least_samples, false)).us;
    for (double& us : samples.back()) us = std::max(us - before_us, 0.01 * us);
  }
  return samples;
}

}  // namespace

KernelMeasurement::KernelMeasurement(MakeBackend make_backend, MeasurementSettings settings) : settings_(settings) {
  for (int lane = 0; lane < std::max(1, settings.concurrent); ++lane)
    lanes_.push_back(std::make_unique<MeasurementLane>(make_backend(), settings));
  if (settings.warm_up_ms <= 0) return;
  constexpr int64_t bytes = 64 << 20;
  const Block block(Shape{bytes / element_bytes});
  MeasurementLane& lane = *lanes_[0];
  lane.prepare_plain(2, bytes);
  const KernelArguments& set = lane.plain(0);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::duration<double, std::milli>(settings.warm_up_ms)) {
    lane.backend().copy_block(set.outputs[0], block, set.outputs[1], block, block);
    lane.backend().wait();
  }
  lane.clear();
}

KernelMeasurement::~KernelMeasurement() = default;

Vector<ProfileEntry> KernelMeasurement::time(const Vector<bool>& follows, const Prepare& prepare,
                                             const Work& make_ready, const Work& work) {
  const int phases = follows.count();
  std::atomic<int> ready{0};
  std::atomic<bool> done{false};
  Vector<std::exception_ptr> failures(lanes_.size());
  Vector<Vector<double>> samples;
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
  Vector<std::thread> others;
  const auto keep_busy = [&](size_t lane) {
    guarded(lane, [&] {
      warm_up(lane);
      for (int repetition = 0; !done; ++repetition)
        for (int phase = 0; phase < phases && !done; ++phase) {
          make_ready(*lanes_[lane], phase, repetition);
          work(*lanes_[lane], phase, repetition);
        }
    });
  };
  try {
    for (size_t lane = 1; lane < lanes_.size(); ++lane) others.emplace_back(keep_busy, lane);
  } catch (...) {  // kernels of one device alone would be faster than those of all at once
    done = true;
    for (std::thread& other : others) other.join();
    throw;
  }
  guarded(0, [&] {
    warm_up(0);
    samples = settings_.row_us > 0 ? samples_in_rows_us(*lanes_[0], settings_, follows, work)
                                   : samples_us(*lanes_[0], settings_, phases, make_ready, work, done);
  });
  done = true;
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  Vector<ProfileEntry> entries;
  for (auto& phase : samples) entries.push_back(summarize(std::move(phase)));
  for (auto& lane : lanes_) lane->clear();
  return entries;
}

KernelMeasurement::Result KernelMeasurement::kernel(const OperatorDefinition& definition, const Block& part,
                                                    bool backward, KernelUse use) {
  const bool forward_statistics = definition.statistics_bytes(part, false) > 0,
             backward_statistics = definition.statistics_bytes(part, true) > 0;
  Vector<Phase> phases;
  if (forward_statistics) phases.push_back(Phase::forward_statistics);
  phases.push_back(Phase::forward);
  if (backward && backward_statistics) phases.push_back(Phase::backward_statistics);
  if (backward) phases.push_back(Phase::backward);
  Vector<bool> follows;  // right after its statistics
  for (const Phase phase : phases)
    follows.push_back(phase == Phase::forward ? forward_statistics : phase == Phase::backward && backward_statistics);
  const auto entries = time(
      follows, [&](MeasurementLane& lane) { lane.prepare_kernel(definition, part, use); },
      [&](MeasurementLane& lane, int phase, int repetition) {
        if (!follows[phase]) lane.make_ready(phases[phase], repetition);
      },
      [&](MeasurementLane& lane, int phase, int repetition) { lane.run(phases[phase], repetition); });
  Result result;
  for (size_t i = 0; i < phases.size(); ++i) result[phases[i]] = entries[i];
  return result;
}

ProfileEntry KernelMeasurement::copy(int64_t bytes) {
  const Shape shape{bytes / element_bytes};
  return time(
      {false}, [&](MeasurementLane& lane) { lane.prepare_plain(2, bytes); }, [](MeasurementLane&, int, int) {},
      [&](MeasurementLane& lane, int, int repetition) {
        const KernelArguments& set = lane.plain(repetition);
        lane.backend().copy_block(set.outputs[0], Block(shape), set.outputs[1], Block(shape), Block(shape));
      })[0];
}

ProfileEntry KernelMeasurement::update(int64_t bytes, OptimizerKind optimizer) {
  OptimizerSettings settings = default_optimizer(optimizer);
  settings.learning_rate = 1e-6;
  settings.weight_decay = 1e-4;
  if (optimizer == OptimizerKind::sgd) settings.momentum = 0.9;
  const int buffers = 2 + state_buffers(settings);
  const OptimizerStep step = optimizer_step(settings, 0, 0);
  const int64_t elements = bytes / element_bytes;
  // Of as many parameters as the executor updates at once; each has buffers of its own.
  const int64_t batch =
      std::min(update_batch_elements(lanes_[0]->backend()) / elements, settings_.rotated_bytes / (buffers * bytes));
  const int64_t at_once = std::clamp<int64_t>(batch, 1, static_cast<int64_t>(settings_.most_sets));
  ProfileEntry entry = time(
      {false}, [&](MeasurementLane& lane) { lane.prepare_plain(buffers, bytes); },
      [](MeasurementLane& lane, int, int) { lane.other_work(); },
      [&](MeasurementLane& lane, int, int repetition) {
        Vector<UpdateOperands> operands;
        for (int64_t i = 0; i < at_once; ++i) {
          const KernelArguments& set = lane.plain(static_cast<int>(repetition * at_once + i));
          operands.push_back(
              {set.outputs[0], set.outputs[1], {set.outputs[2], buffers > 3 ? set.outputs[3] : nullptr}, elements});
        }
        update_all(lane.backend(), operands, step);
      })[0];
  entry.us /= static_cast<double>(at_once);
  return entry;
}

void measure_rates(KernelMeasurement& measurement, Profile& profile, OptimizerKind optimizer) {
  const std::string update = update_entry(optimizer);
  for (int64_t bytes : {int64_t{64}, int64_t{4} << 10, int64_t{32} << 10, int64_t{256} << 10, int64_t{2} << 20,
                        int64_t{16} << 20, int64_t{64} << 20}) {
    const std::string size = " " + std::to_string(bytes);
    if (!profile.entries.count("copy" + size)) profile.entries["copy" + size] = measurement.copy(bytes);
    if (!profile.entries.count(update + size)) profile.entries[update + size] = measurement.update(bytes, optimizer);
  }
}

MeasurementSettings gpu_settings(int gpu, Precision precision) {
  MeasurementSettings settings;
  settings.gpu = gpu;
  settings.precision = precision;
  settings.rotated_bytes = 3 * describe_cuda_device(gpu).l2_cache_bytes;
  settings.most_sets = 64;
  settings.other_work_bytes = 0;
  settings.row_us = 300;
  settings.warm_up_ms = 700;
  settings.least_samples = 9;
  return settings;
}

bool names_model(const std::string& gpu_name, const std::string& model) {
  const auto lower = [](std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  };
  const std::string name = lower(gpu_name), wanted = lower(model);
  // A part of a GPU ("NVIDIA H100 80GB HBM3 MIG 1g.10gb") is slower than the whole one.
  if (name.find(" mig ") != std::string::npos && wanted.find("mig") == std::string::npos) return false;
  const auto in_word = [&](size_t at) {
    return at < name.size() && std::isalnum(static_cast<unsigned char>(name[at]));
  };
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
            {"precision", std::string(to_string(settings.precision))},
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
