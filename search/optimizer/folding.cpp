#include "search/optimizer/folding.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include "common/hash.h"
#include "common/task_graph/synchronization_units.h"
#include "common/task_graph/task_graph.h"
#include "search/cost/communication.h"

namespace ff {
namespace {

// [group]: its devices, stage by stage (parallelism.h says how ranks are numbered). Where stages have different numbers
// of groups, as many of each as together compute the same samples.
Vector<Vector<DeviceId>> data_parallel_groups(const Parallelism& parallelism, const Topology& topology) {
  const int parts = parallelism.equal_parts();
  Vector<Vector<DeviceId>> groups(parts);
  const Vector<DeviceId> order = topology.by_links();
  int begin = 0;
  for (int stage = 0; stage < parallelism.pipeline; ++stage) {
    const int of_part = parallelism.of_layer() * parallelism.groups_of_stage(stage) / parts;
    for (Vector<DeviceId>& group : groups) {
      group.insert(group.end(), order.begin() + begin, order.begin() + begin + of_part);
      begin += of_part;
    }
  }
  return groups;
}

// Of the devices of a group, or of the groups that split the experts, one group after the other: places of two between
// which something else than parameters is moved.
using Exchanging = Vector<std::pair<int, int>>;

// Those of one micro-batch: the others are alike. Nothing where groups exchange more than parameters, or those that
// split the experts anything with others.
std::optional<Exchanging> exchanging_places(const Parallelism& parallelism, const Graph& graph,
                                            const Topology& topology, const Vector<Vector<DeviceId>>& groups) {
  const int of_experts = parallelism.groups_of_experts(), compared = 2 * of_experts;
  Parallelism two = parallelism.part(parallelism.equal_parts());
  const Vector<int> stage_of = stages_of_places(two);
  two.data *= compared;
  for (int& of_stage : two.stage_data) of_stage *= compared;
  Vector<DeviceId> devices;
  for (int g = 0; g < compared; ++g) devices.insert(devices.end(), groups[g].begin(), groups[g].end());
  std::sort(devices.begin(), devices.end());
  const Topology of_two = topology.with_devices(devices);
  const Graph with_two = with_batch_size(graph, two.data * two.micro_batch, "graph");
  const Strategy strategy = plan_of(two, with_two, of_two).strategy;
  Vector<int> group_of(devices.size(), 0), place_of(devices.size(), 0);
  const Vector<Vector<DeviceId>> groups_of_two = data_parallel_groups(two, of_two);
  const int size = groups_of_two[0].count();
  for (const int g : groups_of_two.indices())
    for (const int place : groups_of_two[g].indices()) {
      group_of[groups_of_two[g][place]] = g / of_experts;
      place_of[groups_of_two[g][place]] = g % of_experts * size + place;
    }
  // Collectives are among the devices of a stage.
  Exchanging result;
  for (int a = 0; a < of_experts * size; ++a)
    for (int b = 0; b < of_experts * size; ++b)
      if (a != b && stage_of[a % size] == stage_of[b % size]) result.emplace_back(a, b);
  TaskGraphBuilder builder(with_two);
  for (const int e : builder.edges().indices())
    for (const auto pairs = builder.pairs(e, strategy); const BlockPair& pair : *pairs) {
      const Edge& edge = builder.edges()[e];
      const DeviceId from = strategy[edge.producer].devices[pair.producer_part];
      const DeviceId to = strategy[edge.consumer].devices[pair.consumer_part];
      if (group_of[from] != group_of[to]) return std::nullopt;
      if (from == to || group_of[from] > 0) continue;
      result.emplace_back(place_of[from], place_of[to]);
      result.emplace_back(place_of[to], place_of[from]);
    }
  for (const OperatorId op : with_two.operator_ids())
    for (const Direction direction : {Direction::forward, Direction::backward})
      for (const StatisticsReduction& reduction :
           statistics_reductions(*with_two.operators[op].definition, strategy[op], direction))
        for (const DeviceId holder : reduction.holders)
          if (group_of[holder] != group_of[reduction.holders[0]]) return std::nullopt;
  sort_and_unique(result);
  return result;
}

// Devices among which parameters are synchronized: those of a stage with the same tensor-parallel rank, and those with
// the same experts; all of a stage, and all of the first and the last stage, which may share an embedding.
Vector<Vector<DeviceId>> parameter_holders(const Parallelism& parallelism, const Vector<Vector<DeviceId>>& groups) {
  const Vector<int> stage_of = stages_of_places(parallelism.part(parallelism.equal_parts()));
  Vector<Vector<DeviceId>> holders;
  Vector<DeviceId> first_and_last;
  for (int stage = 0; stage < parallelism.pipeline; ++stage) {
    Vector<DeviceId> all;
    for (const Vector<DeviceId>& group : groups)
      for (const int place : group.indices())
        if (stage_of[place] == stage) all.push_back(group[place]);
    const auto add_every = [&](int apart) {
      for (int first = 0; first < apart; ++first) {
        Vector<DeviceId>& some = holders.emplace_back();
        for (int place = first; place < all.count(); place += apart) some.push_back(all[place]);
        std::sort(some.begin(), some.end());
      }
    };
    add_every(parallelism.tensor);
    if (const int apart = parallelism.expert * parallelism.of_expert(); apart != parallelism.tensor) add_every(apart);
    std::sort(all.begin(), all.end());
    if (stage == 0 || stage == parallelism.pipeline - 1)
      first_and_last.insert(first_and_last.end(), all.begin(), all.end());
    holders.push_back(std::move(all));
  }
  sort_and_unique(first_and_last);
  holders.push_back(std::move(first_and_last));
  sort_and_unique(holders);
  return holders;
}

// Devices among which collectives of these kinds run at the same time.
struct Simultaneous {
  Vector<CollectiveKind> kinds;
  Vector<Vector<DeviceId>> holders;
};

// Of holders, those of each group that share sharded state, and those with the same shard.
void add_shard_groups(int group, const Vector<DeviceId>& all, Vector<Simultaneous>& sets) {
  if (all.count() <= group) return;
  Simultaneous within{{CollectiveKind::all_gather}, {}}, across{{CollectiveKind::all_reduce}, {}};
  within.holders.resize((all.count() + group - 1) / group);
  across.holders.resize(group);
  for (const int place : all.indices()) {
    within.holders[place / group].push_back(all[place]);
    across.holders[place % group].push_back(all[place]);
  }
  sets.push_back(std::move(within));
  sets.push_back(std::move(across));
}

uint64_t hash_of(std::initializer_list<double> numbers) {
  uint64_t hash = hash_basis;
  for (const double number : numbers) hash = hash_step(hash, std::bit_cast<uint64_t>(number));
  return hash;
}

// What collectives of parameters load, for all plans on a topology.
class ParameterLoads {
 public:
  // Equal times, at sizes at which different algorithms may be the fastest, have equal hashes.
  struct Load {
    ChannelId channel;
    uint64_t hash;
  };

