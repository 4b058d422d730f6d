// Reading JSON with positions and checked fields, and writing files whole or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/errors.h"
#include "common/vector.h"

namespace ff {

using Json = nlohmann::ordered_json;

// A key or a word of an earlier version, and its name in this one.
struct Renamed {
  std::string before, now;
};

// A place in a JSON file: the value there, and how to name the place in a message. Cheap to copy.
// Every accessor throws InputError "FILE: /json/pointer: what was found, what would be accepted".
class JsonPlace {
 public:
  JsonPlace(std::shared_ptr<const Json> root, std::string file);

  const Json& value() const { return *value_; }
  // A copy where it is a part of what was read.
  std::shared_ptr<const Json> shared_value() const {
    return value_ == root_.get() ? root_ : std::make_shared<const Json>(*value_);
  }
  const std::string& pointer() const { return pointer_; }
  const std::string& file() const { return file_; }
  [[noreturn]] void fail(const std::string& message) const;
  // What `read` returns. Its InputErrors, which know no place, fail at this one.
  template <typename Read>
  auto at_this_place(Read&& read) const {
    try {
      return read();
    } catch (const InputError& error) {
      fail(error.what());
    }
  }

  // Objects.
  void expect_object() const;
  // Fails at the first key that is not in `keys`; `what` names the object ("attribute of conv2d"). For a key of
  // `renamed` the message gives the new name.
  void allow_keys(const Vector<std::string>& keys, const std::string& what, const Vector<Renamed>& renamed = {}) const;
  JsonPlace at(const std::string& key) const;                   // required
  std::optional<JsonPlace> find(const std::string& key) const;  // optional
  Vector<std::pair<std::string, JsonPlace>> members() const;

  // Arrays.
  Vector<JsonPlace> items() const;

  // Scalars.
  std::string as_string() const;
  int64_t as_integer(int64_t least, int64_t most) const;
  double as_number(double least, double most) const;
  double as_positive_number() const;
  bool as_bool() const;

 private:
  JsonPlace child(const Json& value, const std::string& token) const;

  std::shared_ptr<const Json> root_;
  const Json* value_;
  std::string file_;
  std::string pointer_;
};

// Reads and parses, from a pipe too. A syntax error names line and column; a repeated key in one object is an error,
// and so is more than 1 GiB.
JsonPlace read_json_file(const std::string& path);
JsonPlace parse_json(const std::string& text, const std::string& name);

// Fails unless /format is `format` ("ffgraph/1").
void expect_format(const JsonPlace& place, const std::string& format);

// Asked before long work. Throws InputError where an output cannot be written because its folder is missing or its name
// is a folder's, and where it would replace another output or one of `inputs`, however the paths are spelled ("" names
// no file; /dev/null and the like may stand more than once).
void expect_all_writable(const Vector<std::string>& outputs, Vector<std::string> inputs);

// Writes a temporary file, syncs, renames: the file appears whole or not at all. Links are followed; special files
// (/dev/null, a pipe) are written to directly. Throws MachineError.
void write_file_atomically(const std::string& path, const std::string& content);
// What is written piece by piece.
void write_file_atomically(const std::string& path,
                           const std::function<void(const std::function<void(std::string_view)>&)>& content);
// Removes what calls of write_file_atomically that have not returned have written so far; for a process that ends.
void remove_unfinished_files();
void write_json_file(const std::string& path, const Json& value);

// JSON text in which containers without nested containers stand on one line: files that people read and edit.
std::string readable_json(const Json& value);

// 64-bit FNV-1a of the text, as 16 hexadecimal digits: identifies file contents in provenance.
std::string content_hash(const std::string& text);

}  // namespace ff
