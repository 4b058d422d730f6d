#include "executor/program/program.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <mutex>

#include "common/task_graph/issue_order.h"
#include "executor/report.h"
#include "executor/transport/in_process.h"
#include "tests/support/executor/ordered_transport.h"
#include "tests/support/executor/posing_backend.h"
#include "tests/support/executor/through_transport.h"
#include "tests/support/message_of.h"
#include "tests/unit/executor/temporary_directory.h"

namespace ff {
namespace {

// Two linear layers and a loss, 4 samples, for 2 devices.
StrategyFile two_layers() {
  const std::string graph = R"({"format": "ffgraph/1", "name": "two-layers", "batch_size": 4,
    "inputs": [{"name": "x", "shape": ["batch", 6], "dtype": "f32"}, {"name": "label", "shape": ["batch"],
    "dtype": "i32"}],
    "operators": [{"name": "fc1", "type": "linear", "inputs": ["x"],
    "attributes": {"out_features": 5, "activation": "relu"}},
                  {"name": "fc2", "type": "linear", "inputs": ["fc1"], "attributes": {"out_features": 3}},
                  {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc2", "label"]}]})";
  const std::string topology = R"({"format": "fftopology/1", "name": "cpus",
    "device_models": {"cpu": {"peak_tflops": 0.1, "memory_gb_per_s": 10, "launch_us": 1}},
    "devices": [{"name": "cpu0", "kind": "cpu", "model": "cpu"}, {"name": "cpu1", "kind": "cpu", "model": "cpu"}],
    "links": [{"between": ["cpu0", "cpu1"], "bandwidth_gb_per_s": 5, "latency_us": 1}]})";
  StrategyFile file{parse_graph(parse_json(graph, "graph")),
                    parse_topology(parse_json(topology, "topology")),
                    {},
                    {},
                    Json::object(),
                    false};
  file.strategy = single_device(file.graph);
  return file;
}

template <typename Function>
void with_programs(const StrategyFile& file, int ranks, Function check) {
  run_in_process(ranks, [&](Transport& transport) {
    const auto backend = make_cpu_backend(1);
    Program program(file.graph, file.strategy, file.issue_order, *backend, transport, {});
    check(program);
  });
}

int64_t copies(const Program& program) {
  size_t count = 0;
  for (const StepPlan& step : program.plan().steps) count += step.gather.size() + step.pack.size() + step.zeros.size();
  for (const UnitPlan& unit : program.plan().units) count += unit.pack.size() + unit.spread.size() + unit.zeros.size();
  return static_cast<int64_t>(count);
}

}  // namespace

TEST_CASE("over an ordered transport no update stands between an iteration's kernels") {
  StrategyFile file = two_layers();
  file.strategy = data_parallel(file.graph, file.topology);
  class Activities : public Observer {
   public:
    explicit Activities(Vector<Activity>& seen) : seen_(seen) {}
    void did(Activity activity, int) override { seen_.push_back(activity); }

   private:
    Vector<Activity>& seen_;
  };
  const auto world = make_ordered_world();
  run_in_process(2, [&](Transport& host) {
    const auto backend = make_cpu_backend(1);
    const auto transport = make_ordered_transport(world, host);
    Vector<Activity> seen;
    Program program(file.graph, file.strategy, file.issue_order, *backend, *transport, {});
    initialize_parameters(program, 0);
    for (const InputBuffer& input : program.plan().inputs)
      backend->fill_zero(program.address(input.memory), input.block.volume() * element_bytes);
    program.attach(std::make_unique<Activities>(seen));
    program.run(0, true);
    const auto first_update = std::find(seen.begin(), seen.end(), Activity::update);
    CHECK(std::count(seen.begin(), seen.end(), Activity::update) == 2);
    CHECK(std::count(seen.begin(), first_update, Activity::compute) == 6);
  });
}

TEST_CASE("whole blocks move without copies") {
  StrategyFile file = two_layers();
  SECTION("on one device") {
    with_programs(file, 1, [](const Program& program) {
      CHECK(copies(program) == 0);
      CHECK(program.plan().sends.empty());
      CHECK(program.plan().steps.size() == 8);  // 3 forward, 3 backward, 2 updates
    });
  }
  SECTION("split by samples: gradients are written where they are reduced") {
    file.strategy = data_parallel(file.graph, file.topology);
    with_programs(file, 2, [](const Program& program) {
      CHECK(copies(program) == 0);
      CHECK(program.plan().sends.empty());
      CHECK(program.plan().steps.size() == 10);  // and 2 synchronizations
    });
  }
  SECTION("one operator on the other device: its blocks are sent and received in place") {
    file.strategy[1].devices = {1};
    with_programs(file, 2, [](const Program& program) {
      CHECK(copies(program) == 0);
      CHECK(program.plan().sends.size() == 2);
      CHECK(program.plan().receives.size() == 2);
    });
  }
  SECTION("split by channel: pieces are assembled") {
    file.strategy[0] = {{1, 2}, {0, 1}};
    with_programs(file, 2, [](const Program& program) {
      // Rank 0 joins its own channels and the received ones for fc2, and packs the other rank's part of the gradient.
      CHECK(copies(program) == (program.transport().rank() == 0 ? 4 : 0));
    });
  }
  SECTION("a device without any task") {
    with_programs(file, 2, [](const Program& program) {
      if (program.transport().rank() == 1) CHECK(program.plan().steps.empty());
      if (program.transport().rank() == 1) CHECK(program.memory_bytes() == 0);
    });
  }
}

TEST_CASE("an issue order that does not fit gives way to the default one") {
  StrategyFile file = two_layers();
  file.issue_order = {"fc1/forward/0"};
  with_programs(file, 1, [](const Program& program) {
    CHECK(program.default_issue_order());
    CHECK(program.task_name(program.plan().steps[0].task) == "fc1/forward/0");
  });
}

TEST_CASE("ranks agree whether an issue order fits, whichever finds that it does not") {
  StrategyFile file = two_layers();
  file.strategy[1].devices = {1};  // of fc2, whose tasks rank 0 does not know
  const auto with_fc2_forward = [&](const std::string& entry) {
    file.issue_order = {
        "fc1/forward/0",  entry,           "loss/forward/0", "loss/backward/0", "fc2/backward/0", "fc1/backward/0",
        "fc2/update/0@1", "fc1/update/0@0"};
    int by_default = 0;
    std::mutex mutex;
    with_programs(file, 2, [&](const Program& program) {
      const std::lock_guard lock(mutex);
      by_default += program.default_issue_order();
    });
    return by_default;
  };
  CHECK(with_fc2_forward("fc2/forward/0") == 0);
  CHECK(with_fc2_forward("fc2/forward/1") == 2);
  CHECK(with_fc2_forward("fc2/forward/0-1") == 2);
  CHECK(with_fc2_forward("fc2/forward/") == 2);
}

namespace {

class FewTags : public ThroughTransport {
 public:
  using ThroughTransport::ThroughTransport;
  std::string name() const override { return "few-tags"; }
  int largest_tag() const override { return 0; }
};

// Whatever is asked for is done only where somebody waits for it.
class Late : public ThroughTransport {
 public:
  using ThroughTransport::ThroughTransport;
  bool test(Request&) override { return false; }
};

}  // namespace

TEST_CASE("more transfers between two ranks than the transport has tags") {
  StrategyFile file = two_layers();
  file.strategy[0] = {{1, 2}, {0, 0}};  // two blocks to fc2, and their gradients back
  file.strategy[1].devices = {1};
  const std::string message = message_of<MachineError>([&] {
    run_in_process(2, [&](Transport& transport) {
      FewTags few(transport);
      const auto backend = make_cpu_backend(1);
      Program(file.graph, file.strategy, {}, *backend, few, {});
    });
  });
  CHECK(message.find("have more than 1 transfers in one direction, the transport few-tags has tags up to 0") !=
        std::string::npos);
}

namespace {

// Writes down what it is told; launches iterations itself where `launches` is set.
class Diary : public Observer {
 public:
  Diary(std::string& text, bool launches) : text_(text), launches_(launches) {}
  void begin(bool training) override { text_ += training ? "training:" : "forward:"; }
  bool launch(int64_t iteration) override {
    if (launches_) text_ += " launch " + std::to_string(iteration);
    return launches_;
  }
  void did(Activity activity, int) override { text_ += activity == Activity::compute ? " kernel" : " other"; }
  void step_ended(int step) override { text_ += " " + std::to_string(step); }
  void end() override { text_ += " end\n"; }

