#include "executor/commands.h"

#include <algorithm>
#include <filesystem>

#include "common/kernels/bf16_kernels.h"
#include "executor/calibration/calibrate.h"
#include "executor/checkpoint.h"
#include "executor/cuda/device_clock.h"
#include "executor/device_choice.h"
#include "executor/failures.h"
#include "executor/observers/iteration_recorder.h"
#include "executor/observers/trace.h"
#include "executor/processor_share.h"
#include "executor/report.h"
#include "executor/transport/nccl.h"
#include "executor/transport/staging.h"
#include "executor/verify.h"

namespace ff {
namespace {

StrategyFile load_fitting_strategy(const std::string& path, const std::string& precision, int ranks) {
  StrategyFile file = load_strategy(path);
  if (!precision.empty()) {
    file.settings.precision = precision_of(precision);
    if (const DataType type = activation_type(file.settings.precision); type != file.graph.activation_type)
      file.graph = with_activation_type(file.graph, type);
  }
  const size_t devices = file.topology.devices.size();
  if (devices == static_cast<size_t>(ranks)) return file;
  std::string names;
  for (size_t d = 0; d < devices && d < 4; ++d) names += (d ? ", " : "") + file.topology.devices[d].name;
  if (devices > 4) names += ", ...";
  throw InputError(path + " is for " + std::to_string(devices) + (devices == 1 ? " device (" : " devices (") + names +
                   "), started with " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + ": use mpirun -n " +
                   std::to_string(devices));
}

void expect_runnable(const StrategyFile& file) {
  if (file.graph.optimizer->clip_norm > 0 && file.settings.synchronization == Synchronization::parameter_server)
    throw InputError(
        "clipping by the norm of all gradients is not possible with parameter servers, which update each parameter as "
        "soon as its gradients are there; plan with --synchronization all-reduce, or give --clip-norm 0");
}

// What a training run needs, loaded on every rank before the ranks depend on each other.
struct TrainInputs {
  std::unique_ptr<StrategyFile> file;
  std::unique_ptr<DataSource> data, evaluation;
  std::unique_ptr<Checkpoint> initial;
};

// Constants of an imported model are not in its graph: with other values it would be another function.
void expect_constants(const TrainOptions& options, const Graph& graph) {
  Vector<std::string> names;
  for (const Parameter& parameter : graph.parameters)
    if (parameter.spec.given) names.push_back(parameter.name);
  if (names.empty()) return;
  std::string list;
  constexpr int most_listed = 8;
  for (const int i : names.indices())
    if (i < most_listed) list += (i > 0 ? ", " : "") + names[i];
  if (names.count() > most_listed) list += " and " + std::to_string(names.count() - most_listed) + " more";
  throw InputError(
      options.strategy + ": the graph does not have the values of " + std::to_string(names.count()) +
      (names.count() == 1 ? " constant: " : " constants: ") + list +
      "\ngive --load FILE with the checkpoint that has them: ffsearch import writes it with --weights FILE; "
      "or \"initial\" in the attributes of these operators");
}

TrainInputs load_inputs(const TrainOptions& options, int ranks) {
  TrainInputs inputs;
  inputs.file = std::make_unique<StrategyFile>(load_fitting_strategy(options.strategy, options.precision, ranks));
  Graph& graph = inputs.file->graph;
  set_optimizer(graph, with_flags(graph.optimizer, options.optimizer));
  expect_runnable(*inputs.file);
  inputs.data =
      options.data.empty() ? synthetic_data(graph, options.seed) : npy_data(graph, options.data, graph.batch_size);
  if (!options.eval.empty()) inputs.evaluation = npy_data(graph, options.eval, 1);
  if (options.load.empty()) expect_constants(options, graph);
  else inputs.initial = std::make_unique<Checkpoint>(load_checkpoint(options.load, graph));
  return inputs;
}

// Rank 0 writes all files: what it could not write is told before the work.
void check_outputs(const TrainOptions& options, const Transport& host) {
  if (host.rank() > 0) return;
  Vector<std::string> read{options.strategy};
  for (const std::string& path : {options.save, options.trace})
    for (const std::string& folder : {options.data, options.eval})
      if (const std::filesystem::path file = std::filesystem::path(folder) / std::filesystem::path(path).filename();
          !path.empty() && !folder.empty() && file.extension() == ".npy" && std::filesystem::exists(file))
        read.push_back(file);
  expect_all_writable({options.save, options.trace}, read);
  expect_all_writable({options.trace}, {options.load});  // --save may go on with the checkpoint that --load read
}

DeviceRequest device_request(const TrainOptions& options, const StrategyFile& file) {
  const auto& devices = file.topology.devices;
  const bool gpus =
      std::all_of(devices.begin(), devices.end(), [](const Device& device) { return device.kind == DeviceKind::gpu; });
  return {options.backend, options.transport, options.share_gpu, gpus};
}

// A rank's device, and what it exchanges data with.
struct Machine {
  std::unique_ptr<Backend> backend;
  CudaBackend* cuda = nullptr;  // the backend, if it is a GPU's
  std::unique_ptr<Transport> device_transport;
  Transport* transport = nullptr;
  std::string text;  // for people
};

// `cores`: of a CPU backend. `recorded`: will iterations be recorded as CUDA graphs, where the transport can be?
Machine make_machine(const DeviceChoice& choice, int cores, Precision precision, bool recorded, Transport& host) {
  Machine machine;
  machine.transport = &host;
  if (!choice.cuda) {
    machine.backend = make_cpu_backend(cores);
    machine.text = "CPU";
    return machine;
  }
  auto backend = make_cuda_backend(choice.gpu, precision);
  machine.cuda = backend.get();
  machine.backend = std::move(backend);
  if (choice.nccl) machine.device_transport = make_nccl_transport(host, *machine.cuda, recorded);
  else if (host.size() > 1) machine.device_transport = make_staging_transport(host, *machine.cuda);
  if (machine.device_transport) machine.transport = machine.device_transport.get();
  machine.text = describe_cuda_device(choice.gpu).name + ", " + std::string(to_string(precision));
  if (host.size() > 1) machine.text += choice.nccl ? ", NCCL " + nccl_version() : ", MPI through the host's memory";
  return machine;
}

// Of optimizer state that the run needs and the checkpoint lacks, and of state that it has and the run does not use.
Vector<std::string> state_notes(const std::string& path, const Checkpoint& checkpoint,
                                const OptimizerSettings& optimizer) {
  const Vector<std::string> names = state_names(optimizer);
  const std::string kind(to_string(optimizer.kind));
  const bool lacks = std::any_of(names.begin(), names.end(),
                                 [&](const std::string& name) { return !checkpoint.states.contains(name); });
  Vector<std::string> notes;
  if (checkpoint.iterations > 0 && lacks)
    notes.push_back("note: " + path + " does not hold the state of " + kind + "; it begins with zeros");
  std::string unused;
  for (const auto& [name, state] : checkpoint.states)
    if (std::find(names.begin(), names.end(), name) == names.end()) unused += (unused.empty() ? "" : ", ") + name;
  if (!unused.empty())
    notes.push_back("note: " + path + " holds optimizer state (" + unused + ") that " + kind +
                    (optimizer.kind == OptimizerKind::sgd && names.empty() ? " without momentum" : "") +
                    " does not use; --optimizer and --momentum set the optimizer");
  return notes;
}

std::string precision_note(Precision precision, Backend& backend) {
  if (precision != Precision::bf16) return "";
  const auto* const kernels = dynamic_cast<const Bf16Kernels*>(&backend);
  const std::string native = kernels ? kernels->native_operators() : "";
  return "precision bf16: " + (native.empty() ? "" : "kernels of " + native + " are native; others ") +
         (native.empty() ? "kernels compute" : "compute") + " in f32 on values of bf16, by conversion";
}

// Why iterations of a GPU are not recorded, whatever the transport; empty: they are.
std::string why_not_recorded(const TrainOptions& options, const OptimizerSettings& optimizer) {
  if (options.no_cuda_graph) return "--no-cuda-graph";
  if (!optimizer.constant()) return "the optimizer's step differs from iteration to iteration";
  if (!options.trace.empty()) return "--trace times every task";
  if (options.epochs == 0 && options.iterations <= 3)
    return "it is recorded in the third iteration, and there is no fourth one";
  return "";
}

struct Observers {
  const Timekeeper& timekeeper;
  IterationRecorder* recorder = nullptr;  // null without a CUDA graph
  std::string note;                       // what the user should know
};

Observers attach_observers(const TrainOptions& options, const Machine& machine, Program& program) {
  const bool trace = !options.trace.empty();
  auto timekeeper = machine.cuda ? std::make_unique<Timekeeper>(make_device_clock(*machine.cuda), trace)
                                 : std::make_unique<Timekeeper>(make_host_clock(), true);
  Observers observers{program.attach(std::move(timekeeper)), nullptr, ""};
  if (!machine.cuda || options.no_cuda_graph) return observers;
  std::string reason = why_not_recorded(options, program.settings().optimizer);
  if (reason.empty() && machine.device_transport && !machine.device_transport->ordered())
    reason = "transfers through the host's memory cannot be part of one";
  if (reason.empty())
    observers.recorder =
        &program.attach(std::make_unique<IterationRecorder>(program, make_iteration_graph(*machine.cuda)));
  else observers.note = "no CUDA graph: " + reason;
  return observers;
}

Vector<std::string> device_names(const StrategyFile& file) {
  Vector<std::string> names;
  for (const Device& device : file.topology.devices) names.push_back(device.name);
  return names;
}

Vector<int> cores_of_devices(const StrategyFile& file) {
  Vector<int> cores;
  for (const DeviceId device : file.topology.devices.indices()) cores.push_back(file.topology.model_of(device).cores);
  return cores;
}

// On rank 0.
CommandResult summarize(const StrategyFile& file, const Machine& machine, const Observers& observers,
                        const RunResult& run, const std::optional<Verification>& verification) {
  const bool graph = observers.recorder && observers.recorder->recorded();
  CommandResult result{summary_json(file, run, verification), summary_text(file, run, verification),
                       run.interrupted ? exit_interrupted : exit_done, ""};
  result.json["precision"] = to_string(file.settings.precision);
  result.json["backend"] = machine.backend->name();
  result.json["transport"] = machine.transport->name();
  if (const Vector<std::string> settings = machine.transport->settings(); !settings.empty()) {
    result.json["transport_settings"] = settings;
    result.text += "transport   between hosts, with";
    for (const std::string& setting : settings) result.text += " " + setting;
    result.text += "\n";
  }
  if (machine.cuda) {
    result.json["cuda_graph"] = graph;
    result.text += "device      " + machine.text + (graph ? ", CUDA graph" : "") + "\n";
  }
  if (verification && !verification->passed()) {
    result.exit_code = exit_input;
    result.failure = failure_text(*verification);
  }
  return result;
}

using Note = std::function<void(const std::string&)>;

// From the checkpoint, if there is one. Notes what is otherwise than the user may expect.
void start(const TrainOptions& options, const TrainInputs& inputs, Trainer& trainer, const Note& note) {
  if (inputs.initial) {
    restore(trainer, *inputs.initial);
    for (const std::string& text : state_notes(options.load, *inputs.initial, *inputs.file->graph.optimizer))
      note(text);
  }
  if (trainer.program().default_issue_order() && !inputs.file->issue_order.empty())
    note(options.strategy + ": the issue order does not fit the configurations; using the default order");
}

RunSettings run_settings(const TrainOptions& options, const TrainInputs& inputs, const Observers& observers,
                         const RunCallbacks& callbacks) {
  RunSettings settings;
  settings.iterations = options.iterations;
  settings.epochs = options.epochs;
  settings.data = inputs.data.get();
  settings.shuffle = !options.data.empty();
  settings.evaluation = inputs.evaluation.get();
  settings.timekeeper = &observers.timekeeper;
  settings.records_iteration = observers.recorder != nullptr;
  settings.callbacks = callbacks;
  settings.checkpoint_every = options.save_every;
  return settings;
}

// All ranks give what they hold; the first one writes it.
void save_run(const TrainOptions& options, const TrainInputs& inputs, Trainer& trainer, const HostTensors& weights) {
  std::map<std::string, HostTensors> states = gather_states(trainer.program());
  if (trainer.program().transport().rank() != 0) return;
  save_checkpoint(options.save, inputs.file->graph,
                  {weights, std::move(states), trainer.iterations(), trainer.program().updates(),
                   inputs.initial ? inputs.initial->pytorch : ""});
}

// All ranks give what they did; the first one writes it.
void write_trace(const std::string& path, Program& program, const Observers& observers, const StrategyFile& file) {
  const std::string trace = gather_trace(program, observers.timekeeper.events(), device_names(file));
  if (program.transport().rank() == 0) write_file_atomically(path, trace);
}

}  // namespace

CommandResult run_train(const TrainOptions& options, const TrainContext& context, Transport& host) {
  TrainInputs inputs;
  run_together(host, [&] {
    check_outputs(options, host);
    inputs = load_inputs(options, host.size());
  });
  const StrategyFile& file = *inputs.file;
  DeviceChoice choice;
  run_together(host, [&] { choice = choose_device(device_request(options, file), look_for_gpus(host.place()), host); });

  const bool first = host.rank() == 0;
  const Note note = [&](const std::string& line) {
    if (first) context.note(line);
  };
  const int cores = std::min(file.topology.model_of(host.rank()).cores, usable_processors().count());
  const Machine machine = make_machine(choice, cores, file.settings.precision,
                                       why_not_recorded(options, *file.graph.optimizer).empty(), host);
  if (!choice.cuda)
    if (const std::string text = processors_note(gather_processors(host), cores_of_devices(file)); !text.empty())
      note("note: " + text);
  const TrainerSettings trainer_settings{*file.graph.optimizer, options.seed};
  Trainer trainer(file, *machine.backend, *machine.transport, trainer_settings);
  Program& program = trainer.program();
  const Observers observers = attach_observers(options, machine, program);
  for (const std::string& text :
       {precision_note(file.settings.precision, *machine.backend), choice.note, observers.note})
    if (!text.empty()) note("note: " + text);
  start(options, inputs, trainer, note);

  RunSettings settings = run_settings(options, inputs, observers, context.run);
  HostTensors weights;
  // What the run has reached, whole files alone: the last one stays until the next one is complete.
  const auto save = [&] {
    weights = gather_parameters(program, ParameterData::weight);
    save_run(options, inputs, trainer, weights);
  };
  settings.callbacks.on_checkpoint = save;
  const RunResult run = run_training(trainer, settings);
  if (observers.recorder && !observers.recorder->failure().empty())
    note("note: no CUDA graph: " + observers.recorder->failure());

  if (!options.save.empty()) save();
  else if (options.verify) weights = gather_parameters(program, ParameterData::weight);
  if (!options.trace.empty()) write_trace(options.trace, program, observers, file);
  CommandResult result;
  if (first) {
    std::optional<Verification> verification;
    if (options.verify)
      verification = verify(file, *machine.backend, trainer_settings, settings, run, inputs.initial.get(), weights);
    result = summarize(file, machine, observers, run, verification);
  }
  result.exit_code = host.broadcast(std::string(1, static_cast<char>(result.exit_code)))[0] & 0xFF;
  return result;
}

namespace {

// How many ranks of this node have this rank's GPU.
int ranks_on_gpu(const GpusSeen& seen, Transport& host) {
  const Json mine = {host.place().node, seen.bus_id};
  const Vector<std::string> gathered = host.gather(mine.dump());
  const Json all = Json::parse(host.broadcast(host.rank() == 0 ? Json(gathered).dump() : ""));
  return static_cast<int>(std::count(all.begin(), all.end(), Json(mine.dump())));
}

Calibration calibrate_gpus(const DeviceChoice& choice, const GpusSeen& seen, const Vector<RankProcessors>& processors,
                           Transport& host) {
  const Machine machine = make_machine(choice, 1, Precision::fp32, false, host);
  const CudaDescription description = describe_cuda_device(choice.gpu);
  constexpr int first_with_tf32 = 80;
  std::unique_ptr<CudaBackend> tf32;
  if (description.compute_capability >= first_with_tf32) tf32 = make_cuda_backend(choice.gpu, Precision::tf32);
  return calibrate({*machine.backend, 0, machine.cuda, tf32.get(), description.name,
                    description.memory_bytes / ranks_on_gpu(seen, host)},
                   *machine.transport, processors);
}

// One device model for all ranks: of as many cores as the rank with the fewest has for itself.
Calibration calibrate_processors(const Vector<RankProcessors>& processors, const TrainContext& context,
                                 Transport& host) {
  const Vector<double> shares = processor_shares(processors);
  const int cores = std::max(1, static_cast<int>(*std::min_element(shares.begin(), shares.end()) + 1e-9));
  if (const std::string text = processors_note(processors, Vector<int>(shares.size(), cores));
      !text.empty() && host.rank() == 0)
    context.note("note: " + text + "; what is measured now holds for these " + std::to_string(host.size()) +
                 " ranks at once");
  const auto backend = make_cpu_backend(cores);
  return calibrate({*backend, cores}, host, processors);
}

}  // namespace

CommandResult run_calibrate(const TrainOptions& options, const std::string& out, const TrainContext& context,
                            Transport& host) {
  run_together(host, [&] {
    if (host.rank() == 0) expect_all_writable({out}, {});
  });
  DeviceChoice choice;
  GpusSeen seen;
  run_together(host, [&] {
    seen = look_for_gpus(host.place());
    choice = choose_device({options.backend, options.transport, options.share_gpu, false}, seen, host);
  });
  const Vector<RankProcessors> processors = gather_processors(host);
  Calibration calibration =
      choice.cuda ? calibrate_gpus(choice, seen, processors, host) : calibrate_processors(processors, context, host);
  CommandResult result;
  if (host.rank() > 0) return result;
  for (const std::string& text : calibration.notes) context.note("note: " + text);
  result.json = std::move(calibration.topology);
  write_json_file(out, result.json);
  result.text =
      calibration.text + out + ": " + std::to_string(host.size()) + (host.size() == 1 ? " device\n" : " devices\n");
  return result;
}

}  // namespace ff
