#include "executor/trainer.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "executor/transport/in_process.h"
#include "tests/support/executor/equivalence.h"

namespace ff {
namespace {

// Scores and logits of two classes and of two experts, at one position a sample; groups of two samples. Two of the five
// labels have the largest score. All samples but the last have equal logits.
constexpr const char* graph_text = R"({"format": "ffgraph/1", "name": "balanced", "batch_size": 4,
  "inputs": [{"name": "scores", "shape": ["batch", 2], "dtype": "f32"},
             {"name": "label", "shape": ["batch"], "dtype": "i32"},
             {"name": "logits", "shape": ["batch", 1, 2], "dtype": "f32"}],
  "operators": [{"name": "loss", "type": "softmax_cross_entropy", "inputs": ["scores", "label"]},
                {"name": "balance", "type": "load_balancing_loss", "inputs": ["logits"],
                 "attributes": {"group_samples": 2, "weight": 8}}]})";

class FiveSamples : public DataSource {
 public:
  explicit FiveSamples(const Graph& graph) : graph_(graph) {}
  int64_t samples() const override { return 5; }
  void read(TensorId input, const Block& block, std::span<const int64_t> samples, void* out) const override {
    const std::string& name = graph_.tensors[input].name;
    float* values = static_cast<float*>(out);
    for (int64_t row = block[0].begin; row < block[0].end; ++row) {
      const int64_t sample = samples[static_cast<size_t>(row)];
      if (name == "label") {
        static_cast<int32_t*>(out)[row - block[0].begin] = sample < 2 ? 0 : 1;
        continue;
      }
      *values++ = name == "logits" && sample == 4 ? std::log(3.0f) : 0;
      *values++ = 0;
    }
  }

 private:
  const Graph& graph_;
};

}  // namespace

TEST_CASE("a loss of groups counts with its weight and leaves the accuracy alone") {
  for (int parts : {1, 2}) {
    StrategyFile file{parse_graph(parse_json(graph_text, "graph")), {}, {}, {}, Json::object(), false};
    file.strategy = single_device(file.graph);
    if (parts == 2)
      for (Configuration& configuration : file.strategy) {
        configuration.degrees[0] = 2;
        configuration.devices = {0, 1};
      }
    run_in_process(parts, [&](Transport& transport) {
      const auto backend = make_cpu_backend(1);
      Trainer trainer(file, *backend, transport, {});
      const FiveSamples data(file.graph);
      const Evaluation evaluation = trainer.evaluate(data);
      CHECK(evaluation.top1 == Approx(2.0 / 5));
      // With two experts and all tokens at the first one, half of its mean gate: 0.25, and 0.375 of the last sample.
      // Its batch is filled up with copies of it, of which the first group's first sample counts alone.
      const double expected = std::log(2.0) + 8 * (4 * 0.25 + 0.375) / 5;
      CHECK(evaluation.loss == Approx(expected));
    });
  }
}

}  // namespace ff
