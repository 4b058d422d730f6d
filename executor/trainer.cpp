#include "executor/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "common/micro_batches.h"
#include "executor/transport/control_data.h"

namespace ff {
namespace {

using Clock = std::chrono::steady_clock;

int64_t elapsed_ns(Clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - since).count();
}

// Sums what is 0 for a number, in a loop that vectorizes.
bool all_finite(const Vector<float>& values) {
  float sum = 0;
  for (const float value : values) sum += value * 0;
  return sum == 0;
}

// Of the loss operators that have labels those of greatest weight: one, or those of all steps.
Vector<OperatorId> main_losses(const Graph& graph) {
  Vector<OperatorId> losses;
  double greatest = 0;
  for (OperatorId op : graph.losses) {
    const OperatorDefinition& loss = *graph.operators[op].definition;
    if (!loss.counts_correct() || loss.loss_weight() < greatest) continue;
    if (loss.loss_weight() > greatest) losses.clear();
    greatest = loss.loss_weight();
    losses.push_back(op);
  }
  return losses;
}

// Element-wise sum over the ranks, added in rank order: the same bits everywhere.
Vector<double> sum_over_ranks(Transport& transport, const Vector<double>& mine) {
  Vector<double> sum;
  for (const std::string& bytes : transport.gather(to_bytes(mine))) {
    const Vector<double> numbers = from_bytes<double>(bytes);
    sum.resize(numbers.size(), 0.0);
    for (size_t i = 0; i < numbers.size(); ++i) sum[i] += numbers[i];
  }
  return from_bytes<double>(transport.broadcast(to_bytes(sum)));
}

}  // namespace

Trainer::Trainer(const StrategyFile& file, Backend& backend, Transport& transport, const TrainerSettings& settings)
    : file_(file), settings_(settings),
      program_(file.graph, expanded(file), file.issue_order, backend, transport,
               {settings.optimizer, settings.seed, file.transfer_buffers, file.settings}),
      main_losses_(main_losses(file.graph)) {
  initialize_parameters(program_, settings.seed);
}

bool Trainer::load_batch(const DataSource& data, std::span<const int64_t> samples) {
  bool finite = true;
  for (const InputBuffer& input : program_.plan().inputs) {
    host_.resize(input.block.volume());
    data.read(input.tensor, input.block, samples, host_.data());
    if (graph().tensors[input.tensor].type == DataType::f32) finite = finite && all_finite(host_);
    program_.backend().store_from_host(host_.data(), program_.address(input.memory), input.block.shape());
  }
  return finite;
}

// Of a loss's rows, those of valid samples. A row is of one sample, or of a group of them; it then counts by its share
// of valid ones.
double Trainer::sum_of_rows(const LossBuffer& buffer, int64_t valid_samples, const float* rows) const {
  const Shape& shape = file_.graph.tensors[file_.graph.operators[buffer.op].outputs[0]].shape;
  const int64_t samples_of_row = file_.graph.batch_size / shape[0],
                first_sample = buffer.block[0].begin * samples_of_row;
  const int64_t samples = std::clamp<int64_t>(valid_samples - first_sample, 0, buffer.block[0].size() * samples_of_row);
  const int64_t row = buffer.block.volume() / buffer.block[0].size(), elements = samples / samples_of_row * row;
  double total = std::accumulate(rows, rows + elements, 0.0);
  if (const int64_t rest = samples % samples_of_row; rest > 0)
    total += static_cast<double>(rest) / static_cast<double>(samples_of_row) *
             std::accumulate(rows + elements, rows + elements + row, 0.0);
  return total;
}

Trainer::LossSums Trainer::sum_losses(int64_t valid_samples, bool with_correct) {
  const Vector<LossBuffer>& buffers = program_.plan().losses;
  const auto counts_correct = [&](const LossBuffer& buffer) {
    return with_correct && std::find(main_losses_.begin(), main_losses_.end(), buffer.op) != main_losses_.end();
  };
  int64_t elements = 0;
  for (const LossBuffer& buffer : buffers) elements += (counts_correct(buffer) ? 2 : 1) * buffer.block.volume();
  host_.resize(elements);
  float* rows = host_.data();
  const auto load = [&](const LossBuffer& buffer, Place memory) {
    program_.backend().begin_load_to_host(program_.address(memory), rows, buffer.block.shape());
    rows += buffer.block.volume();
  };
  for (const LossBuffer& buffer : buffers) {
    load(buffer, buffer.loss);
    if (counts_correct(buffer)) load(buffer, buffer.correct);
  }
  program_.backend().finish_loads();
  LossSums sums;
  rows = host_.data();
  for (const LossBuffer& buffer : buffers) {
    const Operator& op = file_.graph.operators[buffer.op];
    const int64_t labels = volume(file_.graph.tensors[op.outputs[0]].shape);
    sums.loss += op.definition->loss_weight() * sum_of_rows(buffer, valid_samples, rows) / static_cast<double>(labels);
    rows += buffer.block.volume();
    if (!counts_correct(buffer)) continue;
    sums.correct += sum_of_rows(buffer, valid_samples, rows);
    rows += buffer.block.volume();
  }
  return sums;
}

