#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace cuda_stand_in {
namespace {

constexpr size_t granule = 256;                  // alignment of allocations; at least one lies between two of them
constexpr size_t range_bytes = size_t{1} << 38;  // addresses
constexpr size_t piece_bytes = size_t{2} << 20;  // whose protection changes at once: a huge page
constexpr size_t word = 4;

// Who read and wrote a word last: the kernel, and (thread << 8 | interval), with the top bit of the interval set where
// several threads read it.
struct Word {
  uint32_t writing_kernel, writer, reading_kernel, reader;
};
constexpr uint32_t several = 0x80;

uint32_t packed(const KernelThread& thread) { return thread.thread << 8 | (thread.interval & 0x7f); }

struct Allocation {
  char* begin;
  size_t bytes;
  int device;
  bool live;
};

// Addresses, 1.4 TiB in all, of which little becomes memory.
template <class Element>
Element* reserve(size_t count, int protection) {
  void* memory = mmap(nullptr, count * sizeof(Element), protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr,
                 "CUDA stand-in: cannot reserve %zu GiB of addresses: %s; it needs 1.4 TiB of them in each "
                 "process (ulimit -v, vm.overcommit_memory)\n",
                 count * sizeof(Element) >> 30, std::strerror(errno));
    std::_Exit(3);
  }
  return static_cast<Element*>(memory);
}

char* reserve_pieces() {
  const uintptr_t first = reinterpret_cast<uintptr_t>(reserve<char>(range_bytes + piece_bytes, PROT_NONE));
  char* const begin = reinterpret_cast<char*>((first + piece_bytes - 1) / piece_bytes * piece_bytes);
  madvise(begin, range_bytes, MADV_HUGEPAGE);  // a wish
  return begin;
}

struct Range {
  Range() {
    const char* text = std::getenv("FF_CUDA_STAND_IN_MEMORY_MB");
    total = (text ? std::atoll(text) : 1024) << 20;
  }

  void protect(size_t first_piece, size_t pieces, int protection) const {
    mprotect(begin + first_piece * piece_bytes, pieces * piece_bytes, protection);
  }
  // All pieces with allocations. Their number does not grow with what was freed.
  void protect(int protection) const {
    for (auto piece = live.begin(); piece != live.end();) {
      const size_t first = piece->first;
      size_t last = first;
      while (++piece != live.end() && piece->first == last + 1) ++last;
      protect(first, last - first + 1, protection);
    }
  }
  static std::pair<size_t, size_t> pieces_of(size_t offset, size_t bytes) {  // first and last
    return {offset / piece_bytes, (offset + std::max<size_t>(bytes, 1) - 1) / piece_bytes};
  }
  void forget(size_t from, size_t to) const {  // whole pages of memory and of what is known of it go to the system
    const auto give_back = [](char* first, char* last) {
      constexpr size_t page = 4096;
      const uintptr_t there = (reinterpret_cast<uintptr_t>(first) + page - 1) / page * page,
                      end = reinterpret_cast<uintptr_t>(last) / page * page;
      if (there < end) madvise(reinterpret_cast<void*>(there), end - there, MADV_DONTNEED);
    };
    give_back(begin + from, begin + to);
    give_back(reinterpret_cast<char*>(words + from / word), reinterpret_cast<char*>(words + to / word));
    give_back(reinterpret_cast<char*>(written + from / word), reinterpret_cast<char*>(written + to / word));
  }

  std::mutex mutex;
  char* begin = reserve_pieces();
  char* end = begin + granule;                                                          // of what was given out
  uint32_t* owners = reserve<uint32_t>(range_bytes / granule, PROT_READ | PROT_WRITE);  // allocation, from 1
  uint8_t* written = reserve<uint8_t>(range_bytes / word, PROT_READ | PROT_WRITE);      // 1: yes
  Word* words = reserve<Word>(range_bytes / word, PROT_READ | PROT_WRITE);
  std::vector<Allocation> allocations{{}};
  std::map<int, int64_t> used;  // by device
  std::map<char*, size_t> pinned;
  std::map<size_t, int> live;  // by piece: allocations that have a part of it
  int64_t total;
  int opened = 0;
};

Range& range() {
  static Range* const one = new Range;  // never destroyed: backends may outlive it otherwise
  return *one;
}

size_t rounded(size_t bytes) { return (bytes + granule - 1) / granule * granule; }

std::string hexadecimal(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  return text;
}

// What is wrong with the place; what happens there is judged by others.
std::string misplaced(int device, const char* address, size_t bytes) {
  Range& all = range();
  const uint32_t owner = all.owners[static_cast<size_t>(address - all.begin) / granule];
  const auto next = std::upper_bound(all.allocations.begin() + 1, all.allocations.end(), address,
                                     [](const char* place, const Allocation& one) { return place < one.begin; });
  if (next == all.allocations.begin() + 1) return "device memory that was never allocated, at " + hexadecimal(address);
  const Allocation& allocation = owner == 0 ? *std::prev(next) : all.allocations[owner];  // the one before it
  const std::string place = std::to_string(address - allocation.begin) + " of an allocation of " +
                            std::to_string(allocation.bytes) + " bytes";
  if (!allocation.live) return "device memory after it was freed, byte " + place;
  if (address + bytes > allocation.begin + allocation.bytes)
    return std::to_string(bytes) + " bytes out of bounds, from byte " + place;
  if (allocation.device != device)
    return "memory of device " + std::to_string(allocation.device) + " on device " + std::to_string(device);
  return "";
}

