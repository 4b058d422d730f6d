// How people split transformers by hand: Megatron-LM's tensor parallelism (Shoeybi et al. 2019, arXiv 1909.08053) with
// sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198).
#pragma once

#include <optional>
#include <string>

#include "common/strategy.h"

namespace ff {

struct MegatronStrategy {
  Strategy strategy;
  int tensor_degree = 1, data_degree = 1;  // parts of each layer; of the batch
};

// Tensor parallelism within a node, data parallelism across; docs/algorithms.md has the rule. By the structure of the
// graph; nothing where it has no multi_head_attention.
std::optional<MegatronStrategy> megatron(const Graph& graph, const Topology& topology);

}  // namespace ff
