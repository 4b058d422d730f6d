#include <catch2/catch.hpp>
#include <set>

#include "common/graph.h"
#include "common/micro_batches.h"
#include "common/strategy.h"
#include "common/task_graph/issue_order.h"
#include "common/task_graph/task_graph.h"
#include "common/topology.h"
#include "tests/support/committed_files.h"

using namespace ff;

TEST_CASE("the examples of docs/formats.md are valid files") {
  const std::string text = committed_text("docs/formats.md");
  const std::string fence = "```json\n";
  std::set<std::string> formats;
  for (size_t at = text.find(fence); at != std::string::npos; at = text.find(fence, at + 1)) {
    const size_t begin = at + fence.size();
    const JsonPlace place = parse_json(text.substr(begin, text.find("```", begin) - begin), "docs/formats.md");
    const std::string format = place.at("format").as_string();
    formats.insert(format);
    if (format == "ffgraph/1") CHECK_NOTHROW(parse_graph(place));
    if (format == "fftopology/1") CHECK_NOTHROW(parse_topology(place));
    if (format == "ffstrategy/1") {
      const StrategyFile file = parse_strategy(place);
      INFO(
          "its configurations_hash is " << configurations_hash(file.graph, file.strategy, file.settings.micro_batches));
      CHECK_FALSE(file.edited);
      TaskGraphBuilder builder(file.graph, file.settings);
      const TaskGraph tasks = builder.build(expanded(file));
      CHECK_FALSE(issue_order_from_names(builder, tasks, file.issue_order, file.transfer_buffers).empty());
    }
  }
  // Annotations are about a graph: tests/unit/search/optimizer/annotations_test.cpp.
  CHECK(formats ==
        std::set<std::string>{"ffgraph/1", "fftopology/1", "ffprofile/1", "ffstrategy/1", "ffannotations/1"});
}
