#include "search/import/progressions.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <tuple>

namespace ff::importing {

Progressions Progressions::consecutive(int64_t first, int64_t count) {
  Progressions result;
  result.add(first, 1, count);
  return result;
}

void Progressions::add(int64_t number) {
  if (!runs_.empty()) {
    Run& last = runs_.back();
    const bool both_or_neither = (number == none) == (last.first == none);
    if (both_or_neither && (last.count == 1 || number == last.last() + last.step)) {
      last.step = number - last.last();
      ++last.count;
      return;
    }
  }
  runs_.push_back({size(), number, 0, 1});
}

void Progressions::add(int64_t first, int64_t step, int64_t count) {
  for (; count > 0; first += step, --count) {
    if (!runs_.empty() && runs_.back().count > 1 && runs_.back().step == step && first != none &&
        runs_.back().first != none && first == runs_.back().last() + step) {
      runs_.back().count += count;
      return;
    }
    add(first);
  }
}

void Progressions::add(const Progressions& other, int64_t begin, int64_t count) {
  for (int64_t at = count > 0 ? other.run_of(begin) : 0; count > 0; ++at) {
    const Run& run = other.runs_[at];
    const int64_t before = begin - run.begin, taken = std::min(count, run.count - before);
    if (run.first == none)
      for (int64_t i = 0; i < taken; ++i) add(none);
    else add(run.first + before * run.step, run.step, taken);
    begin += taken;
    count -= taken;
  }
}

int64_t Progressions::run_of(int64_t element) const {
  // Those of a transposed matrix are of one length.
  const int64_t guess = element / runs_[0].count;
  if (guess < static_cast<int64_t>(runs_.size()) && element >= runs_[guess].begin &&
      element < runs_[guess].begin + runs_[guess].count)
    return guess;
  return std::upper_bound(runs_.begin(), runs_.end(), element,
                          [](int64_t at, const Run& run) { return at < run.begin; }) -
         runs_.begin() - 1;
}

int64_t Progressions::at(int64_t element) const {
  if (runs_.empty()) return none;
  const Run& run = runs_[run_of(element)];
  return run.first + (element - run.begin) * run.step;
}

bool Progressions::goes(int64_t begin, int64_t count, int64_t first, int64_t step) const {
  for (int64_t at = count > 0 ? run_of(begin) : 0; count > 0; ++at) {
    const Run& run = runs_[at];
    const int64_t before = begin - run.begin, taken = std::min(count, run.count - before);
    if (run.first + before * run.step != first || (taken > 1 && run.step != step)) return false;
    begin += taken;
    count -= taken;
    first += taken * step;
  }
  return true;
}

bool Progressions::has_none() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.first == none; });
}

// Progressions of one step have a number in common where they are equal modulo the step and overlap.
bool Progressions::repeats() const {
  int64_t step = 0;
  for (const Run& run : runs_) {
    if (run.first == none || run.count == 1) continue;
    if (run.step == 0) return true;
    if (step != 0 && std::abs(run.step) != step) return repeats_element_by_element();
    step = std::abs(run.step);
  }
  step = std::max<int64_t>(step, 1);
  Vector<std::tuple<int64_t, int64_t, int64_t>> ranges;  // remainder, least, most
  for (const Run& run : runs_)
    if (run.first != none)
      ranges.emplace_back(run.first % step, std::min(run.first, run.last()), std::max(run.first, run.last()));
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (std::get<0>(ranges[i]) == std::get<0>(ranges[i - 1]) && std::get<1>(ranges[i]) <= std::get<2>(ranges[i - 1]))
      return true;
  return false;
}

bool Progressions::repeats_element_by_element() const {
  Vector<int64_t> numbers;
  numbers.reserve(static_cast<size_t>(size()));
  for (const Run& run : runs_)
    for (int64_t i = 0; i < run.count && run.first != none; ++i) numbers.push_back(run.first + i * run.step);
  std::sort(numbers.begin(), numbers.end());
  return std::adjacent_find(numbers.begin(), numbers.end()) != numbers.end();
}

Progressions Progressions::box(const Shape& shape, const Vector<int64_t>& strides, int64_t offset) const {
  Progressions result;
  const int64_t count = shape.empty() ? 1 : shape.back(), stride = shape.empty() ? 0 : strides.back();
  std::optional<Run> whole;
  if (runs_.size() == 1 && runs_[0].first != none) whole = runs_[0];
  for_each_row(shape, strides, offset, [&](int64_t row) {
    if (whole) result.add(whole->first + row * whole->step, stride * whole->step, count);
    else if (stride == 1) result.add(*this, row, count);
    else
      for (int64_t i = 0; i < count; ++i) result.add(at(row + i * stride));
  });
  return result;
}

}  // namespace ff::importing
