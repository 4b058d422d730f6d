// Training with a strategy: batches in, iterations, losses and times out. All ranks call the same functions in the same
// order.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "common/strategy.h"
#include "common/vector.h"
#include "executor/data.h"
#include "executor/observers/timekeeper.h"
#include "executor/parameters.h"
#include "executor/program/program.h"

namespace ff {

struct TrainerSettings {
  OptimizerSettings optimizer;
  uint64_t seed = 0;  // initial parameters, dropout, synthetic data, order of the samples
};

struct Evaluation {
  double loss = 0;  // sum over loss operators of weight * mean
  double top1 = 0;  // fraction of labels with the largest logit, of the loss operators with labels of greatest weight
};

class Trainer {
 public:
  // `file` outlives the trainer. Parameters are initialized.
  Trainer(const StrategyFile& file, Backend& backend, Transport& transport, const TrainerSettings& settings);

  // Row r of the batch becomes sample samples[r] of `data`; samples has batch_size elements. Returns whether this
  // rank's share of it is finite.
  bool load_batch(const DataSource& data, std::span<const int64_t> samples);
  // One training iteration; returns this rank's share of the training loss (their sum over ranks is the loss).
  double run_iteration();
  // Forward passes over all samples of `data`; the same result on every rank.
  Evaluation evaluate(const DataSource& data);

  // Iterations so far, those after a checkpoint included: dropout and the order of the samples follow from it.
  int64_t iterations() const { return iteration_; }
  // `updates`: so many has the optimizer's state seen.
  void go_on_from(int64_t iterations, int64_t updates) {
    iteration_ = iterations;
    program_.set_updates(updates);
  }

  Program& program() { return program_; }
  const Graph& graph() const { return file_.graph; }
  Transport& transport() { return program_.transport(); }
  const TrainerSettings& settings() const { return settings_; }

 private:
  struct LossSums {
    double loss = 0;     // weight * sum over elements / elements of a batch
    double correct = 0;  // of the main loss
  };
  // `with_correct`: evaluation alone needs it. All numbers come from the device at once.
  LossSums sum_losses(int64_t valid_samples, bool with_correct);
  double sum_of_rows(const LossBuffer& buffer, int64_t valid_samples, const float* rows) const;

  const StrategyFile& file_;
  const TrainerSettings settings_;
  Program program_;
  const Vector<OperatorId> main_losses_;
  int64_t iteration_ = 0;
  Vector<float> host_;  // between the data source or the losses and the backend
};

struct RunCallbacks {
  // Called on every rank a few times a second at the most, at the same iterations.
  std::function<void(int64_t done, int64_t total, std::span<const double> losses)> on_progress;
  std::function<void(int64_t epoch, double mean_loss, const std::optional<Evaluation>&)> on_epoch;
  // Called on every rank for the first iteration, counted from 1, whose data or else whose loss is infinite or not a
  // number. The loss alone does not tell: relu makes 0 of what is not a number.
  std::function<void(int64_t iteration, bool data)> on_not_finite;
  std::function<bool()> interrupted;    // true on any rank ends the run early, on all
  std::function<void()> on_checkpoint;  // called on every rank after each `checkpoint_every` iterations but the last
};

struct RunSettings {
  int64_t iterations = 10;           // without epochs
  int64_t epochs = 0;                // above 0: passes over the data instead; incomplete batches are dropped, and the
                                     // epoch in which a checkpoint was written is one, from there on
  const DataSource* data = nullptr;  // required
  bool shuffle = false;              // the samples, anew in every epoch
  const DataSource* evaluation = nullptr;  // after each epoch, or at the end
  int64_t checkpoint_every = 0;            // iterations; 0: never
  const Timekeeper* timekeeper = nullptr;  // of the program: for the ranks' shares
  bool records_iteration = false;          // as a CUDA graph (observers/iteration_recorder.h)
  RunCallbacks callbacks;
};

// How a rank spent its time and memory.
struct RankReport {
  int64_t memory_bytes = 0;
  double busy = 0, transfer = 0, idle = 0;  // fractions of its iterations, which sum to 1
  double loading_us = 0;                    // reading a batch, outside the iteration's time; mean of an iteration
};

struct RunResult {
  Vector<double> losses;        // by iteration, equal on all ranks
  Vector<double> epoch_losses;  // mean of an epoch's losses
  std::optional<Evaluation> evaluation;
  bool interrupted = false;
  // Rank 0 only:
  double median_us = 0;  // over iterations after those of warm-up, of the slowest rank's time
  int64_t warm_up_iterations = 0;
  Vector<RankReport> ranks;
};

// How many of a run's iterations do not count as measured. The first one touches memory and connects ranks; the
// second is timed task by task; the third one is recorded as a CUDA graph, where that is done. One is always left.
int64_t warm_up_iterations(int64_t iterations, bool records_iteration);

RunResult run_training(Trainer& trainer, const RunSettings& settings);

}  // namespace ff
