// What is taken for heads of attention, and what is nearly that.
#include "search/import/attention_heads.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace ff;
using namespace ff::importing;

namespace {

constexpr int64_t length = 5;

// One head after the other, all of them rows [0, heads * size) in order.
ChannelMap plain(int64_t heads, int64_t size) {
  ChannelMap map;
  for (int64_t row = 0; row < heads * size; ++row) map.channels.push_back({{ChannelTerm{row}}, 1});
  return map;
}

// Tables [length, pairs] of cosines and of sines.
struct Tables {
  Vector<float> cosines, sines;

  Tables(int64_t pairs, double base, int64_t first = 0) {
    for (int64_t position = first; position < first + length; ++position)
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(position) * std::pow(base, -static_cast<double>(i) / pairs);
        cosines.push_back(static_cast<float>(std::cos(angle)));
        sines.push_back(static_cast<float>(std::sin(angle)));
      }
  }
};

// Turns channels `first` and `second` of a head, by the angles of the tables' column.
void turn(ChannelMap& map, int64_t first, int64_t second, const Tables& tables, int64_t pairs, int64_t column) {
  const int64_t a = map.channels[first].terms[0].row, b = map.channels[second].terms[0].row;
  map.channels[first] = {
      {ChannelTerm{a, 1, &tables.cosines, pairs, column}, ChannelTerm{b, -1, &tables.sines, pairs, column}}, 2};
  map.channels[second] = {
      {ChannelTerm{b, 1, &tables.cosines, pairs, column}, ChannelTerm{a, 1, &tables.sines, pairs, column}}, 2};
}

// Two heads of 4 channels: i is turned with i + 2, or where `neighbours` 2 i with 2 i + 1.
ChannelMap rotated(const Tables& tables, bool neighbours) {
  ChannelMap map = plain(2, 4);
  for (const int64_t head : {0, 4})
    for (int64_t i = 0; i < 2; ++i)
      turn(map, head + (neighbours ? 2 * i : i), head + (neighbours ? 2 * i + 1 : i + 2), tables, 2, i);
  return map;
}

}  // namespace

TEST_CASE("plain heads are rows in order, times one factor") {
  ChannelMap map = plain(2, 3);
  for (ChannelSum& sum : map.channels) sum.terms[0].factor = 0.5;
  const auto heads = head_rows(map, length, 2);
  REQUIRE(heads);
  REQUIRE(heads->rows == Vector<int64_t>{0, 1, 2, 3, 4, 5});
  REQUIRE(heads->factor == 0.5);
  REQUIRE(heads->turned == 0);
  map.channels[4].terms[0].factor = 0.25;
  REQUIRE(!head_rows(map, length, 2));
  REQUIRE(!head_rows(plain(2, 3), length, 4));
}

TEST_CASE("rotary positions turn halves of a head, or neighbours, whose rows are put in the order of halves") {
  const Tables tables(2, 10000);
  for (const bool neighbours : {false, true}) {
    const auto heads = head_rows(rotated(tables, neighbours), length, 2);
    REQUIRE(heads);
    REQUIRE(heads->turned == 4);
    REQUIRE(heads->base == 10000);
    REQUIRE(heads->rows ==
            (neighbours ? Vector<int64_t>{0, 2, 1, 3, 4, 6, 5, 7} : Vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  }
}

TEST_CASE("channels that rotary positions leave alone come last") {
  const Tables tables(1, 10000);
  ChannelMap map = plain(1, 4);
  turn(map, 2, 3, tables, 1, 0);
  const auto heads = head_rows(map, length, 1);
  REQUIRE(heads);
  REQUIRE(heads->turned == 2);
  REQUIRE(heads->rows == Vector<int64_t>{2, 3, 0, 1});
}

TEST_CASE("what is nearly rotary positions is no attention of ours") {
  const Tables tables(2, 10000);
  SECTION("positions that do not begin at 0") { REQUIRE(!head_rows(rotated(Tables(2, 10000, 1), false), length, 2)); }
  SECTION("one angle that is off") {
    Tables wrong = tables;
    wrong.sines[2 * 3] += 1e-3f;
    REQUIRE(!head_rows(rotated(wrong, false), length, 2));
  }
  SECTION("angles that are no powers of one base") {
    Tables wrong = tables;
    for (int64_t position = 0; position < length; ++position) {
      wrong.cosines[2 * position] = static_cast<float>(std::cos(0.5 * static_cast<double>(position)));
      wrong.sines[2 * position] = static_cast<float>(std::sin(0.5 * static_cast<double>(position)));
    }
    REQUIRE(!head_rows(rotated(wrong, false), length, 2));
  }
  SECTION("the other way round") {
    ChannelMap map = rotated(tables, false);
    for (ChannelSum& sum : map.channels) sum.terms[1].factor *= -1;
    const auto heads = head_rows(map, length, 2);  // the second half turned with the first one
    REQUIRE(heads);
    REQUIRE(heads->rows == Vector<int64_t>{2, 3, 0, 1, 6, 7, 4, 5});
  }
  SECTION("a reflection") {
    ChannelMap map = rotated(tables, false);
    map.channels[0].terms[1].factor = 1;
    REQUIRE(!head_rows(map, length, 2));
  }
  SECTION("a second head that is turned by other angles") {
    const Tables other(2, 500);
    ChannelMap map = rotated(tables, false);
    const ChannelMap second = rotated(other, false);
    for (int channel = 4; channel < 8; ++channel) map.channels[channel] = second.channels[channel];
    REQUIRE(!head_rows(map, length, 2));
  }
  SECTION("a second head with other pairs") {
    ChannelMap map = rotated(tables, false);
    const ChannelMap second = rotated(tables, true);
    for (int channel = 4; channel < 8; ++channel) map.channels[channel] = second.channels[channel];
    REQUIRE(!head_rows(map, length, 2));
  }
  SECTION("a row of another head") {
    ChannelMap map = rotated(tables, false);
    map.channels[4].terms[1].row = 2;
    REQUIRE(!head_rows(map, length, 2));
  }
}

TEST_CASE("heads that follow one another share keys") {
  const auto shared = [](const Vector<int64_t>& rows, int64_t heads) {
    HeadRows all;
    all.heads = heads;
    all.head_channels = rows.count() / heads;
    all.rows = rows;
    return shared_heads(all);
  };
  const auto pairs = shared({0, 1, 0, 1, 2, 3, 2, 3}, 4);
  REQUIRE(pairs);
  REQUIRE(pairs->group == 2);
  REQUIRE(pairs->rows == Vector<int64_t>{0, 1, 2, 3});
  REQUIRE(shared({0, 1, 0, 1}, 2)->group == 2);
  REQUIRE(shared({0, 1, 2, 3}, 2)->group == 1);
  REQUIRE(!shared({0, 1, 0, 1, 2, 3}, 3));
  REQUIRE(!shared({0, 1, 0, 1, 2, 3, 4, 5}, 4));
  // Heads 0 and 2 share, as tile would have it: four of their own, two of which are the same rows.
  const auto tiled = shared({0, 1, 2, 3, 0, 1, 2, 3}, 4);
  REQUIRE((!tiled || tiled->group == 1));
}