 private:
  std::string& text_;
  const bool launches_;
};

}  // namespace

TEST_CASE("observers are told of every step, or of none when one of them launches the iteration") {
  StrategyFile file = two_layers();
  run_in_process(1, [&](Transport& transport) {
    const auto backend = make_cpu_backend(1);
    std::string text;
    Program program(file.graph, file.strategy, {}, *backend, transport, {});
    initialize_parameters(program, 0);
    for (const InputBuffer& input : program.plan().inputs)
      backend->fill_zero(program.address(input.memory), input.block.volume() * element_bytes);
    program.attach(std::make_unique<Diary>(text, false));
    program.run(0, true);
    program.run(1, false);
    program.attach(std::make_unique<Diary>(text, true));
    text += "both:\n";
    program.run(2, true);
    // Steps: 3 forward tasks, then the loss's, fc2's (and its update) and fc1's (and its update) backward.
    CHECK(text ==
          "training: kernel 0 kernel 1 kernel 2 kernel 3 kernel 4 other 5 kernel 6 other 7 end\n"
          "forward: kernel 0 kernel 1 kernel 2 3 4 5 6 7 end\n"
          "both:\n"
          "training:training: launch 2 end\n end\n");
  });
}

TEST_CASE("updates whose all-reduces are not done let the steps after them go first") {
  StrategyFile file = two_layers();
  file.strategy = data_parallel(file.graph, file.topology);
  std::mutex mutex;
  Array<Vector<float>, 2> weights;  // of rank 0's first parameter, as usual and late
  std::string text;
  for (const bool late : {false, true})
    run_in_process(2, [&](Transport& host) {
      Late late_transport(host);
      Transport& transport = late ? late_transport : host;
      const auto backend = make_cpu_backend(1);
      Program program(file.graph, file.strategy, {}, *backend, transport, {});
      initialize_parameters(program, 0);
      for (const InputBuffer& input : program.plan().inputs)
        backend->fill_zero(program.address(input.memory), input.block.volume() * element_bytes);
      std::string own;
      program.attach(std::make_unique<Diary>(own, false));
      for (int64_t iteration = 0; iteration < 2; ++iteration) program.run(iteration, true);
      if (transport.rank() > 0) return;
      const std::lock_guard lock(mutex);
      const ParameterBuffer& parameter = program.plan().parameters.back();  // a bias: its gradient is not zero
      const float* values = program.address(parameter.weight);
      weights[late].assign(values, values + parameter.block.volume());
      if (late) text = own;
    });
  CHECK(weights[0] == weights[1]);
  CHECK(std::any_of(weights[0].begin(), weights[0].end(), [](float value) { return value != 0; }));
  // Steps: 3 forward tasks, the loss's (3) and fc2's backward, fc2's synchronization and update (6), and fc1's.
  CHECK(text.find(" 5 6 kernel other 7 other 8 9 other other other other end") != std::string::npos);
}

namespace {

// A recording that fails at a kernel.
class Stops : public Observer {
 public:
  explicit Stops(int kernels) : kernels_(kernels) {}
  void did(Activity activity, int) override {
    if (activity == Activity::compute && --kernels_ == 0) throw MachineError("stopped");
  }

