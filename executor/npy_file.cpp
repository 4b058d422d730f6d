#include "executor/npy_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <type_traits>

#include "common/errors.h"
#include "executor/plan/runs.h"

namespace ff {
namespace {

// The value of 'key' in the header, a Python dictionary literal such as {'descr': '<f4', 'fortran_order': False,
// 'shape': (3, 4), }.
std::string header_value(const std::string& header, const std::string& key) {
  size_t at = header.find("'" + key + "'");
  if (at == std::string::npos) return "";
  at = header.find(':', at);
  if (at == std::string::npos) return "";
  at = header.find_first_not_of(" ", at + 1);
  if (at == std::string::npos) return "";
  if (header[at] == '\'') {
    const size_t end = header.find('\'', at + 1);
    return end == std::string::npos ? "" : header.substr(at + 1, end - at - 1);
  }
  if (header[at] == '(') {
    const size_t end = header.find(')', at);
    return end == std::string::npos ? "" : header.substr(at, end - at + 1);
  }
  return header.substr(at, header.find_first_of(",} \n", at) - at);
}

template <typename From, typename To>
void convert(const char* from, int64_t count, void* to) {
  To* out = static_cast<To*>(to);
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    // a label that does not fit stays one that no network has
    if constexpr (std::is_integral_v<To> && sizeof(From) > sizeof(To))
      value = std::clamp<From>(value, std::numeric_limits<To>::min(), std::numeric_limits<To>::max());
    out[i] = static_cast<To>(value);
  }
}

using Converter = void (*)(const char*, int64_t, void*);

Converter converter(const std::string& descr, DataType type) {
  if (type == DataType::f32) {
    if (descr == "<f4") return convert<float, float>;
    if (descr == "<f8") return convert<double, float>;
    if (descr == "|u1") return convert<uint8_t, float>;
  } else {
    if (descr == "<i4") return convert<int32_t, int32_t>;
    if (descr == "<i8") return convert<int64_t, int32_t>;
    if (descr == "|u1") return convert<uint8_t, int32_t>;
  }
  return nullptr;
}

}  // namespace

void NpyFile::fail(const std::string& message) const { throw InputError(path_ + ": " + message); }

NpyFile::NpyFile(const std::string& path) : path_(path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(std::string("cannot open: ") + std::strerror(errno));
  struct stat status {};
  const bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  file_bytes_ = regular ? status.st_size : 0;
  void* mapped =
      file_bytes_ > 0 ? mmap(nullptr, static_cast<size_t>(file_bytes_), PROT_READ, MAP_SHARED, file, 0) : nullptr;
  const int reason = errno;
  close(file);
  if (!regular) fail("is not a regular file, expected a .npy array");
  if (mapped == MAP_FAILED) fail(std::string("cannot map: ") + std::strerror(reason));
  mapped_ = static_cast<const char*>(mapped);
  try {
    parse_header();
  } catch (...) {
    if (mapped_) munmap(const_cast<char*>(mapped_), static_cast<size_t>(file_bytes_));
    throw;
  }
}

NpyFile::~NpyFile() {
  if (mapped_) munmap(const_cast<char*>(mapped_), static_cast<size_t>(file_bytes_));
}

