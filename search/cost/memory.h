// What a strategy needs of each device's memory, as the executor will allocate it: outputs and inputs of every part, kernels' workspaces, gradients,
// parameters with gradient and velocity, and buffers of transfers. A plain sum: nothing is reused within an iteration.
#pragma once

#include <map>
#include <vector>

#include "common/task_graph/task_graph.h"

namespace ff {

// Bytes by device, of all operators or as one changes. Not thread-safe; the builder must outlive it.
class MemoryModel {
 public:
  MemoryModel(TaskGraphBuilder& builder, int device_count);

  std::vector<int64_t> bytes(const Strategy& strategy);

  // Follows a strategy: bytes after a change of one operator, for the work of what lies around it.
  void reset(const Strategy& strategy);
  const std::vector<int64_t>& change(OperatorId op, const Strategy& changed);  // `changed` differs from the strategy followed in `op` alone
  void undo();  // the last change

 private:
  using Share = std::vector<std::pair<DeviceId, int64_t>>;  // bytes, by device; devices may repeat
  // A strategy's memory is the sum over operators, edges, tensors and parameter groups, in this order.
  struct Item {
    enum class Kind : uint8_t { operation, edge, tensor, group } kind;
    int index;
  };
  size_t number(Item item) const;
  Share share(Item item, const Strategy& strategy);
  Share operator_share(OperatorId op, const Strategy& strategy);
  Share edge_share(int edge, const Strategy& strategy);
  Share tensor_share(TensorId tensor, const Strategy& strategy);
  Share group_share(int group, const Strategy& strategy);
  void add(const Share& share, int64_t sign);

  // What depends on an operator's degrees alone, by part.
  struct PartBytes {
    std::vector<int64_t> own;                        // workspace, outputs, graph inputs, gradients of inputs, statistics
    std::vector<std::vector<int64_t>> inputs;        // [input][part]
    std::vector<std::vector<int64_t>> outputs;       // [output][part]
    std::vector<std::vector<std::pair<int, int64_t>>> parameters;  // [parameter][part]: number of the block, bytes with gradient and velocity
  };
  const PartBytes& part_bytes(OperatorId op, const std::vector<int>& degrees);
  int block_number(ParameterId parameter, const Block& block);

  TaskGraphBuilder& builder_;
  const Graph& graph_;
  std::vector<std::vector<int>> edges_of_tensor_, groups_of_;
  std::vector<std::vector<Item>> items_around_;  // [operator]: what its configuration enters
  std::vector<std::map<std::vector<int>, PartBytes>> part_bytes_;         // [operator]
  std::vector<std::map<std::vector<int64_t>, int>> block_numbers_;        // [parameter]
  std::vector<int64_t> bytes_;
  std::vector<Share> shares_;
  std::vector<std::pair<size_t, Share>> undo_;
};

}  // namespace ff
