// Memory of the pretended devices, in one reserved range of addresses that is never used twice: a use after free is
// found, and so is every access between two allocations. The host cannot touch it (PROT_NONE) but while work of a
// stream runs: the protection of pieces of 2 MiB that have an allocation changes. Next to it lie, for each word,
// whether it was ever written, and which threads of which kernel read and wrote it last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cuda_stand_in {

enum class Access { read, write, atomic };

// Device memory.
int64_t total_memory_bytes();  // of one device
int64_t free_memory_bytes(int device);
void* allocate(int device, size_t bytes);  // null when the device has no more
bool release(void* memory);                // false: not an allocation
bool is_device_address(const void* address);

// Pinned host memory, which kernels may access.
void* allocate_pinned(size_t bytes);
bool release_pinned(void* memory);
bool is_pinned(const void* address, size_t bytes);

// Lets the process access device memory while one of these lives.
class Opened {
 public:
  Opened();
  ~Opened();
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
};

// What is wrong with an access of `device` to this range of device memory; "" where nothing is. Reads: words that were
// never written count as wrong. Writes mark them as written.
std::string check_range(int device, const void* address, size_t bytes, Access access);
std::vector<uint8_t> written_words(const void* memory, size_t bytes);  // 1: was written
void set_written_words(void* memory, const std::vector<uint8_t>& written);
// Host memory in place of words that were never written: a pattern that is no number.
void spoil_unwritten(const void* source, void* host, size_t bytes);

// Accesses of a kernel's threads.
struct KernelThread {
  int device;
  uint32_t kernel;            // number of the kernel, never 0
  uint32_t block_threads;     // threads of a block
  uint32_t thread, interval;  // in the grid; barriers that its block has passed
};
std::string check_access(const KernelThread& thread, const void* address, size_t bytes, Access access);

// The same for memory that the threads of a block share, at an offset of its range.
std::string check_shared(const KernelThread& thread, uint32_t block, uint32_t warp_interval, size_t offset,
                         size_t bytes, Access access);

}  // namespace cuda_stand_in
