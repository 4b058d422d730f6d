#include "search/settings/pipeline_layout.h"

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "tests/support/message_of.h"

namespace ff {

TEST_CASE("layouts of Megatron-Core name the layers of each chunk") {
  CHECK(pipeline_layout({9, 3, 9, 3}) == "Et*9|t*3|t*9|t*3,L");
  CHECK(pipeline_layout({1, 2}) == "Et|t*2,L");
  for (const Vector<int>& layers :
       {Vector<int>{4}, {1, 1}, {9, 3, 9, 3}, {4, 4, 1, 1, 5, 5, 2, 2, 4, 5, 2, 1}, {0, 2, 2, 0}, {0, 4}})
    CHECK(layers_of_layout(pipeline_layout(layers)) == layers);
  // As in its documentation, but for the layer of multi-token prediction and the loss in a stage of its own.
  Vector<int> expected(31, 2);
  expected[0] = 3, expected[30] = 1;
  CHECK(layers_of_layout("Et*3|(tt|)*29tL") == expected);
  CHECK(layers_of_layout("Ett|(tt|)*6tL") == Vector<int>{2, 2, 2, 2, 2, 2, 2, 1});
  CHECK(layers_of_layout("E,(t(t)*2)*2|t,L") == Vector<int>{6, 1});
}

TEST_CASE("layouts that settings cannot say are one message") {
  const auto message = [](const std::string& layout) {
    return message_of<InputError>([&] { layers_of_layout(layout); });
  };
  CHECK_THAT(message("Et|t,m|L"), Catch::Contains("multi-token prediction"));
  CHECK_THAT(message("Et||t|L"), Catch::Contains("each part between the first and the last one has a layer"));
  CHECK_THAT(message("t|t,L"), Catch::Contains("the embedding, E, is not what the first stage begins with"));
  CHECK_THAT(message("Et|t"), Catch::Contains("the loss, L, is not what the last stage ends with"));
  CHECK_THAT(message("E(t|t,L"), Catch::Contains("'(' has no end"));
  CHECK_THAT(message("Et)|t,L"), Catch::Contains("')' has no beginning"));
  CHECK_THAT(message("Et*|t,L"), Catch::Contains("a number follows '*'"));
  CHECK_THAT(message("Et*x|t,L"), Catch::Contains("a number follows '*'"));
  CHECK_THAT(message("E(t*999999)*999999|t,L"), Catch::Contains("too long"));
  CHECK_THAT(message("Ex|t,L"), Catch::Contains("'x' is none of E, t, L, |"));
  CHECK_THAT(message(""), Catch::Contains("the embedding"));
}

}  // namespace ff
