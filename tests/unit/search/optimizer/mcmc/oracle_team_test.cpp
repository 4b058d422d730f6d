#include "search/optimizer/mcmc/oracle_team.h"

#include <catch2/catch.hpp>
#include <thread>

#include "search/optimizer/mcmc/proposals.h"
#include "tests/support/random_network.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

// One chain, alone and with proposals drawn ahead.
void check_same_for_any_number_of_threads(const SearchProblem& problem, McmcSettings settings) {
  settings.chains = 1;
  settings.threads = 1;
  settings.look_ahead_from_s = 0;
  const McmcResult alone = problem.search(settings);
  for (const int threads : {2, 3, 5}) {
    settings.threads = threads;
    const McmcResult ahead = problem.search(settings);
    CAPTURE(threads);
    REQUIRE(ahead.chain_hash == alone.chain_hash);
    REQUIRE(ahead.best == alone.best);
    REQUIRE(ahead.proposals == alone.proposals);
    REQUIRE(ahead.accepted == alone.accepted);
  }
}

// Predicts the same of everything, after what a test makes it wait for.
class WaitingOracle : public ChainOracle {
 public:
  using ChainOracle::ChainOracle;

  std::optional<Prediction> propose(const Vector<Change>& changes, double, const std::atomic<bool>*) override {
    change(changes);
    last_proposed = strategy();
    if (wait) wait();
    return Evaluator::prediction(1, 0);
  }
  void accept() override {}
  void reject() override { undo(); }
  DeltaStatistics statistics() const override { return {}; }

  std::function<void()> wait;
  Strategy last_proposed;

 private:
  void begin() override {}
};

constexpr ProposalKind all_kinds[] = {ProposalKind::paper, ProposalKind::mixed, ProposalKind::structured};

}  // namespace

TEST_CASE("a chain is the same however many of its proposals are predicted side by side") {
  for (const ProposalKind kind : all_kinds)
    for (const char* name : {"lenet", "rnnlm-2step"}) {
      const SearchProblem problem(name);
      check_same_for_any_number_of_threads(problem, {.proposals = 1500, .seed = 3, .proposals_from = kind});
    }
}

TEST_CASE("a chain of a random network is the same however many proposals are predicted side by side") {
  RandomSource random(17);
  for (int round = 0; round < 8; ++round) {
    const SearchProblem problem(random_graph(random), load_topology(FF_SOURCE_DIR "/topologies/local-cpu-4.json"));
    check_same_for_any_number_of_threads(
        problem, {.proposals = 400, .seed = static_cast<uint64_t>(round), .proposals_from = all_kinds[round % 3]});
  }
}

TEST_CASE("a chain with little memory and slices is the same however many proposals are predicted side by side") {
  SearchProblem unlimited("rnnlm-2step");
  const Vector<int64_t> needed =
      unlimited.evaluator.estimated_memory(data_parallel(unlimited.graph, unlimited.topology));
  Topology tight = unlimited.topology;
  for (DeviceModel& model : tight.models) model.memory_bytes = needed[0] * 9 / 10;
  const SearchProblem problem(unlimited.graph, tight);
  for (const bool slices : {false, true})
    for (const ProposalKind kind : {ProposalKind::mixed, ProposalKind::structured})
      check_same_for_any_number_of_threads(problem,
                                           {.proposals = 2000, .seed = 1, .proposals_from = kind, .slices = slices});
}

TEST_CASE("a chain with unequal shares is the same however many proposals are predicted side by side") {
  Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-1x4.json");
  topology.models.push_back(topology.models[0]);
  topology.models[1].peak_tflops /= 3;
  topology.devices[3].model = 1;
  const SearchProblem problem(load_graph(FF_SOURCE_DIR "/graphs/lenet.json"), topology);
  check_same_for_any_number_of_threads(
      problem, {.proposals = 2000, .seed = 5, .proposals_from = ProposalKind::structured, .unequal_shares = true});
}

TEST_CASE("members that were not asked for a while predict for the chain's current strategy") {
  const SearchProblem problem("rnnlm-2step");
  const ProposalSource source(ProposalKind::structured, problem.graph, problem.topology, problem.space);
  Vector<std::unique_ptr<ChainOracle>> oracles;
  Vector<ChainOracle*> members;
  for (int i = 0; i < 3; ++i) {
    oracles.push_back(make_chain_oracle(SimulatorKind::delta, problem.problem));
    members.push_back(oracles.back().get());
  }
  Evaluator judge(problem.problem);
  OracleTeam team(members);
  RandomStream random(9, 0);
  team.start(data_parallel(problem.graph, problem.topology));
  Vector<std::pair<Vector<Change>, bool>> undecided;  // and shall it be accepted?
  for (int step = 0; step < 300; ++step) {
    const int most = 1 + random.below(team.most_ahead());
    while (team.wants_more_than(most)) {
      undecided.push_back({source.draw(team.strategy(), random), random.below(6) == 0});
      team.add(undecided.back().first, undecided.back().second ? 1e300 : 0);
    }
    const std::optional<Prediction> prediction = team.predict_first();
    Strategy after = team.strategy();
    REQUIRE(prediction.has_value() == undecided.front().second);
    if (prediction) {
      for (const Change& change : undecided.front().first) after[change.op] = change.configuration;
      REQUIRE(prediction->makespan == judge.evaluate(after).makespan);
      team.accept_first();
      undecided.clear();
    } else {
      team.reject_first();
      undecided.erase(undecided.begin());
    }
    REQUIRE(team.strategy() == after);
    if (step % 100 == 99) {
      const ChainOracle::State state = team.state();
      undecided.clear();
      team.start(problem.space.random_strategy(random));
      if (step == 199) team.resume(state);
    }
  }
}

TEST_CASE("a helper that found the next step stays with it, and goes on from there") {
  const SearchProblem problem("lenet");
  WaitingOracle lead(problem.problem), helper(problem.problem);
  OracleTeam team({&lead, &helper});
  const Strategy begin = data_parallel(problem.graph, problem.topology);
  team.start(begin, Prediction{});
  constexpr double rejected = 0, accepted = 1e300;
  const auto whole = [&](OperatorId op) { return Vector<Change>{{op, single_device(problem.graph)[op]}}; };
  // The helper takes the second proposal while the lead is at the first, and then another one is drawn.
  int third = 2;
  lead.wait = [&] {
    while (team.wants_more_than(100)) std::this_thread::yield();
    team.add(whole(third), accepted);
  };
  Strategy expected = begin;
  for (const OperatorId next : {1, 4}) {
    third = next + 1;
    team.add(whole(next - 1), rejected);
    team.add(whole(next), accepted);
    REQUIRE_FALSE(team.predict_first());
    team.reject_first();
    REQUIRE(team.predict_first());
    team.accept_first();
    expected[next] = whole(next)[0].configuration;
    CHECK(team.strategy() == expected);
    CHECK(helper.last_proposed == expected);
  }
}
