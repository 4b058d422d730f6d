#include "search/cost/gradient_buckets.h"

#include <catch2/catch.hpp>
#include <limits>
#include <set>

#include "tests/support/graph_text.h"

namespace ff {
namespace {

// Five layers of 16 weights and 4 biases each and a loss, operators 0 to 5, in data parallelism: on devices 0 and 1, or
// those in `other` on devices 2 and 3.
class Layers {
 public:
  // `sharded`: parameters are; and these layers are gathered at once.
  explicit Layers(const std::set<OperatorId>& other, const Vector<int>& sharded = {})
      : builder_(graph_, settings(!sharded.empty()), 1, sharded) {
    for (const OperatorId op : graph_.operator_ids()) {
      const Degrees degrees = op < 5 ? Degrees{2, 1, 1} : Degrees{2, 1};
      strategy_.push_back({degrees, other.contains(op) ? Vector<DeviceId>{2, 3} : Vector<DeviceId>{0, 1}});
    }
    tasks_ = builder_.build(strategy_);
  }

  // [layer]: how many layers' gradients are reduced with its own; 0: with another one's. Weights are gathered alike.
  Vector<double> joined(const FrameworkConventions& conventions) const {
    Vector<double> result(5, -1);
    const Vector<BucketShare> shares = bucket_shares(graph_, tasks_, strategy_, conventions);
    for (const int u : tasks_.units.indices()) {
      CHECK(shares[u].reduced == shares[u].gathered);
      result[tasks_.units[u].pieces[0]->users[0].first] = shares[u].reduced;
    }
    return result;
  }

 private:
  static StrategySettings settings(bool sharded) {
    StrategySettings result;
    if (sharded) result.synchronization = Synchronization::sharded_parameters;
    return result;
  }
  static Graph network() {
    std::string layers, input = "x";
    for (int layer = 0; layer < 5; ++layer) {
      const std::string name = "fc" + std::to_string(layer);
      layers += R"({"name":")" + name + R"(","type":"linear","inputs":[")" + input +
                R"("],"attributes":{"out_features":4}},)";
      input = name;
    }
    return parse_graph(
        parse_json(graph_text(layers + R"({"name":"loss","type":"softmax_cross_entropy","inputs":["fc4","label"]})",
                              R"({"name":"x","shape":["batch",4],"dtype":"f32"})"),
                   "graph"),
        4);
  }

  const Graph graph_ = network();
  TaskGraphBuilder builder_;
  Strategy strategy_;
  TaskGraph tasks_;
};

constexpr int64_t all = std::numeric_limits<int64_t>::max();

}  // namespace

TEST_CASE("without buckets each gradient is reduced by itself") {
  CHECK(Layers({}).joined({}) == Vector<double>{1, 1, 1, 1, 1});
}

TEST_CASE("gradients fill buckets in the order of backward") {
  const Layers layers({});
  CHECK(layers.joined({.bucket_elements = all}) == Vector<double>{5, 0, 0, 0, 0});
  CHECK(layers.joined({.bucket_elements = 40}) == Vector<double>{1, 2, 0, 2, 0});
  CHECK(layers.joined({.bucket_elements = 41}) == Vector<double>{2, 0, 3, 0, 0});
  CHECK(layers.joined({.bucket_elements = 20}) == Vector<double>{1, 1, 1, 1, 1});
}

TEST_CASE("chunks of layers have buckets of their own") {
  const Layers two({2, 3, 4, 5}), three({2});
  CHECK(two.joined({.bucket_elements = all}) == Vector<double>{2, 0, 3, 0, 0});
  CHECK(three.joined({.bucket_elements = all}) == Vector<double>{2, 0, 1, 2, 0});
  CHECK(two.joined({.bucket_elements = 20}) == Vector<double>{1, 1, 1, 1, 1});
  CHECK(two.joined({.bucket_elements = 20, .buckets_of_first_chunk = true}) == Vector<double>{1, 1, 3, 0, 0});
}

TEST_CASE("what is sharded by layers is gathered and reduced with the first unit of each") {
  CHECK(Layers({}, {0, 1, 1, 2, 2, 2}).joined({}) == Vector<double>{1, 2, 0, 2, 0});
  CHECK(Layers({2}, {0, 1, 1, 1, 2, 2}).joined({}) == Vector<double>{1, 2, 1, 0, 1});
}

}  // namespace ff