double Trainer::run_iteration() {
  program_.run(iteration_++, true);
  return sum_losses(file_.graph.batch_size, false).loss;
}

Evaluation Trainer::evaluate(const DataSource& data) {
  const int64_t batch = file_.graph.batch_size, samples = data.samples();
  double loss = 0, correct = 0;
  Vector<int64_t> rows(batch);
  for (int64_t first = 0; first < samples; first += batch) {
    // The last batch is filled up with its last sample, which then does not count.
    for (int64_t row = 0; row < batch; ++row) rows[row] = std::min(first + row, samples - 1);
    load_batch(data, rows);
    program_.run(iteration_, false);
    const LossSums sums = sum_losses(std::min(batch, samples - first), true);
    loss += sums.loss;
    correct += sums.correct;
  }
  const Vector<double> totals = sum_over_ranks(program_.transport(), {loss, correct});
  double labels = 0;  // in a batch
  for (OperatorId op : main_losses_)
    labels += static_cast<double>(volume(file_.graph.tensors[file_.graph.operators[op].outputs[0]].shape));
  const double per_sample = labels / static_cast<double>(batch);
  return {totals[0] * static_cast<double>(batch) / static_cast<double>(samples),
          labels > 0 ? totals[1] / (static_cast<double>(samples) * per_sample) : 0};
}

int64_t warm_up_iterations(int64_t iterations, bool records_iteration) {
  return std::min<int64_t>(records_iteration ? 3 : 2, iterations - 1);
}

namespace {

// One run's state. Ranks meet every few iterations only ("marks"), to sum losses and to agree whether to go on.
class Run {
 public:
  Run(Trainer& trainer, const RunSettings& settings)
      : trainer_(trainer), settings_(settings), batch_(trainer.graph().batch_size), first_(trainer.iterations()) {
    batches_ = std::max<int64_t>(1, settings.data->samples() / batch_);
    total_ = settings.epochs > 0 ? settings.epochs * batches_ - first_ % batches_ : settings.iterations;
  }

  RunResult run() {
    next_mark_ = 1;
    last_mark_ = Clock::now();
    for (int64_t i = 0; i < total_ && !result_.interrupted; ++i) {
      load(first_ + i);
      const Clock::time_point begin = Clock::now();
      pending_losses_.push_back(trainer_.run_iteration());
      times_ns_.push_back(static_cast<double>(elapsed_ns(begin)));
      const bool epoch_ends = settings_.epochs > 0 && (first_ + i + 1) % batches_ == 0;
      if (i + 1 == next_mark_ || i + 1 == total_ || epoch_ends) mark(i + 1);
      if (epoch_ends && !result_.interrupted) end_epoch((first_ + i + 1) / batches_);
      if (settings_.checkpoint_every > 0 && (i + 1) % settings_.checkpoint_every == 0 && i + 1 < total_) {
        settings_.callbacks.on_checkpoint();
        last_mark_ = Clock::now();
      }
    }
    if (settings_.epochs == 0 && settings_.evaluation && !result_.interrupted) result_.evaluation = evaluate();
    trainer_.program().finish_sends();
    report();
    return std::move(result_);
  }

 private:
  void load(int64_t iteration) {
    const Clock::time_point begin = Clock::now();
    const int64_t epoch = iteration / batches_, first = iteration % batches_ * batch_;
    if (order_.empty() || (first == 0 && settings_.shuffle)) {
      order_.resize(settings_.data->samples());
      std::iota(order_.begin(), order_.end(), 0);
      if (settings_.shuffle) order_ = shuffled_samples(settings_.data->samples(), trainer_.settings().seed, epoch);
    }
    bool finite = true;
    // A single batch that does not change stays where it is.
    if (!loaded_ || batches_ > 1 || settings_.shuffle)
      finite = trainer_.load_batch(*settings_.data,
                                   std::span(order_).subspan(static_cast<size_t>(first), static_cast<size_t>(batch_)));
    loaded_ = true;
    pending_bad_data_.push_back(finite ? 0 : 1);
    loading_ns_ += elapsed_ns(begin);
  }

