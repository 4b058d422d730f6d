#include "common/task_graph/edges.h"

#include <catch2/catch.hpp>

#include "tests/support/random_network.h"

using namespace ff;

TEST_CASE("block pairs are all non-empty intersections, consumer by consumer") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const Strategy strategy = random_strategy(graph, 4, random);
    for (const Edge& edge : edges_of(graph)) {
      const OperatorDefinition& producer = *graph.operators[edge.producer].definition;
      const OperatorDefinition& consumer = *graph.operators[edge.consumer].definition;
      const Degrees &from = strategy[edge.producer].degrees, &to = strategy[edge.consumer].degrees;
      const bool partial = producer.partial_results(from) > 1;
      BlockPairs expected;
      for (int c = 0; c < parts_of(to); ++c)
        for (int p = 0; p < parts_of(from); ++p) {
          const Block written = producer.output_block(graph.tensors[edge.tensor].output, producer.part(from, p));
          const Block read = consumer.input_block(edge.input, consumer.part(to, c));
          const Block region = intersect(written, read);
          if (read.empty() || region.empty()) continue;
          expected.push_back({p, c, region.volume() * element_bytes, region == written, region == read, partial});
          CHECK(region_of(graph, edge, expected.back(), from, to) == region);
        }
      CHECK(intersect_blocks(blocks_of(graph, edge, from, to)) == expected);
    }
  }
}
