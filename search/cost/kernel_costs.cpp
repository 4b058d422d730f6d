#include "search/cost/kernel_costs.h"

#include <algorithm>
#include <cmath>

#include "common/processors.h"
#include "search/cost/analytic.h"

namespace ff {
namespace {

constexpr double longest_us = 1e12;  // 11 days, so that sums stay within 64 bits

Nanoseconds to_ns(double us) { return std::max<Nanoseconds>(1, std::llround(std::min(us, longest_us) * 1e3)); }

// On a model of this speed, relative to that on which it takes `ns`.
Nanoseconds slower(Nanoseconds ns, double speed) { return to_ns(static_cast<double>(ns) * 1e-3 / speed); }

void expect_precision(const Profile& profile, Precision precision) {
  const std::string wanted(to_string(precision)), measured = profile.measured.value("precision", wanted);
  if (measured != wanted)
    throw InputError(profile.file + ": was measured with precision " + measured + ", not " + wanted +
                     "; give --precision " + measured + " or another profile");
}

}  // namespace

KernelCosts::KernelCosts(const Topology& topology, CostMode mode, Vector<Profile> profiles, int64_t working_set_bytes,
                         Precision precision, OptimizerKind optimizer)
    : mode_(mode), precision_(precision), optimizer_(optimizer) {
  const bool may_measure = mode == CostMode::measure || mode == CostMode::automatic;
  for (size_t m = 0; m < topology.models.size(); ++m) {
    Model model;
    model.model = topology.models[m];
    model.profile.device_model = model.model.name;
    std::map<std::string, int> devices_of_node;
    for (const Device& device : topology.devices) {
      // Those with these kernels at another speed count too.
      if (device.model != static_cast<int>(m) && topology.models[device.model].scaled_from != static_cast<int>(m))
        continue;
      ++devices_of_node[device.node];
      model.is_gpu = device.kind == DeviceKind::gpu;
    }
    if (model.is_gpu) {
      const int gpu = may_measure ? gpu_of_model(model.model.name) : -1;
      model.on_this_machine = gpu >= 0;
      if (gpu >= 0) model.settings = gpu_settings(gpu, precision);
    } else if (!devices_of_node.empty()) {
      model.on_this_machine = true;
      for (const auto& [node, count] : devices_of_node) model.ranks_of_node = std::max(model.ranks_of_node, count);
      const int processors = usable_processors().count();
      model.settings.threads = std::min(model.model.cores, processors);  // as of a rank of ffexec
      model.settings.concurrent = std::min(model.ranks_of_node, processors / model.settings.threads);
    }
    if (working_set_bytes > 0)
      for (int64_t* bytes : {&model.settings.rotated_bytes, &model.settings.other_memory_bytes})
        *bytes = std::min(*bytes, working_set_bytes);
    for (const Profile& profile : profiles) {
      if (profile.device_model != model.model.name) continue;
      if (!model.profile.file.empty())
        throw InputError(profile.file + ": is of device model \"" + profile.device_model + "\", as is " +
                         model.profile.file + "; give one profile for each");
      model.profile = profile;
    }
    if (model.is_gpu) expect_precision(model.profile, precision);
    models_.push_back(std::move(model));
  }
  for (const Profile& profile : profiles)
    if (std::none_of(topology.models.begin(), topology.models.end(),
                     [&](const DeviceModel& m) { return m.name == profile.device_model; })) {
      Vector<std::string> known;
      for (const DeviceModel& model : topology.models) known.push_back(model.name);
      throw InputError(profile.file + ": is the profile of device model \"" + profile.device_model +
                       "\", which the topology \"" + topology.name + "\" does not have" +
                       suggestion(profile.device_model, known));
    }
}

bool KernelCosts::measurable(int model) const {
  return models_[model].on_this_machine && (mode_ == CostMode::measure || mode_ == CostMode::automatic);
}

std::string KernelCosts::why_not_measurable(int model) const {
  if (!models_[model].is_gpu || models_[model].on_this_machine) return "";
  try {
    cuda_device_count();
  } catch (const MachineError& error) {
    return std::string(", ") + error.what();
  }
  return ", GPU 0 is \"" + describe_cuda_device(0).name + "\"";
}

std::string KernelCosts::measurement_note() const {
  for (const Model& model : models_) {
    if (model.is_gpu || !model.measurement || model.measured_here.empty()) continue;
    const std::string threads = std::to_string(model.settings.threads), ranks = std::to_string(model.ranks_of_node),
                      lanes = std::to_string(model.settings.concurrent);
    if (model.settings.threads < model.model.cores)
      return "kernels of device model \"" + model.model.name + "\" were measured with " + threads +
             (model.settings.threads == 1 ? " thread" : " threads") + ", as many as this process may use processors, " +
             "not with the model's " + std::to_string(model.model.cores) + " cores";
    if (model.settings.concurrent < model.ranks_of_node)
      return "kernels of device model \"" + model.model.name + "\" were measured " + lanes +
             " at once, for which this process has processors; " + ranks +
             " ranks on this machine take turns and are slower than predicted, on a machine with processors for " +
             ranks + " they are not";
  }
  return "";
}

void KernelCosts::watched(const Model& model, const std::function<void()>& measure) {
  const std::set<int> processors = model.is_gpu ? std::set<int>() : usable_processors().allowed;
  const ProcessorTime begin = processor_time(processors);
  measure();
  time_ += processor_time(processors) - begin;
}

std::string KernelCosts::busy_note() const {
  if (spreads_.empty()) return "";
  Vector<double> spreads = spreads_;
  const auto middle = spreads.begin() + static_cast<int64_t>(spreads.size() / 2);
  std::nth_element(spreads.begin(), middle, spreads.end());
  return ff::busy_note(time_, usable_processors().allowed.size(), *middle);
}

KernelMeasurement& KernelCosts::measurement(Model& model) {
  if (!model.on_this_machine)
    throw MachineError(
        "cannot measure kernels of device model \"" + model.model.name + "\": this machine has no such device" +
        why_not_measurable(static_cast<int>(&model - models_.data())) + "; use --cost profile or --cost analytic");
  if (!model.measurement) {
    const MeasurementSettings settings = model.settings;
    const auto make_backend = [settings]() -> std::unique_ptr<Backend> {
      if (settings.gpu >= 0) return make_cuda_backend(settings.gpu, settings.precision);
      return make_cpu_backend(settings.threads);
    };
    model.measurement = std::make_unique<KernelMeasurement>(make_backend, settings);
  }
  return *model.measurement;
}

std::string KernelCosts::explanation(const OperatorDefinition& definition, const Block& part, Phase phase,
                                     bool backward_too, KernelUse use, int index) {
  const Model& model = models_[index];
  const CostSource source = kernel(definition, part, phase, backward_too, use, index).source;
  std::string text;
  if (source == CostSource::analytic) {
    analytic_kernel_us(model.model, definition, part, phase, use, precision_of(definition, model), conventions_, &text);
  } else {
    text = std::string(source == CostSource::profile ? "profile" : "measured") + ": " +
           kernel_signature(definition, part, phase, use);
  }
  if (model.model.scaled_from >= 0 && (source != CostSource::analytic))
    text += ", divided by speed " + Json(model.model.speed).dump();
  return text;
}

// After the first measurement, when the clocks have gone up.
void KernelCosts::describe_machine(Model& model) {
  if (model.profile.measured.empty()) model.profile.measured = describe_this_machine(model.settings);
}

void KernelCosts::follow(const FrameworkConventions& conventions) {
  if (conventions.fp8 && precision_ != Precision::bf16)
    throw InputError("fp8=" + std::string(conventions.fp8_weights ? "weights" : "on") +
                     ": what is not in fp8 is in bf16; add precision=bf16 to the settings, or --precision bf16");
  conventions_ = conventions;
}

KernelCost KernelCosts::kernel(const OperatorDefinition& definition, const Block& part, Phase phase, bool backward_too,
                               KernelUse use, int index) {
  Model& model = models_[index];
  if (model.model.scaled_from >= 0 && mode_ != CostMode::analytic && model.profile.entries.empty()) {
    const KernelCost other = kernel(definition, part, phase, backward_too, use, model.model.scaled_from);
    return {slower(other.ns, model.model.speed), other.source};
  }
  if (mode_ == CostMode::analytic)
    return {to_ns(analytic_kernel_us(model.model, definition, part, phase, use, precision_of(definition, model),
                                     conventions_)),
            CostSource::analytic};
  const std::string signature = kernel_signature(definition, part, phase, use);
  std::lock_guard lock(mutex_);
  // `measure` believes only what was measured by this run.
  const bool usable = mode_ != CostMode::measure || model.measured_here.count(signature);
  if (const auto it = model.profile.entries.find(signature); it != model.profile.entries.end() && usable)
    return {to_ns(it->second.us), model.measured_here.count(signature) ? CostSource::measured : CostSource::profile};
  if (mode_ == CostMode::profile && model.profile.entries.empty())
    throw InputError("--cost profile: there are no kernel times of device model \"" + model.model.name +
                     "\"; give --profile FILE, as ffsearch profile writes it");
  if (mode_ == CostMode::profile)
    throw InputError("the profile of device model \"" + model.model.name + "\" has no entry \"" + signature +
                     "\"; run ffsearch profile for this graph and topology");
  if (mode_ == CostMode::automatic && !model.on_this_machine)
    return {to_ns(analytic_kernel_us(model.model, definition, part, phase, use, precision_of(definition, model),
                                     conventions_)),
            CostSource::analytic};
  KernelMeasurement::Result result;
  watched(model, [&] { result = measurement(model).kernel(definition, part, backward_too, use); });
  describe_machine(model);
  const auto keep = [&](Phase measured, const ProfileEntry& entry) {
    const std::string key = kernel_signature(definition, part, measured, use);
    model.profile.entries[key] = entry;
    model.measured_here[key] = true;
    ++measured_count_;
    if (!model.is_gpu) spreads_.push_back(entry.iqr_over_median);
  };
  for (const auto& [measured, entry] : result) keep(measured, entry);
  return {to_ns(result.at(phase).us), CostSource::measured};
}

Nanoseconds KernelCosts::rate(const std::string& work, int64_t bytes, int index) {
  Model& model = models_[index];
  const auto analytic = [&] {
    return to_ns(work == "copy" ? analytic_copy_us(model.model, bytes)
                                : analytic_update_us(model.model, bytes, optimizer_, conventions_));
  };
  if (mode_ == CostMode::analytic) return analytic();
  if (model.model.scaled_from >= 0 && model.profile.entries.empty())
    return slower(rate(work, bytes, model.model.scaled_from), model.model.speed);
  std::lock_guard lock(mutex_);
  if (measurable(index) && !model.has_rates) {
    watched(model, [&] { measure_rates(measurement(model), model.profile, optimizer_); });
    describe_machine(model);
    model.has_rates = true;
  }
  if (const auto us = interpolated_us(model.profile, work, bytes)) return to_ns(*us);
  // A profile that knows SGD alone, which moves 5 numbers for each one; Adam moves 7.
  if (work == update_entry(OptimizerKind::adam))
    if (const auto us = interpolated_us(model.profile, update_entry(OptimizerKind::sgd), bytes))
      return to_ns(*us * 7 / 5);
  return analytic();
}

Nanoseconds KernelCosts::copy(int64_t bytes, int model) { return rate("copy", bytes, model); }
Nanoseconds KernelCosts::update(int64_t bytes, int model) { return rate(update_entry(optimizer_), bytes, model); }

int64_t working_set_bytes(const Graph& graph, const Topology& topology) {
  int64_t bytes = 3 * graph.parameter_count() * element_bytes;
  for (const Tensor& tensor : graph.tensors)
    bytes += (tensor.has_gradient ? 2 : 1) * bytes_of(tensor.type, volume(tensor.shape));
  return bytes / static_cast<int64_t>(topology.devices.size());
}

}  // namespace ff
