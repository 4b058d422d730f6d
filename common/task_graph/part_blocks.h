// The blocks of one tensor that an operator's parts write, read or hold, asked for without listing the parts: what a
// rank needs of an operator with thousands of parts is those that overlap a block of its own.
//
// Blocks are products: an interval on an axis follows from the part's index in one dimension (or from none, then it is
// the same for all parts), and grows with it. A part whose index in some dimension leaves nothing for it (of an input
// of a concat, of padding) has an empty block. Which axis follows from which dimension is found by looking at the first
// and the last index of each; where that does not say, all parts are looked at.
#pragma once

#include <cstdint>

#include "common/operators/operator.h"
#include "common/vector.h"

namespace ff {

class PartBlocks {
 public:
  enum class Role : uint8_t { output, input, parameter };
  // Number of the output, input or parameter. The definition and the degrees must outlive this.
  PartBlocks(const OperatorDefinition& definition, const Degrees& degrees, Role role, int number);

  Block of(int64_t part) const { return block(definition_->part(*degrees_, part)); }

  // The parts whose blocks overlap one: those with indices from first[d] up to, but not including, behind[d] in each
  // dimension; or, where blocks are no products, `listed`.
  struct Parts {
    bool product = true;
    Array<int, Block::max_rank> first{}, behind{};
    Vector<int32_t> listed;
    bool operator==(const Parts&) const = default;
  };
  Parts overlapping(const Block& block) const;
  int64_t count(const Parts& parts) const;
  // Calls visit(part), ascending.
  template <class Visit>
  void for_each(const Parts& parts, const Visit& visit) const {
    if (!parts.product)
      for (int32_t part : parts.listed) visit(part);
    else if (count(parts) > 0) for_each(parts, 0, 0, visit);
  }
  // The first of them, which there is.
  int32_t first(const Parts& parts) const;

  // Where a block begins or ends on the axis, ascending; empty blocks aside.
  Vector<int64_t> boundaries(int axis) const;
  // Is every element between the outermost boundaries in some block?
  bool leave_no_gap() const;
  int rank() const { return whole_.rank(); }

 private:
  Block block(const Block& part) const;
  // Of all parts with this index in the dimension together.
  Block at(int dimension, int index) const;
  void find_present(int dimension);
  void find_axes(int dimension);
  void narrow(int axis, Interval interval, Parts& parts) const;

  template <class Visit>
  void for_each(const Parts& parts, int dimension, int32_t outer, const Visit& visit) const {
    const int32_t degree = (*degrees_)[dimension];
    for (int index = parts.first[dimension]; index < parts.behind[dimension]; ++index) {
      if (dimension + 1 == degrees_->count()) visit(outer * degree + index);
      else for_each(parts, dimension + 1, outer * degree + index, visit);
    }
  }

  const OperatorDefinition* definition_;
  const Degrees* degrees_;
  Role role_;
  int number_;
  Block whole_;
  bool product_ = true;
  Array<int, Block::max_rank> dimension_of_axis_{};                 // -1: none
  Array<int, Block::max_rank> present_first_{}, present_behind_{};  // by dimension: indices whose blocks are not empty
};

// Equal for operators whose parts have equal blocks of everything under equal degrees: layers of one kind and size.
std::string blocks_signature(const OperatorDefinition& definition);

}  // namespace ff
