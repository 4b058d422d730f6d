#include "search/settings/search.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <set>

#include "common/recomputation.h"
#include "search/optimizer/device_nodes.h"
#include "search/optimizer/stage_widths.h"
#include "search/settings/plan_answers.h"
#include "search/settings/refinement.h"
#include "tests/support/committed_files.h"
#include "tests/support/graph_of_config.h"
#include "tests/support/large_model_costs.h"
#include "tests/support/message_of.h"
#include "tests/support/random_network.h"

namespace ff {
namespace {

// Of all micro-batches, the memory laid out on all devices.
SettingsPrediction simulated_whole(const Parallelism& parallelism, const Graph& graph, const Topology& topology) {
  SettingsPrediction result{.parallelism = parallelism};
  const SimulatedSettings settings(parallelism, graph, topology, analytic_bf16_adamw());
  SimulatedSettings::Iteration iteration(
      settings, static_cast<int>(graph.batch_size / parallelism.data / parallelism.micro_batch));
  const Evaluator::Details details =
      iteration.evaluator().details(settings.strategy(), TaskOrder::one_forward_one_backward);
  result.makespan = details.timeline.makespan;
  result.memory_share = iteration.evaluator().fullness(details.memory_bytes);
  return result;
}

double relative_error(double found, double expected) { return std::abs(found / expected - 1); }

}  // namespace

TEST_CASE("many micro-batches continue few of them", "[slow]") {
  const Topology topology = committed_topology("dgx-a100-2");
  int compared = 0;
  for (uint32_t seed = 0; compared < 10 && seed < 400; ++seed) {
    RandomSource random(seed);
    Parallelism settings;
    settings.tensor = 1 << random.between(0, 2);
    settings.pipeline = 1 << random.between(0, 2);
    settings.chunks = settings.pipeline > 1 ? static_cast<int>(random.between(1, 3)) : 1;
    settings.recompute = random.between(0, 1) == 1 ? Recomputation::full : Recomputation::none;
    if (random.between(0, 1) == 1) settings.framework = "megatron";
    settings.synchronization =
        random.between(0, 1) == 1 ? Synchronization::sharded_optimizer : Synchronization::all_reduce;
    if (settings.pipeline == 1 && random.between(0, 1) == 1)
      settings.synchronization =
          random.between(0, 1) == 1 ? Synchronization::sharded_gradients : Synchronization::sharded_parameters;
    settings.data = 16 / settings.tensor / settings.pipeline;
    settings.micro_batch = 1;
    const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", settings.data * 4 * random.between(1, 12));
    CAPTURE(to_string(settings), graph.batch_size);
    const SettingsPrediction found = predict_settings(settings, graph, topology, analytic_bf16_adamw());
    if (!found.extrapolated) continue;
    const SettingsPrediction whole = simulated_whole(settings, graph, topology);
    CHECK(found.makespan == whole.makespan);
    CHECK(relative_error(found.memory_share, whole.memory_share) < 0.03);
    ++compared;
  }
  CHECK(compared == 10);
}

namespace {

SettingsSearchResult searched(const Graph& graph, const Topology& topology, SettingsSearchOptions options) {
  const std::atomic<bool> no_stop{false};
  return search_settings(graph, topology, analytic_bf16_adamw(), options, no_stop);
}

// The least time of all settings that fit, each of them simulated; -1: none fits.
Nanoseconds best_of_all(const Graph& graph, const Topology& topology) {
  Nanoseconds best = -1;
  const int devices = topology.devices.count();
  for (int tensor = 1; tensor <= devices; tensor *= 2)
    for (int pipeline = 1; tensor * pipeline <= devices; pipeline *= 2)
      for (int chunks = 1; chunks <= 2; ++chunks)
        for (int64_t size = 1; size <= graph.batch_size; size *= 2)
          for (const Synchronization synchronization :
               {Synchronization::all_reduce, Synchronization::sharded_optimizer, Synchronization::sharded_gradients,
                Synchronization::sharded_parameters})
            for (const Recomputation recompute :
                 {Recomputation::none, Recomputation::elementwise, Recomputation::full}) {
              const bool more_shards = synchronization == Synchronization::sharded_gradients ||
                                       synchronization == Synchronization::sharded_parameters;
              if ((pipeline > 1 && more_shards) || (chunks > 1 && pipeline == 1)) continue;
              const int data = devices / tensor / pipeline;
              if (chunks > 1 && (graph.batch_size / data / size) % pipeline != 0) continue;
              try {
                const SettingsPrediction one = predict_settings({.tensor = tensor,
                                                                 .pipeline = pipeline,
                                                                 .chunks = chunks,
                                                                 .data = data,
                                                                 .micro_batch = size,
                                                                 .synchronization = synchronization,
                                                                 .recompute = recompute},
                                                                graph, topology, analytic_bf16_adamw());
                if (one.fits() && (best < 0 || one.makespan < best)) best = one.makespan;
              } catch (const InputError&) {  // samples, heads or layers that are not divisible
              }
            }
  return best;
}

}  // namespace

// Stages with little to do run ahead until as many micro-batches are in flight as may be, which takes a while.
TEST_CASE("many micro-batches continue few of them where stages differ") {
  const Topology topology = committed_topology("dgx-a100-2");
  int extrapolated = 0;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    RandomSource random(seed);
    Parallelism settings{.tensor = 1, .pipeline = 8, .data = 2, .micro_batch = 1};
    settings.layers.assign(8, 1);
    for (int more = 4; more > 0; --more) ++settings.layers[random.between(0, 7)];
    const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 2 * random.between(60, 100));
    CAPTURE(to_string(settings), graph.batch_size);
    const SettingsPrediction found = predict_settings(settings, graph, topology, analytic_bf16_adamw());
    CHECK(found.makespan == simulated_whole(settings, graph, topology).makespan);
    CHECK(found.exact);
    extrapolated += found.extrapolated;
  }
  CHECK(extrapolated >= 2);
}

