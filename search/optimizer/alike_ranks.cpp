#include "search/optimizer/alike_ranks.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>

#include "common/task_graph/issue_order.h"

namespace ff {
namespace {

constexpr int none = -1;

// The tasks of one rank, in the order of their keys, and what memory they need.
struct RankTasks {
  TaskGraph graph;
  TaskCosts costs;
  Vector<int> by_key, place;  // [place]: task; [task]: place
  Vector<int> behind;         // places of each task's successors, ascending, as graph.successors has these
  MemoryModel::Needs memory;

  RankTasks(Vector<DeviceId> devices, const Strategy& strategy, Evaluator& evaluator) {
    std::sort(devices.begin(), devices.end());
    graph = evaluator.builder().build(strategy, devices);
    costs = evaluator.cost_model().costs(graph, strategy);
    memory = evaluator.memory_model().needs(strategy, graph, default_issue_order(evaluator.builder(), graph),
                                            TransferBuffers::preallocated);
    by_key.resize(graph.tasks.size());
    std::iota(by_key.begin(), by_key.end(), 0);
    std::sort(by_key.begin(), by_key.end(), [&](int a, int b) { return graph.tasks[a].key < graph.tasks[b].key; });
    place.resize(by_key.size());
    for (const int at : by_key.indices()) place[by_key[at]] = at;
    for (const int successor : graph.successors) behind.push_back(place[successor]);
    for (const int task : graph.tasks.indices())
      std::sort(behind.begin() + graph.successor_begin[task], behind.begin() + graph.successor_begin[task + 1]);
  }

  std::span<const int> places_behind(int task) const {
    return std::span(behind).subspan(
        static_cast<size_t>(graph.successor_begin[task]),
        static_cast<size_t>(graph.successor_begin[task + 1] - graph.successor_begin[task]));
  }
};

// Do the arenas have the same buffers at the same steps? Then they are laid out alike.
bool alike_buffers(const MemoryPlan& plan, const MemoryPlan& other) {
  return std::equal(plan.buffers.begin(), plan.buffers.end(), other.buffers.begin(), other.buffers.end(),
                    [](const PlannedBuffer& a, const PlannedBuffer& b) {
                      return a.key.kind == b.key.kind && a.key.what == b.key.what && a.bytes == b.bytes &&
                             a.first == b.first && a.last == b.last;
                    });
}

bool alike_needs(const MemoryModel::Needs& needs, DeviceId device, const MemoryModel::Needs& others, DeviceId other) {
  return needs.parameters[device] == others.parameters[other] && needs.other[device] == others.other[other] &&
         needs.scratch[device] == others.scratch[other] && alike_buffers(needs.plans[device], others.plans[other]);
}

class RankComparison {
 public:
  RankComparison(const Vector<Vector<DeviceId>>& ranks, const Vector<DeviceId>& stand_ins)
      : ranks_(ranks), stand_ins_(stand_ins) {
    for (const int rank : ranks.indices())
      for (const int group : ranks[rank].indices()) {
        const DeviceId device = ranks[rank][group];
        if (device >= rank_of_.count()) rank_of_.resize(device + 1, none), group_of_.resize(device + 1, none);
        rank_of_[device] = rank, group_of_[device] = group;
      }
    work_.assign(rank_of_.size(), 0);
  }

  // What the rank's own tasks use, each once.
  Vector<int32_t> resources(int rank, const RankTasks& tasks) const {
    Vector<bool> used(tasks.costs.resource_count, false);
    for (const int task : tasks.graph.tasks.indices())
      if (!is_shared(rank, tasks, task))
        for (const ResourceUse& use : tasks.costs.uses_of(task)) used[use.resource] = true;
    Vector<int32_t> result;
    for (const int32_t resource : used.indices())
      if (used[resource]) result.push_back(resource);
    return result;
  }