  // Sums the losses since the last mark; rank 0 places the next one about 0.3 s ahead, and the ranks agree on an
  // interruption.
  void mark(int64_t done) {
    constexpr double distance_s = 0.3;
    const double elapsed_s = static_cast<double>(elapsed_ns(last_mark_)) * 1e-9;
    const double iterations = static_cast<double>(pending_losses_.size());
    Vector<double> mine = pending_losses_;
    mine.insert(mine.end(), pending_bad_data_.begin(), pending_bad_data_.end());
    mine.push_back(settings_.callbacks.interrupted && settings_.callbacks.interrupted() ? 1 : 0);
    const double ahead = std::clamp(iterations * distance_s / std::max(elapsed_s, 1e-9), 1.0, 4 * iterations);
    mine.push_back(trainer_.transport().rank() == 0 ? std::floor(ahead) : 0);
    const Vector<double> all = sum_over_ranks(trainer_.transport(), mine);
    const auto bad_data = all.begin() + pending_losses_.count();
    result_.losses.insert(result_.losses.end(), all.begin(), bad_data);
    for (int i = 0; i < pending_losses_.count() && !said_not_finite_; ++i) {
      if (bad_data[i] == 0 && std::isfinite(all[i])) continue;
      said_not_finite_ = true;
      if (settings_.callbacks.on_not_finite)
        settings_.callbacks.on_not_finite(done + 1 - pending_losses_.count() + i, bad_data[i] > 0);
    }
    result_.interrupted = all[all.size() - 2] > 0;
    next_mark_ = done + static_cast<int64_t>(all.back());
    pending_losses_.clear();
    pending_bad_data_.clear();
    last_mark_ = Clock::now();
    if (settings_.callbacks.on_progress) settings_.callbacks.on_progress(done, total_, result_.losses);
  }

  void end_epoch(int64_t epoch) {
    const int64_t batches = std::min<int64_t>(batches_, result_.losses.count());
    const double mean =
        std::accumulate(result_.losses.end() - batches, result_.losses.end(), 0.0) / static_cast<double>(batches);
    result_.epoch_losses.push_back(mean);
    if (settings_.evaluation) result_.evaluation = evaluate();
    if (settings_.callbacks.on_epoch) settings_.callbacks.on_epoch(epoch, mean, result_.evaluation);
    last_mark_ = Clock::now();
  }

  Evaluation evaluate() {
    loaded_ = false;
    return trainer_.evaluate(*settings_.evaluation);
  }

  void report() {
    const double total_ns = std::max(1.0, std::accumulate(times_ns_.begin(), times_ns_.end(), 0.0));
    const double count = std::max<double>(1, static_cast<double>(times_ns_.size()));
    const TimeShares shares = settings_.timekeeper ? settings_.timekeeper->total() : TimeShares{};
    const double busy = static_cast<double>(shares.busy_ns) / total_ns,
                 transfer = static_cast<double>(shares.transfer_ns) / total_ns;
    Vector<double> mine = {static_cast<double>(trainer_.program().memory_bytes()), busy, transfer,
                           std::max(0.0, 1 - busy - transfer), static_cast<double>(loading_ns_) / count * 1e-3};
    const size_t header = mine.size();
    mine.insert(mine.end(), times_ns_.begin(), times_ns_.end());
    Vector<double> slowest(times_ns_.size(), 0.0);
    for (const std::string& bytes : trainer_.transport().gather(to_bytes(mine))) {
      const Vector<double> numbers = from_bytes<double>(bytes);
      result_.ranks.push_back({static_cast<int64_t>(numbers[0]), numbers[1], numbers[2], numbers[3], numbers[4]});
      for (size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], numbers[header + i]);
    }
    if (slowest.empty()) return;
    result_.warm_up_iterations = warm_up_iterations(slowest.count(), settings_.records_iteration);
    slowest.erase(slowest.begin(), slowest.begin() + result_.warm_up_iterations);
    std::nth_element(slowest.begin(), slowest.begin() + static_cast<int64_t>(slowest.size() / 2), slowest.end());
    result_.median_us = slowest[slowest.size() / 2] * 1e-3;
  }

  Trainer& trainer_;
  const RunSettings& settings_;
  const int64_t batch_, first_;  // first: the number of the first iteration, in all
  int64_t batches_, total_;
  Vector<int64_t> order_;  // of the samples in this epoch
  bool loaded_ = false, said_not_finite_ = false;
  Vector<double> pending_losses_, pending_bad_data_, times_ns_;  // bad: 1 where not finite
  int64_t loading_ns_ = 0;
  int64_t next_mark_ = 1;
  Clock::time_point last_mark_;
  RunResult result_;
};

}  // namespace

RunResult run_training(Trainer& trainer, const RunSettings& settings) { return Run(trainer, settings).run(); }

}  // namespace ff
