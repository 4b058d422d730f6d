#include "search/optimizer/alike_ranks.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "common/task_graph/issue_order.h"

namespace ff {
namespace {

constexpr int none = -1, several = -2;

// The tasks of one rank, in the order of their keys, and what memory they need.
struct RankTasks {
  TaskGraph graph;
  TaskCosts costs;
  Vector<int> by_key, place;  // [place]: task; [task]: place
  Vector<int64_t> memory;     // [device], in bytes

  RankTasks(Vector<DeviceId> devices, const Strategy& strategy, Evaluator& evaluator) {
    std::sort(devices.begin(), devices.end());
    graph = evaluator.builder().build(strategy, devices);
    costs = evaluator.cost_model().costs(graph, strategy);
    memory = evaluator.memory_model().bytes(strategy, graph, default_issue_order(evaluator.builder(), graph),
                                            TransferBuffers::preallocated);
    by_key.resize(graph.tasks.size());
    std::iota(by_key.begin(), by_key.end(), 0);
    std::sort(by_key.begin(), by_key.end(), [&](int a, int b) { return graph.tasks[a].key < graph.tasks[b].key; });
    place.resize(by_key.size());
    for (const int at : by_key.indices()) place[by_key[at]] = at;
  }

  Vector<int> places_behind(int task) const {
    Vector<int> places;
    for (int32_t s = graph.successor_begin[task]; s < graph.successor_begin[task + 1]; ++s)
      places.push_back(place[graph.successors[s]]);
    std::sort(places.begin(), places.end());
    return places;
  }
};

class RankComparison {
 public:
  RankComparison(const Vector<Vector<DeviceId>>& ranks, const Vector<RankTasks>& tasks)
      : ranks_(ranks), tasks_(tasks), user_(tasks[0].costs.resource_count, none) {
    for (const int rank : ranks.indices())
      for (const int group : ranks[rank].indices()) {
        const DeviceId device = ranks[rank][group];
        if (device >= rank_of_.count()) rank_of_.resize(device + 1, none), group_of_.resize(device + 1, none);
        rank_of_[device] = rank, group_of_[device] = group;
      }
    for (const int rank : ranks.indices())
      for (const int task : tasks_[rank].graph.tasks.indices())
        if (!is_shared(rank, task))
          for (const ResourceUse& use : tasks_[rank].costs.uses_of(task)) {
            int& user = user_[use.resource];
            user = user == none || user == rank ? rank : several;
          }
  }

  bool alike(int first, int other) {
    if (tasks_[first].by_key.size() != tasks_[other].by_key.size()) return false;
    image_.assign(user_.size(), none);
    is_image_.assign(user_.size(), false);
    for (const int at : tasks_[first].by_key.indices())
      if (!alike_tasks(first, other, tasks_[first].by_key[at], tasks_[other].by_key[at])) return false;
    for (const int task : tasks_[first].graph.tasks.indices())
      if (is_shared(first, task) && !meets_alike(first, other, task)) return false;
    const auto alike_memory = [&](DeviceId of_first, DeviceId of_other) {
      return tasks_[first].memory[of_first] == tasks_[other].memory[of_other];
    };
    return std::equal(ranks_[first].begin(), ranks_[first].end(), ranks_[other].begin(), alike_memory);
  }

 private:
  // Do several ranks take part in it?
  bool is_shared(int rank, int task) const {
    const TaskGraph& graph = tasks_[rank].graph;
    if (!is_collective(graph.tasks[task].kind)) return false;
    const Vector<DeviceId>& holders = graph.holders(graph.tasks[task]);
    return std::any_of(holders.begin(), holders.end(), [&](DeviceId holder) { return rank_of_[holder] != rank; });
  }

  // Are they devices of the two ranks that belong to one group, or none?
  bool alike_devices(int first, int other, DeviceId of_first, DeviceId of_other) const {
    if (of_first < 0 || of_other < 0) return of_first == of_other;
    return rank_of_[of_first] == first && rank_of_[of_other] == other && group_of_[of_first] == group_of_[of_other];
  }

  bool alike_tasks(int first, int other, int of_first, int of_other) {
    const RankTasks &firsts = tasks_[first], &others = tasks_[other];
    const Task &a = firsts.graph.tasks[of_first], &b = others.graph.tasks[of_other];
    const auto numbers = [](const Task& task) {
      return std::tuple(prefix_of(task.key), task.op, task.edge, task.round, task.bytes, task.copy_bytes,
                        task.before_op);
    };
    if (numbers(a) != numbers(b) || firsts.costs.duration[of_first] != others.costs.duration[of_other]) return false;
    if (firsts.places_behind(of_first) != others.places_behind(of_other)) return false;
    if (is_shared(first, of_first) || is_shared(other, of_other)) return a.key == b.key;  // the same task
    if (!alike_devices(first, other, a.device, b.device) || !alike_devices(first, other, a.destination, b.destination))
      return false;
    if (is_collective(a.kind)) {
      const Vector<DeviceId>&holders = firsts.graph.holders(a), &of_others = others.graph.holders(b);
      if (!std::equal(holders.begin(), holders.end(), of_others.begin(), of_others.end(),
                      [&](DeviceId x, DeviceId y) { return alike_devices(first, other, x, y); }))
        return false;
    }
    return alike_uses(first, other, of_first, of_other);
  }

