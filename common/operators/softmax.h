#pragma once

#include "common/operators/operator.h"

namespace ff {

// Over the last axis of [batch, classes] or [batch, length, classes]; the classes are not split.
class Softmax : public OperatorDefinition {
 public:
  explicit Softmax(const OperatorRequest& request);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  bool backward_reads_input(int) const override { return false; }
  bool backward_reads_output() const override { return true; }
  Work forward_work(const Block& part) const override;

  int64_t classes;
};

// logits [batch, classes] or [batch, length, classes] and labels (i32) [batch] or [batch, length] ->
//   "loss"    [batch] or [batch, length]: -log softmax(logits)[label]
//   "correct" the same shape: 1 where the label has the largest logit (the first one, of equals), else 0.
// The training loss is the mean over all elements of "loss", times `weight`, summed over all loss operators of the
// graph.
//
// Rows with the label `ignored_label` have no loss and no gradient. `mean_over` counted: what the other rows have is
// multiplied by rows / other rows, so that means over all rows are means over those that count. Every part counts for
// itself and reads all labels, which are small and mostly a graph input.
//
// S, and class R: a part has some of the logits of each row. What the parts of a row's classes need of each other are
// statistics, gathered: four floats a row of each part (CrossEntropyStatistics). The outputs are written by the part
// with class 0; those of the others are empty.
class SoftmaxCrossEntropy : public OperatorDefinition {
 public:
  bool kernel_names_operator() const override { return true; }
  explicit SoftmaxCrossEntropy(const OperatorRequest& request);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  std::string attribute_text() const override { return counts_rows() ? "counts rows" : ""; }
  std::string signature(const Block& part) const override;
  bool is_loss() const override { return true; }
  double loss_weight() const override { return weight; }
  int64_t index_limit(int) const override { return classes; }
  bool backward_reads_input(int input) const override { return input == 1; }
  int64_t statistics_bytes(const Block& part, bool backward) const override;
  bool gathers_statistics() const override { return true; }
  bool statistics_in_evaluation() const override { return true; }
  bool statistics_span(int dimension) const override { return dimensions_[dimension].kind == DimensionKind::reduction; }
  Work statistics_work(const Block& part, bool backward) const override;
  int64_t workspace_bytes(const Block& part) const override;
  Work forward_work(const Block& part) const override;

  static Block rows(const Block& part);  // of the labels' shape
  static Interval own_classes(const Block& part) { return part[part.rank() - 1]; }
  bool splits_classes(const Block& part) const { return own_classes(part).size() < classes; }
  bool counts_rows() const { return ignored_label && mean_over_counted; }

  int64_t classes;
  double weight;
  std::optional<int32_t> ignored_label;
  bool mean_over_counted = true;
};

// Where the labels of a part's rows lie among those that it reads. By value in kernels.
struct LabelPlaces {
  LabelPlaces(const SoftmaxCrossEntropy& loss, const Block& part);
  constexpr int64_t of(int64_t row) const { return first + row / own_length * length + row % own_length; }
  constexpr bool is_ignored(int32_t label) const { return ignores && label == ignored; }

  int64_t own_length, length, first;  // positions of a sample that the part has, and that it reads labels of
  int64_t all;                        // labels that it reads
  bool ignores, counts;               // SoftmaxCrossEntropy::counts_rows
  int32_t ignored;
};

// Of the logits that a part has of a row. A part's statistics are [4, rows], in this order.
enum class CrossEntropyStatistics : int {
  largest,      // logit
  sum,          // of exp(logit - largest)
  label_logit,  // 0 if another part has the label's
  // 0: another part has the label, 1: the label's logit is not the largest here, 2: it is, and the first such
  label_rank
};
constexpr int cross_entropy_statistics = 4;

}  // namespace ff
