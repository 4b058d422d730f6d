#include "search/explain/what_if.h"

#include <catch2/catch.hpp>

#include "tests/support/message_of.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

const std::string forms =
    "; the forms are:\n"
    "  link KIND bandwidth xF   (KIND: such as gpu-host, or one end of it: network)\n"
    "  link KIND latency xF\n"
    "  memory xF\n"
    "  batch N\n"
    "  device D xF              (D: number or name; x0.5: half as fast)\n"
    "  node N xF                (all devices of a node; N: its number or name)";

}  // namespace

TEST_CASE("another machine or batch gives what a simulation on a file that says so gives") {
  SearchProblem problem("alexnet", "p100-4x4");
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  const Nanoseconds now = problem.evaluator.evaluate(strategy).makespan;
  Json file = problem.topology.file;
  file["nodes"]["network"]["link"]["bandwidth_gb_per_s"] = 25;
  SearchProblem faster(problem.graph, parse_topology(JsonPlace(std::make_shared<Json>(file), "faster")));
  const Nanoseconds expected = faster.evaluator.evaluate(strategy).makespan;
  CHECK(what_if(problem.problem, strategy, "link host-network bandwidth x2").predicted == expected);
  CHECK(what_if(problem.problem, strategy, "link network bandwidth x2").predicted == expected);
  CHECK(expected < now);
  CHECK(what_if(problem.problem, strategy, "link network bandwidth x1").predicted == now);
  CHECK(what_if(problem.problem, strategy, "link network latency x10").predicted > now);
  SearchProblem half(load_graph(FF_SOURCE_DIR "/graphs/alexnet.json", 128), problem.topology);
  const WhatIf batch = what_if(problem.problem, strategy, "batch 128");
  CHECK(batch.predicted == half.evaluator.evaluate(data_parallel(half.graph, half.topology)).makespan);
  CHECK(batch.batch_size == 128);
  const WhatIf memory = what_if(problem.problem, strategy, "memory x0.5");
  CHECK(memory.predicted == now);
  CHECK(memory.fullness == Approx(2 * problem.evaluator.evaluate(strategy).fullness));
}

TEST_CASE(
    "a device that is as fast changes nothing, a slower one holds the others up, one that does nothing does not") {
  SearchProblem problem("alexnet", "p100-4x4");
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  const Nanoseconds now = problem.evaluator.evaluate(strategy).makespan;
  CHECK(what_if(problem.problem, strategy, "device 3 x1").predicted == now);
  const Nanoseconds slower = what_if(problem.problem, strategy, "device 3 x0.5").predicted;
  CHECK(slower > now);
  CHECK(what_if(problem.problem, strategy, "device node0.gpu3 x0.5").predicted == slower);
  const Nanoseconds node = what_if(problem.problem, strategy, "node 0 x0.5").predicted;
  CHECK(node >= slower);
  CHECK(what_if(problem.problem, strategy, "node node0 x0.5").predicted == node);
  CHECK(changed_problem(problem.topology, "node 1 x0.5").topology.model_of(7).peak_tflops ==
        0.5 * problem.topology.model_of(3).peak_tflops);
  const Strategy alone = single_device(problem.graph, 0);
  CHECK(what_if(problem.problem, alone, "device 5 x0.1").predicted == problem.evaluator.evaluate(alone).makespan);
}

TEST_CASE("what cannot be asked is answered with what can") {
  SearchProblem problem("lenet", "p100-4x4");
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  const auto message = [&](const std::string& text) {
    return message_of<InputError>([&] { what_if(problem.problem, strategy, text); });
  };
  CHECK(message("hello") == "--what-if \"hello\": not understood" + forms);
  CHECK(message("") == "--what-if \"\": not understood" + forms);
  CHECK(message("memory 2") ==
        "--what-if \"memory 2\": found \"2\", expected a factor from x0.001 to x1000, such as x2" + forms);
  CHECK(message("memory xnan") ==
        "--what-if \"memory xnan\": found \"xnan\", expected a factor from x0.001 to x1000, such as x2" + forms);
  CHECK(message("link nvlink bandwidth x2") ==
        "--what-if \"link nvlink bandwidth x2\": this machine has no link of kind \"nvlink\", it has gpu-gpu, "
        "gpu-host, host-network" +
            forms);
  CHECK(message("device 16 x2") ==
        "--what-if \"device 16 x2\": found \"16\", expected a whole number from 0 to 15" + forms);
  CHECK(message("node 4 x2") == "--what-if \"node 4 x2\": found \"4\", expected a whole number from 0 to 3" + forms);
  CHECK(message("batch 0") ==
        "--what-if \"batch 0\": found \"0\", expected a whole number from 1 to 4294967296" + forms);
  CHECK_THAT(message("batch 8"), Catch::Contains("batch 8"));  // 16 parts of 8 samples
}
