#include "common/number_ranges.h"

#include <charconv>

namespace ff {
namespace {

using Loop = NumberRanges::Loop;
using Sequence = NumberRanges::Sequence;

constexpr int64_t largest_count = int64_t{1} << 40;
constexpr size_t most_loops = 8;  // in one sequence

// Reads a text from left to right, blanks aside.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) { skip_blanks(); }

  bool done() const { return rest_.empty(); }
  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    skip_blanks();
    return true;
  }
  std::optional<int64_t> number() {
    int64_t value = 0;
    size_t digits = 0;
    while (digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9') ++digits;
    if (digits == 0 || digits > 9) return std::nullopt;
    std::from_chars(rest_.data(), rest_.data() + digits, value);
    rest_.remove_prefix(digits);
    skip_blanks();
    return value;
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }
  std::string_view rest_;
};

// NUMBER, NUMBER-NUMBER or NUMBER-NUMBER:STRIDE, as one more, inner loop of the sequence.
bool read_range(Reader& reader, Sequence& sequence) {
  const auto first = reader.number();
  if (!first) return false;
  sequence.first += *first;
  if (!reader.take("-")) return true;
  const auto last = reader.number();
  if (!last) return false;
  int64_t stride = 1;
  if (reader.take(":")) {
    const auto given = reader.number();
    if (!given || *given == 0) return false;
    stride = *given;
  }
  const int64_t count = (*last > *first ? *last - *first : *first - *last) / stride + 1;
  sequence.loops.push_back({count, *last < *first ? -stride : stride});
  return true;
}

bool read_sequence(Reader& reader, Sequence& sequence) {
  do {
    if (sequence.loops.size() == most_loops || !read_range(reader, sequence)) return false;
  } while (reader.take("+"));
  const bool each = reader.take("each");
  if (!reader.take("x")) return !each;
  const auto times = reader.number();
  if (!times || *times == 0) return false;
  sequence.loops.insert(each ? sequence.loops.end() : sequence.loops.begin(), Loop{*times, 0});
  return true;
}

int64_t count_of(const Sequence& sequence) {
  int64_t count = 1;  // at most 2^40 times a number below 2^30
  for (const Loop& loop : sequence.loops) count = std::min(count, largest_count / loop.count + 1) * loop.count;
  return std::min(count, largest_count);
}

void append_numbers(Vector<int64_t>& numbers, const Sequence& sequence, size_t depth, int64_t first) {
  if (depth == sequence.loops.size()) {
    numbers.push_back(first);
    return;
  }
  const Loop loop = sequence.loops[depth];
  for (int64_t i = 0; i < loop.count; ++i) append_numbers(numbers, sequence, depth + 1, first + i * loop.step);
}

int64_t at(const Sequence& sequence, int64_t place) {
  int64_t number = sequence.first;
  for (size_t depth = sequence.loops.size(); depth-- > 0; place /= sequence.loops[depth].count)
    number += place % sequence.loops[depth].count * sequence.loops[depth].step;
  return number;
}

// The first place, from `begin` on, of what is `rest` more than the loops outside of `depth` have added and that fits.
int64_t find(const Sequence& sequence, size_t depth, int64_t rest, int64_t begin,
             const std::function<bool(int64_t)>& fits) {
  if (depth == sequence.loops.size()) return rest == 0 && fits(begin) ? begin : -1;
  int64_t least = 0, most = 0, inner = 1;  // what the loops inside add, and their rounds
  for (size_t i = depth + 1; i < sequence.loops.size(); ++i) {
    const int64_t last = (sequence.loops[i].count - 1) * sequence.loops[i].step;
    (last < 0 ? least : most) += last;
    inner *= sequence.loops[i].count;
  }
  const Loop loop = sequence.loops[depth];
  int64_t first = 0, end = loop.count;
  if (loop.step == 0) {
    if (rest < least || rest > most) return -1;
  } else {
    // least <= rest - i * step <= most
    const int64_t stride = loop.step < 0 ? -loop.step : loop.step;
    const int64_t low = loop.step > 0 ? rest - most : least - rest, high = loop.step > 0 ? rest - least : most - rest;
    if (high < 0) return -1;
    first = low <= 0 ? 0 : (low + stride - 1) / stride;
    end = std::min(end, high / stride + 1);
  }
  for (int64_t i = first; i < end; ++i)
    if (const int64_t place = find(sequence, depth + 1, rest - i * loop.step, begin + i * inner, fits); place >= 0)
      return place;
  return -1;
}

std::string range_text(int64_t first, const Loop& loop) {
  const int64_t last = first + (loop.count - 1) * loop.step, stride = loop.step < 0 ? -loop.step : loop.step;
  return std::to_string(first) + "-" + std::to_string(last) + (stride == 1 ? "" : ":" + std::to_string(stride));
}

std::string sequence_text(Sequence sequence) {
  Vector<Loop>& loops = sequence.loops;
  std::string times;
  if (!loops.empty() && loops[0].step == 0) {
    times = " x" + std::to_string(loops[0].count);
    loops.erase(loops.begin());
  } else if (!loops.empty() && loops.back().step == 0) {
    times = " each x" + std::to_string(loops.back().count);
    loops.pop_back();
  }
  if (loops.empty()) return std::to_string(sequence.first) + times;
  // Inner ranges begin at 0 or, counting down, end there; the outermost one has the rest of the first number.
  std::string inner;
  for (size_t i = 1; i < loops.size(); ++i) {
    const int64_t start = loops[i].step < 0 ? -loops[i].step * (loops[i].count - 1) : 0;
    sequence.first -= start;
    inner += " + " + range_text(start, loops[i]);
  }
  return range_text(sequence.first, loops[0]) + inner + times;
}

// The nested loops that the numbers from `begin` on follow the longest, found from the innermost out: a loop's body
// stands again, moved by the loop's step, as often as it goes. Notation has loops that repeat without moving outside or
// inside of all others only.
Sequence longest_sequence(const Vector<int64_t>& numbers, size_t begin, size_t& length) {
  Sequence sequence{numbers[begin], {}};
  length = 1;
  while (begin + 2 * length <= numbers.size() && sequence.loops.size() < most_loops) {
    const int64_t step = numbers[begin + length] - numbers[begin];
    size_t end = begin + length;
    while (end < numbers.size() && numbers[end] == numbers[end - length] + step) ++end;
    const size_t count = (end - begin) / length;
    if (count < 2) break;
    sequence.loops.insert(sequence.loops.begin(), {static_cast<int64_t>(count), step});
    length *= count;
    if (step == 0 && sequence.loops.size() > 1) break;
  }
  // "0 x2" inside and again outside: the outer one is not written.
  if (sequence.loops.size() > 1 && sequence.loops[0].step == 0 && sequence.loops.back().step == 0) {
    length /= static_cast<size_t>(sequence.loops[0].count);
    sequence.loops.erase(sequence.loops.begin());
  }
  return sequence;
}

// The first part of a sequence as text, of how many of its numbers, and how long the whole would be.
struct Written {
  std::string text;
  size_t length, whole_size;
};

// The shorter of the sequence as one, and of the rounds of its outermost loop one by one: of these the first is written
// here and the others are left, as what follows may be closer to them. What is longer than `most` is of no use, and its
// length not exact.
Written write_shortest(const Sequence& sequence, size_t length, size_t most) {
  const std::string text = sequence_text(sequence);
  const Written whole{text, length, text.size()};
  if (sequence.loops.empty()) return whole;
  const Loop loop = sequence.loops[0];
  Sequence round = sequence;
  round.loops.erase(round.loops.begin());
  most = std::min(most, text.size());
  Written first{};
  size_t size = 0;
  for (int64_t i = 0; i < loop.count && size <= most; ++i, round.first += loop.step) {
    const Written written = write_shortest(round, length / static_cast<size_t>(loop.count), most);
    size += written.whole_size + (i > 0 ? 1 : 0);
    if (i == 0) first = written;
  }
  const bool plain_range = sequence.loops.size() == 1 && loop.step == 1;  // "0-1", not "0,1", though as long
  if (size > text.size() || (size == text.size() && plain_range)) return whole;
  first.whole_size = size;
  return first;
}

}  // namespace

