// What is rewritten in the graph that the converters give: operators of ours that are one operator of ours.
#pragma once

#include <string>

#include "search/import/builder.h"

namespace ff::importing {

struct GraphPass {
  std::string name;
  void (*run)(Builder& builder);
};

// Attention of a sequence to itself, from its projections to the heads joined again (fuse_attention.cpp).
void fuse_attention(Builder& builder);

const Vector<GraphPass>& graph_passes();
void run_graph_passes(Builder& builder);

}  // namespace ff::importing