  // Do the two ranks the same, if no other rank's own tasks use what theirs do?
  bool alike(int first, const RankTasks& firsts, int other, const RankTasks& others) {
    if (firsts.by_key.size() != others.by_key.size()) return false;
    image_.assign(firsts.costs.resource_count, none);
    is_image_.assign(firsts.costs.resource_count, false);
    occupancy_.assign(firsts.costs.resource_count, 0);
    for (const int at : firsts.by_key.indices())
      if (!alike_tasks(first, firsts, other, others, firsts.by_key[at], others.by_key[at])) return false;
    for (const int task : firsts.graph.tasks.indices())
      if (is_shared(first, firsts, task) && !meets_alike(first, firsts, other, task)) return false;
    const auto alike_memory = [&](DeviceId of_first, DeviceId of_other) {
      return stand_ins_[of_first] != of_first || alike_needs(firsts.memory, of_first, others.memory, of_other);
    };
    return std::equal(ranks_[first].begin(), ranks_[first].end(), ranks_[other].begin(), alike_memory);
  }

 private:
  // Do several ranks take part in it?
  bool is_shared(int rank, const RankTasks& tasks, int task) const {
    if (!is_collective(tasks.graph.tasks[task].kind)) return false;
    const Vector<DeviceId>& holders = tasks.graph.holders(tasks.graph.tasks[task]);
    return std::any_of(holders.begin(), holders.end(), [&](DeviceId holder) { return rank_of_[holder] != rank; });
  }

  // Are they devices of the two ranks that belong to one group, or none?
  bool alike_devices(int first, int other, DeviceId of_first, DeviceId of_other) const {
    if (of_first < 0 || of_other < 0) return of_first == of_other;
    return rank_of_[of_first] == first && rank_of_[of_other] == other && group_of_[of_first] == group_of_[of_other];
  }

  bool alike_tasks(int first, const RankTasks& firsts, int other, const RankTasks& others, int of_first, int of_other) {
    const Task &a = firsts.graph.tasks[of_first], &b = others.graph.tasks[of_other];
    const auto numbers = [](const Task& task) {
      return std::tuple(prefix_of(task.key), task.op, task.edge, task.round, task.bytes, task.copy_bytes,
                        task.exchange_copy_bytes, task.before_op);
    };
    if (numbers(a) != numbers(b) || firsts.costs.duration[of_first] != others.costs.duration[of_other]) return false;
    if (!std::ranges::equal(firsts.places_behind(of_first), others.places_behind(of_other))) return false;
    if (is_shared(first, firsts, of_first) || is_shared(other, others, of_other)) return a.key == b.key;  // the same
    if (!alike_devices(first, other, a.device, b.device) || !alike_devices(first, other, a.destination, b.destination))
      return false;
    if (is_collective(a.kind)) {
      const Vector<DeviceId>&holders = firsts.graph.holders(a), &of_others = others.graph.holders(b);
      if (!std::equal(holders.begin(), holders.end(), of_others.begin(), of_others.end(),
                      [&](DeviceId x, DeviceId y) { return alike_devices(first, other, x, y); }))
        return false;
    }
    return alike_uses(firsts.costs.uses_of(of_first), others.costs.uses_of(of_other)) &&
           alike_work(first, firsts.costs.beside_of(of_first), other, others.costs.beside_of(of_other));
  }

  // Each resource of the first rank has one of the other in its place.
  bool alike_uses(std::span<const ResourceUse> uses, std::span<const ResourceUse> others) {
    if (uses.size() != others.size()) return false;
    for (size_t u = 0; u < uses.size(); ++u) {
      const int32_t from = uses[u].resource, to = others[u].resource;
      if (uses[u].occupancy != others[u].occupancy) return false;
      if (image_[from] == none && !is_image_[to]) image_[from] = to, is_image_[to] = true;
      if (image_[from] != to) return false;
    }
    return true;
  }

  bool alike_work(int first, std::span<const WorkBeside> beside, int other,
                  std::span<const WorkBeside> of_others) const {
    return std::equal(beside.begin(), beside.end(), of_others.begin(), of_others.end(),
                      [&](const WorkBeside& x, const WorkBeside& y) {
                        return x.work == y.work && alike_devices(first, other, x.device, y.device);
                      });
  }