std::string other(uint32_t packed_thread, const KernelThread& thread) {
  return "thread " + std::to_string((packed_thread >> 8) % thread.block_threads) + " of block " +
         std::to_string((packed_thread >> 8) / thread.block_threads);
}

// Whether an earlier access of this kernel, by `earlier`, can be at the same time as this one.
bool at_once(uint32_t earlier, const KernelThread& thread) {
  const uint32_t number = thread.thread & 0xffffff;
  if (earlier >> 8 == number && !(earlier & several)) return false;
  const bool same_block = (earlier >> 8) / thread.block_threads == number / thread.block_threads;
  return !same_block || (earlier & 0x7f) == (thread.interval & 0x7f);
}

}  // namespace

int64_t total_memory_bytes() { return range().total; }
int64_t free_memory_bytes(int device) { return range().total - range().used[device]; }

void* allocate(int device, size_t bytes) {
  Range& all = range();
  std::lock_guard lock(all.mutex);
  if (static_cast<int64_t>(bytes) > all.total - all.used[device]) return nullptr;
  char* memory = all.end;
  if (rounded(bytes) + granule > static_cast<size_t>(all.begin + range_bytes - all.end)) {
    std::fprintf(stderr,
                 "CUDA stand-in: all %zu GiB of addresses were given out, none of which is used twice: "
                 "run fewer cases in a process\n",
                 range_bytes >> 30);
    std::_Exit(3);
  }
  all.end += rounded(bytes) + granule;
  all.allocations.push_back({memory, bytes, device, true});
  const size_t offset = static_cast<size_t>(memory - all.begin);
  std::fill_n(all.owners + offset / granule, rounded(bytes) / granule,
              static_cast<uint32_t>(all.allocations.size() - 1));
  all.used[device] += static_cast<int64_t>(bytes);
  const auto [first, last] = Range::pieces_of(offset, bytes);
  for (size_t piece = first; piece <= last; ++piece) ++all.live[piece];
  if (all.opened) all.protect(first, last - first + 1, PROT_READ | PROT_WRITE);
  return memory;
}

bool release(void* memory) {
  Range& all = range();
  std::lock_guard lock(all.mutex);
  char* address = static_cast<char*>(memory);
  if (!is_device_address(memory)) return false;
  const size_t offset = static_cast<size_t>(address - all.begin);
  const uint32_t owner = all.owners[offset / granule];
  Allocation& allocation = all.allocations[owner];
  if (owner == 0 || !allocation.live || allocation.begin != address) return false;
  allocation.live = false;
  all.used[allocation.device] -= static_cast<int64_t>(allocation.bytes);
  all.forget(offset, offset + allocation.bytes);
  const auto [first, last] = Range::pieces_of(offset, allocation.bytes);
  for (size_t piece = first; piece <= last; ++piece)
    if (--all.live[piece] == 0) {
      all.live.erase(piece);
      all.protect(piece, 1, PROT_NONE);
      if ((piece + 1) * piece_bytes <= static_cast<size_t>(all.end - all.begin))  // no more will be allocated in it
        all.forget(piece * piece_bytes, (piece + 1) * piece_bytes);
    }
  return true;
}

bool is_device_address(const void* address) {
  return static_cast<size_t>(static_cast<const char*>(address) - range().begin) < range_bytes;
}

void* allocate_pinned(size_t bytes) {
  char* memory = static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  Range& all = range();
  std::lock_guard lock(all.mutex);
  all.pinned[memory] = bytes;
  return memory;
}

bool release_pinned(void* memory) {
  Range& all = range();
  std::lock_guard lock(all.mutex);
  if (!all.pinned.erase(static_cast<char*>(memory))) return false;
  std::free(memory);
  return true;
}

