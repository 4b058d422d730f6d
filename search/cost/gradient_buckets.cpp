#include "search/cost/gradient_buckets.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace ff {
namespace {

Vector<int> chunk_of_operators(const Graph& graph, const Strategy& strategy) {
  Vector<int> result;
  DeviceId before = -1;
  for (const OperatorId op : graph.operator_ids()) {
    const Vector<DeviceId>& devices = strategy[op].devices;
    const DeviceId first = *std::min_element(devices.begin(), devices.end());
    result.push_back(result.empty() ? 0 : result.back() + (first != before));
    before = first;
  }
  return result;
}

class Buckets {
 public:
  Buckets(const Graph& graph, const TaskGraph& tasks, const Strategy& strategy, const FrameworkConventions& conventions)
      : tasks_(tasks), conventions_(conventions), chunk_(chunk_of_operators(graph, strategy)),
        in_fp8_(weights_gathered_in_fp8(graph, conventions)), shares_(tasks.units.size()) {
    for (const int u : shares_.indices()) shares_[u].gathered = gathered_share(tasks.units[u]);
  }

  Vector<BucketShare> found() {
    if (conventions_.bucket_elements > 0) fill_buckets();
    if (conventions_.late_reductions_beyond > 0) join_late_ones();
    if (!tasks_.gathered_with.empty()) join_layers();
    return std::move(shares_);
  }

 private:
  bool is_late(const SynchronizationUnit& unit) const { return is_reduced_late(unit, conventions_); }

  int64_t elements_of(int chunk) const {
    const bool whole = chunk > 0 && conventions_.buckets_of_first_chunk;
    return whole ? std::numeric_limits<int64_t>::max() : conventions_.bucket_elements;
  }

  void fill_buckets() {
    std::map<std::pair<Vector<DeviceId>, int>, Vector<std::pair<OperatorId, int>>> of_chunk;  // operators, units
    for (const int u : tasks_.units.indices()) {
      const SynchronizationUnit& unit = tasks_.units[u];
      if (unit.holder_count() == 1 || is_late(unit) || shards_gradients(tasks_.synchronization_of(unit.group)))
        continue;
      const OperatorId op = unit.pieces[0]->users[0].first;
      of_chunk[{unit.holders, chunk_[op]}].emplace_back(op, u);
    }
    for (auto& [chunk, units] : of_chunk) {
      std::sort(units.rbegin(), units.rend());
      Vector<int> bucket;
      int64_t elements = 0;
      for (const auto& [op, unit] : units) {
        bucket.push_back(unit);
        elements += tasks_.units[unit].bytes / element_bytes;
        if (elements < elements_of(chunk.second)) continue;
        join(bucket);
        bucket.clear();
        elements = 0;
      }
      if (!bucket.empty()) join(bucket);
    }
  }

  void join(const Vector<int>& bucket) {
    double reduced = 0, gathered = 0;
    for (const int unit : bucket) {
      const double bytes = static_cast<double>(tasks_.units[unit].bytes);
      reduced += bytes;
      gathered += shares_[unit].gathered * bytes;
      shares_[unit] = {0, 0};
    }
    const double last = static_cast<double>(tasks_.units[bucket.back()].bytes);
    shares_[bucket.back()] = {reduced / last, gathered / last};
  }

  // Weights in fp8 have half of the bytes.
  double gathered_share(const SynchronizationUnit& unit) const {
    int64_t all = 0, halved = 0;
    for (const ParameterPiece* piece : unit.pieces) {
      all += piece->block.volume();
      if (in_fp8_[piece->parameter]) halved += piece->block.volume();
    }
    return all == 0 ? 1 : 1 - 0.5 * static_cast<double>(halved) / static_cast<double>(all);
  }

  double bytes_over_last(const Vector<int>& units) const {
    double bytes = 0;
    for (const int unit : units) bytes += static_cast<double>(tasks_.units[unit].bytes);
    return bytes / static_cast<double>(tasks_.units[units.back()].bytes);
  }

  // Those with the same holders; their weights are gathered with the others of a data-parallel group.
  void join_late_ones() {
    std::map<Vector<DeviceId>, Vector<int>> late;
    for (const int u : tasks_.units.indices())
      if (is_late(tasks_.units[u])) late[tasks_.units[u].holders].push_back(u);
    for (const auto& [holders, units] : late) {
      for (const int unit : units) shares_[unit] = {0, units.count() == 1 ? 1.0 : 0.0};
      shares_[units.back()].reduced = bytes_over_last(units);
    }
  }

  void join_layers() {
    std::map<int32_t, Vector<int>> layers;
    for (const int u : tasks_.units.indices())
      if (const int32_t with = tasks_.gathered_with[u]; with != u) layers[with].push_back(u);
    for (auto& [first, units] : layers) {
      units.push_back(first);
      join(units);
    }
  }

  const TaskGraph& tasks_;
  const FrameworkConventions& conventions_;
  const Vector<int> chunk_;    // [operator]
  const Vector<bool> in_fp8_;  // [parameter]
  Vector<BucketShare> shares_;
};

}  // namespace

Vector<BucketShare> bucket_shares(const Graph& graph, const TaskGraph& tasks, const Strategy& strategy,
                                  const FrameworkConventions& conventions) {
  if (conventions.bucket_elements == 0 && conventions.late_reductions_beyond == 0 && tasks.gathered_with.empty())
    return Vector<BucketShare>(tasks.units.size());
  return Buckets(graph, tasks, strategy, conventions).found();
}

}  // namespace ff
