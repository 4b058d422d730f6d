// Where a device's buffers lie in its arena (memory_plan.h).
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "common/hash.h"
#include "common/task_graph/live_memory.h"
#include "common/task_graph/memory_plan.h"

namespace ff {
namespace {

// Which buffers live together follows from the order of the steps at which lives begin: [buffer], the number of its
// first step among those, and of the last of those at which it lives.
struct Lives {
  Vector<int32_t> first, last;
  int steps = 0;

  explicit Lives(const Vector<PlannedBuffer>& buffers) {
    int end = 0;
    for (const PlannedBuffer& one : buffers) end = std::max(end, one.last + 1);
    Vector<int32_t> begun(end, 0);  // [step]: how many numbers there are up to it
    for (const PlannedBuffer& one : buffers) begun[one.first] = 1;
    for (int step = 1; step < end; ++step) begun[step] += begun[step - 1];
    if (end > 0) steps = begun.back();
    first.reserve(buffers.size());
    last.reserve(buffers.size());
    for (const PlannedBuffer& one : buffers) first.push_back(begun[one.first] - 1), last.push_back(begun[one.last] - 1);
  }
};

// Which parts of the arena are taken at which steps: a tree of intervals of steps, eight children to a node, whose
// nodes have unions of ranges. Buffers that live together mostly lie side by side: a union has few ranges where there
// are thousands of buffers. Most buffers live for few steps, so that the way to the root counts: with two children it
// is three times as long.
class TakenRanges {
 public:
  struct Range {
    int64_t begin, end;
  };

  explicit TakenRanges(int steps) {
    for (int nodes = std::max(steps, 1);; nodes = (nodes + children - 1) / children) {
      begin_.push_back(all_along_.count());
      all_along_.resize(all_along_.count() + nodes);
      if (nodes == 1) break;
    }
    at_times_.resize(all_along_.size());
  }

  void add(const Range& range, int first, int last) {
    for_each_node(first, last, [&](int node) {
      unite(all_along_[node], range);
      unite(at_times_[node], range);
    });
    for_each_with_an_end(0, first, last, [&](int node) { unite(at_times_[node], range); });
  }

  // What is taken at any of these steps: apart from each other, ascending.
  const Vector<Range>& at(int first, int last) {
    lists_.clear();
    const auto add = [&](const Vector<Range>& ranges) {
      if (!ranges.empty()) lists_.push_back(&ranges);
    };
    for_each_node(first, last, [&](int node) { add(at_times_[node]); });
    // What is taken all along a larger node: each of these has the first or the last step.
    for_each_with_an_end(1, first, last, [&](int node) { add(all_along_[node]); });
    united_.clear();
    if (lists_.empty()) return united_;
    std::swap(lists_[0], *std::max_element(lists_.begin(), lists_.end(),
                                           [](const auto* a, const auto* b) { return a->size() < b->size(); }));
    united_ = *lists_[0];
    for (const int list : lists_.indices())
      if (list > 0) unite(united_, *lists_[list]);
    return united_;
  }

 private:
  static constexpr int children = 8;

  // The largest nodes that these steps consist of.
  template <typename Visit>
  void for_each_node(int first, int last, const Visit& visit) const {
    int from = first, to = last + 1;
    for (int level = 0; from < to; ++level, from /= children, to /= children) {
      const bool top = level + 1 == begin_.count();
      for (; from < to && (top || from % children != 0); ++from) visit(begin_[level] + from);
      for (; from < to && to % children != 0;) visit(begin_[level] + --to);
    }
  }

  // The nodes with the first or the last step, from a level on.
  template <typename Visit>
  void for_each_with_an_end(int from_level, int first, int last, const Visit& visit) const {
    for (int level = 0; level < begin_.count(); ++level, first /= children, last /= children) {
      if (level < from_level) continue;
      visit(begin_[level] + first);
      if (last != first) visit(begin_[level] + last);
    }
  }

