// The synchronization units that some devices hold, found without cutting what other devices hold.
#pragma once

#include <map>
#include <string>

#include "common/strategy.h"
#include "common/task_graph/part_blocks.h"
#include "common/task_graph/synchronization_units.h"
#include "common/vector.h"

namespace ff {

// All must outlive this. `alike` gives operators with equal blocks (part_blocks.h) equal numbers; `own` are the
// devices' parts by operator, ascending; `replicas` as synchronization_units has them.
class HeldUnits {
 public:
  HeldUnits(const Graph& graph, const Strategy& strategy, Synchronization synchronization, const Vector<int>& alike,
            const Vector<Vector<int32_t>>& own, int replicas = 1)
      : graph_(graph), strategy_(strategy), synchronization_(synchronization), alike_(alike), own_(own),
        replicas_(replicas) {}

  struct Found {
    std::shared_ptr<const Vector<ParameterPiece>> pieces;  // those held, of which users are the devices' own parts
    Vector<SynchronizationUnit> units;                     // as synchronization_units has them, of these pieces
  };
  Found of(int number, const ParameterGroup& group);

 private:
  // How the parts of some operators cut a parameter.
  struct Grid {
    Vector<Vector<int64_t>> cuts;  // [axis]
    bool covered = false;          // every cell is in some block, or it is not known
    int64_t cells() const;
    int index(int axis, int64_t position) const;
  };
  struct Use {
    OperatorId op;
    PartBlocks blocks;
  };

  bool holds_any(const ParameterGroup& group) const;
  Vector<Use> uses_of(ParameterId parameter) const;
  const Grid& grid_of(ParameterId parameter, const Vector<Use>& uses);
  void add_pieces(ParameterId parameter, const Vector<Use>& uses, const Grid& grid, Vector<ParameterPiece>& pieces,
                  Vector<int64_t>& cells) const;
  // The parts of some operators that contain a piece, and where they are; found once for parts of equal numbers of
  // operators in equal configurations, as layers are.
  struct Containing {
    Vector<std::pair<OperatorId, PartBlocks::Parts>> parts;
    BitSet holders;
    DeviceId owner = no_owner;
  };
  bool alike(const Containing& a, const Containing& b) const;
  const Containing& parts_with(const Block& piece, const Vector<Use>& uses);
  Found by_listing(int number, const ParameterGroup& group) const;

  const Graph& graph_;
  const Strategy& strategy_;
  const Synchronization synchronization_;
  const Vector<int>& alike_;
  const Vector<Vector<int32_t>>& own_;
  const int replicas_;
  static constexpr int most_known = 64;
  Vector<Containing> known_;
  std::map<Vector<int64_t>, Grid> grids_;  // by the operators that use it
};

}  // namespace ff
