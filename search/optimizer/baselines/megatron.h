// How people split transformers by hand: Megatron-LM's tensor parallelism (Shoeybi et al. 2019, arXiv 1909.08053) with
// sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "common/strategy.h"

namespace ff {

struct MegatronStrategy {
  Strategy strategy;
  int tensor_degree = 1, data_degree = 1;  // parts of each layer; of the batch
};

// A layer is split over `tensor` devices: the heads of attention, the first linear layers of a feed-forward and the
// output layer by channel, the linear layers after these and embeddings by what they contract (by channel where an
// embedding is read on other devices alone), the rest by length (sequence parallelism). All of these by length, too,
// over `context` such groups (context parallelism); the batch over as many groups of these as an operator has devices
// for. Experts are in `expert` parts of `expert_tensor` devices each, over neighbouring groups, which compute each
// other's tokens.
struct LayerDegrees {
  int tensor = 1, context = 1, expert = 1, expert_tensor = 1;
  int of_group() const { return tensor * context; }  // devices
};
// `devices_of` an operator: all, those of each group together, and in these those of each group that a layer is split
// over.
using DevicesOfOperator = std::function<std::span<const DeviceId>(OperatorId)>;
Strategy tensor_parallel(const Graph& graph, const LayerDegrees& degrees, const DevicesOfOperator& devices_of);
// The dimension of an operator whose parts have experts of their own; -1: there is none.
int experts_dimension(const OperatorDefinition& definition);
// Of each of its layers with experts; 1: it has none.
int64_t experts_of(const Graph& graph);

// Tensor parallelism within a node, data parallelism across; docs/algorithms.md has the rule. By the structure of the
// graph; nothing where it has no multi_head_attention.
std::optional<MegatronStrategy> megatron(const Graph& graph, const Topology& topology);

}  // namespace ff
