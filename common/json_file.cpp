#include "common/json_file.h"
#include "common/hash.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

namespace ff {
namespace {

std::string describe(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = value.dump();
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  const auto whole = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored);
  };
  return whole(a) == whole(b) && !std::filesystem::is_other(a, ignored);
}

void expect_writable(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    throw InputError(path + ": there is no folder \"" + folder + "\"");
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) throw InputError(path + ": is a directory, expected a file name");
  if (!exists && lstat(path.c_str(), &status) == 0)
    throw InputError(path + ": is a link to what is not there, expected a file name");
}

std::string escape_token(std::string token) {  // RFC 6901
  std::string escaped;
  for (char c : token) escaped += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return escaped;
}

std::pair<size_t, size_t> line_and_column(const std::string& text, size_t byte) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < std::min(byte, text.size()); ++i) text[i] == '\n' ? (++line, column = 1) : ++column;
  return {line, column};
}

constexpr int deepest_nesting = 100;
constexpr size_t largest_file = size_t{1} << 30;  // of bytes; /dev/zero would never end

// Looks for what the parser lets pass. nlohmann/json keeps the last of repeated keys; an edited file that says two
// things deserves a message. It takes values nested deeper than any of our formats, for each level of which its
// functions call themselves. (Its parser with a callback takes time quadratic in the objects of an array.)
class ParseWatch : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return opened();
  }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second && repeated.empty()) repeated = name;
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    --open_;
    return true;
  }
  bool start_array(std::size_t) override { return opened(); }
  bool end_array() override {
    --open_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  std::string repeated;
  bool too_deep = false;

 private:
  bool opened() {
    too_deep = ++open_ > deepest_nesting;
    return !too_deep;
  }

  int open_ = 0;
  Vector<std::set<std::string>> keys_;
};

// Where the number stands that `reason` quotes: "... number overflow parsing '1e999'". The parser does not say.
std::string number_too_large(const std::string& text, const std::string& reason) {
  const size_t begin = reason.find('\''), end = reason.rfind('\'');
  if (begin == std::string::npos || end == begin) return reason;
  const std::string number = reason.substr(begin + 1, end - begin - 1);
  const std::string of_numbers = "0123456789+-.eE";
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') ++i;
    else if (text[i] == '"') quoted = !quoted;
    else if (!quoted && text.compare(i, number.size(), number) == 0 &&
             (i == 0 || of_numbers.find(text[i - 1]) == std::string::npos)) {
      const auto [line, column] = line_and_column(text, i);
      return "line " + std::to_string(line) + ", column " + std::to_string(column) + ": found " + number +
             ", expected a number of at most 1.79769e+308 in size";
    }
  }
  return reason;
}

void append_readable(std::string& text, const Json& value, int indent) {
  const bool flat =
      std::none_of(value.begin(), value.end(), [](const Json& v) { return v.is_structured() && !v.empty(); });
  if (!value.is_structured() || value.empty() || (flat && value.dump().size() < 160)) {
    text += value.dump();
    return;
  }
  const bool object = value.is_object();
  if (object && value.dump().size() < 140 && indent > 0) {
    text += value.dump();
    return;
  }
  const std::string pad(static_cast<size_t>(indent) + 1, ' ');
  text += object ? "{\n" : "[\n";
  bool first = true;
  for (auto it = value.begin(); it != value.end(); ++it) {
    if (!first) text += ",\n";
    first = false;
    text += pad;
    if (object) text += Json(it.key()).dump() + ":";
    append_readable(text, it.value(), indent + 1);
  }
  text += "\n" + std::string(static_cast<size_t>(indent), ' ') + (object ? "}" : "]");
}

}  // namespace

JsonPlace::JsonPlace(std::shared_ptr<const Json> root, std::string file)
    : root_(std::move(root)), value_(root_.get()), file_(std::move(file)) {}

JsonPlace JsonPlace::child(const Json& value, const std::string& token) const {
  JsonPlace place = *this;
  place.value_ = &value;
  place.pointer_ += "/" + escape_token(token);
  return place;
}

void JsonPlace::fail(const std::string& message) const {
  throw InputError(file_ + ": " + (pointer_.empty() ? "/" : pointer_) + ": " + message);
}

void JsonPlace::expect_object() const {
  if (!value_->is_object()) fail("found " + describe(*value_) + ", expected an object");
}

