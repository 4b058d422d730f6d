// The names that a file may use, with patterns for many of them (name_patterns.h), and the message where one is
// unknown.
#pragma once

#include <string>
#include <unordered_map>

#include "common/json_file.h"
#include "common/vector.h"

namespace ff {

class KnownNames {
 public:
  // `kind` is what the messages call them: "operator".
  KnownNames(std::string kind, Vector<std::string> names);

  struct Match {
    int number;    // of the name
    bool by_name;  // with its number in brackets or as it is, not by "*"
  };
  // What the name or pattern at this place stands for, at least one. Throws InputError.
  Vector<Match> matches(const JsonPlace& place) const;

  const Vector<std::string>& names() const { return names_; }

 private:
  void add_matches(const std::string& pattern, const JsonPlace& place, Vector<Match>& matches) const;

  std::string kind_;
  Vector<std::string> names_;
  std::unordered_map<std::string, int> numbers_;
};

}  // namespace ff
