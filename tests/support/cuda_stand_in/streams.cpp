#include "streams.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "memory.h"

using cuda_stand_in::Capture;
using cuda_stand_in::WorkPointer;

struct CudaStandInStream {
  int device = 0;
  WorkPointer last;  // null: idle
  std::shared_ptr<Capture> capture;
  std::vector<WorkPointer> captured_last;  // what the next piece of work follows in the recording
};

struct CudaStandInEvent {
  bool timing = true;
  WorkPointer recorded;
  std::shared_ptr<Capture> capture;  // where it was recorded last, if that was a recording
  std::vector<WorkPointer> captured;
};

struct CudaStandInGraph {
  std::vector<WorkPointer> works;
};
struct CudaStandInGraphExec {
  std::vector<WorkPointer> works;
  WorkPointer last_launch;
};

namespace cuda_stand_in {
namespace {

struct Device {
  std::vector<WorkPointer> ready;
  WorkPointer communicating;  // began, and is blocked
  int64_t unfinished = 0;     // pieces of work that were submitted
};

struct State {
  State() {
    const char* text = std::getenv("FF_CUDA_STAND_IN_SEED");
    random.seed(text ? std::strtoull(text, nullptr, 10) : 1);
  }
  std::recursive_mutex mutex;
  std::mt19937_64 random;
  std::map<int, Device> devices;
  std::set<CudaStandInStream*> streams;
  std::set<CudaStandInEvent*> events;
  std::map<CudaStandInStream*, uint64_t> preferences;  // drawn anew now and then
  uint64_t steps = 0;
  std::string failure, communication_failure;
};

State& state() {
  static State* const one = new State;
  return *one;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local std::shared_ptr<Capture> recording;  // begun by this thread, not relaxed

void make_ready(const WorkPointer& work) { state().devices[work->device].ready.push_back(work); }

void finish(const WorkPointer& work) {
  work->done = true;
  --state().devices[work->device].unfinished;
  work->end = std::chrono::steady_clock::now();
  work->run = nullptr;
  work->follows.clear();
  for (const WorkPointer& next : work->followed_by)
    if (--next->waits_for == 0) make_ready(next);
  work->followed_by.clear();
}

// With FF_CUDA_STAND_IN_COUNTS: how many pieces of work of each kind there were, when the process ends.
class Counts {
 public:
  ~Counts() {
    if (!std::getenv("FF_CUDA_STAND_IN_COUNTS")) return;
    std::string text = "CUDA stand-in, work:";
    for (const auto& [name, count] : of_name_) text += " " + name + " " + std::to_string(count);
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  void add(const std::string& name) { ++of_name_[name]; }

 private:
  std::map<std::string, int64_t> of_name_;
};

void enqueue(const WorkPointer& work) {
  static Counts counts;
  if (work->run) counts.add(work->name);
  ++state().devices[work->device].unfinished;
  for (const WorkPointer& before : work->follows)
    if (before && !before->done) {
      before->followed_by.push_back(work);
      ++work->waits_for;
    }
  if (work->waits_for == 0) make_ready(work);
}

// Half of the time any work, else that of the stream that is preferred at the moment.
size_t draw(const std::vector<WorkPointer>& ready) {
  State& all = state();
  if (all.steps++ % 64 == 0) all.preferences.clear();
  if (next_random() % 2 == 0) return next_random() % ready.size();
  size_t best = 0;
  uint64_t highest = 0;
  for (size_t i = 0; i < ready.size(); ++i) {
    auto [preference, drawn_now] = all.preferences.try_emplace(ready[i]->stream, 0);
    if (drawn_now) preference->second = next_random() | 1;
    if (preference->second > highest) highest = preference->second, best = i;
  }
  return best;
}

// One piece of work of the device; false when none can go on.
bool step(Device& device) {
  if (!state().failure.empty()) return false;
  WorkPointer work;
  if (device.communicating && (device.ready.empty() || next_random() % 4 == 0)) {
    work = device.communicating;
  } else if (!device.ready.empty()) {
    const size_t at = draw(device.ready);
    work = device.ready[at];
    if (work->communicates && device.communicating) {  // the device is occupied: something else, or that
      const auto other = std::find_if(device.ready.begin(), device.ready.end(),
                                      [](const WorkPointer& one) { return !one->communicates; });
      work = other == device.ready.end() ? device.communicating : *other;
    }
    if (work != device.communicating) device.ready.erase(std::find(device.ready.begin(), device.ready.end(), work));
  } else {
    return false;
  }
  const Progress progress = work->run ? work->run() : Progress::done;
  if (progress == Progress::blocked) {
    device.communicating = work;
    return false;
  }
  if (device.communicating == work) device.communicating = nullptr;
  finish(work);
  return true;
}

template <class Condition>
void run_while(int device, const Condition& condition) {
  if (!condition() || !state().failure.empty()) return;
  const Opened opened;
  constexpr std::chrono::microseconds first_pause{100}, longest_pause{2000};  // ranks that wait leave others the time
  std::chrono::microseconds pause = first_pause;
  while (condition() && state().failure.empty()) {
    if (step(state().devices[device])) {
      pause = first_pause;
      continue;
    }
    std::recursive_mutex& mutex = state_mutex();  // which the caller holds once
    mutex.unlock();
    std::this_thread::sleep_for(pause);
    mutex.lock();
    pause = std::min(pause * 5 / 4, longest_pause);
  }
}

cudaError_t leave_capture(const std::shared_ptr<Capture>& capture) {
  capture->invalid = true;
  return remember(cudaErrorStreamCaptureUnsupported);
}

bool reaches_all(const Capture& capture, const std::vector<WorkPointer>& last) {
  std::set<const Work*> reached;
  std::vector<const Work*> todo;
  for (const WorkPointer& work : last) todo.push_back(work.get());
  while (!todo.empty()) {
    const Work* work = todo.back();
    todo.pop_back();
    if (!reached.insert(work).second) continue;
    for (const WorkPointer& before : work->follows) todo.push_back(before.get());
  }
  return std::all_of(capture.works.begin(), capture.works.end(),
                     [&](const WorkPointer& work) { return reached.count(work.get()) > 0; });
}

void add_follows(std::vector<WorkPointer>& follows, const std::vector<WorkPointer>& more) {
  for (const WorkPointer& one : more)
    if (std::find(follows.begin(), follows.end(), one) == follows.end()) follows.push_back(one);
}

}  // namespace

std::recursive_mutex& state_mutex() { return state().mutex; }
uint64_t next_random() { return state().random(); }
bool device_failed() { return !state().failure.empty(); }
const std::string& what_failed() { return state().failure; }
cudaError_t last_failure() { return state().failure.empty() ? cudaSuccess : cudaErrorLaunchFailure; }

cudaError_t remember(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}

void fail_for_ever(const std::string& what) {
  State& all = state();
  if (!all.failure.empty()) return;
  all.failure = what;
  std::fprintf(stderr, "CUDA stand-in: %s\n", what.c_str());
}

std::string& communication_failure() { return state().communication_failure; }

void forget_failure() {
  const std::lock_guard lock(state_mutex());
  State& all = state();
  all.failure.clear();
  all.communication_failure.clear();
  all.devices.clear();
  for (CudaStandInStream* stream : all.streams) {
    stream->last = nullptr;
    stream->capture = nullptr;
  }
  recording = nullptr;
  last_error = cudaSuccess;
}

bool is_capturing(const CudaStandInStream* stream) { return stream->capture != nullptr; }
std::shared_ptr<Capture> capture_of(const CudaStandInStream* stream) { return stream->capture; }
int device_of(const CudaStandInStream* stream) { return stream->device; }

cudaError_t forbidden_while_capturing() { return recording ? leave_capture(recording) : cudaSuccess; }

cudaError_t submit(CudaStandInStream* stream, WorkPointer work) {
  State& all = state();
  if (!all.failure.empty()) return remember(cudaErrorLaunchFailure);
  if (!all.streams.count(stream)) return remember(cudaErrorInvalidResourceHandle);
  work->device = stream->device;
  work->stream = stream;
  if (stream->capture) {
    if (stream->capture->invalid) return remember(cudaErrorStreamCaptureInvalidated);
    add_follows(work->follows, stream->captured_last);
    stream->captured_last = {work};
    stream->capture->works.push_back(work);
    return cudaSuccess;
  }
  if (stream->last) work->follows.push_back(stream->last);
  stream->last = work;
  enqueue(work);
  return cudaSuccess;
}

void run_until(const WorkPointer& work) {
  if (work) run_while(work->device, [&] { return !work->done; });
}

void wait_for_device(int device) {
  run_while(device, [&] { return state().devices[device].unfinished > 0; });
}

void run_some() {
  uint64_t count = next_random() % 3;
  if (count == 0) return;
  const Opened opened;
  for (; count > 0; --count)
    for (auto& [number, device] : state().devices) step(device);
}

}  // namespace cuda_stand_in

using namespace cuda_stand_in;

#define FF_LOCKED                            \
  const std::lock_guard lock(state_mutex()); \
  if (device_failed()) return remember(cudaErrorLaunchFailure)

cudaError_t cudaGetLastError() {
  const std::lock_guard lock(state_mutex());
  if (device_failed()) return cudaErrorLaunchFailure;
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  FF_LOCKED;
  if (flags > cudaStreamNonBlocking) return remember(cudaErrorInvalidValue);
  *stream = new CudaStandInStream;
  (*stream)->device = current_device();
  state().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(state_mutex());
  // The work goes on; the handle is gone.
  if (!state().streams.erase(stream)) return remember(cudaErrorInvalidResourceHandle);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  FF_LOCKED;
  if (!state().streams.count(stream)) return remember(cudaErrorInvalidResourceHandle);
  if (stream->capture) return leave_capture(stream->capture);
  run_until(stream->last);
  return remember(last_failure());
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  FF_LOCKED;
  if (!state().streams.count(stream)) return remember(cudaErrorInvalidResourceHandle);
  if (stream->capture) return leave_capture(stream->capture);
  run_some();
  if (device_failed()) return remember(cudaErrorLaunchFailure);
  return !stream->last || stream->last->done ? cudaSuccess : remember(cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  FF_LOCKED;
  if (!state().streams.count(stream) || !state().events.count(event)) return remember(cudaErrorInvalidResourceHandle);
  if (event->capture && !event->capture->invalid && event->capture->origin) {
    if (stream->capture && stream->capture != event->capture) return remember(cudaErrorStreamCaptureMerge);
    if (!stream->capture) {
      stream->capture = event->capture;
      stream->captured_last.clear();
      event->capture->streams.push_back(stream);
    }
    add_follows(stream->captured_last, event->captured);
    return cudaSuccess;
  }
  if (stream->capture) {
    stream->capture->invalid = true;
    return remember(cudaErrorStreamCaptureIsolation);
  }
  if (!event->recorded || event->recorded->done) return cudaSuccess;
  const auto work = std::make_shared<Work>();
  work->name = "wait for an event";
  work->follows.push_back(event->recorded);
  return submit(stream, work);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  FF_LOCKED;
  *event = new CudaStandInEvent;
  (*event)->timing = !(flags & cudaEventDisableTiming);
  state().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(state_mutex());
  if (!state().events.erase(event)) return remember(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FF_LOCKED;
  if (!state().events.count(event)) return remember(cudaErrorInvalidResourceHandle);
  const auto work = std::make_shared<Work>();
  work->name = "event";
  const cudaError_t status = submit(stream, work);
  if (status != cudaSuccess) return status;
  event->recorded = stream->capture ? nullptr : work;
  event->capture = stream->capture;
  event->captured = stream->capture ? std::vector<WorkPointer>{work} : std::vector<WorkPointer>{};
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  FF_LOCKED;
  if (!state().events.count(event)) return remember(cudaErrorInvalidResourceHandle);
  if (event->capture) return remember(cudaErrorCapturedEvent);
  run_some();
  if (device_failed()) return remember(cudaErrorLaunchFailure);
  return !event->recorded || event->recorded->done ? cudaSuccess : remember(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FF_LOCKED;
  if (!state().events.count(event)) return remember(cudaErrorInvalidResourceHandle);
  if (event->capture) return remember(cudaErrorCapturedEvent);
  run_until(event->recorded);
  return remember(last_failure());
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  FF_LOCKED;
  if (!state().events.count(begin) || !state().events.count(end) || !begin->timing || !end->timing ||
      !begin->recorded || !end->recorded)
    return remember(cudaErrorInvalidResourceHandle);
  if (!begin->recorded->done || !end->recorded->done) return remember(cudaErrorNotReady);
  if (std::getenv("FF_CUDA_STAND_IN_TIMES")) *ms = static_cast<float>(1 + next_random() % 8);
  else *ms = std::chrono::duration<float, std::milli>(end->recorded->end - begin->recorded->end).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  FF_LOCKED;
  if (!state().streams.count(stream)) return remember(cudaErrorInvalidResourceHandle);
  if (stream->capture) return remember(cudaErrorStreamCaptureUnsupported);
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->streams = {stream};
  stream->capture->mode = mode;
  stream->captured_last.clear();
  if (mode != cudaStreamCaptureModeRelaxed) recording = stream->capture;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(state_mutex());
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture || capture->origin != stream) return remember(cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed && recording != capture)
    return remember(cudaErrorStreamCaptureWrongThread);
  recording = nullptr;
  const bool joined = reaches_all(*capture, stream->captured_last);
  for (CudaStandInStream* one : capture->streams) {
    one->capture = nullptr;
    one->captured_last.clear();
  }
  capture->origin = nullptr;
  if (capture->invalid) return remember(cudaErrorStreamCaptureInvalidated);
  if (!joined) return remember(cudaErrorStreamCaptureUnjoined);
  *graph = new CudaStandInGraph{capture->works};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(state_mutex());
  *status = !stream->capture           ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  FF_LOCKED;
  *executable = new CudaStandInGraphExec{graph->works, nullptr};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  FF_LOCKED;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

// A copy of each recorded piece of work, between what the stream did before and what it does next.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  FF_LOCKED;
  if (stream->capture) return leave_capture(stream->capture);
  const auto begin = std::make_shared<Work>(), end = std::make_shared<Work>();
  begin->name = "begin of a graph";
  end->name = "end of a graph";
  if (executable->last_launch) begin->follows.push_back(executable->last_launch);
  if (const cudaError_t status = submit(stream, begin); status != cudaSuccess) return status;
  std::map<const Work*, WorkPointer> copies;
  for (const WorkPointer& recorded : executable->works) {
    const auto copy = std::make_shared<Work>();
    copy->name = recorded->name;
    copy->device = recorded->device;
    copy->stream = recorded->stream;
    copy->run = recorded->run;
    copy->communicates = recorded->communicates;
    copy->follows = {begin};
    for (const WorkPointer& before : recorded->follows) copy->follows.push_back(copies.at(before.get()));
    copies[recorded.get()] = copy;
    end->follows.push_back(copy);
    enqueue(copy);
  }
  executable->last_launch = end;
  return submit(stream, end);
}
