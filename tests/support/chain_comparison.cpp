#include "tests/support/chain_comparison.h"

#include "search/optimizer/evaluator.h"
#include "search/optimizer/mcmc/metropolis_hastings.h"
#include "search/optimizer/mcmc/proposals.h"
#include "search/optimizer/search_space.h"
#include "search/simulator/full.h"
#include "search/simulator/timeline_difference.h"

namespace ff {
namespace {

// Layer by layer, each reading the one before.
class LayerWriter {
 public:
  explicit LayerWriter(RandomSource& random) : random_(random) {}

  Json write() {
    const int64_t batch = int64_t{8} << random_.between(0, 4), size = int64_t{8} << random_.between(0, 3);
    const bool normalized = one_in(3);
    int64_t channels = int64_t{8} << random_.between(0, 3), rows = size;
    for (int64_t block = random_.between(0, 4); block > 0; --block) {
      for (int64_t layer = random_.between(1, 3); layer > 0; --layer) {
        add("conv2d", {{"out_channels", channels}, {"kernel", {3, 3}}, {"padding", {1, 1}}});
        if (normalized) add("batch_norm", {{"activation", "relu"}});
      }
      if (rows >= 4 && !one_in(3)) {
        add("pool2d", {{"method", "max"}, {"kernel", {2, 2}}});
        rows /= 2;
      }
      channels *= 2;
    }
    add("flatten", Json::object());
    for (int64_t layer = random_.between(1, 3); layer > 0; --layer) {
      add("linear", {{"out_features", int64_t{64} << random_.between(0, 6)}, {"activation", "relu"}});
      if (one_in(2)) add("dropout", {{"rate", 0.5}});
    }
    add("linear", {{"out_features", random_.between(2, 1000)}});
    operators_.push_back({{"name", "loss"}, {"type", "softmax_cross_entropy"}, {"inputs", {last_, "label"}}});
    return {{"format", "ffgraph/1"},
            {"name", "layers"},
            {"batch_size", batch},
            {"inputs",
             {{{"name", "image"}, {"shape", {"batch", 3, size, size}}, {"dtype", "f32"}},
              {{"name", "label"}, {"shape", {"batch"}}, {"dtype", "i32"}}}},
            {"operators", operators_}};
  }

 private:
  bool one_in(int64_t count) { return random_.between(1, count) == 1; }
  void add(const std::string& type, Json attributes) {
    const std::string name = type + std::to_string(operators_.size());
    operators_.push_back({{"name", name}, {"type", type}, {"inputs", {last_}}, {"attributes", std::move(attributes)}});
    last_ = name;
  }

  RandomSource& random_;
  Json operators_ = Json::array();
  std::string last_ = "image";
};

const Topology& random_cluster(RandomSource& random) {
  static const Vector<Topology> clusters = [] {
    Vector<Topology> loaded;
    for (const char* name : {"p100-1x4", "p100-2x4", "p100-4x4", "k80-2x4", "dgx-a100-1"})
      loaded.push_back(load_topology(FF_SOURCE_DIR "/topologies/" + std::string(name) + ".json"));
    return loaded;
  }();
  return clusters[random.between(0, clusters.count() - 1)];
}

class ChainComparison {
 public:
  ChainComparison(RandomSource& random, Synchronization synchronization)
      : random_(random),
        graph_(parse_graph(JsonPlace(std::make_shared<const Json>(LayerWriter(random).write()), "layers"))),
        topology_(random_cluster(random)), kernels_(topology_, CostMode::analytic, {}),
        evaluator_({graph_, topology_, kernels_, nullptr, {synchronization}}), space_(graph_, topology_),
        source_(static_cast<ProposalKind>(random.between(0, 2)), graph_, topology_, space_),
        stream_(static_cast<uint64_t>(random.between(0, 1 << 20)), 0), beta_(random.between(0, 2) == 0 ? 20 : 500),
        delta_(evaluator_.builder(), topology_, evaluator_.cost_model()) {}

  DeltaComparison compare(int proposals) {
    start();
    for (int number = 0; number < proposals && difference_.empty(); ++number) {
      if (random_.between(0, 49) == 0) start();
      if (difference_.empty()) propose();
      if (!difference_.empty()) difference_ = "proposal " + std::to_string(number) + ": " + difference_;
    }
    return {difference_, delta_.statistics()};
  }

 private:
  void start() {
    delta_.reset(random_.between(0, 1) ? data_parallel(graph_, topology_) : space_.random_strategy(stream_));
    compare_timelines();
  }

  void propose() {
    const Vector<Change> changes = source_.draw(delta_.strategy(), stream_);
    const Nanoseconds limit = static_cast<Nanoseconds>(
        largest_accepted_cost(static_cast<double>(delta_.makespan()), beta_, stream_.uniform()));
    Strategy proposed = delta_.strategy();
    for (const Change& change : changes) proposed[change.op] = change.configuration;
    const Nanoseconds judged = evaluator_.estimate(proposed, 1).makespan;
    const std::optional<Nanoseconds> makespan = delta_.propose(changes, limit);
    if (makespan && *makespan != judged)
      difference_ = "makespan: delta " + std::to_string(*makespan) + ", full " + std::to_string(judged);
    if (!makespan && judged <= limit)
      difference_ = std::string("rejected ") + delta_.rejected_by() + " at the limit " + std::to_string(limit) +
                    ", full takes " + std::to_string(judged);
    if (!makespan || !difference_.empty()) return delta_.reject();
    delta_.accept();
    compare_timelines();
  }

  void compare_timelines() {
    const TaskGraph tasks = evaluator_.builder().build(delta_.strategy());
    const Timeline timeline = simulate_full(tasks, evaluator_.cost_model().costs(tasks, delta_.strategy()));
    difference_ = timeline_difference(delta_.records(), evaluator_.builder(), tasks, timeline);
  }

  RandomSource& random_;
  const Graph graph_;
  const Topology& topology_;
  KernelCosts kernels_;
  Evaluator evaluator_;
  const SearchSpace space_;
  const ProposalSource source_;
  RandomStream stream_;
  const double beta_;
  DeltaSimulator delta_;
  std::string difference_;
};

}  // namespace

DeltaComparison compare_chain_with_full(RandomSource& random, int proposals, Synchronization synchronization) {
  return ChainComparison(random, synchronization).compare(proposals);
}

}  // namespace ff
