#include "common/number_ranges.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/random_source.h"

using namespace ff;

namespace {

Vector<int64_t> numbers(const std::string& text) {
  const auto ranges = NumberRanges::parse(text);
  REQUIRE(ranges);
  CHECK(ranges->count() == static_cast<int64_t>(ranges->numbers().size()));
  const Vector<int64_t> all = ranges->numbers();
  for (int place : all.indices()) {
    CHECK(ranges->at(place) == all[place]);
    CHECK(ranges->find(all[place]) == std::find(all.begin(), all.end(), all[place]) - all.begin());
    CHECK(ranges->find(all[place], [&](int64_t at) { return at >= place; }) == place);
    for (int64_t other : {all[place] - 1, all[place] + 1})
      if (std::find(all.begin(), all.end(), other) == all.end()) CHECK(ranges->find(other) == -1);
  }
  return all;
}

using List = Vector<int64_t>;

}  // namespace

TEST_CASE("ranges of numbers are read") {
  CHECK(numbers("5") == List{5});
  CHECK(numbers("0-3") == List{0, 1, 2, 3});
  CHECK(numbers("3-3") == List{3});
  CHECK(numbers("3-0") == List{3, 2, 1, 0});
  CHECK(numbers("0-6:2") == List{0, 2, 4, 6});
  CHECK(numbers("0-7:2") == List{0, 2, 4, 6});
  CHECK(numbers("0-1, 8,4-5") == List{0, 1, 8, 4, 5});
  CHECK(numbers("0-3 + 0-8:4") == List{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  CHECK(numbers("0-1 x2") == List{0, 1, 0, 1});
  CHECK(numbers("0-1x2,7 x2") == List{0, 1, 0, 1, 7, 7});
  CHECK(numbers("0-1 each x2") == List{0, 0, 1, 1});
  CHECK(numbers("4-6:2 + 0-1 each x2") == List{4, 4, 5, 5, 6, 6, 7, 7});
  CHECK(numbers(" 0-1 + 0-1 x2 ") == List{0, 1, 1, 2, 0, 1, 1, 2});
}

TEST_CASE("what is no range of numbers is refused") {
  for (const char* text : {"",
                           " ",
                           "-1",
                           "a",
                           "0-",
                           "0-3:",
                           "0-3:0",
                           "1:2",
                           "0,,1",
                           "0,",
                           "0-3 x",
                           "0-3 x0",
                           "0-3 each",
                           "0-3 4",
                           "0 +",
                           "0x2x2",
                           "0-1 - 2",
                           "1234567890",
                           "0.5",
                           "0-3 +-1",
                           "0+0-1+0-1+0-1+0-1+0-1+"
                           "0-1+0-1+0-1+0-1"}) {
    INFO(text);
    CHECK_FALSE(NumberRanges::parse(text));
  }
}

TEST_CASE("how many numbers there are is known without listing them") {
  CHECK(NumberRanges::parse("0-999999999")->count() == 1000000000);
  CHECK(NumberRanges::parse("0-999999999 + 0-999999999 + 0-999999999 x999999999")->count() == int64_t{1} << 40);
}

TEST_CASE("numbers are written short") {
  const auto written = [](const std::string& text) { return number_ranges(numbers(text)); };
  for (const char* text : {"7",
                           "0-7",
                           "7-0",
                           "0-6:2",
                           "0,4-7",
                           "0,5",
                           "1,0",
                           "0-1",
                           "0,5-7",
                           "0-2",
                           "0-3,8-11",
                           "0-1,8-9",
                           "0-1023 + 0-7168:1024",
                           "0-3 x4",
                           "0-3 each x4",
                           "9 x12",
                           "0-3 + 0-16:8 x2",
                           "0-3 + 16-0:8",
                           "5,3,11",
                           "0-1 + 0-2046:2"}) {
    INFO(text);
    CHECK(written(text) == text);
  }
  CHECK(written("0-1016:8 + 0-7") == "0-1023");
  CHECK(written("0-3 + 0") == "0-3");
  CHECK(written("1-1017:8 + 0-4:2") == "1-1017:8 + 0-4:2");
  CHECK(number_ranges({}) == "");
}

TEST_CASE("numbers that are written are read back") {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    RandomSource random(seed);
    List list;
    // Loops within loops, with steps that also count down, stand still or overlap, and here and there another number.
    for (int64_t pieces = random.between(1, 3); pieces > 0; --pieces) {
      List piece = {random.between(0, 50)};
      for (int64_t loops = random.between(0, 4); loops > 0; --loops) {
        const int64_t count = random.between(1, 4), step = random.between(-4, 8) * random.between(0, 3);
        const List body = piece;
        for (int64_t i = 1; i < count; ++i)
          for (const int64_t number : body) piece.push_back(std::max<int64_t>(0, number + i * step));
      }
      if (random.between(0, 3) == 0) piece[random.between(0, static_cast<int64_t>(piece.size()) - 1)] = 17;
      list.insert(list.end(), piece.begin(), piece.end());
    }
    const std::string text = number_ranges(list);
    INFO(seed << ": " << text);
    REQUIRE(numbers(text) == list);
    size_t plain = 0;
    for (const int64_t number : list) plain += std::to_string(number).size() + 1;
    CHECK(text.size() < plain);
  }
}
