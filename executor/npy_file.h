// A memory-mapped NumPy array file (.npy, versions 1 to 3): the data of one graph input, first axis the sample. Only
// the pages of the blocks that a rank reads are ever loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/block.h"
#include "common/operators/operator.h"

namespace ff {

class NpyFile {
 public:
  explicit NpyFile(const std::string& path);  // throws InputError
  ~NpyFile();
  NpyFile(const NpyFile&) = delete;
  NpyFile& operator=(const NpyFile&) = delete;

  const std::string& path() const { return path_; }
  const Shape& shape() const { return shape_; }
  int64_t samples() const { return shape_[0]; }

  // Throws InputError unless elements convert to `type` (f32 from <f4, <f8, |u1; i32 from <i4, <i8, |u1) and a sample
  // has the shape of `input` without its first axis.
  void expect(const Shape& input, DataType type, const std::string& input_name) const;

  // Elements of `block` (its first axis counts within `samples`) of the given samples, converted, row-major, to `out`.
  void read(const Block& block, std::span<const int64_t> samples, DataType type, void* out) const;
  // Element `index` of what read() gives, as the file has it: read() gives the nearest value of 32 bits. Of a file of
  // integers.
  int64_t integer(const Block& block, std::span<const int64_t> samples, int64_t index) const;

 private:
  // Of one sample: all of it, and what is read for a block.
  struct OfSample {
    Block whole, region;
  };
  OfSample of_sample(const Block& block) const;
  void parse_header();
  [[noreturn]] void fail(const std::string& message) const;

  std::string path_;
  const char* mapped_ = nullptr;
  int64_t file_bytes_ = 0;
  std::string descr_;  // "<f4"
  int64_t item_bytes_ = 0;
  Shape shape_;
  const char* data_ = nullptr;
};

}  // namespace ff
