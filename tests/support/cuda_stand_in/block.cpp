#include "block.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "accesses.h"
#include "include/mma.h"
#include "memory.h"

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_stand_in {
namespace {

namespace context = boost::context::detail;

constexpr size_t stack_bytes = size_t{64} << 10;
constexpr unsigned warp_size = 32;

// A lane's elements of a warp's matrices.
struct Operands {
  const float *a, *b, *c;
  float* d;
};

// d [16, 16] = a [16, 8] b [8, 16] + c, from the elements of all lanes. Operands have ten bits of mantissa.
void multiply_fragments(const int64_t (&of_lane)[warp_size]) {
  float a[16 * 8], b[8 * 16], d[16 * 16];
  const auto each = [&](unsigned elements, const auto& body) {
    for (unsigned lane = 0; lane < warp_size; ++lane)
      for (unsigned place = 0; place < elements / warp_size; ++place)
        body(*reinterpret_cast<const Operands*>(of_lane[lane]), place, cuda_stand_in_element(elements, lane, place));
  };
  const auto cut = [](float value) { return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffffe000u); };
  each(128, [&](const Operands& lane, unsigned place, unsigned element) {
    a[element] = cut(lane.a[place]);
    b[element] = cut(lane.b[place]);
  });
  each(256, [&](const Operands& lane, unsigned place, unsigned element) { d[element] = lane.c[place]; });
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned k = 0; k < 8; ++k)
      for (unsigned column = 0; column < 16; ++column) d[16 * row + column] += a[8 * row + k] * b[16 * k + column];
  each(256, [&](const Operands& lane, unsigned place, unsigned element) { lane.d[place] = d[element]; });
}

// A lane's registers of a warp's matrices of bf16.
struct Bf16Operands {
  float* d;
  const uint32_t *a, *b;
};

// d [16, 8] += a [16, 16] b [16, 8], where lanes have the elements that tensor_core_instructions.cuh says.
void multiply_bf16_fragments(const int64_t (&of_lane)[warp_size]) {
  float a[16][16], b[16][8];
  const auto element = [](uint32_t bits, unsigned half) { return std::bit_cast<float>(bits >> 16 * half << 16); };
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    const auto& operands = *reinterpret_cast<const Bf16Operands*>(of_lane[lane]);
    const unsigned g = lane / 4, c = lane % 4 * 2;
    for (unsigned half = 0; half < 2; ++half) {
      for (unsigned i = 0; i < 4; ++i) a[g + i % 2 * 8][c + i / 2 * 8 + half] = element(operands.a[i], half);
      for (unsigned i = 0; i < 2; ++i) b[c + i * 8 + half][g] = element(operands.b[i], half);
    }
  }
  for (unsigned lane = 0; lane < warp_size; ++lane)
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      float& d = reinterpret_cast<const Bf16Operands*>(of_lane[lane])->d[i];
      for (unsigned k = 0; k < 16; ++k) d += a[row][k] * b[k][column];
    }
}

struct Gathered {
  uint64_t value;
  uint64_t* all;
};

void gather(const int64_t (&of_lane)[warp_size]) {
  for (unsigned lane = 0; lane < warp_size; ++lane)
    for (unsigned from = 0; from < warp_size; ++from)
      reinterpret_cast<const Gathered*>(of_lane[lane])->all[from] =
          reinterpret_cast<const Gathered*>(of_lane[from])->value;
}

// Of a thread: what it writes when the thread waits for it.
struct AsyncCopy {
  char* shared;
  unsigned bytes, group;
  char data[16];
};