  explicit ParameterLoads(const Topology& topology)
      : device_count_(topology.devices.count()), hash_(topology.channels.size(), 0) {}

  // `communication` is of the topology, and leaves nothing out.
  const Vector<Load>& of(CollectiveKind kind, const Vector<DeviceId>& holders, CommunicationModel& communication) {
    const auto [found, is_new] = known_.try_emplace({communication.nccl(), kind, holders});
    if (!is_new) return found->second;
    Vector<ChannelId> loaded;
    CommunicationCost cost;
    uint64_t number = 0;
    for (const int64_t bytes : {int64_t{1} << 12, int64_t{1} << 20, int64_t{1} << 26, int64_t{1} << 32}) {
      ++number;
      communication.collective(kind, holders, bytes, cost);
      for (const ResourceUse& use : cost.uses) {
        const ChannelId channel = use.resource - device_count_;
        if (channel < 0) continue;
        if (hash_[channel] == 0) loaded.push_back(channel);
        hash_[channel] = hash_step(hash_step(hash_[channel], number), static_cast<uint64_t>(use.occupancy));
      }
    }
    for (const ChannelId channel : loaded) found->second.push_back({channel, std::exchange(hash_[channel], 0)});
    return found->second;
  }

 private:
  const int device_count_;
  Vector<uint64_t> hash_;  // [channel]; all 0 between calls
  std::map<std::tuple<bool, CollectiveKind, Vector<DeviceId>>, Vector<Load>> known_;
};

// [channel]: equal for channels with equal rates that parameters load equally, with each of their collectives. A
// reduce-scatter loads them as an all-gather does.
Vector<uint64_t> kinds_of_channels(const Parallelism& parallelism, const Topology& topology,
                                   const Vector<Vector<DeviceId>>& groups, ParameterLoads& loads,
                                   CommunicationModel& communication) {
  Vector<uint64_t> kinds;
  for (const Channel& one : topology.channels)
    kinds.push_back(
        hash_of({one.bandwidth_gb_per_s, one.latency_us, one.blocks_devices ? 1.0 : 0.0, one.cpu_overhead_us,
                 one.cpu_overhead_ns_per_byte, one.all_reduce_gb_per_s, one.all_reduce_latency_us}));
  const Vector<CollectiveKind> collectives =
      is_sharded(parallelism.synchronization)
          ? Vector<CollectiveKind>{CollectiveKind::all_gather, CollectiveKind::all_reduce}
          : Vector<CollectiveKind>{CollectiveKind::all_reduce};
  Vector<Simultaneous> sets;
  for (const Vector<DeviceId>& holders : parameter_holders(parallelism, groups)) {
    sets.push_back({collectives, {holders}});
    if (parallelism.shard_group > 0) add_shard_groups(parallelism.shard_group, holders, sets);
  }
  uint64_t number = 0;  // of the collective
  for (const Simultaneous& set : sets)
    for (const CollectiveKind kind : set.kinds) {
      ++number;
      for (const Vector<DeviceId>& holders : set.holders)
        for (const auto& [channel, hash] : loads.of(kind, holders, communication))
          kinds[channel] = hash_step(hash_step(kinds[channel], number), hash);
    }
  return kinds;
}

// Compares the sets of groups that the simulated ones would stand for: [set][place].
class Comparison {
 public:
  Comparison(const Parallelism& parallelism, const Topology& topology, const Vector<Vector<DeviceId>>& groups,
             const Exchanging& exchanging, ParameterLoads& loads, CommunicationModel& communication)
      : parallelism_(parallelism), topology_(topology), groups_(groups), exchanging_(exchanging), loads_(loads),
        communication_(communication) {}

