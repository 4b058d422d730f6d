// What becomes of each float initializer. ONNX does not say which of them a training changes: PyTorch's exporter writes
// parameters and buffers (masks, tables of positions) alike. So each gets one of two fates, and none without a reason:
//
//   trained    a flag says so (--trained, --like), or a layer reads it as a weight
//   constant   a flag says so (--frozen, --like), or what it holds does (recognition.h), or no gradient reaches it
//
// The import is refused where neither holds, with the list of those initializers, and where a trained one would be
// something else than in the model: changed by arithmetic, read as a number, or cut into two parameters that are
// trained apart (Origin in model.h tells).
#pragma once

#include <optional>
#include <set>
#include <string>

#include "search/import/builder.h"
#include "search/import/model.h"

namespace ff::importing {

// As the flags have them.
struct Choices {
  Vector<std::string> trained, frozen;  // names or patterns
  std::string like;                     // a file with the names of those that are trained; "": none
};

// Fills model.initializers, with what the choices decide. Parameters that PyTorch's exporter has merged, as their
// values were equal, are initializers of their own again. Fails for choices that fit nothing or contradict one another.
void number_initializers(Model& model, const Choices& choices);

// Decides those that are open by how `prepared`, the model with everything folded and its patterns recognised, reads
// them. Fails with a list of those that cannot be decided. Afterwards `prepared` may have to be made anew: true if
// there are more constants than before.
bool decide_initializers(Model& model, const Model& prepared, const Choices& choices);

// Makes those that are constant so: nothing remembers that they are initializers.
void freeze_initializers(Model& model);

// Two initializers that the exporter made of one parameter (an embedding and, transposed, the scores of its tokens).
void expect_no_hidden_ties(const Model& model);

// Of which one number is in two parameters of the graph, or twice in one.
struct TrainedApart {
  std::string initializer, message;
};
std::optional<TrainedApart> trained_apart(const Model& model, const Builder& builder);
// Initializers that no parameter has become constant: no loss reads them.
void settle_initializers(Model& model, const Builder& builder);

}  // namespace ff::importing
