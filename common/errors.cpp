#include "common/errors.h"

#include <algorithm>
#include <numeric>

namespace ff {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  Vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, const Vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) best_distance = distance, best = candidate;
  }
  return best;
}

std::string suggestion(std::string_view name, const Vector<std::string>& candidates) {
  // Several that begin with the name, as "dgx-a100-40gb" and "dgx-a100-80gb" do with "dgx-a100".
  constexpr size_t shortest = 3, most = 4;
  std::string longer;
  size_t count = 0;
  for (const std::string& candidate : candidates)
    if (name.size() >= shortest && candidate.starts_with(name))
      longer += (count++ == 0 ? "\"" : " or \"") + candidate + "\"";
  if (count > 1 && count <= most) return "; did you mean " + longer + "?";
  const std::string nearest = nearest_name(name, candidates);
  if (!nearest.empty()) return "; did you mean \"" + nearest + "\"?";
  if (candidates.empty()) return "";
  std::string text = "; known: ";
  const size_t shown = std::min<size_t>(candidates.size(), 24);
  for (size_t i = 0; i < shown; ++i) text += (i ? ", " : "") + candidates[i];
  if (shown < candidates.size()) text += ", ... (" + std::to_string(candidates.size()) + " in all)";
  return text;
}

}  // namespace ff
