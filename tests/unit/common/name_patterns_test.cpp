#include "common/name_patterns.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/support/random_source.h"

using namespace ff;

using Names = Vector<std::string>;

TEST_CASE("brackets hold numbers of names") {
  CHECK(expand_brackets("fc1", 9) == Names{"fc1"});
  CHECK(expand_brackets("a[1-2].b[3,5]", 9) == Names{"a1.b3", "a1.b5", "a2.b3", "a2.b5"});
  CHECK(expand_brackets("[1-2]*", 9) == Names{"1*", "2*"});
  CHECK(expand_brackets("a]", 9) == Names{"a]"});
  CHECK_FALSE(expand_brackets("a[1-10]", 9));
  CHECK_FALSE(expand_brackets("a[1-4][1-4]", 9));
  for (const char* pattern : {"a[", "a[]", "a[b]", "a[1", "a[[1]]"}) {
    INFO(pattern);
    CHECK_FALSE(expand_brackets(pattern, 9));
  }
}

TEST_CASE("a star is any characters") {
  CHECK(is_wildcard("a*"));
  CHECK_FALSE(is_wildcard("a[1-2]"));
  for (const char* pattern : {"*", "layer*", "*norm", "l*1.*", "layer1.norm*", "**a*.**", "*1*"}) {
    INFO(pattern);
    CHECK(matches_wildcard("layer1.norm", pattern));
  }
  for (const char* pattern : {"layer", "layer2*", "*norm1", "*m.*", "a*", ""}) {
    INFO(pattern);
    CHECK_FALSE(matches_wildcard("layer1.norm", pattern));
  }
  CHECK(matches_wildcard("", "*"));
}

TEST_CASE("names that differ in numbers are written once") {
  CHECK(name_patterns({}) == Names{});
  CHECK(name_patterns({"fc1"}) == Names{"fc1"});
  CHECK(name_patterns({"a1", "b", "a2", "a4"}) == Names{"a[1-2,4]", "b"});
  CHECK(name_patterns({"l1.n1", "l1.n2", "l2.n1", "l2.n2"}) == Names{"l[1-2].n[1-2]"});
  CHECK(name_patterns({"l1.n1", "l1.n2", "l2.n1"}) == Names{"l[1-2].n1", "l1.n2"});
  CHECK(name_patterns({"a01", "a02", "a1", "a0"}) == Names{"a01", "a02", "a[0-1]"});
  CHECK(name_patterns({"a1234567890", "a2"}) == Names{"a1234567890", "a2"});
  CHECK(name_patterns({"3x3", "1x1", "1x3"}) == Names{"[1,3]x3", "1x1"});
}

TEST_CASE("where no name matches a wildcard, the names that need the fewest changes to match are suggested") {
  const Names names = {"conv1", "conv2", "conv3", "conv4", "pool1", "layer1.norm"};
  CHECK(wildcard_suggestion("cnv*", names) ==
        "; did you mean \"conv1\" or \"conv2\" or \"conv3\"?");  // 1 letter left out
  CHECK(wildcard_suggestion("layer*.nrom", names) == "; did you mean \"layer1.norm\"?");
  CHECK(wildcard_suggestion("*.nrm", names) == "; did you mean \"layer1.norm\"?");
  CHECK(wildcard_suggestion("attention*", {"conv1", "pool1"}) == "; known: conv1, pool1");
  CHECK(wildcard_suggestion("x*", {"conv1"}) == "; known: conv1");  // each name matches after one change
}

TEST_CASE("patterns of names stand for exactly these names") {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    RandomSource random(seed);
    std::set<std::string> names;
    for (int64_t count = random.between(1, 60); count > 0; --count) {
      std::string name;
      for (int64_t pieces = random.between(1, 3); pieces > 0; --pieces)
        name += Names{"a", "b.", "", "00", "x9"}[random.between(0, 4)] + std::to_string(random.between(0, 12));
      names.insert(name);
    }
    Names listed(names.begin(), names.end()), read;
    std::shuffle(listed.begin(), listed.end(), random);
    for (const std::string& pattern : name_patterns(listed)) {
      const auto expanded = expand_brackets(pattern, static_cast<int64_t>(listed.size()));
      REQUIRE(expanded);
      read.insert(read.end(), expanded->begin(), expanded->end());
    }
    std::sort(read.begin(), read.end());
    INFO(seed);
    CHECK(read == Names(names.begin(), names.end()));
  }
}