void JsonPlace::allow_keys(const Vector<std::string>& keys, const std::string& what,
                           const Vector<Renamed>& renamed) const {
  expect_object();
  for (auto it = value_->begin(); it != value_->end(); ++it) {
    const std::string& key = it.key();
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    for (const Renamed& name : renamed)
      if (name.before == key) child(it.value(), key).fail("is now called \"" + name.now + "\"");
    child(it.value(), key).fail("unknown " + what + suggestion(key, keys));
  }
}

JsonPlace JsonPlace::at(const std::string& key) const {
  auto place = find(key);
  if (!place) fail("\"" + key + "\" is missing");
  return *place;
}

std::optional<JsonPlace> JsonPlace::find(const std::string& key) const {
  expect_object();
  auto it = value_->find(key);
  if (it == value_->end()) return std::nullopt;
  return child(*it, key);
}

Vector<std::pair<std::string, JsonPlace>> JsonPlace::members() const {
  expect_object();
  Vector<std::pair<std::string, JsonPlace>> result;
  for (auto it = value_->begin(); it != value_->end(); ++it) result.emplace_back(it.key(), child(it.value(), it.key()));
  return result;
}

Vector<JsonPlace> JsonPlace::items() const {
  if (!value_->is_array()) fail("found " + describe(*value_) + ", expected an array");
  Vector<JsonPlace> result;
  for (size_t i = 0; i < value_->size(); ++i) result.push_back(child((*value_)[i], std::to_string(i)));
  return result;
}

std::string JsonPlace::as_string() const {
  if (!value_->is_string()) fail("found " + describe(*value_) + ", expected a string");
  return value_->get<std::string>();
}

int64_t JsonPlace::as_integer(int64_t least, int64_t most) const {
  const bool unsigned_too_large =
      value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  constexpr double integers_end = 9223372036854775808.0;  // 2^63
  const bool too_large = value_->is_number() && value_->get<double>() >= integers_end;
  if (!value_->is_number_integer() || unsigned_too_large || value_->get<int64_t>() < least ||
      value_->get<int64_t>() > most)
    fail("found " + describe(*value_) + ", expected an integer " +
         (most == INT64_MAX && !too_large ? "of at least " + std::to_string(least)
                                          : "from " + std::to_string(least) + " to " + std::to_string(most)));
  return value_->get<int64_t>();
}

double JsonPlace::as_number(double least, double most) const {
  std::ostringstream range;
  range << "expected a number from " << least << " to " << most;
  if (!value_->is_number()) fail("found " + describe(*value_) + ", " + range.str());
  const double number = value_->get<double>();
  if (!(number >= least && number <= most)) fail("found " + describe(*value_) + ", " + range.str());
  return number;
}

double JsonPlace::as_positive_number() const {
  if (!value_->is_number() || !(value_->get<double>() > 0))
    fail("found " + describe(*value_) + ", expected a number above 0");
  return value_->get<double>();
}

bool JsonPlace::as_bool() const {
  if (!value_->is_boolean()) fail("found " + describe(*value_) + ", expected true or false");
  return value_->get<bool>();
}

JsonPlace parse_json(const std::string& text, const std::string& name) {
  auto root = std::make_shared<Json>();
  ParseWatch watch;
  try {
    Json::sax_parse(text, &watch);
    if (!watch.too_deep) *root = Json::parse(text);
  } catch (const Json::parse_error& error) {
    const auto [line, column] = line_and_column(text, error.byte ? error.byte - 1 : 0);
    std::string reason = error.what();
    if (const size_t at = reason.find("syntax error"); at != std::string::npos) reason = reason.substr(at);
    for (char& c : reason)  // the parser quotes what it read, which may be no text at all
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) reason = "the file is empty, expected a JSON object";
    throw InputError(name + ": line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + reason);
  } catch (const Json::out_of_range& error) {
    throw InputError(name + ": " + number_too_large(text, error.what()));
  } catch (const Json::exception& error) {
    throw InputError(name + ": " + error.what());
  }
  if (watch.too_deep)
    throw InputError(name + ": objects and arrays are nested more than " + std::to_string(deepest_nesting) + " deep");
  if (!watch.repeated.empty())
    throw InputError(name + ": the key \"" + watch.repeated + "\" stands twice in one object");
  return JsonPlace(root, name);
}