  bool alike(const Vector<Vector<DeviceId>>& sets) {
    for (const Vector<DeviceId>& set : sets)
      for (const int place : set.indices())
        if (topology_.devices[set[place]].model != topology_.devices[sets[0][place]].model) return false;
    if (sets[0].size() == 1) return true;  // nothing but parameters is moved
    if (kinds_.empty()) kinds_ = kinds_of_channels(parallelism_, topology_, groups_, loads_, communication_);
    Vector<int>& set_of = set_of_channels_;
    set_of.assign(topology_.channels.size(), -1);
    const int places = groups_[0].count() * parallelism_.groups_of_experts();
    for (const int s : sets.indices())
      for (int first = 0; first < sets[s].count(); first += places)
        for (const auto& [from, to] : exchanging_)
          if (!alike_routes(sets, s, first + from, first + to, set_of)) return false;
    return true;
  }

  // [channel], of the sets that were compared last, where they are alike: is it in another set's routes than the
  // first's?
  Vector<bool> images() const {
    Vector<bool> result;
    for (const int set : set_of_channels_) result.push_back(set > 0);
    return result;
  }

 private:
  bool alike_routes(const Vector<Vector<DeviceId>>& sets, int s, int from, int to, Vector<int>& set_of) const {
    const auto channels = topology_.route(sets[s][from], sets[s][to]).channels;
    const auto first = topology_.route(sets[0][from], sets[0][to]).channels;
    if (channels.size() != first.size()) return false;
    for (size_t c = 0; c < channels.size(); ++c) {
      if (set_of[channels[c]] >= 0 && set_of[channels[c]] != s) return false;
      set_of[channels[c]] = s;
      if (kinds_[channels[c]] != kinds_[first[c]]) return false;
    }
    return true;
  }