  // Do the two ranks take part in a shared task in the same way?
  bool meets_alike(int first, const RankTasks& firsts, int other, int task) {
    const Vector<DeviceId>& holders = firsts.graph.holders(firsts.graph.tasks[task]);
    const auto takes_part = [&](DeviceId device) { return std::binary_search(holders.begin(), holders.end(), device); };
    for (const DeviceId holder : holders)
      if (!takes_part(ranks_[first][group_of_[holder]]) || !takes_part(ranks_[other][group_of_[holder]])) return false;
    const auto uses = firsts.costs.uses_of(task);
    for (const ResourceUse& use : uses) occupancy_[use.resource] = use.occupancy;
    const auto beside = firsts.costs.beside_of(task);
    for (const WorkBeside& one : beside) work_[one.device] += one.work;
    const auto occupied_alike = [&](const ResourceUse& use) {
      return image_[use.resource] == none || occupancy_[image_[use.resource]] == use.occupancy;
    };
    const auto works_alike = [&](const WorkBeside& one) {
      const int group = group_of_[one.device];
      return work_[ranks_[first][group]] == work_[ranks_[other][group]];
    };
    const bool alike =
        std::all_of(uses.begin(), uses.end(), occupied_alike) && std::all_of(beside.begin(), beside.end(), works_alike);
    for (const ResourceUse& use : uses) occupancy_[use.resource] = 0;
    for (const WorkBeside& one : beside) work_[one.device] = 0;
    return alike;
  }