bool is_pinned(const void* address, size_t bytes) {
  Range& all = range();
  std::lock_guard lock(all.mutex);
  const auto next = all.pinned.upper_bound(const_cast<char*>(static_cast<const char*>(address)));
  if (next == all.pinned.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return static_cast<const char*>(address) + bytes <= begin + size;
}

Opened::Opened() {
  Range& all = range();
  std::lock_guard lock(all.mutex);
  if (all.opened++ == 0) all.protect(PROT_READ | PROT_WRITE);
}
Opened::~Opened() {
  Range& all = range();
  std::lock_guard lock(all.mutex);
  if (--all.opened == 0) all.protect(PROT_NONE);
}

std::string check_range(int device, const void* address, size_t bytes, Access access) {
  if (bytes == 0) return "";
  if (!is_device_address(address)) return "host memory in place of device memory, at " + hexadecimal(address);
  Range& all = range();
  const std::string wrong = misplaced(device, static_cast<const char*>(address), bytes);
  if (!wrong.empty()) return wrong;
  const size_t first = static_cast<size_t>(static_cast<const char*>(address) - all.begin);
  uint8_t* written = all.written + first / word;
  const size_t count = (first % word + bytes + word - 1) / word;
  if (access == Access::write) {
    std::memset(written, 1, count);
    return "";
  }
  const void* unwritten = std::memchr(written, 0, count);
  if (!unwritten) return "";
  return "device memory that was never written, byte " +
         std::to_string(static_cast<size_t>(static_cast<const uint8_t*>(unwritten) - written) * word) + " of " +
         std::to_string(bytes) + " that are read";
}

std::vector<uint8_t> written_words(const void* memory, size_t bytes) {
  const uint8_t* first = range().written + static_cast<size_t>(static_cast<const char*>(memory) - range().begin) / word;
  return {first, first + (bytes + word - 1) / word};
}
void set_written_words(void* memory, const std::vector<uint8_t>& written) {
  const size_t first = static_cast<size_t>(static_cast<char*>(memory) - range().begin) / word;
  std::copy(written.begin(), written.end(), range().written + first);
}

void spoil_unwritten(const void* source, void* host, size_t bytes) {
  Range& all = range();
  const size_t from = static_cast<size_t>(static_cast<const char*>(source) - all.begin) / word;
  for (size_t at = 0; at * word < bytes; ++at)
    if (!all.written[from + at])
      std::memset(static_cast<char*>(host) + at * word, 0xff, std::min(word, bytes - at * word));
}

std::string check_access(const KernelThread& thread, const void* address, size_t bytes, Access access) {
  Range& all = range();
  const char* place = static_cast<const char*>(address);
  const uintptr_t first = static_cast<size_t>(place - all.begin);
  const Allocation& allocation = all.allocations[all.owners[first / granule]];
  if (!allocation.live || allocation.device != thread.device || place + bytes > allocation.begin + allocation.bytes)
    return misplaced(thread.device, place, bytes);
  const uint32_t self = packed(thread);
  for (size_t at = first / word; at * word < first + bytes; ++at) {
    Word& seen = all.words[at];
    if (access != Access::write && !all.written[at]) return "device memory that was never written";
    if (bytes < word) {  // threads may write bytes of one word
      all.written[at] = 1;
      continue;
    }
    if (seen.writing_kernel == thread.kernel && at_once(seen.writer, thread) && access != Access::atomic)
      return "device memory that " + other(seen.writer, thread) + " writes, without a barrier between the two";
    if (access == Access::read) {
      if (seen.reading_kernel != thread.kernel || (seen.reader & 0x7f) != (self & 0x7f)) {
        seen.reading_kernel = thread.kernel;
        seen.reader = self;
      } else if (seen.reader >> 8 != self >> 8) {
        seen.reader |= several;
      }
      continue;
    }
    if (seen.reading_kernel == thread.kernel && at_once(seen.reader, thread))
      return "device memory that " + other(seen.reader, thread) + " reads, without a barrier between the two";
    all.written[at] = 1;
    if (access == Access::atomic) continue;
    seen.writing_kernel = thread.kernel;
    seen.writer = self;
  }
  return "";
}

std::string check_shared(const KernelThread& thread, uint32_t block, uint32_t warp_interval, size_t offset,
                         size_t bytes, Access access) {
  struct Byte {
    uint32_t block_written, block_read;  // numbers of blocks, of all kernels
    uint32_t writer, written_interval, written_warp_interval, reader, read_interval, read_warp_interval;
  };
  static std::vector<Byte> all;
  if (all.size() < offset + bytes) all.resize(offset + bytes);
  const auto conflicts = [&](uint32_t thread_then, uint32_t interval, uint32_t of_warp) {
    const bool same_warp = thread_then / 32 == thread.thread / 32;
    return thread_then != thread.thread && interval == thread.interval && (!same_warp || of_warp == warp_interval);
  };
  for (size_t at = offset; at < offset + bytes; ++at) {
    Byte& seen = all[at];
    const bool was_written = seen.block_written == block;
    if (access != Access::write && !was_written) return "shared memory that was never written in this block";
    if (was_written && access != Access::atomic &&
        conflicts(seen.writer, seen.written_interval, seen.written_warp_interval))
      return "shared memory that " + other(seen.writer << 8, thread) + " writes, without a barrier between the two";
    if (access == Access::read) {
      const bool same =
          seen.block_read == block && seen.read_interval == thread.interval && seen.read_warp_interval == warp_interval;
      if (same && seen.reader != thread.thread) seen.reader = ~0u;  // several
      else if (!same) seen.reader = thread.thread;
      seen.block_read = block;
      seen.read_interval = thread.interval;
      seen.read_warp_interval = warp_interval;
      continue;
    }
    if (seen.block_read == block && conflicts(seen.reader, seen.read_interval, seen.read_warp_interval))
      return "shared memory that another thread reads, without a barrier between the two";
    seen.block_written = block;
    seen.writer = thread.thread;
    seen.written_interval = thread.interval;
    seen.written_warp_interval = warp_interval;
  }
  return "";
}

}  // namespace cuda_stand_in