// Chunks of which micro-batches are no multiple of the stages have no fixed order: two are tried, and the faster one of
// all micro-batches counts.
TEST_CASE("many micro-batches continue few of them where there is a choice of orders") {
  const Topology topology = committed_topology("dgx-a100-2");
  for (uint32_t seed = 0; seed < 12; ++seed) {
    RandomSource random(seed);
    const int tensor = 1 << random.between(0, 2), pipeline = 1 << random.between(1, 2);
    const Parallelism settings{.tensor = tensor,
                               .pipeline = pipeline,
                               .chunks = static_cast<int>(random.between(2, 3)),
                               .data = 16 / tensor / pipeline,
                               .micro_batch = 1};
    const Graph graph =
        load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", settings.data * (pipeline * random.between(8, 24) + 1));
    CAPTURE(to_string(settings), graph.batch_size);
    const SettingsPrediction found = predict_settings(settings, graph, topology, analytic_bf16_adamw());
    CHECK(found.makespan == simulated_whole(settings, graph, topology).makespan);
  }
}

TEST_CASE("many micro-batches continue few of them that take equally long, but for 0.1 %") {
  const Topology topology = committed_topology("dgx-a100-2");
  int steady = 0;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    RandomSource random(seed);
    const Parallelism settings{.tensor = 2, .pipeline = 8, .data = 1, .micro_batch = 1};
    const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", random.between(150, 250));
    CAPTURE(graph.batch_size);
    const SettingsPrediction found =
        predict_settings(settings, graph, topology, analytic_bf16_adamw(), Extrapolation::steady);
    const SettingsPrediction whole = simulated_whole(settings, graph, topology);
    CHECK(relative_error(static_cast<double>(found.makespan), static_cast<double>(whole.makespan)) < 0.001);
    CHECK(found.extrapolated);
    steady += !found.exact;
  }
  CHECK(steady >= 2);
}

// Where a stage has more to do than others, these run ahead of it at first, and each micro-batch adds less to the
// makespan than later, when the stage is what all wait for: up to 7 % with larger networks.
TEST_CASE("of stages with unequal layers, too, and with memory", "[slow]") {
  const Topology topology = committed_topology("dgx-a100-2");
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt-3.6b.json", 96);
  int extrapolated = 0;
  for (const char* const text :
       {"4:4:4:3:4:4:4:3,framework=none", "4:3:3:3:4:5:4:4,framework=none", "8:8:7:7,framework=none",
        "9:6:8:7,framework=megatron", "4:4:3:3:4:4:4:4,framework=megatron", "4:4:4:4:4:5:4:1,framework=megatron"}) {
    CAPTURE(text);
    const int chunks = static_cast<int>(std::count(text, text + std::strlen(text), ':')) / 4 + 1;
    Parallelism settings = parse_parallelism("tp=4,pp=4,dp=1,micro_batch=1,vp=" + std::to_string(chunks) +
                                             ",sharding=none,recompute=none,layers=" + text);
    const SettingsPrediction found =
        predict_settings(settings, graph, topology, analytic_bf16_adamw(), Extrapolation::steady);
    const SettingsPrediction whole = simulated_whole(settings, graph, topology);
    CHECK(relative_error(static_cast<double>(found.makespan), static_cast<double>(whole.makespan)) < 0.001);
    CHECK(relative_error(found.memory_share, whole.memory_share) < 0.01);
    extrapolated += found.extrapolated;
  }
  CHECK(extrapolated >= 3);
}

// Here a device that computed for another micro-batch while one waited for a collective was late for the next, so that
// a micro-batch took 1.1 to 1.33 ms instead of 1.04 (with the latencies of NCCL's rings it is 1.49).
TEST_CASE("with a framework further micro-batches of a pipeline take equally long") {
  const Topology topology = committed_topology("dgx-a100-2");
  Parallelism settings{.tensor = 4, .pipeline = 4, .data = 1, .micro_batch = 1, .layers = {4, 4, 3, 1}};
  settings.framework = "megatron";
  const auto makespan = [&](int micro_batches) {
    const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", micro_batches);
    return simulated_whole(settings, graph, topology).makespan;
  };
  for (const bool sequence_parallel : {true, false}) {
    settings.sequence_parallel = sequence_parallel;
    // The first ones fill the pipeline, which repeats itself every two or six micro-batches then.
    const Nanoseconds first = makespan(10), further = makespan(16) - first;
    for (const int micro_batches : {34, 52, 70}) {
      CAPTURE(sequence_parallel, micro_batches);
      const Nanoseconds steady = first + (micro_batches - 10) / 6 * further;
      CHECK(relative_error(static_cast<double>(makespan(micro_batches)), static_cast<double>(steady)) < 0.0001);
    }
    CHECK(further < 6 * 1'500'000);
  }
}

