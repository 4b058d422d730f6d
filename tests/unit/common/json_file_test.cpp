#include "common/json_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/message_of.h"

using namespace ff;

static std::string parse_error(const std::string& text) {
  return message_of<InputError>([&] { parse_json(text, "g.json"); });
}

TEST_CASE("syntax errors name line and column") {
  CHECK(parse_error("{\n  \"format\": \"ffgraph/1\",\n  \"name\" \"x\"}") ==
        "g.json: line 3, column 12: syntax error while parsing object separator - unexpected string literal; expected "
        "':'");
  CHECK(parse_error("  ") == "g.json: line 1, column 3: the file is empty, expected a JSON object");
  CHECK(parse_error(R"({"format":"ffgraph/1","name":"a","name":"b"})") ==
        "g.json: the key \"name\" stands twice in one object");
}

TEST_CASE("nesting that no format has is refused") {
  const auto nested = [](size_t levels) {
    return R"({"a":)" + std::string(levels, '[') + std::string(levels, ']') + "}";
  };
  CHECK_NOTHROW(parse_json(nested(99), "x.json"));
  CHECK_THROWS_WITH(parse_json(nested(200000), "x.json"), "x.json: objects and arrays are nested more than 100 deep");
}

TEST_CASE("files appear whole or not at all") {
  const std::string path = "json_file_test_output.json";
  write_file_atomically(path, "old");
  CHECK_THROWS_AS(write_file_atomically("no/such/folder/x.json", "new"), MachineError);
  write_file_atomically(path, "new");
  std::ifstream file(path);
  std::string content;
  file >> content;
  CHECK(content == "new");
  std::remove(path.c_str());
}

TEST_CASE("what is no regular file is written to, not replaced; links are followed") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("json_file_test_" + std::to_string(getpid()));
  fs::create_directory(folder);
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const int reader = open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(folder / "pipe", "through");
  char text[16] = {};
  CHECK(read(reader, text, sizeof text - 1) == 7);
  CHECK(std::string(text) == "through");
  close(reader);
  CHECK(fs::is_fifo(folder / "pipe"));

  write_file_atomically(folder / "file", "old");
  fs::create_symlink("file", folder / "link");
  write_file_atomically(folder / "link", "new");
  CHECK(fs::is_symlink(folder / "link"));
  std::string content;
  std::ifstream(folder / "file") >> content;
  CHECK(content == "new");
  fs::remove_all(folder);
}
