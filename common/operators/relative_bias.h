#pragma once

#include "common/operators/operator.h"

namespace ff {

// scores [batch, heads, queries, keys] -> the same shape: to each score its head's entry of weight [buckets, heads], in
// the row of the bucket of the distance key - query (the relative position bias of T5: Raffel et al. 2019, arXiv
// 1910.10683). Every axis can be split; head is P.
//
// A bucket is the number of boundaries that are at most the distance. What that is, `directions` says: both, without
// its sign, where each direction has half of the rows, keys after the query the upper half; past, of the keys before
// the query, 0 for those after it; signed, key - query (a row for each distance, or for those that are not clipped:
// Shaw et al. 2018, arXiv 1803.02155).
class RelativeBias : public OperatorDefinition {
 public:
  explicit RelativeBias(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int, const Block& part) const override { return part; }
  Block parameter_block(int, const Block& part) const override { return {{0, buckets}, part[1]}; }
  bool backward_reads_input(int) const override { return false; }
  std::string attribute_text() const override;
  std::string signature(const Block& part) const override;
  int64_t workspace_bytes(const Block& part) const override;

  // Of keys - query, positive where the key is after the query. Neighbouring distances on one side of 0 have the same
  // bucket or different ones, so that a bucket is a range of distances.
  int64_t bucket(int64_t distance) const;
  // The buckets of the part's distances, from that of its first key to its last query on.
  Vector<int32_t> part_buckets(const Block& part) const;

  int64_t buckets;
  enum class Directions { both, past, with_sign } directions;
  Vector<int64_t> boundaries;  // ascending
};

}  // namespace ff
