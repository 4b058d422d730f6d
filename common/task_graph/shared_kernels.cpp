#include "common/task_graph/shared_kernels.h"

#include <algorithm>
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

// Recomputed parts of any operators with the same function have a kernel in common, too. Numbers of operators are not
// negative.
void share_function(const Graph& graph, OperatorId op, Vector<int64_t>& key) {
  key[0] = -1 - graph.operators[op].function;
  for (int input = 0; input < graph.operators[op].inputs.count(); ++input)
    key.push_back(graph.input_has_gradient(op, input));
}

// When a kernel keeps something for a part, in steps: from forward, or its repetition, to backward. Forward of a
// recomputed part leaves nothing that is needed later.
struct Life {
  OperatorId op;
  int32_t part;
  int first, last;
  int forward = -1;  // of a recomputed part, which lives from `first` on
};

// Kernels of the recomputed parts with one key, which come in the order of their forward tasks.
class KernelPool {
 public:
  // -1: none is free.
  int take(const Life& life) {
    for (OfKernel& kernel : kernels_)
      if (kernel.is_free(life)) {
        kernel.add(life);
        return kernel.number;
      }
    return -1;
  }
  void add(int number, const Life& life) {
    kernels_.push_back({number});
    kernels_.back().add(life);
  }

 private:
  // Its lives: no two meet, and none has the forward task of another.
  struct OfKernel {
    int number;
    std::map<int, int> ends = {};  // first step: last step
    Vector<int> forward = {};      // steps, ascending

    bool is_free(const Life& life) const {
      const auto meets = [&](int first, int last) {
        const auto behind = ends.upper_bound(last);
        return behind != ends.begin() && std::prev(behind)->second >= first;
      };
      const auto run = std::lower_bound(forward.begin(), forward.end(), life.first);
      return !meets(life.first, life.last) && !meets(life.forward, life.forward) &&
             (run == forward.end() || *run > life.last);
    }
    void add(const Life& life) {
      ends[life.first] = life.last;
      forward.push_back(life.forward);
    }
  };
  Vector<OfKernel> kernels_;
};

}  // namespace

SharedKernels shared_kernels(const Graph& graph, const Strategy& strategy, const TaskGraph& tasks,
                             const Vector<int>& steps) {
  Vector<Life> lives;                         // ascending by first task
  std::unordered_map<uint64_t, int> life_of;  // [operator, part]
  for (const int s : steps.indices()) {
    const Task& task = tasks.tasks[steps[s]];
    if (!is_compute(task.kind)) continue;
    const uint64_t id = static_cast<uint64_t>(task.op) << 32 | static_cast<uint32_t>(task.part);
    const auto [found, added] = life_of.try_emplace(id, lives.count());
    if (added) lives.push_back({task.op, task.part, s, s});
    Life& life = lives[found->second];
    life.last = s;
    if (task.kind == TaskKind::recompute) life.forward = life.first, life.first = s;
  }
  SharedKernels result;
  struct OfKey {
    std::set<int> free;              // kernels
    std::multimap<int, int> in_use;  // the last step, the kernel
    KernelPool pool;                 // of recomputed parts
  };
  std::map<Vector<int64_t>, OfKey> by_key;
  for (const Life& life : lives) {
    const OperatorDefinition& definition = *graph.operators[life.op].definition;
    Vector<int64_t> key = key_of(definition, life.op, definition.part(strategy[life.op].degrees, life.part));
    if (life.forward >= 0 && !definition.kernel_names_operator()) share_function(graph, life.op, key);
    OfKey& of_key = by_key[key];
    int kernel = result.kernels.count();
    if (life.forward >= 0) {
      if (const int taken = of_key.pool.take(life); taken >= 0) kernel = taken;
      else of_key.pool.add(kernel, life);
    } else {
      while (!of_key.in_use.empty() && of_key.in_use.begin()->first < life.first) {
        of_key.free.insert(of_key.in_use.begin()->second);
        of_key.in_use.erase(of_key.in_use.begin());
      }
      if (!of_key.free.empty()) kernel = *of_key.free.begin(), of_key.free.erase(of_key.free.begin());
      of_key.in_use.emplace(life.last, kernel);
    }
    if (kernel == result.kernels.count()) result.kernels.push_back({life.op, life.part});
    result.uses.push_back({life.op, life.part, kernel});
  }
  return result;
}

}  // namespace ff
