#include "common/recomputation.h"

#include <algorithm>

#include "common/micro_batches.h"
#include "common/name_patterns.h"
#include "common/operator_patterns.h"

namespace ff {

std::string why_not_recomputed(const Graph& graph, OperatorId id) {
  const Operator& op = graph.operators[id];
  if (op.definition->is_loss()) return "a loss has no output that backward waits for";
  if (!op.has_backward) return "it has no backward pass";
  // Statistics in scratch memory are predicted alone, and as if they were there for the second forward pass.
  if (op.definition->may_have_statistics() && !op.definition->statistics_in_scratch())
    return "its statistics are of the whole batch, which is computed once";
  if (!has_micro_batches(*op.definition)) return "it has no sample dimension";
  return "";
}

Vector<bool> recomputed_operators(const Graph& graph, const Vector<std::string>& patterns) {
  Vector<bool> recomputed(graph.operators.size(), false);
  for (const std::string& pattern : patterns)
    for (const NamedOperators& named : operators_named(graph, pattern)) {
      for (const OperatorId op : named.operators) {
        const std::string reason = why_not_recomputed(graph, op);
        if (!reason.empty() && !named.wildcard)
          throw InputError("operator \"" + named.name + "\" cannot be recomputed: " + reason);
        if (reason.empty()) recomputed[op] = true;
      }
      if (!named.operators.empty()) continue;
      const bool is_input = std::any_of(graph.tensors.begin(), graph.tensors.end(), [&](const Tensor& tensor) {
        return tensor.producer < 0 && tensor.name == named.name;
      });
      if (is_input)
        throw InputError("\"" + named.name +
                         "\" is an input of the graph, which is there already; operators are recomputed");
      fail_without_operators(graph, named);
    }
  return recomputed;
}

Vector<bool> computed_again(const Graph& graph, const Vector<bool>& recomputed) {
  Vector<bool> again(graph.operators.size(), false);
  for (OperatorId op = graph.operators.count(); op-- > 0;) {
    if (!recomputed[op]) continue;
    const OperatorDefinition& definition = *graph.operators[op].definition;
    again[op] = definition.backward_reads_output() || definition.workspace_bytes(definition.whole()) > 0;
    for (const TensorId tensor : graph.operators[op].outputs)
      for (const TensorUse& use : graph.tensors[tensor].uses)
        if (again[use.consumer] || graph.operators[use.consumer].definition->backward_reads_input(use.input))
          again[op] = true;
  }
  return again;
}

namespace {

// Its outputs are still there when backward begins with the loss.
bool read_by_losses_alone(const Graph& graph, OperatorId op) {
  bool read = false;
  for (const TensorId tensor : graph.operators[op].outputs)
    for (const TensorUse& use : graph.tensors[tensor].uses) {
      read = true;
      if (!graph.operators[use.consumer].definition->is_loss()) return false;
    }
  return read;
}

}  // namespace

bool is_worth_recomputing(const Graph& graph, OperatorId op) {
  return why_not_recomputed(graph, op).empty() && !read_by_losses_alone(graph, op);
}

namespace {

// What a choice of checkpoints would keep: those and the largest segment.
struct Checkpoints {
  Vector<OperatorId> operators;
  int64_t bytes = 0, segment_bytes = 0;
};

class CheckpointChoice {
 public:
  explicit CheckpointChoice(const Graph& graph) : graph_(graph) {
    for (const OperatorId op : graph.operator_ids()) {
      const OperatorDefinition& definition = *graph.operators[op].definition;
      int64_t outputs = 0;
      OperatorId last = op;  // that reads an output
      for (const TensorId tensor : graph.operators[op].outputs) {
        outputs += bytes_of(graph.tensors[tensor].type, volume(graph.tensors[tensor].shape));
        for (const TensorUse& use : graph.tensors[tensor].uses) last = std::max(last, use.consumer);
      }
      possible_.push_back(is_worth_recomputing(graph, op));
      output_bytes_.push_back(outputs);
      kept_bytes_.push_back(outputs + definition.workspace_bytes(definition.whole()));
      last_reader_.push_back(last);
      if (possible_.back()) total_ += kept_bytes_.back();
    }
  }

  // In segments of about so many bytes.
  Checkpoints with_segments_of(int64_t target) const {
    Checkpoints result;
    int64_t segment = 0;
    Vector<OperatorId> open;  // recomputed operators that are read after the current one
    for (const OperatorId op : graph_.operator_ids()) {
      if (possible_[op]) {
        segment += kept_bytes_[op];
        open.push_back(op);
      }
      std::erase_if(open, [&](OperatorId other) { return last_reader_[other] <= op; });
      if (segment < target || open.size() != 1) continue;
      const OperatorId checkpoint = open[0];
      result.operators.push_back(checkpoint);
      result.bytes += output_bytes_[checkpoint];
      result.segment_bytes = std::max(result.segment_bytes, segment);
      segment = 0;
      open.clear();
    }
    result.segment_bytes = std::max(result.segment_bytes, segment);
    return result;
  }

  Checkpoints best() const {
    Checkpoints best = with_segments_of(total_ + 1);
    const int64_t most = graph_.operators.count();
    for (int64_t segments = 2; segments <= most; ++segments) {
      Checkpoints found = with_segments_of(total_ / segments);
      if (found.bytes + found.segment_bytes < best.bytes + best.segment_bytes) best = std::move(found);
    }
    return best;
  }

  bool possible(OperatorId op) const { return possible_[op]; }

 private:
  const Graph& graph_;
  Vector<bool> possible_;
  Vector<int64_t> output_bytes_, kept_bytes_;  // of the outputs; with what the kernel keeps
  Vector<OperatorId> last_reader_;
  int64_t total_ = 0;
};

}  // namespace

Vector<std::string> full_recomputation(const Graph& graph) {
  const CheckpointChoice choice(graph);
  const Vector<OperatorId> checkpoints = choice.best().operators;
  Vector<std::string> names;
  for (const OperatorId op : graph.operator_ids())
    if (choice.possible(op) && !std::binary_search(checkpoints.begin(), checkpoints.end(), op))
      names.push_back(graph.operators[op].name);
  return name_patterns(names);
}

Vector<std::string> recomputation_patterns(const Graph& graph, const Vector<std::string>& given) {
  if (given == Vector<std::string>{"full"}) return full_recomputation(graph);
  try {
    recomputed_operators(graph, given);
  } catch (const InputError& error) {
    throw InputError(std::string("--recompute: ") + error.what());
  }
  return given;
}

}  // namespace ff
