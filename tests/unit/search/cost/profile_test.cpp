#include "search/cost/profile.h"

#include <catch2/catch.hpp>
#include <cstdio>

#include "tests/support/message_of.h"

using namespace ff;

TEST_CASE("profile files keep what was measured, and rates between measured sizes are interpolated") {
  Profile profile;
  profile.device_model = "m";
  profile.measured = {{"where", "here"}, {"date", "2026-01-01"}};
  profile.entries["forward linear"] = {12.5, 7, 0.25};
  profile.entries["copy 1000"] = {1, 5, 0};
  profile.entries["copy 3000"] = {5, 5, 0};
  const std::string path = "profile_test.json";
  save_profile(path, profile);
  const Profile read = load_profile(path);
  std::remove(path.c_str());
  CHECK(read.device_model == "m");
  CHECK(read.entries.at("forward linear").us == 12.5);
  CHECK(read.entries.at("forward linear").samples == 7);
  CHECK(*interpolated_us(read, "copy", 2000) == Approx(3));
  CHECK(*interpolated_us(read, "copy", 10) == Approx(1));
  CHECK(*interpolated_us(read, "copy", 6000) == Approx(10));
  CHECK_FALSE(interpolated_us(read, "update", 10));
}

TEST_CASE("a profile's precision is one that exists, and a name") {
  const std::string path = "profile_precision_test.json";
  const auto message = [&](const Json& precision) {
    write_json_file(path, {{"format", "ffprofile/1"},
                           {"device_model", "m"},
                           {"measured", {{"precision", precision}}},
                           {"entries", Json::object()}});
    const std::string text = message_of<InputError>([&] { load_profile(path); });
    std::remove(path.c_str());
    return text;
  };
  CHECK(message("bf16").empty());
  CHECK(message("bf61") == path + ": /measured/precision: found \"bf61\"; did you mean \"bf16\"?");
  CHECK(message(3) == path + ": /measured/precision: found 3, expected a string");
}