std::optional<NumberRanges> NumberRanges::parse(std::string_view text) {
  NumberRanges ranges;
  Reader reader(text);
  do {
    Sequence sequence;
    if (!read_sequence(reader, sequence)) return std::nullopt;
    ranges.sequences_.push_back(std::move(sequence));
  } while (reader.take(","));
  if (!reader.done()) return std::nullopt;
  return ranges;
}

int64_t NumberRanges::count() const {
  int64_t count = 0;
  for (const Sequence& sequence : sequences_) count = std::min(count + count_of(sequence), largest_count);
  return count;
}

Vector<int64_t> NumberRanges::numbers() const {
  Vector<int64_t> numbers;
  numbers.reserve(static_cast<size_t>(count()));
  for (const Sequence& sequence : sequences_) append_numbers(numbers, sequence, 0, sequence.first);
  return numbers;
}

int64_t NumberRanges::at(int64_t place) const {
  size_t s = 0;
  for (; place >= count_of(sequences_[s]); ++s) place -= count_of(sequences_[s]);
  return ff::at(sequences_[s], place);
}

int64_t NumberRanges::find(int64_t number, const std::function<bool(int64_t place)>& fits) const {
  int64_t begin = 0;
  for (const Sequence& sequence : sequences_) {
    const int64_t place = ff::find(sequence, 0, number - sequence.first, begin, fits);
    if (place >= 0) return place;
    begin += count_of(sequence);
  }
  return -1;
}

std::string number_ranges(const Vector<int64_t>& numbers) {
  std::string text;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t length = 0;
    const Sequence sequence = longest_sequence(numbers, begin, length);
    const Written written = write_shortest(sequence, length, SIZE_MAX);
    text += (begin ? "," : "") + written.text;
    begin += written.length;
  }
  return text;
}

}  // namespace ff
