// Many names in a few words: "layer[1-24].norm" for 24 of them, "layer*" for all that match.
//
//   NAME           that name, whatever characters it has
//   a[1-3,7].b     each of the names a1.b, a2.b, a3.b and a7.b; numbers as in number_ranges.h
//   a*b            every name that begins with a and ends in b; * is any characters, or none
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/vector.h"

namespace ff {

// The names that a pattern stands for, one by one: with brackets replaced by their numbers. May still contain "*".
// Nothing where brackets do not hold numbers, or stand for more than `most` names.
std::optional<Vector<std::string>> expand_brackets(const std::string& pattern, int64_t most);

bool is_wildcard(const std::string& pattern);
bool matches_wildcard(const std::string& name, const std::string& pattern);

// Where no name matches a wildcard: `; did you mean "conv1" or "conv2"?`, the first of the names that need the fewest
// changes to match it, where these are few (errors.h); with no near name, all of them.
std::string wildcard_suggestion(const std::string& pattern, const Vector<std::string>& names);

// Patterns with brackets that together stand for exactly these names, each once; names that differ in a number stand
// together where the first of them stood. The names have none of "[", "]" and "*".
Vector<std::string> name_patterns(const Vector<std::string>& names);

}  // namespace ff