TEST_CASE("with a framework two devices exchange by collectives, and gather inputs again") {
  const Topology topology = committed_topology("dgx-a100-1");
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 8);
  const auto planned = [&](const std::string& settings, const auto& count) {
    Parallelism parallelism = parse_parallelism("micro_batch=1," + settings);
    const ParallelPlan plan = plan_of(parallelism, graph, topology);
    TaskGraphBuilder builder(graph, plan.settings);
    return count(builder.build(expanded(graph, plan.strategy, plan.settings.micro_batches)));
  };
  const auto exchanges = [](const TaskGraph& tasks) {
    int collectives = 0, transfers = 0;
    for (const Task& task : tasks.tasks)
      collectives += is_edge_collective(task.kind), transfers += is_edge_transfer(task.kind);
    return std::pair(collectives > 0, transfers > 0);
  };
  CHECK(planned("tp=2", exchanges) == std::pair(false, true));
  CHECK(planned("tp=2,framework=megatron", exchanges) == std::pair(true, false));
  CHECK(planned("tp=2,framework=fsdp", exchanges) == std::pair(true, false));
  CHECK(planned("tp=4", exchanges) == std::pair(true, false));
  // With twice the devices a stage's device needs less memory, whether there are two or four of them.
  const auto memory = [&](const std::string& settings) {
    const Parallelism parallelism =
        parse_parallelism("pp=2,micro_batch=1,sharding=none,framework=megatron," + settings);
    CostOptions costs = analytic_bf16_adamw();
    costs.precision = Precision::bf16;
    return predict_settings(parallelism, graph, topology, costs).memory_bytes;
  };
  const int64_t one = memory("tp=1"), two = memory("tp=2"), four = memory("tp=4");
  CHECK(two < one * 2 / 3);
  CHECK(four < two * 2 / 3);
}

TEST_CASE("the search over settings finds what simulating all of them finds", "[slow]") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/llama-tiny.json", 32);
  Topology topology = committed_topology("dgx-a100-1");
  SettingsSearchOptions options;
  options.top = 3;
  const SettingsSearchResult roomy = searched(graph, topology, options);
  REQUIRE(roomy.best.count() == 3);
  CHECK(roomy.best[0].makespan == best_of_all(graph, topology));
  CHECK(roomy.best[0].makespan <= roomy.best[1].makespan);
  CHECK(roomy.best[1].makespan <= roomy.best[2].makespan);
  CHECK(roomy.complete);
  // With memory for a few settings alone.
  int compared = 0;
  for (const double share : {0.7, 0.4, 0.2}) {
    CAPTURE(share);
    Topology small = topology;
    const double needed = roomy.best[0].memory_share * static_cast<double>(topology.models[0].memory_bytes);
    small.models[0].memory_bytes = static_cast<int64_t>(share * needed);
    const Nanoseconds expected = best_of_all(graph, small);
    const SettingsSearchResult found = searched(graph, small, options);
    if (expected < 0) CHECK(found.best.empty());
    else REQUIRE_FALSE(found.best.empty());
    if (found.best.empty()) continue;
    CHECK(found.best[0].fits());
    CHECK(found.best[0].makespan == expected);
    ++compared;
  }
  CHECK(compared > 0);
}

// Seven layers and the embedding make two chunks for each of four stages.
TEST_CASE("plans are refined by chunks of one layer, with the embedding alone") {
  const auto never = [] { return false; };
  constexpr const char* config =
      R"({"model_type":"llama","hidden_act":"silu","hidden_size":4096,"num_hidden_layers":7,"num_attention_heads":32,)"
      R"("num_key_value_heads":8,"intermediate_size":14336,"vocab_size":8000,"max_position_embeddings":2048})";
  const Graph graph = graph_of_config(config, 16, 2048);
  const Topology topology = committed_topology("dgx-a100-1");
  const CostOptions costs = analytic_bf16_adamw();
  KnownFolds folds(topology);
  const Parallelism settings{.tensor = 2, .pipeline = 4, .data = 1, .micro_batch = 1};
  Parallelism alone = settings;
  alone.chunks = 2;
  const SettingsPrediction plain = predict_settings(settings, graph, topology, costs),
                           expected = predict_settings(alone, graph, topology, costs);
  REQUIRE(layers_of_chunks(alone, 7) == Vector<int>{0, 1, 1, 1, 1, 1, 1, 1});
  REQUIRE(static_cast<double>(expected.makespan) < 0.99 * static_cast<double>(plain.makespan));
  int64_t simulated = 0;
  const auto refine = [&](bool chunks) {
    return refined(plain, {graph, topology, costs, folds, false, chunks, false, false, false, false, never}, simulated);
  };
  CHECK(refine(false).parallelism == plain.parallelism);
  CHECK(simulated == 0);
  CHECK(refine(true).makespan == expected.makespan);
  CHECK(refine(true).parallelism.chunks == 2);
}

