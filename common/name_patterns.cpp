#include "common/name_patterns.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

#include "common/errors.h"
#include "common/number_ranges.h"

namespace ff {
namespace {

constexpr size_t most_digits = 9;  // of a number in a name that brackets stand for

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A name cut into texts and numbers: text, numbers, text, ..., text. "layer3.norm" is "layer", {3}, ".norm".
struct Pieces {
  Vector<std::string> texts;
  Vector<Vector<int64_t>> numbers;
};

Pieces cut(const std::string& name) {
  Pieces pieces{{""}, {}};
  for (size_t begin = 0; begin < name.size();) {
    size_t end = begin;
    while (end < name.size() && is_digit(name[end])) ++end;
    const std::string digits = name.substr(begin, end - begin);
    if (end == begin) {
      pieces.texts.back() += name[begin++];
      continue;
    }
    begin = end;
    if (digits.size() > most_digits || (digits[0] == '0' && digits.size() > 1)) {
      pieces.texts.back() += digits;  // "007" is not the number 7
    } else {
      pieces.numbers.push_back({std::stoll(digits)});
      pieces.texts.emplace_back();
    }
  }
  return pieces;
}

// Merges those that differ in the number at `position` only.
Vector<Pieces> merge_at(size_t position, const Vector<Pieces>& all) {
  Vector<Pieces> merged;
  std::map<std::pair<Vector<std::string>, Vector<Vector<int64_t>>>, size_t> known;
  for (const Pieces& pieces : all) {
    if (position >= pieces.numbers.size()) {
      merged.push_back(pieces);
      continue;
    }
    auto others = pieces.numbers;
    others[position].clear();
    const auto [at, added] = known.emplace(std::make_pair(pieces.texts, others), merged.size());
    if (added) {
      merged.push_back(pieces);
      continue;
    }
    Vector<int64_t>& numbers = merged[at->second].numbers[position];
    numbers.insert(numbers.end(), pieces.numbers[position].begin(), pieces.numbers[position].end());
  }
  for (Pieces& pieces : merged)
    if (position < pieces.numbers.size()) std::sort(pieces.numbers[position].begin(), pieces.numbers[position].end());
  return merged;
}

std::string text_of(const Pieces& pieces) {
  std::string text = pieces.texts[0];
  for (size_t i = 0; i < pieces.numbers.size(); ++i) {
    const std::string numbers = number_ranges(pieces.numbers[i]);
    text += (pieces.numbers[i].size() == 1 ? numbers : "[" + numbers + "]") + pieces.texts[i + 1];
  }
  return text;
}

}  // namespace

std::optional<Vector<std::string>> expand_brackets(const std::string& pattern, int64_t most) {
  Vector<std::string> names = {""};
  for (size_t at = 0; at < pattern.size();) {
    const size_t open = std::min(pattern.find('[', at), pattern.size());
    for (std::string& name : names) name.append(pattern, at, open - at);
    if (open == pattern.size()) break;
    const size_t close = pattern.find(']', open);
    if (close == std::string::npos) return std::nullopt;
    const auto ranges = NumberRanges::parse(std::string_view(pattern).substr(open + 1, close - open - 1));
    if (!ranges || ranges->count() * static_cast<int64_t>(names.size()) > most) return std::nullopt;
    Vector<std::string> longer;
    for (const std::string& name : names)
      for (const int64_t number : ranges->numbers()) longer.push_back(name + std::to_string(number));
    names = std::move(longer);
    at = close + 1;
  }
  return names;
}

bool is_wildcard(const std::string& pattern) { return pattern.find('*') != std::string::npos; }

bool matches_wildcard(const std::string& name, const std::string& pattern) {
  // Whatever stands before the last "*" met takes the first fit; when the rest does not fit, that "*" takes one more.
  size_t n = 0, p = 0, star = std::string::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string::npos;
}

namespace {

// The fewest letters to insert, remove or replace until the name matches; what "*" stands for costs nothing.
size_t changes_to_match(const std::string& name, const std::string& pattern) {
  Vector<size_t> row(name.size() + 1);  // by how much of the name is matched by the pattern so far
  std::iota(row.begin(), row.end(), size_t{0});
  for (const char letter : pattern) {
    size_t diagonal = row[0];
    if (letter != '*') ++row[0];
    for (size_t n = 1; n <= name.size(); ++n) {
      const size_t above = row[n];
      row[n] = letter == '*' ? std::min(above, row[n - 1])
                             : std::min({above + 1, row[n - 1] + 1, diagonal + (letter == name[n - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::string wildcard_suggestion(const std::string& pattern, const Vector<std::string>& names) {
  constexpr size_t most_names = 3;
  const auto letters =
      static_cast<size_t>(std::count_if(pattern.begin(), pattern.end(), [](char c) { return c != '*'; }));
  // One change in three letters, as nearest_name; all of a short pattern is no likeness.
  size_t least = std::min(std::max<size_t>(2, letters / 3) + 1, letters);
  Vector<std::string> nearest;
  for (const std::string& name : names) {
    const size_t changes = changes_to_match(name, pattern);
    if (changes >= least && (nearest.empty() || changes > least)) continue;
    if (changes < least) nearest.clear();
    least = changes;
    if (nearest.size() < most_names) nearest.push_back(name);
  }
  if (nearest.empty()) return suggestion(pattern, names);
  std::string text = "; did you mean ";
  for (const std::string& name : nearest) text += (name == nearest[0] ? "\"" : " or \"") + name + "\"";
  return text + "?";
}

Vector<std::string> name_patterns(const Vector<std::string>& names) {
  Vector<Pieces> all;
  size_t most_numbers = 0;
  for (const std::string& name : names) {
    all.push_back(cut(name));
    most_numbers = std::max(most_numbers, all.back().numbers.size());
  }
  for (size_t position = 0; position < most_numbers; ++position) all = merge_at(position, all);
  Vector<std::string> patterns;
  for (const Pieces& pieces : all) patterns.push_back(text_of(pieces));
  return patterns;
}

}  // namespace ff
