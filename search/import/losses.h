// Losses of the graph: those that the model computes itself, and those that --loss adds.
//
// A model's own loss is an output without axes. Ours are operators whose elements are averaged over the whole batch, so
// the output is taken apart into a weighted sum of such means: through sums and differences of losses, factors, and
// means and sums over any axes. What is left is `mean_loss` of some value, or `softmax_cross_entropy`.
#pragma once

#include "search/import/convert.h"
#include "search/import/lowering.h"

namespace ff::importing {

// Puts nodes MeanLoss and CrossEntropyLoss in the place of outputs that are losses; the other outputs are then left
// out, as training does not need them. False: no output is a loss, and nothing changes.
bool find_losses(Model& model);

// The cross entropy of log(softmax(x)) is that of x: such an output is taken before it.
void skip_log_softmax(Model& model);
// A cross entropy for each output. Classes are the last axis; of images [batch, classes, height, width] and volumes,
// the second.
void add_losses(const Model& model, Conversion& conversion, const Vector<double>& weights);

}  // namespace ff::importing