// The fourth best plan has six chunks a stage: with seven, and gradients reduced with backward, it is the second.
TEST_CASE("plans that may become one of the three best are refined, too") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/bert-base.json", 64);
  SettingsSearchOptions options;
  options.pinned.framework = "megatron";
  options.top = 8;
  const SettingsSearchResult found = searched(graph, committed_topology("dgx-a100-1"), options);
  REQUIRE(found.best.count() == 8);
  CHECK(found.best[1].parallelism.chunks == 7);
  CHECK(overlaps_reductions(found.best[1].parallelism));
}

TEST_CASE("the search over settings finds plans with context parallelism that are faster than those without") {
  constexpr const char* config =
      R"({"model_type":"llama","hidden_act":"silu","hidden_size":4096,"num_hidden_layers":8,"num_attention_heads":32,)"
      R"("num_key_value_heads":8,"intermediate_size":14336,"vocab_size":32000,"max_position_embeddings":32768})";
  const Graph graph = graph_of_config(config, 2, 32768);
  Topology topology = committed_topology("dgx-a100-2");
  topology.models[0].memory_bytes = int64_t{16} << 30;  // else nothing needs to be recomputed
  SettingsSearchOptions options;
  options.pinned.framework = "megatron";
  options.top = 1;
  const SettingsSearchResult found = searched(graph, topology, options);
  REQUIRE_FALSE(found.best.empty());
  CHECK(found.best[0].parallelism.context > 1);
  options.given = {"cp"};
  for (const int context : {1, 2, 4}) {
    options.pinned.context = context;
    const SettingsSearchResult of_one = searched(graph, topology, options);
    if (!of_one.best.empty()) CHECK(found.best[0].makespan <= of_one.best[0].makespan);
  }
}

TEST_CASE("the search over settings keeps what is given and says what is not possible") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/llama-tiny.json", 32);
  const Topology topology = committed_topology("dgx-a100-1");
  SettingsSearchOptions options;
  options.pinned.tensor = 2;
  options.pinned.recompute = Recomputation::full;
  options.given = {"tp", "recompute"};
  const SettingsSearchResult found = searched(graph, topology, options);
  REQUIRE_FALSE(found.best.empty());
  for (const SettingsPrediction& plan : found.best) {
    CHECK(plan.parallelism.tensor == 2);
    CHECK(plan.parallelism.recompute == Recomputation::full);
  }
  options.pinned.tensor = 3;
  CHECK_THROWS_AS(searched(graph, topology, options), InputError);
  CHECK_THROWS_AS(searched(load_graph(FF_SOURCE_DIR "/graphs/lenet.json", 32), topology, {}), InputError);
}

namespace {

// The last four of eight devices at half their speed.
Topology half_of_it_slow() {
  Topology topology = committed_topology("dgx-a100-1");
  DeviceModel slow = topology.models[0];
  slow.name = "slow";
  slow.peak_tflops /= 2, slow.peak_tf32_tflops /= 2, slow.peak_bf16_tflops /= 2, slow.memory_gb_per_s /= 2;
  topology.models.push_back(slow);
  const Vector<DeviceId> order = topology.by_links();
  for (int place = 4; place < 8; ++place) topology.devices[order[place]].model = 1;
  return topology;
}

}  // namespace

TEST_CASE("the search over settings computes no memory of plans that are slower than the best") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 64);
  SettingsSearchOptions options;
  options.top = 2;
  const SettingsSearchResult found = searched(graph, half_of_it_slow(), options);
  REQUIRE(found.best.count() == 2);
  int slower = 0;
  for (const LookedAt& one : found.looked_at) {
    const bool is_faster = one.time < found.best.back().makespan;
    if (one.outcome == LookedAt::Outcome::slower) CHECK_FALSE(is_faster);
    slower += one.outcome == LookedAt::Outcome::slower;
  }
  CHECK(slower > 0);
  for (const SettingsPrediction& plan : found.best) {
    CHECK(plan.memory_known);
    CHECK(plan.memory_bytes > 0);
  }
}

// Updates of a sharded optimizer take much less time: estimates without it had been up to 48 % too high.
TEST_CASE("the search over settings finds the best however few it looks for") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 16);
  const Topology topology = committed_topology("dgx-h100-2");
  SettingsSearchOptions options;
  options.pinned.framework = "megatron";
  options.top = 1;
  const SettingsSearchResult one = searched(graph, topology, options);
  REQUIRE(one.best.count() == 1);
  CHECK(one.most_below_estimate < 0.05);
  options.top = 10;
  const SettingsSearchResult ten = searched(graph, topology, options);
  CHECK(ten.best[0].makespan == one.best[0].makespan);
  CHECK(ten.most_below_estimate < 0.05);
  for (const int tensor : {1, 2, 4})
    for (const int pipeline : {1, 2, 4}) {
      const Parallelism plan{.tensor = tensor,
                             .pipeline = pipeline,
                             .micro_batch = 1,
                             .synchronization = Synchronization::sharded_optimizer,
                             .overlaps_gathers = true,
                             .framework = "megatron",
                             .overlaps_reductions = true};
      CAPTURE(to_string(plan));
      CHECK(one.best[0].makespan <= predict_settings(plan, graph, topology, analytic_bf16_adamw()).makespan);
    }
}