 private:
  int kernels_;
};

}  // namespace

TEST_CASE("small updates are submitted together where the backend wants that") {
  const StrategyFile file = two_layers();
  Vector<Vector<float>> weights;
  for (const bool together : {false, true})
    run_in_process(1, [&](Transport& transport) {
      const std::unique_ptr<Backend> backend = together ? make_posing_backend() : make_cpu_backend(1);
      Program program(file.graph, file.strategy, {}, *backend, transport, {});
      initialize_parameters(program, 0);
      for (const InputBuffer& input : program.plan().inputs)
        backend->fill_zero(program.address(input.memory), input.block.volume() * element_bytes);
      // Steps: 3 forward tasks, then the loss's, fc2's (and its update) and fc1's (and its update) backward.
      if (together) {  // what was collected until a recording failed is not submitted with the next iteration
        program.attach(std::make_unique<Stops>(6));
        CHECK_THROWS_WITH(program.submit(0, true), "stopped");
      }
      std::string text;
      program.attach(std::make_unique<Diary>(text, false));
      program.run(0, true);
      CHECK(text == (together
                         ? "training: kernel 0 kernel 1 kernel 2 kernel 3 kernel 4 5 kernel 6 7 other other end\n"
                         : "training: kernel 0 kernel 1 kernel 2 kernel 3 kernel 4 other 5 kernel 6 other 7 end\n"));
      weights.emplace_back();
      for (const ParameterBuffer& parameter : program.plan().parameters) {
        const float* values = program.address(parameter.weight);
        weights.back().insert(weights.back().end(), values, values + parameter.block.volume());
      }
    });
  CHECK(weights[0] == weights[1]);
}

TEST_CASE("the summary says what was measured and predicted") {
  StrategyFile file = two_layers();
  RunResult result;
  result.losses = {1.5, 1.25};
  result.median_us = 2000;
  result.warm_up_iterations = 1;
  result.ranks = {{1500000, 0.5, 0.25, 0.25, 12}, {1000, 1, 0, 0, 0}};
  const std::string table =
      "  rank  device                busy   transfer   idle     memory    data\n"
      "     0  cpu0                50.0 %    25.0 %   25.0 %     1.5 MB  12 us\n"
      "     1  cpu1               100.0 %     0.0 %    0.0 %     1.0 kB  0 us\n";
  const std::string losses = "loss        1.5 first, 1.25 last\n";
  CHECK(summary_text(file, result, {}) == losses +
                                              "iteration   2 ms measured (median of 1 after 1 warm-up iteration); "
                                              "no prediction in the strategy file\n" +
                                              table);
  file.provenance["predicted_us"] = 1500.0;
  CHECK(summary_text(file, result, {}) ==
        losses + "iteration   2 ms measured (median of 1 after 1 warm-up iteration), 1.5 ms predicted (-25.0 %)\n" +
            table);
  CHECK(summary_json(file, result, {})["predicted_us"] == 1500.0);
  file.edited = true;
  CHECK(summary_text(file, result, {}) == losses +
                                              "iteration   2 ms measured (median of 1 after 1 warm-up iteration); "
                                              "no prediction: the strategy was edited by hand\n" +
                                              table);
  CHECK(
      summary_json(file, result, Verification{1e-6, 1e-4, 0, "parameter fc1.weight"}).dump() ==
      R"({"iterations":2,"measured_us":2000.0,"warm_up_iterations":1,"predicted_us":null,"losses":[1.5,1.25],)"
      R"("memory_bytes":[1500000,1000],)"
      R"("shares":[{"busy":0.5,"transfer":0.25,"idle":0.25},{"busy":1.0,"transfer":0.0,"idle":0.0}],"loading_us":12.0,)"
      R"("verified":{"max_relative_error":1e-06,"passed":true}})");
}

TEST_CASE("relative errors are of the largest element, and never hide a number that is not finite") {
  const Vector<float> a = {1.0f, 2.0f}, b = {1.0f, 2.002f}, bad = {1.0f, NAN};
  CHECK(relative_error(a, b) == Approx(0.001).epsilon(0.01));
  CHECK(std::isinf(relative_error(a, bad)));
  CHECK(std::isinf(relative_error(bad, bad)));
  CHECK(std::isinf(relative_error(a, {})));
  CHECK(relative_error(Vector<float>{1e-9f}, Vector<float>{0.0f}) < 1e-5);
}

}  // namespace ff