  // Each resource of the first rank has one of the other in its place, and no other rank's own tasks use them.
  bool alike_uses(int first, int other, int of_first, int of_other) {
    const auto uses = tasks_[first].costs.uses_of(of_first), others = tasks_[other].costs.uses_of(of_other);
    if (uses.size() != others.size()) return false;
    for (size_t u = 0; u < uses.size(); ++u) {
      const int32_t from = uses[u].resource, to = others[u].resource;
      if (uses[u].occupancy != others[u].occupancy || user_[from] != first || user_[to] != other) return false;
      if (image_[from] == none && !is_image_[to]) image_[from] = to, is_image_[to] = true;
      if (image_[from] != to) return false;
    }
    const auto beside = tasks_[first].costs.beside_of(of_first), of_others = tasks_[other].costs.beside_of(of_other);
    return std::equal(beside.begin(), beside.end(), of_others.begin(), of_others.end(),
                      [&](const WorkBeside& x, const WorkBeside& y) {
                        return x.work == y.work && alike_devices(first, other, x.device, y.device);
                      });
  }

  // Do the two ranks take part in a shared task in the same way?
  bool meets_alike(int first, int other, int task) const {
    const RankTasks& firsts = tasks_[first];
    const Vector<DeviceId>& holders = firsts.graph.holders(firsts.graph.tasks[task]);
    const auto takes_part = [&](DeviceId device) { return std::binary_search(holders.begin(), holders.end(), device); };
    for (const DeviceId holder : holders)
      if (!takes_part(ranks_[first][group_of_[holder]]) || !takes_part(ranks_[other][group_of_[holder]])) return false;
    const auto uses = firsts.costs.uses_of(task);
    const auto occupancy = [&](int32_t resource) {
      const auto use =
          std::find_if(uses.begin(), uses.end(), [&](const auto& one) { return one.resource == resource; });
      return use == uses.end() ? Nanoseconds{0} : use->occupancy;
    };
    for (const ResourceUse& use : uses)
      if (user_[use.resource] == first && occupancy(image_[use.resource]) != use.occupancy) return false;
    const auto beside = firsts.costs.beside_of(task);
    const auto work = [&](DeviceId device) {
      Nanoseconds sum = 0;
      for (const WorkBeside& one : beside)
        if (one.device == device) sum += one.work;
      return sum;
    };
    return std::all_of(beside.begin(), beside.end(), [&](const WorkBeside& one) {
      return work(ranks_[first][group_of_[one.device]]) == work(ranks_[other][group_of_[one.device]]);
    });
  }

  const Vector<Vector<DeviceId>>& ranks_;
  const Vector<RankTasks>& tasks_;
  Vector<int> rank_of_, group_of_;  // [device]
  Vector<int> user_;                // [resource]: the rank whose own tasks use it
  // Of the two ranks compared, [resource of the first]: that of the other in its place.
  Vector<int32_t> image_;
  Vector<bool> is_image_;
};

}  // namespace

Vector<Vector<DeviceId>> tensor_parallel_ranks(const Parallelism& parallelism, const Topology& topology) {
  Vector<Vector<DeviceId>> ranks(parallelism.tensor);
  const Vector<DeviceId> order = topology.by_links();
  for (const int place : order.indices()) ranks[place % parallelism.tensor].push_back(order[place]);
  return ranks;
}

Vector<int> alike_ranks(const Vector<Vector<DeviceId>>& ranks, const Strategy& strategy, Evaluator& evaluator) {
  Vector<RankTasks> tasks;
  for (const Vector<DeviceId>& devices : ranks) tasks.emplace_back(devices, strategy, evaluator);
  RankComparison comparison(ranks, tasks);
  Vector<int> result;
  for (const int rank : ranks.indices()) {
    int first = 0;
    while (first < rank && (result[first] != first || !comparison.alike(first, rank))) ++first;
    result.push_back(first);
  }
  return result;
}

std::shared_ptr<const Replicas> with_stand_ins(const Problem& problem, const Parallelism& parallelism,
                                               const Strategy& strategy) {
  if (parallelism.tensor == 1) return problem.replicas;
  Problem one = problem;
  one.settings.micro_batches = 1;
  one.batch_graph = nullptr;
  Evaluator evaluator(one);
  const Vector<Vector<DeviceId>> ranks = tensor_parallel_ranks(parallelism, problem.topology);
  const Vector<int> firsts = alike_ranks(ranks, strategy, evaluator);
  bool any = false;
  for (const int rank : ranks.indices()) any = any || firsts[rank] != rank;
  if (!any) return problem.replicas;
  const int devices = problem.topology.devices.count();
  auto result = std::make_shared<Replicas>(problem.replicas ? *problem.replicas : Replicas{1, problem.topology, {}});
  if (result->devices.empty())
    for (DeviceId device = 0; device < devices; ++device) result->devices.push_back({device});
  result->stand_ins.resize(devices);
  for (const int rank : ranks.indices())
    for (const int group : ranks[rank].indices()) result->stand_ins[ranks[rank][group]] = ranks[firsts[rank]][group];
  return result;
}

}  // namespace ff