// Tokens go from device to device there, not by collectives of a group: no device stands for another one.
TEST_CASE("the search over settings estimates experts that are split beside context parallelism") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gshard-moe-128e-12l.json", 16);
  SettingsSearchOptions options;
  options.pinned.tensor = 4, options.pinned.context = 2, options.pinned.expert_tensor = 4;
  options.given = {"tp", "pp", "cp", "ep", "etp"};
  const SettingsSearchResult found = searched(graph, committed_topology("dgx-h100-2"), options);
  REQUIRE(!found.best.empty());
  CHECK(found.most_below_estimate < 0.05);
}

TEST_CASE("the search over settings gives slow devices fewer layers") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 64);
  const Topology topology = half_of_it_slow();
  for (const int stages : {2, 4}) {
    SettingsSearchOptions options;
    options.pinned.pipeline = stages;
    options.given = {"pp"};
    const SettingsSearchResult found = searched(graph, topology, options);
    Nanoseconds equal = -1;
    for (const LookedAt& one : found.looked_at)
      if ((one.outcome == LookedAt::Outcome::fits || one.outcome == LookedAt::Outcome::slower) &&
          one.parallelism.layers.empty() && (equal < 0 || one.time < equal))
        equal = one.time;
    REQUIRE(!found.best.empty());
    const Parallelism& best = found.best[0].parallelism;
    CAPTURE(to_string(best));
    REQUIRE(best.layers.count() == stages * best.chunks);
    Vector<int> of_stage(stages, 0);
    for (const int chunk : best.layers.indices()) of_stage[chunk % stages] += best.layers[chunk];
    CHECK(of_stage[0] > of_stage[stages - 1]);
    CHECK(equal > 0);
    CHECK(static_cast<double>(found.best[0].makespan) < 0.9 * static_cast<double>(equal));
  }
}

TEST_CASE("devices of each model get stages of their own") {
  Topology topology = committed_topology("dgx-a100-1");
  CHECK(stage_widths(topology, 1).empty());
  const Vector<DeviceId> order = topology.by_links();
  topology.models.push_back(topology.models[0]);
  DeviceModel& slow = topology.models[1];
  slow.name = "slow";
  slow.peak_tflops /= 3, slow.peak_tf32_tflops /= 3, slow.peak_bf16_tflops /= 3, slow.memory_gb_per_s /= 3;
  for (int place = 2; place < 8; ++place) topology.devices[order[place]].model = 1;
  // Not 2:2:2:2 and 2:1:1:1:1:1:1, of which a stage is more than twice as fast as another.
  CHECK(stage_widths(topology, 1) == Vector<Vector<int>>{{2, 6}, {2, 3, 3}, {1, 1, 6}, {1, 1, 3, 3}, {1, 1, 2, 2, 2}});
  CHECK(stage_widths(topology, 2) == Vector<Vector<int>>{{1, 3}});
  CHECK(stage_widths(topology, 4).empty());  // a group would be of both models
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 48);
  const SettingsSearchResult found = searched(graph, topology, {});
  REQUIRE(!found.best.empty());
  CHECK(!found.best[0].parallelism.stage_data.empty());
  SettingsSearchOptions equal;
  equal.pinned.framework = "fsdp";  // whose stages are equal
  for (const LookedAt& one : searched(graph, topology, equal).looked_at) CHECK(one.parallelism.stage_data.empty());
  equal = {};
  equal.equal_stages = true;
  CHECK(searched(graph, topology, equal).best[0].parallelism.stage_data.empty());
  // What is given is looked at alone.
  SettingsSearchOptions given;
  given.pinned = parse_parallelism("stage_dp=2:3:3");
  given.given = keys_of_parallelism("stage_dp=2:3:3");
  for (const LookedAt& one : searched(graph, topology, given).looked_at)
    CHECK(one.parallelism.stage_data == Vector<int>{2, 3, 3});
  given.pinned.stage_data = {3, 6};
  given.pinned.pipeline = 2;
  CHECK_THAT(message_of<InputError>([&] { searched(graph, topology, given); }),
             Catch::Contains("stage_dp=3:6 with tp x cp devices a group must have the 8 devices"));
}

