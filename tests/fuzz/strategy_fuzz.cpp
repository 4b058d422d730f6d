// Fuzz target: strategy files. The bytes are the text of "configurations", and after a line break that of an entry of
// the issue order. What is read is written, and what is written is read back as the same; anything else is refused with
// an InputError. tests/fuzz/strategy_cases has what the notation can say.
//   cmake --preset fuzz && cmake --build --preset fuzz && build/fuzz/tests/strategy_fuzz -max_total_time=3600
//   -max_len=512 build/fuzz/strategy_corpus tests/fuzz/strategy_cases
#include <cstdio>
#include <cstdlib>

#include "common/micro_batches.h"
#include "common/strategy.h"
#include "common/task_graph/issue_order.h"
#include "common/task_graph/task_graph.h"

using namespace ff;

namespace {

// x -> fc1 -> fc2 -> loss, on eight nodes of one device.
const char* const file_text = R"({"format":"ffstrategy/1","configurations":{},
  "micro_batches":2,"recompute":["fc1"],"sharding":{"fc2":"parameters"},
  "graph":{"format":"ffgraph/1","name":"two","batch_size":16,
    "inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[{"name":"fc1","type":"linear","inputs":["x"],"attributes":{"out_features":8}},
                 {"name":"fc2","type":"linear","inputs":["fc1"],"attributes":{"out_features":8}},
                 {"name":"loss","type":"softmax_cross_entropy","inputs":["fc2","label"]}]},
  "topology":{"format":"fftopology/1","name":"t",
    "device_models":{"m":{"peak_tflops":1,"memory_gb_per_s":1,"launch_us":1}},
    "nodes":{"count":8,"devices":[{"name":"d","kind":"cpu","model":"m"}],
             "network":{"name":"s","attach":["d"],"link":{"bandwidth_gb_per_s":1,"latency_us":1}}}}})";

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const size_t line_end = std::min(text.find('\n'), size);
  static const Json whole = Json::parse(file_text);
  Json json = whole;
  StrategyFile file;
  try {
    json["configurations"] = parse_json(text.substr(0, line_end), "configurations").value();
    file = parse_strategy(JsonPlace(std::make_shared<const Json>(json), "strategy"));
  } catch (const InputError&) {
    return 0;
  }
  const Json written = strategy_to_json(file);
  const StrategyFile read = parse_strategy(JsonPlace(std::make_shared<const Json>(written), "written"));
  expect(read.strategy == file.strategy && read.origins == file.origins && !read.edited,
         "another strategy is read back");
  expect(strategy_to_json(read) == written, "another file is written");

  TaskGraphBuilder builder(file.graph, file.settings);
  const TaskGraph tasks = builder.build(expanded(file));
  Vector<std::string> entries = issue_order_names(builder, tasks, default_issue_order(builder, tasks));
  if (line_end < size) entries[0] = text.substr(line_end + 1);
  const Vector<int> order = issue_order_from_names(builder, tasks, entries);
  if (order.empty()) {
    expect(line_end < size, "the default order is not read back");
    return 0;
  }
  expect(order.size() == tasks.tasks.size(), "an order without some tasks");
  expect(issue_order_from_names(builder, tasks, issue_order_names(builder, tasks, order)) == order,
         "another order is read back");
  return 0;
}
