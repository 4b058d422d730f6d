#include "common/known_names.h"

#include "common/name_patterns.h"

namespace ff {

KnownNames::KnownNames(std::string kind, Vector<std::string> names) : kind_(std::move(kind)), names_(std::move(names)) {
  for (const int number : names_.indices()) numbers_.emplace(names_[number], number);
}

Vector<KnownNames::Match> KnownNames::matches(const JsonPlace& place) const {
  const std::string pattern = place.as_string();
  if (const auto it = numbers_.find(pattern); it != numbers_.end()) return {{it->second, true}};
  const auto patterns = expand_brackets(pattern, names_.count());
  if (!patterns)
    place.fail("found \"" + pattern + "\", expected " + (kind_ == "operator" ? "an " : "a ") + kind_ +
               "'s name or a pattern such as \"layer*.norm\" or \"layer[1-4].norm\", for at most the " +
               std::to_string(names_.size()) + " " + kind_ +
               (kind_ == "device" ? "s of the topology" : "s of the graph"));
  Vector<Match> matches;
  for (const std::string& expanded : *patterns) add_matches(expanded, place, matches);
  return matches;
}

void KnownNames::add_matches(const std::string& pattern, const JsonPlace& place, Vector<Match>& matches) const {
  if (const auto it = numbers_.find(pattern); it != numbers_.end()) {
    matches.push_back({it->second, true});
    return;
  }
  if (!is_wildcard(pattern)) place.fail("unknown " + kind_ + " \"" + pattern + "\"" + suggestion(pattern, names_));
  const size_t before = matches.size();
  for (const int number : names_.indices())
    if (matches_wildcard(names_[number], pattern)) matches.push_back({number, false});
  if (matches.size() == before)
    place.fail("no " + kind_ + "'s name matches \"" + pattern + "\"" + wildcard_suggestion(pattern, names_));
}

}  // namespace ff