// Layout: "\x93NUMPY", major, minor, header length (2 bytes in version 1, 4 from version 2), header, data.
void NpyFile::parse_header() {
  if (file_bytes_ < 10 || std::memcmp(mapped_, "\x93NUMPY", 6) != 0)
    fail("is not a .npy file (it does not begin with \\x93NUMPY)");
  const int version = static_cast<unsigned char>(mapped_[6]);
  if (version < 1 || version > 3) fail("has .npy version " + std::to_string(version) + ", expected 1 to 3");
  const int64_t length_bytes = version == 1 ? 2 : 4;
  if (file_bytes_ < 8 + length_bytes) fail("is truncated within its header");
  int64_t length = 0;
  for (int64_t i = 0; i < length_bytes; ++i) length |= int64_t{static_cast<unsigned char>(mapped_[8 + i])} << (8 * i);
  const int64_t data_at = 8 + length_bytes + length;
  if (data_at > file_bytes_) fail("is truncated within its header");
  const std::string header(mapped_ + 8 + length_bytes, static_cast<size_t>(length));
  descr_ = header_value(header, "descr");
  const std::string order = header_value(header, "fortran_order"), shape = header_value(header, "shape");
  if (descr_.empty() || order.empty() || shape.empty())
    fail("has a header without 'descr', 'fortran_order' and 'shape'");
  if (order != "False") fail("is in Fortran order, expected C order (numpy.ascontiguousarray makes it so)");
  int64_t elements = 1;
  for (size_t at = 1; at < shape.size();) {
    if (shape[at] < '0' || shape[at] > '9') {
      if (std::string_view(" ,)L").find(shape[at]) == std::string_view::npos)
        fail("has a header with a shape that is none");
      ++at;
      continue;
    }
    int64_t size = 0;
    for (; at < shape.size() && shape[at] >= '0' && shape[at] <= '9'; ++at) {
      if (size > int64_t{1} << 50) fail("has the shape " + shape + ", which is too large");
      size = size * 10 + (shape[at] - '0');
    }
    shape_.push_back(size);
    if (size != 0 && elements > (int64_t{1} << 50) / size) fail("has the shape " + shape + ", which is too large");
    elements *= size;
  }
  if (shape_.empty()) fail("holds a single number, expected an array whose first axis is the sample");
  item_bytes_ = descr_.size() == 3 && descr_[2] >= '1' && descr_[2] <= '8' ? descr_[2] - '0' : 0;
  data_ = mapped_ + data_at;
  if (item_bytes_ > 0 && file_bytes_ - data_at < elements * item_bytes_)
    fail("is truncated: shape " + to_string(shape_) + " of '" + descr_ + "' needs " +
         std::to_string(elements * item_bytes_) + " bytes of data, found " + std::to_string(file_bytes_ - data_at));
}

void NpyFile::expect(const Shape& input, DataType type, const std::string& input_name) const {
  if (!converter(descr_, type))
    fail("has dtype '" + descr_ + "', expected " +
         (type == DataType::f32 ? "'<f4' ('<f8' and '|u1' are converted)" : "'<i4' ('<i8' and '|u1' are converted)") +
         " for the " + std::string(to_string(type)) + " input \"" + input_name + "\"");
  if (shape_.size() != input.size() || !std::equal(shape_.begin() + 1, shape_.end(), input.begin() + 1)) {
    std::string expected = "[samples";
    for (size_t axis = 1; axis < input.size(); ++axis) expected += ", " + std::to_string(input[axis]);
    fail("has shape " + to_string(shape_) + ", expected " + expected + "] for the input \"" + input_name + "\"");
  }
}

NpyFile::OfSample NpyFile::of_sample(const Block& block) const {
  OfSample result{{{0, 1}}, {{0, 1}}};
  for (int axis = 1; axis < block.rank(); ++axis) {
    result.whole.append({0, shape_[axis]});
    result.region.append(block[axis]);
  }
  return result;
}

int64_t NpyFile::integer(const Block& block, std::span<const int64_t> samples, int64_t index) const {
  const auto [sample, region] = of_sample(block);
  const int64_t row = block[0].begin + index / region.volume();
  const int64_t first = samples[static_cast<size_t>(row)] * sample.volume();
  int64_t left = index % region.volume(), value = 0;
  for_each_run(sample, region, [&](int64_t offset, int64_t length) {
    if (left >= 0 && left < length) {
      const char* from = data_ + (first + offset + left) * item_bytes_;
      if (descr_ == "<i8") {
        std::memcpy(&value, from, sizeof value);
      } else if (descr_ == "<i4") {
        int32_t narrow = 0;
        std::memcpy(&narrow, from, sizeof narrow);
        value = narrow;
      } else {
        value = static_cast<unsigned char>(*from);
      }
    }
    left -= length;
  });
  return value;
}

void NpyFile::read(const Block& block, std::span<const int64_t> samples, DataType type, void* out) const {
  const Converter copy = converter(descr_, type);
  const OfSample one = of_sample(block);
  const int64_t sample_bytes = one.whole.volume() * item_bytes_;
  char* to = static_cast<char*>(out);
  for (int64_t row = block[0].begin; row < block[0].end; ++row) {
    const char* from = data_ + samples[static_cast<size_t>(row)] * sample_bytes;
    for_each_run(one.whole, one.region, [&](int64_t offset, int64_t length) {
      copy(from + offset * item_bytes_, length, to);
      to += length * element_bytes;
    });
  }
}

}  // namespace ff
