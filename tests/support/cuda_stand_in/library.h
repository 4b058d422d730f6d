// What the stand-ins for cuBLAS, cuDNN and NCCL share.
#pragma once

#include <cstring>

#include "memory.h"
#include "streams.h"

namespace cuda_stand_in {

// The call of a library that runs in a stream: its name, and whether it may use memory. What it may not fails the
// device, as a wrong kernel does.
class LibraryCall {
 public:
  LibraryCall(std::string name, int device) : name_(std::move(name)), device_(device) {}

  bool reads(const char* what, const void* memory, size_t bytes) const {
    return uses(what, memory, bytes, Access::read);
  }
  bool writes(const char* what, const void* memory, size_t bytes) const {
    return uses(what, memory, bytes, Access::write);
  }
  // The workspace's contents are spoilt, as a library may do.
  bool takes_workspace(void* workspace, size_t bytes) const {
    if (bytes == 0) return true;
    if (!writes("its workspace", workspace, bytes)) return false;
    std::memset(workspace, 0xff, bytes);
    return true;
  }
  void fail(const std::string& what) const { fail_for_ever(name_ + ": " + what); }

 private:
  bool uses(const char* what, const void* memory, size_t bytes, Access access) const {
    const std::string wrong = check_range(device_, memory, bytes, access);
    if (!wrong.empty()) fail_for_ever(name_ + ": " + what + (access == Access::read ? " reads " : " writes ") + wrong);
    return wrong.empty();
  }

  std::string name_;
  int device_;
};

// tf32 has ten bits of mantissa; the tensor cores' conversion rounds to nearest, ties away from zero (PTX ISA,
// cvt.rna.tf32.f32).
inline float to_tf32(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & 0xffffe000u;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace cuda_stand_in