  const Parallelism& parallelism_;
  const Topology& topology_;
  const Vector<Vector<DeviceId>>& groups_;
  const Exchanging& exchanging_;
  ParameterLoads& loads_;
  CommunicationModel& communication_;
  Vector<uint64_t> kinds_;  // of channels
  Vector<int> set_of_channels_;
};

// [set]: the devices of `simulated` groups each.
Vector<Vector<DeviceId>> sets_of(const Vector<Vector<DeviceId>>& groups, int simulated) {
  Vector<Vector<DeviceId>> sets(groups.size() / static_cast<size_t>(simulated));
  for (const int g : groups.indices()) {
    Vector<DeviceId>& set = sets[g / simulated];
    set.insert(set.end(), groups[g].begin(), groups[g].end());
  }
  return sets;
}

FoldedPlan fold(const Parallelism& parallelism, const Graph& graph, const std::shared_ptr<const Topology>& topology,
                const Vector<Vector<DeviceId>>& sets, std::shared_ptr<CommunicationModel> communication) {
  const int count = sets.count();
  Parallelism of_set = parallelism.part(count);
  Vector<int> places;  // of the first set, by device
  for (const int place : sets[0].indices()) places.push_back(place);
  std::sort(places.begin(), places.end(), [&](int a, int b) { return sets[0][a] < sets[0][b]; });
  Replicas replicas{count, topology, {}, std::move(communication)};
  Vector<DeviceId> kept;
  for (const int place : places) {
    kept.push_back(sets[0][place]);
    Vector<DeviceId>& devices = replicas.devices.emplace_back();
    for (const Vector<DeviceId>& set : sets) devices.push_back(set[place]);
  }
  FoldedPlan result{with_batch_size(graph, graph.batch_size / count, "graph"), topology->with_devices(kept), {}, {}};
  result.plan = plan_of(of_set, result.graph, result.topology);
  result.replicas = std::make_shared<const Replicas>(std::move(replicas));
  return result;
}

// How many groups stand for all, and what collectives cost then.
struct Fold {
  int simulated;
  std::shared_ptr<CommunicationModel> communication;
};

}  // namespace

struct KnownFolds::State {
  // All that the groups, what parameters load, and so folds follow from, but for the topology.
  using Key = std::tuple<int, int, int, int, Vector<int>, int, int, bool, int, bool, Exchanging>;

  std::shared_ptr<const Topology> topology;
  ParameterLoads loads;
  std::map<Key, std::optional<Fold>> folds;
  // By NCCL's algorithms or all, and the channels that it leaves out.
  std::map<std::pair<bool, Vector<bool>>, std::shared_ptr<CommunicationModel>> without;
};

KnownFolds::KnownFolds(const Topology& topology)
    : state_(new State{std::make_shared<const Topology>(topology), ParameterLoads(topology), {}, {}}) {}
KnownFolds::~KnownFolds() = default;

namespace {

// The fewest groups that can stand for all of them.
std::optional<Fold> find_fold(const Parallelism& parallelism, const Vector<Vector<DeviceId>>& groups,
                              const Exchanging& exchanging, bool nccl, KnownFolds::State& known) {
  const int data = parallelism.equal_parts(), least = parallelism.groups_of_experts();  // these exchange tokens
  auto communication = std::make_shared<CommunicationModel>(*known.topology, nccl);
  Comparison comparison(parallelism, *known.topology, groups, exchanging, known.loads, *communication);
  for (int simulated = least; simulated < data; simulated += least) {
    if (data % simulated != 0 || !comparison.alike(sets_of(groups, simulated))) continue;
    const Vector<bool> images = comparison.images();
    const auto [found, is_new] = known.without.try_emplace({nccl, images}, std::move(communication));
    if (is_new) found->second->leave_out(images);
    return Fold{simulated, found->second};
  }
  return std::nullopt;
}

}  // namespace

std::optional<FoldedPlan> folded(const Parallelism& parallelism, const Graph& graph, KnownFolds& known) {
  const int data = parallelism.equal_parts(), least = parallelism.groups_of_experts();
  if (data == least || data % least != 0 || parallelism.synchronization == Synchronization::parameter_server)
    return std::nullopt;
  KnownFolds::State& state = known.state();
  const Vector<Vector<DeviceId>> groups = data_parallel_groups(parallelism, *state.topology);
  const std::optional<Exchanging> exchanging = exchanging_places(parallelism, graph, *state.topology, groups);
  if (!exchanging) return std::nullopt;
  const bool nccl = conventions_of(parallelism, graph.batch_size).nccl_collectives;
  const auto [found, is_new] =
      state.folds.try_emplace({parallelism.tensor, parallelism.context, parallelism.pipeline, parallelism.data,
                               parallelism.stage_data, parallelism.expert, parallelism.of_expert(),
                               is_sharded(parallelism.synchronization), parallelism.shard_group, nccl, *exchanging});
  if (is_new) found->second = find_fold(parallelism, groups, *exchanging, nccl, state);
  if (!found->second) return std::nullopt;
  return fold(parallelism, graph, state.topology, sets_of(groups, found->second->simulated),
              found->second->communication);
}

}  // namespace ff
