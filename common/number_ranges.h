// Lists of numbers as people write them, of devices above all: "0-2047" instead of 2,048 numbers.
//
//   0-7            0 1 2 3 4 5 6 7
//   0-6:2          0 2 4 6             a stride, as taskset and Slurm write it; "7-0" counts down
//   0-3,8,12-15    one after the other
//   0-3 + 0-8:4    0 4 8  1 5 9  2 6 10  3 7 11: to each number of the first, all of the second are added
//   0-3 x2         0 1 2 3  0 1 2 3    the whole range twice
//   0-3 each x2    0 0 1 1 2 2 3 3     each number twice
//
// "+" binds closer than "x", "x" closer than ",". Numbers are not negative.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/vector.h"

namespace ff {

class NumberRanges {
 public:
  // Nothing where the text is not of the notation above.
  static std::optional<NumberRanges> parse(std::string_view text);

  int64_t count() const;  // without listing them; at most 2^40, whatever the text says
  Vector<int64_t> numbers() const;
  // The number at a place, from 0 to count() - 1.
  int64_t at(int64_t place) const;
  // The first of the number's places, in order, that fits; -1: none. Without listing the numbers.
  int64_t find(int64_t number, const std::function<bool(int64_t place)>& fits) const;
  int64_t find(int64_t number) const {
    return find(number, [](int64_t) { return true; });
  }

  // How often a number is repeated, and what is added each time.
  struct Loop {
    int64_t count = 1, step = 0;
  };
  // Nested loops, the outermost first, from `first` on.
  struct Sequence {
    int64_t first = 0;
    Vector<Loop> loops;
  };

 private:
  Vector<Sequence> sequences_;
};

// The shortest text that this knows to find for the numbers, in their order; parse gives them back.
std::string number_ranges(const Vector<int64_t>& numbers);

}  // namespace ff
