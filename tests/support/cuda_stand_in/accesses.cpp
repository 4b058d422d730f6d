#include "accesses.h"

#include <cstdint>

using cuda_stand_in::Access;
using cuda_stand_in::kernel_accesses;

#define FF_ACCESSES(bytes)                                                       \
  void __tsan_read##bytes(void* address) {                                       \
    kernel_accesses(address, bytes, Access::read, __builtin_return_address(0));  \
  }                                                                              \
  void __tsan_write##bytes(void* address) {                                      \
    kernel_accesses(address, bytes, Access::write, __builtin_return_address(0)); \
  }                                                                              \
  void __tsan_unaligned_read##bytes(void* address) {                             \
    kernel_accesses(address, bytes, Access::read, __builtin_return_address(0));  \
  }                                                                              \
  void __tsan_unaligned_write##bytes(void* address) {                            \
    kernel_accesses(address, bytes, Access::write, __builtin_return_address(0)); \
  }                                                                              \
  void __tsan_volatile_read##bytes(void* address) {                              \
    kernel_accesses(address, bytes, Access::read, __builtin_return_address(0));  \
  }                                                                              \
  void __tsan_volatile_write##bytes(void* address) {                             \
    kernel_accesses(address, bytes, Access::write, __builtin_return_address(0)); \
  }

extern "C" {
FF_ACCESSES(1)
FF_ACCESSES(2)
FF_ACCESSES(4)
FF_ACCESSES(8)
FF_ACCESSES(16)
void __tsan_read_range(void* address, size_t bytes) {
  kernel_accesses(address, bytes, Access::read, __builtin_return_address(0));
}
void __tsan_write_range(void* address, size_t bytes) {
  kernel_accesses(address, bytes, Access::write, __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// Reference counts of the host's shared pointers, in .cu files: as the compiler would do it without a sanitizer.
int __tsan_atomic32_fetch_add(volatile int* value, int other, int) { return __atomic_fetch_add(value, other, 5); }
int __tsan_atomic32_load(const volatile int* value, int) { return __atomic_load_n(value, 5); }
char __tsan_atomic8_load(const volatile char* value, int) { return __atomic_load_n(value, 5); }
}