TEST_CASE("stages that compute more get fewer layers, and no more is recomputed than must be") {
  const auto never = [] { return false; };
  const CostOptions costs = analytic_bf16_adamw();
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 64);
  const Topology topology = half_of_it_slow();
  KnownFolds folds(topology);
  const SettingsPrediction even =
      predict_settings({.tensor = 1, .pipeline = 2, .data = 4, .micro_batch = 2, .recompute = Recomputation::full},
                       graph, topology, costs);
  REQUIRE(even.fits());
  int64_t simulated = 0;
  const SettingsPrediction better =
      refined(even, {graph, topology, costs, folds, true, false, true, false, true, false, never}, simulated);
  CHECK(better.fits());
  CHECK(static_cast<double>(better.makespan) < 0.9 * static_cast<double>(even.makespan));
  REQUIRE(better.parallelism.layers.size() == 2);
  CHECK(better.parallelism.layers[0] > better.parallelism.layers[1]);
  CHECK(better.parallelism.layers[0] + better.parallelism.layers[1] == 12);
  CHECK(better.parallelism.recompute_layers == 1);  // there is memory for all others
  CHECK(simulated > 0);
  const SettingsPrediction kept =
      refined(even, {graph, topology, costs, folds, false, false, false, false, true, false, never}, simulated);
  CHECK(kept.parallelism == even.parallelism);
  // What the stages do adds up to less than the iteration.
  const Vector<StageTimes> stages = stage_times(better.parallelism, graph, topology, costs);
  REQUIRE(stages.size() == 2);
  for (const int stage : stages.indices()) {
    CHECK(stages[stage].layers == better.parallelism.layers[stage]);
    CHECK(stages[stage].busy() <= better.makespan);
    CHECK(stages[stage].recompute > 0);
    CHECK(stages[stage].backward > stages[stage].forward);
  }
}

TEST_CASE("the best plans differ") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 7);
  SettingsSearchOptions options;
  options.top = 4;
  const SettingsSearchResult found = searched(graph, committed_topology("dgx-a100-2"), options);
  std::set<std::string> different;
  for (const SettingsPrediction& plan : found.best) different.insert(to_string(plan.parallelism));
  CHECK(different.size() == found.best.size());
}

TEST_CASE("a budget that ends before anything was simulated leaves one plan of those that were estimated") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 64);
  SettingsSearchOptions options;
  options.given = {"tp", "pp", "micro_batch"};
  options.pinned.micro_batch = 1;
  for (double budget_s = 1e-3; budget_s < 10; budget_s *= 2) {
    options.budget_s = budget_s;
    const SettingsSearchResult found = searched(graph, committed_topology("dgx-a100-1"), options);
    const bool any_fits = std::any_of(found.looked_at.begin(), found.looked_at.end(), [](const LookedAt& one) {
      return one.outcome == LookedAt::Outcome::estimated || one.outcome == LookedAt::Outcome::fits;
    });
    CHECK(found.best.empty() == !any_fits);
    if (found.complete) break;
  }
}

TEST_CASE("answers about plans") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/llama-tiny.json", 32);
  const Topology topology = committed_topology("dgx-a100-1");
  const CostOptions costs = analytic_bf16_adamw();
  const SettingsSearchResult found = searched(graph, topology, {});
  const PlanQuestion question{graph, topology, costs, found.best};
  const SettingsSearchOptions options;
  const std::atomic<bool> no_stop{false};
  const auto best_of = [&](const std::string& setting) {
    return best_by_value({graph, topology, costs, options, found}, setting, no_stop);
  };
  for (const char* const key : {"tp", "pp", "vp", "dp", "micro_batch", "sharding", "recompute"}) {
    CAPTURE(key);
    int best = 0;
    for (const Json& row : best_of(key).json) {
      const std::string setting = row["setting"];
      const Parallelism plan = parse_parallelism(row["settings"]);
      if (plan == found.best[0].parallelism) ++best;
      CAPTURE(setting);
      CHECK(row["time_us"].get<double>() * 1000 >= static_cast<double>(found.best[0].makespan));
      if (setting.starts_with("vp=")) continue;  // not without stages
      SettingsSearchOptions with_value;
      with_value.pinned = parse_parallelism(setting);
      with_value.given = keys_of_parallelism(setting);
      CHECK(row["settings"] == to_string(searched(graph, topology, with_value).best.at(0).parallelism));
    }
    CHECK(best == 1);
  }
  const Explanation of_one = best_of("tp=2");
  REQUIRE(of_one.json.size() == 1);
  CHECK(of_one.json[0]["setting"] == "tp=2");
  CHECK_THROWS_AS(best_of("tp=64"), InputError);
  CHECK_THROWS_AS(best_of("tpp"), InputError);
  const Explanation slower = plans_under_change(question, "device 0 x0.1");
  CHECK(slower.json["predicted_us"].get<double>() * 1000 > static_cast<double>(found.best[0].makespan));
  CHECK_THROWS_AS(plans_under_change(question, "memory"), InputError);
  for (const auto& [why, what_if] : {std::pair("tpp", "memory x2"), std::pair("tp", "memory 2")})
    CHECK_THROWS_AS(check_questions(graph, topology, options, {why}, {what_if}), InputError);
  CHECK_NOTHROW(check_questions(graph, topology, options, {"tp"}, {"batch 13"}));
  // A batch that plans do not divide: what the question is answered with, no error.
  const Vector<SettingsPrediction> whole = {
      predict_settings(parse_parallelism("dp=8,micro_batch=4"), graph, topology, costs),
      predict_settings(parse_parallelism("tp=2,pp=2,cp=2,micro_batch=1"), graph, topology, costs)};
  const Explanation of_none = plans_under_change({graph, topology, costs, {whole[0]}}, "batch 13");
  CHECK(of_none.text.starts_with("what if batch 13: none of the first plans is possible: "));
  CHECK(of_none.json.size() == 2);
  const Explanation of_others = plans_under_change({graph, topology, costs, whole}, "batch 13");
  CHECK(of_others.text.starts_with("what if batch 13: the first plan is not possible: "));
  CHECK(of_others.json["best"] == to_string(whole[1].parallelism));
  CHECK(of_others.json["not_possible"] == of_none.json["not_possible"]);
  // The largest batch fits, and the next one does not.
  Topology small = topology;
  small.models[0].memory_bytes =
      static_cast<int64_t>(1.7 * found.best[0].memory_share * static_cast<double>(topology.models[0].memory_bytes));
  const Vector<SettingsPrediction> first = {predict_settings(found.best[0].parallelism, graph, small, costs)};
  const Explanation less = plans_under_change({graph, small, costs, first}, "memory x0.2");
  CHECK_FALSE(less.json["fits_memory"].get<bool>());
  const Explanation largest = largest_batch({graph, small, costs, first});
  Parallelism more = found.best[0].parallelism;
  const int64_t unit = graph.batch_size / more.micro_batch;
  more.micro_batch = largest.json["micro_batch"].get<int64_t>();
  CHECK(largest.json["batch"] == unit * more.micro_batch);
  CHECK(predict_settings(more, with_batch_size(graph, unit * more.micro_batch, "batch"), small, costs).fits());
  ++more.micro_batch;
  CHECK_FALSE(predict_settings(more, with_batch_size(graph, unit * more.micro_batch, "batch"), small, costs).fits());
}