// Function, file and line of machine code, by addr2line; for a failure alone.
std::string source_of(const void* code) {
  Dl_info info{};
  if (!dladdr(code, &info)) return "a kernel";
  char command[4200];
  std::snprintf(command, sizeof command, "addr2line -s -f -C -e '%s' %#zx 2>/dev/null", info.dli_fname,
                static_cast<size_t>(static_cast<const char*>(code) - static_cast<const char*>(info.dli_fbase)));
  FILE* pipe = popen(command, "r");
  if (!pipe) return "a kernel";
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += c == '\n' ? ' ' : static_cast<char>(c);
  pclose(pipe);
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

enum class State : uint8_t { fresh, running, in_warp, at_barrier, ended };
enum class Exchange : uint8_t { shuffle_xor, synchronize, match, matrix_access, matrix_product, bf16_product, gather };

struct Fiber {
  explicit Fiber(void (*run)(context::transfer_t))
      : stack(static_cast<char*>(
            mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (stack == MAP_FAILED) throw std::bad_alloc();
    context = context::make_fcontext(stack + stack_bytes, stack_bytes, run);
  }
  ~Fiber() { munmap(stack, stack_bytes); }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  char* stack;
  context::fcontext_t context;
};

struct Thread {
  State state = State::fresh;
  bool with_value = false;  // the barrier is __syncthreads_or
  Exchange exchange{};
  uint32_t warp_interval = 0;
  unsigned mask = 0;
  int lanes = 0;
  int64_t value = 0;
  std::unique_ptr<Fiber> fiber;
  std::vector<AsyncCopy> copies;
  unsigned copy_groups = 0;  // committed
};

uint3 index_of(uint64_t number, const dim3& sizes) {
  return {static_cast<unsigned>(number % sizes.x), static_cast<unsigned>(number / sizes.x % sizes.y),
          static_cast<unsigned>(number / sizes.x / sizes.y)};
}

class Block {
 public:
  Block(const Launch& launch, uint32_t kernel, bool backwards)
      : launch_(launch), threads_(launch.block.x * launch.block.y * launch.block.z), backwards_(backwards),
        all_(threads_), shared_(launch.dynamic_shared_bytes) {
    thread_.device = launch.device;
    thread_.kernel = kernel;
    thread_.block_threads = threads_;
  }

  // "" or what is wrong.
  std::string run(uint32_t block, uint32_t number_of_block) {
    first_thread_ = block * threads_;
    number_of_block_ = number_of_block;
    thread_.interval = 0;
    blockIdx = index_of(block, launch_.grid);
    blockDim = {launch_.block.x, launch_.block.y, launch_.block.z};
    gridDim = {launch_.grid.x, launch_.grid.y, launch_.grid.z};
    for (Thread& thread : all_) thread = Thread();
    while (wrong_.empty() && run_until_barrier()) pass_barrier();
    if (wrong_.empty()) return "";
    const uint3 thread = threadIdx;
    return (code_ ? source_of(code_) + ": " : "") + wrong_ + " (block " + std::to_string(block) + ", thread " +
           std::to_string(thread.x) + " " + std::to_string(thread.y) + " " + std::to_string(thread.z) + ")";
  }

  // Of the running thread.
  void access(const void* address, size_t bytes, Access access, const void* code = nullptr);
  int64_t wait_for_warp(Exchange exchange, unsigned mask, int lanes, int64_t value);
  int wait_at_barrier(bool with_value, int value);
  void copy_async(void* shared, const void* global, unsigned bytes, bool valid);
  void commit_copies() { ++all_[running_].copy_groups; }
  void wait_for_copies(unsigned later);
  unsigned lane() const { return running_ % warp_size; }
  void* dynamic_shared() { return shared_.data(); }
  [[noreturn]] void fail(const std::string& what) {
    wrong_ = what;
    switch_to_scheduler();
    std::abort();  // the fiber is not resumed
  }

  static thread_local Block* current;

 private:
  static void fiber_main(context::transfer_t from);
  static std::vector<std::unique_ptr<Fiber>>& idle_fibers() {  // go with the thread
    static thread_local std::vector<std::unique_ptr<Fiber>> idle;
    return idle;
  }

  void switch_to_scheduler() {
    const context::transfer_t back = context::jump_fcontext(scheduler_, nullptr);
    scheduler_ = back.fctx;
  }

  void resume(unsigned number) {
    Thread& thread = all_[number];
    running_ = number;
    threadIdx = index_of(number, launch_.block);
    thread_.thread = first_thread_ + number;
    if (thread.state == State::fresh) {
      if (idle_fibers().empty()) idle_fibers().push_back(std::make_unique<Fiber>(&fiber_main));
      thread.fiber = std::move(idle_fibers().back());
      idle_fibers().pop_back();
    }
    thread.state = State::running;
    stack_ = thread.fiber->stack;
    const context::transfer_t back = context::jump_fcontext(thread.fiber->context, nullptr);
    thread.fiber->context = back.fctx;
    if (thread.state == State::ended) idle_fibers().push_back(std::move(thread.fiber));
  }

  // All threads, until each of them waits at the barrier or has ended. Whether there is a barrier to pass.
  bool run_until_barrier() {
    const unsigned warps = (threads_ + warp_size - 1) / warp_size;
    for (unsigned i = 0; i < warps && wrong_.empty(); ++i) {
      const unsigned first = (backwards_ ? warps - 1 - i : i) * warp_size, last = std::min(first + warp_size, threads_);
      while (wrong_.empty()) {
        bool ran = false;
        for (unsigned j = first; j < last && wrong_.empty(); ++j) {
          const unsigned number = backwards_ ? last - 1 - (j - first) : j;
          if (all_[number].state != State::fresh && all_[number].state != State::running) continue;
          resume(number);
          ran = true;
        }
        if (!wrong_.empty() || (!exchange_in_warp(first, last) && !ran)) break;
      }
    }
    if (!wrong_.empty()) return false;
    unsigned waiting = 0, first_waiting = 0;
    for (unsigned number = threads_; number-- > 0;)
      if (all_[number].state == State::at_barrier) ++waiting, first_waiting = number;
    if (waiting > 0 && waiting < threads_) {
      threadIdx = index_of(first_waiting, launch_.block);
      wrong_ = "waits at a barrier that only " + std::to_string(waiting) + " of " + std::to_string(threads_) +
               " threads reach";
    }
    return waiting > 0 && wrong_.empty();
  }

  // The common case, at a glance: all that wait name the same lanes, which exist and wait for the same thing.
  bool all_lanes_meet(unsigned first, unsigned last) const {
    const Thread* one = nullptr;
    unsigned waiting = 0;
    for (unsigned number = first; number < last; ++number) {
      const Thread& thread = all_[number];
      if (thread.state != State::in_warp) continue;
      if (!one) one = &thread;
      if (thread.exchange != one->exchange || thread.mask != one->mask) return false;
      waiting |= 1u << (number - first);
    }
    return one && waiting == one->mask;
  }

  // Whether threads of the warp go on.
  bool exchange_in_warp(unsigned first, unsigned last) {
    if (!all_lanes_meet(first, last) && !lanes_may_go_on(first, last)) return false;
    bool any = false;
    int64_t before[warp_size];
    for (unsigned number = first; number < last; ++number) before[number - first] = all_[number].value;
    if (all_[first].state == State::in_warp) {
      if (all_[first].exchange == Exchange::matrix_product) multiply_fragments(before);
      if (all_[first].exchange == Exchange::bf16_product) multiply_bf16_fragments(before);
      if (all_[first].exchange == Exchange::gather) gather(before);
    }
    for (unsigned number = first; number < last; ++number) {
      Thread& thread = all_[number];
      if (thread.state != State::in_warp) continue;
      any = true;
      if (thread.exchange == Exchange::shuffle_xor) {
        thread.value = before[(number - first) ^ static_cast<unsigned>(thread.lanes)];
      } else if (thread.exchange == Exchange::match) {
        unsigned equal = 0;
        for (unsigned lane = 0; first + lane < last; ++lane)
          if (thread.mask >> lane & 1 && before[lane] == before[number - first]) equal |= 1u << lane;
        thread.value = equal;
      } else if (thread.exchange == Exchange::matrix_access) {
        if (thread.value != before[0]) return differs_from_first_lane(number);
      } else if (thread.exchange == Exchange::synchronize) {
        ++thread.warp_interval;
      }
      thread.state = State::running;
    }
    return any;
  }

  // Whether no lane that waits names one that will not come, or comes later.
  bool lanes_may_go_on(unsigned first, unsigned last) {
    for (unsigned number = first; number < last; ++number) {
      Thread& thread = all_[number];
      if (thread.state != State::in_warp) continue;
      for (unsigned lane = 0; lane < warp_size; ++lane) {
        if (!(thread.mask >> lane & 1)) continue;
        if (first + lane >= last) {
          if (thread.exchange == Exchange::synchronize) continue;
          return warp_fails(number, lane, "does not exist");
        }
        const Thread& other = all_[first + lane];
        if (other.state == State::ended) return warp_fails(number, lane, "has ended");
        if (other.state == State::at_barrier) return warp_fails(number, lane, "waits at a barrier of the block");
        if (other.state != State::in_warp) return false;
        if (other.exchange != thread.exchange || other.mask != thread.mask)
          return warp_fails(number, lane, "is at another one");
      }
    }
    return true;
  }
  bool warp_fails(unsigned number, unsigned lane, const std::string& how) {
    threadIdx = index_of(number, launch_.block);
    wrong_ = "waits in a shuffle or synchronization of its warp for lane " + std::to_string(lane) + ", which " + how;
    return false;
  }

  bool differs_from_first_lane(unsigned number) {
    threadIdx = index_of(number, launch_.block);
    wrong_ = "accesses another matrix than the first lane of its warp";
    return false;
  }

  void pass_barrier() {
    int64_t any = 0;
    for (const Thread& thread : all_) {
      if (thread.with_value != all_[0].with_value) wrong_ = "waits at another kind of barrier than other threads";
      any |= thread.value;
    }
    ++thread_.interval;
    for (Thread& thread : all_) {
      thread.value = any;
      thread.state = State::running;
    }
  }

  const Launch& launch_;
  uint32_t threads_;
  bool backwards_;
  std::vector<Thread> all_;
  std::vector<char> shared_;
  KernelThread thread_{};
  uint32_t first_thread_ = 0, number_of_block_ = 0;
  unsigned running_ = 0;
  const char* stack_ = nullptr;
  context::fcontext_t scheduler_{};
  std::string wrong_;
  const void* code_ = nullptr;  // of the latest access
};

thread_local Block* Block::current = nullptr;

// Runs one thread after the other, each of which may be suspended in between.
void Block::fiber_main(context::transfer_t from) {
  while (true) {
    Block& block = *current;
    block.scheduler_ = from.fctx;
    block.launch_.run(block.launch_.parameters.get());
    Block& same = *current;
    same.all_[same.running_].state = State::ended;
    from = context::jump_fcontext(same.scheduler_, nullptr);
  }
}

int64_t Block::wait_for_warp(Exchange exchange, unsigned mask, int lanes, int64_t value) {
  code_ = nullptr;
  const unsigned number = running_;
  Thread& thread = all_[number];
  if (!(mask >> (number % warp_size) & 1)) fail("calls a function of its warp with a mask that it is not in");
  if (exchange == Exchange::shuffle_xor && !(mask >> (number % warp_size ^ static_cast<unsigned>(lanes)) & 1))
    fail("reads a lane of its warp that is not in the mask");
  thread.exchange = exchange;
  thread.mask = mask;
  thread.lanes = lanes;
  thread.value = value;
  thread.state = State::in_warp;
  switch_to_scheduler();
  return thread.value;
}

int Block::wait_at_barrier(bool with_value, int value) {
  code_ = nullptr;
  Thread& thread = all_[running_];
  thread.with_value = with_value;
  thread.value = value != 0;
  thread.state = State::at_barrier;
  switch_to_scheduler();
  return static_cast<int>(thread.value);
}

// Thread-local variables of the program, which a kernel's shared memory is among.
struct ThreadLocals {
  ThreadLocals() {
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* self) {
          for (int i = 0; i < info->dlpi_phnum; ++i)
            if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data) {
              static_cast<ThreadLocals*>(self)->begin = static_cast<const char*>(info->dlpi_tls_data);
              static_cast<ThreadLocals*>(self)->bytes = info->dlpi_phdr[i].p_memsz;
            }
          return 1;  // the first one is the program itself
        },
        this);
  }
  const char* begin = nullptr;
  size_t bytes = 0;
};

