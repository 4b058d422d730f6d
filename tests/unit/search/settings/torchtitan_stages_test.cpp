#include "search/settings/torchtitan_stages.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "common/errors.h"
#include "tests/support/message_of.h"

namespace ff {

// As generate_llm_fqn_per_model_part of torchtitan 0.2.2 gives them.
TEST_CASE("layers of torchtitan's stages are those of its own function") {
  CHECK(layers_of({}, 4, 32) == Vector<int>{8, 9, 8, 7});
  CHECK(layers_of({0, 0}, 4, 32) == Vector<int>{8, 8, 8, 8});
  CHECK(layers_of({}, 8, 126) == Vector<int>{15, 16, 16, 16, 16, 16, 16, 15});
  CHECK(layers_of({2, 2}, 2, 3) == Vector<int>{2, 1});
  CHECK(layers_of({}, 1, 5) == Vector<int>{5});
  CHECK(layers_of({}, 2, 2) == Vector<int>{1, 1});
  CHECK(layers_of({2, 2}, 4, 4) == Vector<int>{0, 2, 2, 0});
  CHECK_THAT(message_of<InputError>([] { layers_of({3, 0}, 4, 8); }), Catch::Contains("leave 2 to each of the 4"));
  CHECK_THAT(message_of<InputError>([] { layers_of({}, 8, 5); }), Catch::Contains("leave 0 to each of the 8"));
}

TEST_CASE("torchtitan's number of layers for a stage gives its number of chunks") {
  CHECK(chunks_of({}, 4, false, 32) == 4);
  CHECK(chunks_of({}, 4, true, 32) == 8);
  CHECK(chunks_of({0, 0, 2}, 4, true, 32) == 16);
  // With what the embedding and the output count by default 34 layers are 9 chunks of four.
  CHECK_THAT(message_of<InputError>([] {
               chunks_of({1, 1, 4}, 4, true, 32);
             }),
             Catch::Contains("make 9 chunks, which the 4 stages do not divide"));
  CHECK_THAT(message_of<InputError>([] {
               chunks_of({0, 0, 8}, 4, true, 32);
             }),
             Catch::Contains("make 4 chunks, expected at least two for each of the 4 stages"));
  CHECK_THAT(message_of<InputError>([] {
               chunks_of({0, 0, 4}, 4, false, 32);
             }),
             Catch::Contains("make 8 chunks, expected one for each of the 4 stages"));
}

TEST_CASE("what torchtitan is told of chunks gives these chunks") {
  struct Case {
    Vector<int> of_chunks;
    int pipeline;
    bool by_numbers;
  };
  for (const Case& one : {Case{{8, 8, 8, 8}, 4, true},
                          {{8, 9, 8, 7}, 4, true},
                          {{15, 16, 16, 16, 16, 16, 16, 15}, 8, true},
                          {{15, 16, 16, 16, 16, 16, 16, 15}, 4, true},
                          {{2, 2, 2, 2, 2, 2}, 2, true},
                          {{0, 1, 1, 1, 1, 1, 1, 0}, 2, true},
                          {{5, 2}, 2, true},
                          {{7, 9, 8, 8}, 4, true},
                          {{7, 8, 9, 8}, 4, false},
                          {{3, 1, 5, 2, 2, 2}, 2, false}}) {
    CAPTURE(one.of_chunks, one.pipeline);
    const int layers = std::accumulate(one.of_chunks.begin(), one.of_chunks.end(), 0);
    const std::optional<TorchtitanStages> stages = torchtitan_stages(one.of_chunks, one.pipeline);
    REQUIRE(stages.has_value() == one.by_numbers);
    if (stages) {
      CHECK(chunks_of(*stages, one.pipeline, one.of_chunks.count() > one.pipeline, layers) == one.of_chunks.count());
      CHECK(layers_of(*stages, one.of_chunks.count(), layers) == one.of_chunks);
    }
    CHECK(layers_of_modules(torchtitan_modules(one.of_chunks), layers) == one.of_chunks);
  }
}

TEST_CASE("lists of modules that are not those of a transformer are one message") {
  const auto message = [](const std::string& list) {
    return message_of<InputError>([&] { layers_of_modules(list, 2); });
  };
  CHECK(torchtitan_modules({1, 1}) == R"([["tok_embeddings", "layers.0"], ["layers.1", "norm", "output"]])");
  CHECK(layers_of_modules("[['layers.0'], ['layers.1', 'lm_head']]", 2) == Vector<int>{1, 1});
  CHECK_THAT(message("[["), Catch::Contains("is no list"));
  CHECK_THAT(message("3"), Catch::Contains("is no list"));
  CHECK_THAT(message("[\"layers.0\"]"), Catch::Contains("chunk 0 is no list"));
  CHECK_THAT(message("[[\"layers.1\"], [\"layers.0\"]]"), Catch::Contains("chunk 0 has \"layers.1\""));
  CHECK_THAT(message("[[\"layers.0\"], [\"tok_embeddings\"]]"), Catch::Contains("chunk 1 has \"tok_embeddings\""));
  CHECK_THAT(message("[[\"layers.0\"], [3]]"), Catch::Contains("chunk 1 has \"3\""));
  CHECK_THAT(message("[[\"layers.0\"]]"), Catch::Contains("has 1 layers, the graph has 2"));
}

TEST_CASE("torchtitan computes every so many layers of a stage again") {
  Parallelism plan{.pipeline = 4};
  plan.recompute_layers = recomputed_of_chunk(plan, 32, 2);
  CHECK(plan.recompute_layers == 4);
  CHECK(recomputed_every(plan, 32) == 2);
  plan.recompute_layers = 3;
  CHECK(recomputed_every(plan, 32) == 0);
  plan.recompute_layers = 2;
  CHECK(recomputed_every(plan, 32) == 3);
  plan.layers = {8, 9, 8, 7};
  plan.recompute_layers = 4;
  CHECK(recomputed_every(plan, 32) == 0);  // of seven layers three
  const Parallelism one{.pipeline = 1};
  CHECK(recomputed_of_chunk(one, 3, 2) == 1);
  CHECK(recomputed_of_chunk(one, 3, 4) == 0);
}

}  // namespace ff
