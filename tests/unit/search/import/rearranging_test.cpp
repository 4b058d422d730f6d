// How the numbers of an initializer are followed through what rearranges them, against plain lists.
#include "search/import/rearranging.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "search/import/analysis.h"

using namespace ff;
using namespace ff::importing;

namespace {

using Numbers = Vector<int64_t>;
constexpr int64_t none = Progressions::none;

Progressions progressions(const Numbers& list) {
  Progressions result;
  for (const int64_t number : list) result.add(number);
  return result;
}

Numbers numbers(const Progressions& list) {
  Numbers result;
  for (int64_t i = 0; i < list.size(); ++i) result.push_back(list.at(i));
  return result;
}

// Progressions, single numbers and elements without one.
Numbers random_list(std::mt19937_64& random) {
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
  Numbers result;
  for (int64_t part = below(5); part >= 0; --part) {
    int64_t number = below(40);
    const int64_t step = below(4) == 0 ? 0 : below(7), kind = below(4), count = below(6);
    for (int64_t i = 0; i < count; ++i, number += step) result.push_back(kind == 0 ? none : number);
  }
  return result;
}

bool some_twice(const Numbers& list) {
  std::multiset<int64_t> all(list.begin(), list.end());
  return std::any_of(list.begin(), list.end(), [&](int64_t number) { return number != none && all.count(number) > 1; });
}

}  // namespace

TEST_CASE("lists of numbers as progressions are the plain lists") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; ++round) {
    const Numbers list = random_list(random);
    const Progressions kept = progressions(list);
    REQUIRE(numbers(kept) == list);
    REQUIRE(kept.has_none() == (std::count(list.begin(), list.end(), none) > 0));
    REQUIRE(kept.repeats() == some_twice(list));
    // In one piece as in two, and run by run.
    const auto size = static_cast<int64_t>(list.size()), cut = static_cast<int64_t>(random() % (list.size() + 1));
    Progressions parts, runs;
    parts.add(kept, 0, cut);
    parts.add(kept, cut, size - cut);
    REQUIRE(parts == kept);
    for (const Progressions::Run& run : kept.runs()) {
      for (int64_t i = 0; i < run.count && run.first == none; ++i) runs.add(none);
      if (run.first != none) runs.add(run.first, run.step, run.count);
    }
    REQUIRE(runs == kept);
    if (size - cut > 1 && list[cut] != none && list[cut + 1] != none) {
      const int64_t step = list[cut + 1] - list[cut];
      int64_t count = 2;
      while (cut + count < size && list[cut + count] == list[cut] + count * step) ++count;
      REQUIRE(kept.goes(cut, count, list[cut], step));
      if (cut + count < size) REQUIRE(!kept.goes(cut, count + 1, list[cut], step));
    }
  }
}

TEST_CASE("boxes of rearranged constants have the elements of the plain ones", "[slow]") {
  std::mt19937_64 random(1);
  const auto below = [&](size_t limit) { return static_cast<int64_t>(random() % limit); };
  for (int round = 0; round < 2000; ++round) {
    Shape shape;
    for (int64_t axes = below(4); axes >= 0; --axes) shape.push_back(1 + below(round % 2 ? 3 : 20));
    Vector<float> values;
    for (int64_t i = 0; i < volume(shape); ++i) values.push_back(static_cast<float>(i));
    Constant constant = Constant::of_floats(shape, values);
    constant.origin = Origin::of(Progressions::consecutive(7, volume(shape)));
    for (int step = 0; step < 3; ++step) {  // of one another
      const Vector<float> before = *Constant(constant).floats;
      Vector<int64_t> strides = strides_of(constant.shape);
      int64_t offset = 0;
      Shape box;
      Vector<int> order;
      for (const int axis : constant.shape.indices()) order.push_back(axis);
      std::shuffle(order.begin(), order.end(), random);
      Vector<int64_t> steps;
      for (const int axis : order) {
        const int64_t size = constant.shape[axis], begin = below(static_cast<size_t>(size));
        const int64_t stride = below(5) == 0 ? 0 : 1;
        offset += begin * strides[axis];
        box.push_back(size - begin);
        steps.push_back(stride * strides[axis]);
      }
      const Constant result = box_of(constant, box, steps, offset);
      REQUIRE(result.shape == box);
      Vector<int64_t> index(box.size(), 0);
      for (int64_t i = 0; i < volume(box); ++i) {
        int64_t rest = i, from = offset;
        for (int axis = box.count() - 1; axis >= 0; rest /= box[axis--]) from += rest % box[axis] * steps[axis];
        REQUIRE(result.origin.at(i) == constant.origin.at(from));
        REQUIRE((*result.floats.once())[i] == before[from]);
      }
      REQUIRE(result.floats.size() == volume(box));
      constant = result;
    }
  }
}

TEST_CASE("numbers of an initializer are followed through transpositions") {
  Constant constant = Constant::of_floats({2, 3}, {10, 11, 12, 13, 14, 15});
  constant.origin = Origin::of(Progressions::consecutive(5, 6));
  const Constant across = transposed(constant, {1, 0});
  REQUIRE(numbers(*across.origin.numbers) == Numbers{5, 8, 6, 9, 7, 10});
  REQUIRE(*across.floats == Vector<float>{10, 13, 11, 14, 12, 15});
  REQUIRE(!across.has_origin_of(constant));
  const Constant back = transposed(across, {1, 0});
  REQUIRE(back.origin.numbers->runs().size() == 1);  // in order again
  REQUIRE(back.is_same_as(constant));
  REQUIRE(*back.floats == *constant.floats);
}

TEST_CASE("axes along which a trained number is repeated have size 1") {
  Constant rows = Constant::of_floats({2, 2}, {1, 2, 1, 2});
  rows.origin = Origin::of(progressions({3, 4, 3, 4}));
  REQUIRE(has_repetition(rows));
  REQUIRE(!rows.is_parameter());
  const Constant once = without_repetition(rows);
  REQUIRE(once.shape == Shape{1, 2});
  REQUIRE(once.is_parameter());
  Constant fixed = Constant::of_floats({2}, {1, 1});
  REQUIRE(without_repetition(fixed).shape == Shape{2});
  fixed.origin = Origin::of(progressions({none, none}));
  REQUIRE(!fixed.origin.known());
}