  // `ranges`: apart from each other, ascending. Mostly one of them has all of `range`.
  static void unite(Vector<Range>& ranges, const Range& range) {
    const auto place = std::lower_bound(ranges.begin(), ranges.end(), range.begin,
                                        [](const Range& one, int64_t at) { return one.end < at; });
    unite(ranges, static_cast<int>(place - ranges.begin()), range);
  }
  // Both are such.
  static void unite(Vector<Range>& ranges, const Vector<Range>& others) {
    int place = 0;
    for (const Range& range : others) {
      while (place < ranges.count() && ranges[place].end < range.begin) ++place;
      unite(ranges, place, range);
    }
  }
  // `place`: of the first one that ends where `range` begins, or behind.
  static void unite(Vector<Range>& ranges, int place, Range range) {
    const auto begin = ranges.begin() + place;
    if (begin != ranges.end() && begin->begin <= range.begin && range.end <= begin->end) return;
    auto end = begin;
    for (; end != ranges.end() && end->begin <= range.end; ++end) {
      range.begin = std::min(range.begin, end->begin);
      range.end = std::max(range.end, end->end);
    }
    if (begin == end) {
      ranges.insert(begin, range);
    } else {
      *begin = range;
      ranges.erase(begin + 1, end);
    }
  }

  Vector<int> begin_;                // [level], from that of single steps: its first node
  Vector<Vector<Range>> all_along_;  // [node]: of buffers that live at all of its steps, but not at all of its parent's
  Vector<Vector<Range>> at_times_;   // [node]: of buffers that live at any of its steps, but not at all of its parent's
  // Of one look, kept for their memory.
  Vector<const Vector<Range>*> lists_;
  Vector<Range> united_;
};

int64_t assign_offsets(Vector<PlannedBuffer>& buffers, const Lives& lives) {
  Vector<size_t> by_size(buffers.size());
  for (size_t i = 0; i < by_size.size(); ++i) by_size[i] = i;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  TakenRanges taken(lives.steps);
  int64_t arena = 0;
  for (const size_t index : by_size) {
    PlannedBuffer& one = buffers[index];
    const int64_t bytes = aligned(one.bytes);
    int64_t reached = 0, offset = -1, smallest = 0;
    for (const TakenRanges::Range& other : taken.at(lives.first[index], lives.last[index])) {
      const int64_t gap = other.begin - reached;
      if (gap >= bytes && (offset < 0 || gap < smallest)) {
        offset = reached;
        smallest = gap;
      }
      reached = std::max(reached, other.end);
    }
    one.offset = offset < 0 ? reached : offset;
    arena = std::max(arena, one.offset + bytes);
    taken.add({one.offset, one.offset + bytes}, lives.first[index], lives.last[index]);
  }
  return arena;
}

}  // namespace

int64_t assign_offsets(Vector<PlannedBuffer>& buffers) { return assign_offsets(buffers, Lives(buffers)); }

// Many devices are alike, under data parallelism all. Steps without buffers, as updates, make no difference.
void lay_out(Vector<MemoryPlan>& plans, const Vector<bool>& chosen) {
  struct Known {
    int plan;
    Lives lives;
  };
  std::unordered_multimap<uint64_t, Known> known;  // by hash of what their buffers are
  const auto alike = [&](const Known& other, const MemoryPlan& plan, const Lives& lives) {
    const Vector<PlannedBuffer>& buffers = plans[other.plan].buffers;
    return other.lives.first == lives.first && other.lives.last == lives.last &&
           std::equal(buffers.begin(), buffers.end(), plan.buffers.begin(), plan.buffers.end(),
                      [](const PlannedBuffer& a, const PlannedBuffer& b) { return a.bytes == b.bytes; });
  };
  for (const int index : plans.indices()) {
    if (!chosen.empty() && !chosen[index]) continue;
    MemoryPlan& plan = plans[index];
    Lives lives(plan.buffers);
    uint64_t hash = hash_basis;
    for (const int b : plan.buffers.indices())
      for (const int64_t number : {plan.buffers[b].bytes, int64_t{lives.first[b]}, int64_t{lives.last[b]}})
        hash = hash_step(hash, static_cast<uint64_t>(number));
    const auto [begin, end] = known.equal_range(hash);
    const auto found = std::find_if(begin, end, [&](const auto& one) { return alike(one.second, plan, lives); });
    if (found == end) {
      plan.arena_bytes = assign_offsets(plan.buffers, lives);
      known.emplace(hash, Known{index, std::move(lives)});
      continue;
    }
    const MemoryPlan& other = plans[found->second.plan];
    for (const int b : plan.buffers.indices()) plan.buffers[b].offset = other.buffers[b].offset;
    plan.arena_bytes = other.arena_bytes;
  }
}

}  // namespace ff