TEST_CASE("gradients are reduced with or after backward, as is faster") {
  const auto never = [] { return false; };
  const CostOptions costs = analytic_bf16_adamw();
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 64);
  const Topology topology = committed_topology("dgx-a100-2");
  KnownFolds folds(topology);
  for (const bool overlaps : {false, true}) {
    const SettingsPrediction plan =
        predict_settings({.tensor = 1, .pipeline = 1, .data = 16, .micro_batch = 4, .overlaps_reductions = overlaps},
                         graph, topology, costs);
    int64_t simulated = 0;
    const SettingsPrediction better =
        refined(plan, {graph, topology, costs, folds, false, false, false, true, true, false, never}, simulated);
    CHECK(simulated == 1);
    CHECK(overlaps_reductions(better.parallelism));  // one stage: nothing is delayed
    CHECK((overlaps || better.makespan < plan.makespan));
  }
}

TEST_CASE("state is shared by as few nodes as have memory for it, where that is faster") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 64);
  const Topology topology = committed_topology("dgx-a100-8");  // 64 devices
  SettingsSearchOptions options;
  options.pinned = {.tensor = 1, .pipeline = 1, .recompute = Recomputation::full, .framework = "fsdp"};
  options.pinned.synchronization = Synchronization::sharded_parameters;
  options.given = {"tp", "pp", "sharding", "recompute", "framework"};
  const SettingsSearchResult found = searched(graph, topology, options);
  CHECK(found.best[0].parallelism.shard_group == 8);
  options.given.insert("shard_group");
  options.pinned.shard_group = 64;  // all
  const SettingsSearchResult of_all = searched(graph, topology, options);
  CHECK(of_all.best[0].parallelism.shard_group == 64);
  CHECK(found.best[0].makespan < of_all.best[0].makespan);
  // Two nodes have memory for it, one has not.
  Topology small = topology;
  const auto bytes = [&](int group) {
    Parallelism parallelism = found.best[0].parallelism;
    parallelism.shard_group = group;
    return predict_settings(parallelism, graph, topology, analytic_bf16_adamw()).memory_bytes;
  };
  small.models[0].memory_bytes = (bytes(8) + bytes(16)) / 2;
  options.given.erase("shard_group");
  options.pinned.shard_group = 0;
  CHECK(searched(graph, small, options).best[0].parallelism.shard_group == 16);
  // Groups that do not divide the ranks are not looked at.
  options.given.insert("shard_group");
  options.pinned.shard_group = 3;
  CHECK_THROWS_AS(searched(graph, topology, options), InputError);
}

TEST_CASE("a shard group is that of a node's ranks with the same parameters") {
  const int of_node = most_devices_of_node(committed_topology("dgx-a100-2"));
  CHECK(of_node == 8);
  CHECK(smallest_shard_group({.tensor = 1, .data = 16}, of_node) == 8);
  CHECK(smallest_shard_group({.tensor = 2, .data = 8}, of_node) == 4);
  CHECK(smallest_shard_group({.tensor = 2, .data = 4, .context = 2}, of_node) == 4);
  CHECK(smallest_shard_group({.tensor = 8, .data = 2}, of_node) == 0);                 // one rank of a node
  CHECK(smallest_shard_group({.tensor = 1, .pipeline = 2, .data = 8}, of_node) == 0);  // a stage is one node
}

