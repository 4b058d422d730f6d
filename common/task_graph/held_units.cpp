#include "common/task_graph/held_units.h"

#include <algorithm>

namespace ff {

int64_t HeldUnits::Grid::cells() const {
  int64_t cells = 1;
  for (const Vector<int64_t>& axis : cuts) cells *= std::max<int64_t>(std::ssize(axis) - 1, 0);
  return cells;
}

int HeldUnits::Grid::index(int axis, int64_t position) const {
  return static_cast<int>(std::lower_bound(cuts[axis].begin(), cuts[axis].end(), position) - cuts[axis].begin());
}

bool HeldUnits::holds_any(const ParameterGroup& group) const {
  return std::any_of(group.operators.begin(), group.operators.end(), [&](OperatorId op) { return !own_[op].empty(); });
}

Vector<HeldUnits::Use> HeldUnits::uses_of(ParameterId parameter) const {
  Vector<Use> uses;
  for (const auto& [op, which] : graph_.parameters[parameter].uses)
    uses.push_back(
        {op, PartBlocks(*graph_.operators[op].definition, strategy_[op].degrees, PartBlocks::Role::parameter, which)});
  return uses;
}

const HeldUnits::Grid& HeldUnits::grid_of(ParameterId parameter, const Vector<Use>& uses) {
  Vector<Vector<int64_t>> different;  // operators that cut it alike are looked at once
  Vector<const PartBlocks*> blocks;
  for (const int u : uses.indices()) {
    Vector<int64_t> one{alike_[uses[u].op], graph_.parameters[parameter].uses[u].second};
    strategy_[uses[u].op].degrees.append_to(one);
    if (std::find(different.begin(), different.end(), one) != different.end()) continue;
    different.push_back(std::move(one));
    blocks.push_back(&uses[u].blocks);
  }
  Vector<int64_t> key;
  for (const Vector<int64_t>& one : different) {
    key.push_back(std::ssize(one));
    key.insert(key.end(), one.begin(), one.end());
  }
  const auto [it, added] = grids_.try_emplace(std::move(key));
  Grid& grid = it->second;
  if (!added) return grid;
  for (int axis = 0; axis < blocks[0]->rank(); ++axis) {
    Vector<int64_t>& cuts = grid.cuts.emplace_back();
    for (const PartBlocks* one : blocks) {
      const Vector<int64_t> more = one->boundaries(axis);
      cuts.insert(cuts.end(), more.begin(), more.end());
    }
    sort_and_unique(cuts);
  }
  for (const PartBlocks* one : blocks) {
    bool covers = one->leave_no_gap();
    for (int axis = 0; axis < one->rank() && covers; ++axis) {
      const Vector<int64_t> own = one->boundaries(axis);
      covers = !own.empty() && own.front() == grid.cuts[axis].front() && own.back() == grid.cuts[axis].back();
    }
    grid.covered = grid.covered || covers;
  }
  return grid;
}

// The cells of the grid that lie in a block of an own part, as pieces, with their numbers in row-major order.
void HeldUnits::add_pieces(ParameterId parameter, const Vector<Use>& uses, const Grid& grid,
                           Vector<ParameterPiece>& pieces, Vector<int64_t>& cells) const {
  std::map<int64_t, ParameterPiece> held;  // by cell
  Vector<Block> different;
  for (const Use& use : uses)
    for (const int32_t part : own_[use.op]) {
      const Block block = use.blocks.of(part);
      if (block.empty()) continue;
      const auto known = std::find(different.begin(), different.end(), block);
      const int number = static_cast<int>(known - different.begin());
      if (known == different.end()) different.push_back(block);
      Vector<std::pair<int64_t, Block>> reached{{0, {}}};  // cells of the block, axis by axis
      for (int axis = 0; axis < block.rank(); ++axis) {
        Vector<std::pair<int64_t, Block>> further;
        const Vector<int64_t>& cuts = grid.cuts[axis];
        for (const auto& [cell, so_far] : reached)
          for (int i = grid.index(axis, block[axis].begin); cuts[i] < block[axis].end; ++i) {
            further.emplace_back(cell * (std::ssize(cuts) - 1) + i, so_far);
            further.back().second.append({cuts[i], cuts[i + 1]});
          }
        reached = std::move(further);
      }
      for (const auto& [cell, piece] : reached) {
        ParameterPiece& one = held.try_emplace(cell, ParameterPiece{parameter, piece, {}, {}}).first->second;
        one.users.emplace_back(use.op, part);
        one.user_blocks.push_back(number);
      }
    }
  for (auto& [cell, piece] : held) {
    cells.push_back(cell);
    pieces.push_back(std::move(piece));
  }
}

bool HeldUnits::alike(const Containing& a, const Containing& b) const {
  return std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(), [&](const auto& x, const auto& y) {
    return x.second == y.second && (x.first == y.first || strategy_[x.first] == strategy_[y.first]);
  });
}