const char* verb(Access access) {
  return access == Access::read ? "reads " : access == Access::write ? "writes " : "adds to ";
}

void Block::access(const void* address, size_t bytes, Access access, const void* code) {
  code_ = code;
  const char* place = static_cast<const char*>(address);
  if (static_cast<size_t>(place - stack_) < stack_bytes) return;
  if (is_device_address(address)) {
    const std::string wrong = check_access(thread_, address, bytes, access);
    if (!wrong.empty()) fail(verb(access) + wrong);
    if (reinterpret_cast<uintptr_t>(address) % bytes != 0) fail(std::string(verb(access)) + "a misaligned address");
    return;
  }
  for (const uint3* index : {&threadIdx, &blockIdx, &blockDim, &gridDim})
    if (static_cast<size_t>(place - reinterpret_cast<const char*>(index)) < sizeof *index) return;
  if (static_cast<size_t>(place - static_cast<const char*>(launch_.parameters.get())) < launch_.parameter_bytes) return;
  static thread_local const ThreadLocals locals;
  const size_t in_locals = static_cast<size_t>(place - locals.begin),
               in_dynamic = static_cast<size_t>(place - shared_.data());
  const bool dynamic = in_dynamic < shared_.size();
  if (in_locals < locals.bytes || dynamic) {
    if (dynamic && in_dynamic + bytes > shared_.size()) fail(std::string(verb(access)) + "after the shared memory");
    const std::string wrong = check_shared(thread_, number_of_block_, all_[running_].warp_interval,
                                           dynamic ? locals.bytes + in_dynamic : in_locals, bytes, access);
    if (!wrong.empty()) fail(verb(access) + wrong);
    return;
  }
  if (is_pinned(address, bytes)) return;
  fail(std::string(verb(access)) + "host memory");
}

