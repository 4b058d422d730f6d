// Runs a kernel: blocks one after the other, the threads of a block as fibers (Boost.Context) of the calling thread, in
// an order drawn from a seed. A thread runs until it ends or waits: for its warp in a shuffle, or for its block at a
// barrier. The kernel's own accesses to memory come to __tsan_read4 and so on, since GCC was asked to announce them to
// a thread sanitizer, whose place accesses.cpp takes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "include/cuda_runtime_api.h"

namespace cuda_stand_in {

struct Launch {
  int device;
  dim3 grid, block;
  size_t dynamic_shared_bytes;
  const void* kernel;
  std::shared_ptr<void> parameters;
  size_t parameter_bytes;
  void (*run)(const void* parameters);
};

// What the kernel did wrong, with its name, block and thread; "" where nothing.
std::string run_kernel(const Launch& launch, uint64_t seed);

}  // namespace cuda_stand_in
