#include "common/task_graph/shared_kernels.h"

#include <map>
#include <set>
#include <unordered_map>

namespace ff {
namespace {

// Parts with equal keys can have the same kernel: sizes and places of the block, but for the place along the samples.
Vector<int64_t> key_of(const OperatorDefinition& definition, OperatorId op, const Block& block) {
  Vector<int64_t> key{op};
  for (int d = 0; d < block.rank(); ++d) {
    key.push_back(block[d].size());
    const bool samples = d == 0 && definition.dimensions()[0].kind == DimensionKind::sample;
    key.push_back(samples ? 0 : block[d].begin);
  }
  return key;
}

struct Life {
  OperatorId op;
  int32_t part;
  int first, last;  // steps
};

}  // namespace

SharedKernels shared_kernels(const Graph& graph, const Strategy& strategy, const TaskGraph& tasks,
                             const Vector<int>& steps) {
  Vector<Life> lives;                         // ascending by first
  std::unordered_map<uint64_t, int> life_of;  // [operator, part]
  for (const int s : steps.indices()) {
    const Task& task = tasks.tasks[steps[s]];
    if (!is_compute(task.kind)) continue;
    const uint64_t id = static_cast<uint64_t>(task.op) << 32 | static_cast<uint32_t>(task.part);
    const auto [found, added] = life_of.try_emplace(id, lives.count());
    if (added) lives.push_back({task.op, task.part, s, s});
    lives[found->second].last = s;
  }
  SharedKernels result;
  struct OfKey {
    std::set<int> free;              // kernels
    std::multimap<int, int> in_use;  // the last step, the kernel
  };
  std::map<Vector<int64_t>, OfKey> by_key;
  for (const Life& life : lives) {
    const OperatorDefinition& definition = *graph.operators[life.op].definition;
    OfKey& of_key = by_key[key_of(definition, life.op, definition.part(strategy[life.op].degrees, life.part))];
    while (!of_key.in_use.empty() && of_key.in_use.begin()->first < life.first) {
      of_key.free.insert(of_key.in_use.begin()->second);
      of_key.in_use.erase(of_key.in_use.begin());
    }
    int kernel = result.kernels.count();
    if (of_key.free.empty()) result.kernels.push_back({life.op, life.part});
    else kernel = *of_key.free.begin(), of_key.free.erase(of_key.free.begin());
    of_key.in_use.emplace(life.last, kernel);
    result.uses.push_back({life.op, life.part, kernel});
  }
  return result;
}

}  // namespace ff