void Block::copy_async(void* shared, const void* global, unsigned bytes, bool valid) {
  if (reinterpret_cast<uintptr_t>(shared) % bytes != 0 || reinterpret_cast<uintptr_t>(global) % bytes != 0)
    fail("copies asynchronously from or to a misaligned address");
  access(shared, bytes, Access::write);
  std::memset(shared, 0xff, bytes);
  AsyncCopy copy{static_cast<char*>(shared), bytes, all_[running_].copy_groups, {}};
  if (valid) {
    access(global, bytes, Access::read);
    std::memcpy(copy.data, global, bytes);
  }
  all_[running_].copies.push_back(copy);
}

void Block::wait_for_copies(unsigned later) {
  Thread& thread = all_[running_];
  std::erase_if(thread.copies, [&](const AsyncCopy& copy) {
    if (copy.group + later >= thread.copy_groups) return false;
    access(copy.shared, copy.bytes, Access::write);
    std::memcpy(copy.shared, copy.data, copy.bytes);
    return true;
  });
}

}  // namespace

std::string run_kernel(const Launch& launch, uint64_t seed) {
  static uint32_t kernels = 0, blocks = 0;  // one kernel runs at a time in a process
  ++kernels;
  Block block(launch, kernels, seed % 2 == 1);
  Block::current = &block;
  const uint32_t count = launch.grid.x * launch.grid.y * launch.grid.z;
  std::string wrong;
  for (uint32_t number = 0; number < count && wrong.empty(); ++number)
    wrong = block.run(seed / 2 % 2 ? count - 1 - number : number, ++blocks);
  Block::current = nullptr;
  return wrong.empty() ? "" : source_of(launch.kernel) + ": " + wrong;
}