// 40 layers on 16 stages: with 2 chunks each (1, then eight times 2, then 1) no stage has more than 3 layers, nor
// without chunks.
TEST_CASE("chunks are looked at where stages do not divide the layers") {
  SettingsSearchOptions options;
  options.pinned.pipeline = 16;
  options.given = {"pp"};
  options.top = 1;
  const SettingsSearchResult found =
      searched(load_graph(FF_SOURCE_DIR "/graphs/gpt-18.4b.json", 64), committed_topology("dgx-a100-2"), options);
  std::set<int> chunks;
  for (const LookedAt& one : found.looked_at) chunks.insert(one.parallelism.chunks);
  CHECK(chunks == std::set<int>{1, 2});  // three would be more than there are layers
}

TEST_CASE("a search over settings whose time is over looks at nothing more") {
  SettingsSearchOptions options;
  options.budget_s = 1e-9;
  const SettingsSearchResult found =
      searched(load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 64), committed_topology("dgx-a100-1"), options);
  CHECK_FALSE(found.complete);
  CHECK(found.estimated == 0);
  CHECK(found.best.empty());
}

namespace {

// Recomputation of this kind needs less memory than none and more than that of whole layers, takes between the two,
// and is found where there is memory for it but not for none. Twice: without it, and with it.
std::pair<SettingsPrediction, SettingsPrediction> found_in_between(Parallelism settings, Recomputation kind,
                                                                   const std::set<std::string>& given,
                                                                   const std::string& network = "gpt2-small") {
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/" + network + ".json", 64);
  Topology topology = committed_topology("dgx-a100-1");
  const auto predicted = [&](Recomputation recompute) {
    settings.recompute = recompute;
    return predict_settings(settings, graph, topology, analytic_bf16_adamw());
  };
  const SettingsPrediction none = predicted(Recomputation::none), some = predicted(kind),
                           full = predicted(Recomputation::full);
  CHECK(none.memory_bytes > some.memory_bytes);
  CHECK(some.memory_bytes > full.memory_bytes);
  CHECK(none.makespan < some.makespan);
  CHECK(some.makespan < full.makespan);
  topology.models[0].memory_bytes = (none.memory_bytes + some.memory_bytes) / 2;
  SettingsSearchOptions options;
  options.pinned = settings;
  options.given = given;
  const SettingsSearchResult found = searched(graph, topology, options);
  REQUIRE(!found.best.empty());
  CHECK(found.best[0].parallelism.recompute == kind);
  CHECK(found.best[0].makespan == some.makespan);
  return {none, some};
}

}  // namespace

// Norms need next to no time, and activations little more. Megatron-LM computes those before experts again.
TEST_CASE("recomputation of elementwise operators, or of norms, is looked at where none exceeds memory") {
  const std::set<std::string> given = {"tp", "pp", "ep", "micro_batch", "sharding", "framework", "overlap_grad_reduce"};
  for (const auto& [framework, kind, network] : {std::tuple("none", Recomputation::elementwise, "gpt2-small"),
                                                 std::tuple("megatron", Recomputation::norms, "moe-tiny")}) {
    CAPTURE(framework);
    const auto [none, some] = found_in_between(
        {.data = 8, .micro_batch = 8, .framework = framework, .overlaps_reductions = true}, kind, given, network);
    CHECK(some.makespan < 1.03 * none.makespan);
  }
}

TEST_CASE("Megatron-LM's norms are computed again before experts alone") {
  const Topology topology = committed_topology("dgx-a100-1");
  const auto patterns = [&](const char* network, const char* settings) {
    Parallelism parallelism = parse_parallelism(std::string("tp=1,pp=1,micro_batch=8,recompute=norms") + settings);
    return plan_of(parallelism, load_graph(FF_SOURCE_DIR "/graphs/" + std::string(network) + ".json", 64), topology)
        .settings.recompute;
  };
  const char* const network = "mixtral-8x22b";
  const Vector<std::string> all = patterns(network, ""), some = patterns(network, ",framework=megatron");
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/mixtral-8x22b.json", 64);
  const auto count = [&](const Vector<std::string>& names) {
    const Vector<bool> found = recomputed_operators(graph, names);
    return std::count(found.begin(), found.end(), true);
  };
  CHECK(count(some) == transformer_layers(graph).count());
  CHECK(count(all) == 2 * count(some));
  CHECK_THAT(message_of<InputError>([&] { patterns("gpt2-small", ",framework=megatron"); }),
             Catch::Contains("recompute=norms: Megatron-LM's norms are part of the product"));
}

TEST_CASE("selective recomputation of FSDP is looked at where none exceeds memory") {
  found_in_between({.tensor = 1,
                    .pipeline = 1,
                    .data = 8,
                    .micro_batch = 8,
                    .synchronization = Synchronization::sharded_parameters,
                    .framework = "fsdp"},
                   Recomputation::selective, {"tp", "pp", "micro_batch", "sharding", "framework"});
}

}  // namespace ff