const HeldUnits::Containing& HeldUnits::parts_with(const Block& piece, const Vector<Use>& uses) {
  Containing sought;
  for (const Use& use : uses) sought.parts.emplace_back(use.op, use.blocks.overlapping(piece));
  for (const Containing& known : known_)
    if (alike(known, sought)) return known;
  std::pair<OperatorId, int32_t> first_user{-1, -1};
  for (const int u : uses.indices())
    uses[u].blocks.for_each(sought.parts[u].second, [&](int32_t part) {
      const std::pair<OperatorId, int32_t> user{uses[u].op, part};
      if (first_user.first < 0 || user < first_user) first_user = user;
      const DeviceId device = strategy_[uses[u].op].devices[part];
      const size_t words = words_for(static_cast<size_t>(device) + 1);
      if (words > sought.holders.size()) sought.holders.resize(words, 0);
      insert(sought.holders, device);
    });
  if (synchronization_ == Synchronization::parameter_server)
    sought.owner = strategy_[first_user.first].devices[first_user.second];
  if (known_.count() == most_known) known_.clear();
  known_.push_back(std::move(sought));
  return known_.back();
}

HeldUnits::Found HeldUnits::of(int number, const ParameterGroup& group) {
  Found found;
  if (!holds_any(group)) return found;
  auto pieces = std::make_shared<Vector<ParameterPiece>>();
  // Of the pieces:
  Vector<int> numbers;  // among all of the group
  Vector<BitSet> holders;
  Vector<DeviceId> owners;
  int64_t before = 0;  // pieces of the parameters before
  for (const ParameterId parameter : group.parameters) {
    const Vector<Use> uses = uses_of(parameter);
    const Grid& grid = grid_of(parameter, uses);
    if (!grid.covered) return by_listing(number, group);
    Vector<int64_t> cells;
    const int first = pieces->count();
    add_pieces(parameter, uses, grid, *pieces, cells);
    for (const int i : cells.indices()) {
      numbers.push_back(static_cast<int>(before + cells[i]));
      const Containing& containing = parts_with((*pieces)[first + i].block, uses);
      holders.push_back(containing.holders);
      owners.push_back(containing.owner);
    }
    before += grid.cells();
  }
  UnitNumbers units;
  for (const int p : pieces->indices()) {
    const int32_t unit = units.number_of(holders[p], owners[p]);
    if (unit == found.units.count())
      found.units.push_back({number, numbers[p], members(holders[p]), owners[p], {}, 0, replicas_});
    found.units[unit].pieces.push_back(&(*pieces)[p]);
    found.units[unit].bytes += (*pieces)[p].block.volume() * element_bytes;
  }
  found.pieces = std::move(pieces);
  return found;
}

// From all pieces, where blocks leave gaps.
HeldUnits::Found HeldUnits::by_listing(int number, const ParameterGroup& group) const {
  Found found;
  auto pieces = std::make_shared<Vector<ParameterPiece>>(parameter_pieces(graph_, group, strategy_));
  for (SynchronizationUnit& unit : synchronization_units(number, *pieces, strategy_, synchronization_, replicas_)) {
    const bool held = std::any_of(unit.pieces[0]->users.begin(), unit.pieces[0]->users.end(), [&](const auto& user) {
      return std::binary_search(own_[user.first].begin(), own_[user.first].end(), user.second);
    });
    if (held) found.units.push_back(std::move(unit));
  }
  found.pieces = std::move(pieces);
  return found;
}

}  // namespace ff
