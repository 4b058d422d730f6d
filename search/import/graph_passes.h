// What is rewritten in the graph that the converters give: operators of ours that are one operator of ours.
#pragma once

#include <string>

#include "search/import/builder.h"

namespace ff::importing {

struct GraphPass {
  std::string name;
  void (*run)(Builder& builder);
};

const Vector<GraphPass>& graph_passes();
void run_graph_passes(Builder& builder);

}  // namespace ff::importing