JsonPlace read_json_file(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) throw InputError(path + ": cannot open: " + std::strerror(errno));
  if (S_ISDIR(status.st_mode)) throw InputError(path + ": is a directory, expected a JSON file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path + ": cannot open: " + std::strerror(errno));
  std::string content, part(size_t{1} << 16, '\0');
  while (file.read(part.data(), static_cast<std::streamsize>(part.size())) || file.gcount() > 0) {
    content.append(part, 0, static_cast<size_t>(file.gcount()));
    if (content.size() > largest_file) throw InputError(path + ": holds more than 1 GiB, expected a JSON file");
  }
  if (file.bad()) throw InputError(path + ": cannot read: " + std::strerror(errno));
  return parse_json(content, path);
}

void expect_format(const JsonPlace& place, const std::string& format) {
  const JsonPlace found = place.at("format");
  if (found.as_string() != format) found.fail("found " + found.value().dump() + ", expected \"" + format + "\"");
}

void expect_all_writable(const Vector<std::string>& outputs, Vector<std::string> inputs) {
  for (const std::string& path : outputs) {
    if (path.empty()) continue;
    expect_writable(path);
    for (const std::string& other : inputs)
      if (!other.empty() && same_file(path, other))
        throw InputError(path + ": this command reads it or writes something else to it; give another name");
    inputs.push_back(path);
  }
}

namespace {

// Files that are being written and do not have their name yet.
std::mutex unfinished_mutex;
std::set<std::string> unfinished;

class UnfinishedFile {
 public:
  explicit UnfinishedFile(std::string path) : path_(std::move(path)) {
    const std::lock_guard lock(unfinished_mutex);
    unfinished.insert(path_);
  }
  ~UnfinishedFile() {
    const std::lock_guard lock(unfinished_mutex);
    unfinished.erase(path_);
  }
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

 private:
  const std::string path_;
};

}  // namespace

void remove_unfinished_files() {
  const std::lock_guard lock(unfinished_mutex);
  for (const std::string& path : unfinished) unlink(path.c_str());
}

void write_file_atomically(const std::string& path, const std::string& content) {
  write_file_atomically(path, [&](const auto& write) { write(content); });
}

void write_file_atomically(const std::string& path,
                           const std::function<void(const std::function<void(std::string_view)>&)>& content) {
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0, replace = !exists || S_ISREG(status.st_mode);
  char* resolved = exists && replace ? realpath(path.c_str(), nullptr) : nullptr;  // what a link stands for
  const std::string target = resolved ? resolved : path;
  std::free(resolved);
  static std::atomic<int> number{0};  // two threads may write the same file
  const std::string temporary =
      replace ? target + ".tmp" + std::to_string(getpid()) + "." + std::to_string(++number) : target;
  std::optional<UnfinishedFile> while_written;
  if (replace) while_written.emplace(temporary);
  const auto fail = [&](const char* step) {
    const int reason = errno;
    if (replace) unlink(temporary.c_str());
    throw MachineError(path + ": cannot " + step + ": " + std::strerror(reason) +
                       (replace ? "; nothing was changed" : ""));
  };
  int file = -1;
  do file = open(temporary.c_str(), (replace ? O_CREAT | O_TRUNC : 0) | O_WRONLY | O_CLOEXEC, 0644);
  while (file < 0 && errno == EINTR);  // a signal, while nobody reads a pipe
  if (file < 0) fail("create");
  try {
    content([&](std::string_view piece) {
      while (!piece.empty()) {
        const ssize_t count = write(file, piece.data(), piece.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) fail("write");
        piece.remove_prefix(static_cast<size_t>(count));
      }
    });
    if (fsync(file) != 0 && errno != EINVAL) fail("write");
  } catch (...) {  // also where the content cannot be made
    close(file);
    if (replace) unlink(temporary.c_str());
    throw;
  }
  if (close(file) != 0) fail("write");
  if (replace && rename(temporary.c_str(), target.c_str()) != 0) fail("write");
}

void write_json_file(const std::string& path, const Json& value) {
  write_file_atomically(path, readable_json(value) + "\n");
}

std::string readable_json(const Json& value) {
  std::string text;
  append_readable(text, value, 0);
  return text;
}

std::string content_hash(const std::string& text) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash_text(text)));
  return digits;
}

}  // namespace ff