  const Vector<Vector<DeviceId>>& ranks_;
  const Vector<DeviceId>& stand_ins_;
  Vector<int> rank_of_, group_of_;  // [device]
  // Of the two ranks compared, [resource of the first]: that of the other in its place.
  Vector<int32_t> image_;
  Vector<bool> is_image_;
  // Of the shared task that is looked at, else 0: [resource] and [device].
  Vector<Nanoseconds> occupancy_, work_;
};

// By rank: do its own tasks use nothing that another rank's own tasks use?
Vector<bool> keep_to_themselves(const Vector<Vector<int32_t>>& resources) {
  std::map<int32_t, int> users;
  for (const Vector<int32_t>& of_rank : resources)
    for (const int32_t resource : of_rank) ++users[resource];
  Vector<bool> result;
  for (const Vector<int32_t>& of_rank : resources)
    result.push_back(
        std::all_of(of_rank.begin(), of_rank.end(), [&](int32_t resource) { return users[resource] == 1; }));
  return result;
}

// [rank]: those of `count` ranks in a row, each of so many neighbours.
Vector<Vector<DeviceId>> every(int neighbours, int count, const Topology& topology) {
  Vector<Vector<DeviceId>> ranks(count);
  const Vector<DeviceId> order = topology.by_links();
  for (const int place : order.indices()) ranks[place / neighbours % count].push_back(order[place]);
  return ranks;
}

}  // namespace

Vector<Vector<DeviceId>> ranks_of_tensors(const Parallelism& parallelism, const Topology& topology) {
  return every(1, parallelism.tensor, topology);
}

Vector<Vector<DeviceId>> ranks_of_context(const Parallelism& parallelism, const Topology& topology) {
  return every(parallelism.tensor, parallelism.context, topology);
}

Vector<Vector<DeviceId>> ranks_of_experts(const Parallelism& parallelism, const Topology& topology) {
  return every(parallelism.of_layer(), parallelism.groups_of_experts(), topology);
}

Vector<int> alike_ranks(const Vector<Vector<DeviceId>>& ranks, const Vector<DeviceId>& stand_ins,
                        const Strategy& strategy, Evaluator& evaluator) {
  RankComparison comparison(ranks, stand_ins);
  std::map<int, RankTasks> tasks;  // of each first rank of those that are alike: a rank's costs may take a gigabyte
  Vector<int> first_of;
  Vector<Vector<int32_t>> resources;
  for (const int rank : ranks.indices()) {
    Vector<DeviceId> devices;
    std::copy_if(ranks[rank].begin(), ranks[rank].end(), std::back_inserter(devices),
                 [&](DeviceId device) { return stand_ins[device] == device; });
    RankTasks its(std::move(devices), strategy, evaluator);
    resources.push_back(comparison.resources(rank, its));
    const auto same = std::find_if(tasks.begin(), tasks.end(), [&](const auto& first) {
      return comparison.alike(first.first, first.second, rank, its);
    });
    first_of.push_back(same == tasks.end() ? rank : same->first);
    if (same == tasks.end()) tasks.emplace(rank, std::move(its));
  }
  const Vector<bool> alone = keep_to_themselves(resources);
  Vector<int> result;
  for (const int rank : ranks.indices()) {
    int first = 0;
    while (first < rank && !(first_of[first] == first_of[rank] && alone[first] && alone[rank])) ++first;
    result.push_back(first);
  }
  return result;
}

namespace {

// Do no two ranks send over a common link? From each of their devices to the next one, which is of the next group of a
// stage or of the next stage.
bool have_own_links(const Vector<Vector<DeviceId>>& ranks, const Topology& topology) {
  Vector<int> user(topology.channels.size(), none);
  for (const int rank : ranks.indices())
    for (int place = 0; place + 1 < ranks[rank].count(); ++place)
      for (const auto& [from, to] : {std::pair(place, place + 1), {place + 1, place}})
        for (const ChannelId channel : topology.route(ranks[rank][from], ranks[rank][to]).channels) {
          if (user[channel] != none && user[channel] != rank) return false;
          user[channel] = rank;
        }
  return true;
}

}  // namespace

std::shared_ptr<const Replicas> with_stand_ins(const Problem& problem, const Parallelism& parallelism,
                                               const Strategy& strategy, StandIns how) {
  if (parallelism.of_layer() == 1 && parallelism.groups_of_experts() == 1) return problem.replicas;
  Problem one = problem;
  one.settings.micro_batches = 1;
  one.batch_graph = nullptr;
  std::optional<Evaluator> evaluator;  // where ranks are compared
  Vector<DeviceId> stand_ins;
  for (const DeviceId device : problem.topology.devices.indices()) stand_ins.push_back(device);
  const Vector<DeviceId> themselves = stand_ins;
  for (const auto& ranks_of : {ranks_of_tensors, ranks_of_context, ranks_of_experts}) {
    const Vector<Vector<DeviceId>> ranks = ranks_of(parallelism, problem.topology);
    if (ranks.count() == 1) continue;
    const bool assumed = how == StandIns::assumed && have_own_links(ranks, problem.topology);
    if (!assumed && !evaluator) evaluator.emplace(one);
    Vector<int> firsts(ranks.size(), 1);
    firsts[0] = 0;
    if (!assumed) firsts = alike_ranks(ranks, stand_ins, strategy, *evaluator);
    for (const int rank : ranks.indices())
      for (const int place : ranks[rank].indices())
        stand_ins[ranks[rank][place]] = stand_ins[ranks[firsts[rank]][place]];
  }
  if (stand_ins == themselves) return problem.replicas;
  auto result = std::make_shared<Replicas>();
  if (problem.replicas) *result = *problem.replicas;
  else {
    result->topology = std::make_shared<const Topology>(problem.topology);
    result->communication =
        std::make_shared<CommunicationModel>(*result->topology, problem.kernels.conventions().nccl_collectives);
  }
  if (result->devices.empty())
    for (const DeviceId device : problem.topology.devices.indices()) result->devices.push_back({device});
  result->stand_ins = std::move(stand_ins);
  return result;
}

bool have_own_transfers(const TaskGraph& tasks, const Strategy& strategy, const Vector<Edge>& edges,
                        const Replicas* replicas) {
  const auto is_simulated = [&](OperatorId op, int part) {
    const DeviceId device = strategy[op].devices[part];
    return !replicas || replicas->stand_in(device) == device;
  };
  for (const int edge : edges.indices())
    if (tasks.pairs[edge])
      for (const BlockPair& pair : *tasks.pairs[edge])
        if (is_simulated(edges[edge].producer, pair.producer_part) !=
            is_simulated(edges[edge].consumer, pair.consumer_part))
          return false;
  return true;
}

}  // namespace ff