void kernel_accesses(const void* address, size_t bytes, Access access, const void* code) {
  if (Block::current) Block::current->access(address, bytes, access, code);
}

}  // namespace cuda_stand_in

using cuda_stand_in::Block;
using cuda_stand_in::Exchange;

void* cuda_stand_in_dynamic_shared() { return Block::current->dynamic_shared(); }
uint64_t cuda_stand_in_exchange(unsigned mask, uint64_t bits, int lanes) {
  return static_cast<uint64_t>(
      Block::current->wait_for_warp(Exchange::shuffle_xor, mask, lanes, static_cast<int64_t>(bits)));
}
void __syncthreads() { Block::current->wait_at_barrier(false, 0); }
int __syncthreads_or(int predicate) { return Block::current->wait_at_barrier(true, predicate); }
void __syncwarp(unsigned mask) { Block::current->wait_for_warp(Exchange::synchronize, mask, 0, 0); }
unsigned __match_any_sync(unsigned mask, int value) {
  return static_cast<unsigned>(Block::current->wait_for_warp(Exchange::match, mask, 0, value));
}
unsigned cuda_stand_in_lane() { return Block::current->lane(); }
void cuda_stand_in_matrix_access(const void* memory, unsigned stride) {
  if (reinterpret_cast<uintptr_t>(memory) % 32 != 0 || stride % 4 != 0)
    Block::current->fail("accesses a matrix that is not aligned to 32 bytes, or whose stride is no multiple of 4");
  Block::current->wait_for_warp(Exchange::matrix_access, 0xffffffffu, 0,
                                reinterpret_cast<int64_t>(memory) ^ static_cast<int64_t>(stride) << 48);
}
void cuda_stand_in_multiply(const float* a, const float* b, const float* c, float* d) {
  const cuda_stand_in::Operands operands{a, b, c, d};
  Block::current->wait_for_warp(Exchange::matrix_product, 0xffffffffu, 0, reinterpret_cast<int64_t>(&operands));
}
void cuda_stand_in_gather(uint64_t value, uint64_t (&all)[32]) {
  const cuda_stand_in::Gathered gathered{value, all};
  Block::current->wait_for_warp(Exchange::gather, 0xffffffffu, 0, reinterpret_cast<int64_t>(&gathered));
}
void cuda_stand_in_multiply_bf16(float* d, const uint32_t* a, const uint32_t* b) {
  const cuda_stand_in::Bf16Operands operands{d, a, b};
  Block::current->wait_for_warp(Exchange::bf16_product, 0xffffffffu, 0, reinterpret_cast<int64_t>(&operands));
}
void cuda_stand_in_check_matrix_row(const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) Block::current->fail("loads a row of a matrix that is misaligned");
}
void cuda_stand_in_copy_async(void* shared, const void* global, unsigned bytes, bool valid) {
  Block::current->copy_async(shared, global, bytes, valid);
}
void cuda_stand_in_commit_copies() { Block::current->commit_copies(); }
void cuda_stand_in_wait_for_copies(unsigned later) { Block::current->wait_for_copies(later); }
int atomicAdd(int* address, int value) {
  Block::current->access(address, sizeof *address, cuda_stand_in::Access::atomic);
  const int before = *address;
  *address += value;
  return before;
}
long long clock64() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
