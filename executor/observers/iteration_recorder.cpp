#include "executor/observers/iteration_recorder.h"

#include "executor/program/program.h"

namespace ff {

bool IterationRecorder::launch(int64_t iteration) {
  if (!graph_ || ++trainings_ <= 2) return false;
  if (!graph_->recorded()) record(iteration);
  if (!graph_) return false;
  graph_->launch(iteration);
  return true;
}

// One rank's failure to record is every rank's: they go on alike.
void IterationRecorder::record(int64_t iteration) {
  std::string mine;
  try {
    graph_->begin();
    program_.submit(iteration, true);
    graph_->end();
  } catch (const std::exception& error) {
    mine = program_.running_task() + error.what();
    graph_->give_up();
  }
  for (const std::string& one : program_.transport().gather(mine))
    if (failure_.empty()) failure_ = one;
  failure_ = program_.transport().broadcast(failure_);
  if (!failure_.empty()) graph_.reset();
}

}  // namespace ff
