#include "common/task_graph/parameter_pieces.h"

#include <algorithm>
#include <map>

namespace ff {

Vector<ParameterGroup> parameter_groups(const Graph& graph) {
  Vector<ParameterGroup> groups;
  std::map<std::pair<Vector<OperatorId>, bool>, size_t>
      by_operators;  // states that operators keep are groups of their own
  for (size_t id = 0; id < graph.parameters.size(); ++id) {
    const Parameter& parameter = graph.parameters[id];
    Vector<OperatorId> operators;
    for (const auto& [op, which] : parameter.uses) operators.push_back(op);
    const auto [it, added] = by_operators.emplace(std::pair(operators, parameter.spec.trained), groups.size());
    if (added) groups.push_back({parameter.name.substr(0, parameter.name.rfind('.')), {}, operators, false});
    ParameterGroup& group = groups[it->second];
    group.parameters.push_back(static_cast<ParameterId>(id));
    if (!parameter.spec.trained) continue;
    for (OperatorId op : operators) group.trained = group.trained || graph.operators[op].has_backward;
  }
  return groups;
}

Vector<CutPiece> cut_into_pieces(const Vector<Block>& blocks) {
  const int rank = blocks[0].rank();
  Vector<Vector<int64_t>> cuts(rank);  // [axis]
  Vector<size_t> stride(rank);         // [axis], in cells
  size_t cells = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    for (const Block& block : blocks) {
      cuts[axis].push_back(block[axis].begin);
      cuts[axis].push_back(block[axis].end);
    }
    sort_and_unique(cuts[axis]);
    stride[axis] = cells;
    cells *= cuts[axis].size() - 1;
  }
  const auto cut_at = [&](int axis, int64_t position) {
    return static_cast<size_t>(std::lower_bound(cuts[axis].begin(), cuts[axis].end(), position) - cuts[axis].begin());
  };
  Vector<Vector<int32_t>> containing(cells);
  for (size_t number = 0; number < blocks.size(); ++number) {
    Vector<size_t> reached = {0};  // cells of the block, axis by axis
    for (int axis = 0; axis < rank; ++axis) {
      Vector<size_t> further;
      const size_t first = cut_at(axis, blocks[number][axis].begin), last = cut_at(axis, blocks[number][axis].end);
      for (size_t cell : reached)
        for (size_t i = first; i < last; ++i) further.push_back(cell + i * stride[axis]);
      reached = std::move(further);
    }
    for (size_t cell : reached) containing[cell].push_back(static_cast<int32_t>(number));
  }
  Vector<CutPiece> pieces;
  for (size_t cell = 0; cell < cells; ++cell) {
    if (containing[cell].empty()) continue;
    Block block;
    for (int axis = 0; axis < rank; ++axis) {
      const size_t i = cell / stride[axis] % (cuts[axis].size() - 1);
      block.append({cuts[axis][i], cuts[axis][i + 1]});
    }
    pieces.push_back({block, std::move(containing[cell])});
  }
  return pieces;
}

Vector<ParameterPiece> parameter_pieces(const Graph& graph, const ParameterGroup& group, const Strategy& strategy) {
  struct Use {
    OperatorId op;
    int part;
    int block;
  };
  Vector<ParameterPiece> pieces;
  for (ParameterId id : group.parameters) {
    Vector<Use> uses;
    Vector<Block> blocks;
    for (const auto& [op, which] : graph.parameters[id].uses)
      for (int part = 0; part < strategy[op].parts(); ++part) {
        const OperatorDefinition& definition = *graph.operators[op].definition;
        const Block block = definition.parameter_block(which, definition.part(strategy[op].degrees, part));
        if (block.empty()) continue;
        const auto found = std::find(blocks.begin(), blocks.end(), block);
        uses.push_back({op, part, static_cast<int>(found - blocks.begin())});
        if (found == blocks.end()) blocks.push_back(block);
      }
    for (const CutPiece& cut : cut_into_pieces(blocks)) {
      ParameterPiece& piece = pieces.emplace_back(ParameterPiece{id, cut.block, {}, {}});
      for (const Use& use : uses)
        if (std::binary_search(cut.containing.begin(), cut.containing.end(), use.block)) {
          piece.users.emplace_back(use.op, use.part);
          piece.user_blocks.push_back(use.block);
        }
    }
  }
  return pieces;
}

}  // namespace ff
