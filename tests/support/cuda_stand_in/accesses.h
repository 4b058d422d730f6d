// The functions that GCC calls at each access to memory of code that it compiles with -fsanitize=thread.
#pragma once

#include <cstddef>

#include "memory.h"

namespace cuda_stand_in {

// By a kernel's thread, at this place of its machine code; else nothing happens.
void kernel_accesses(const void* address, size_t bytes, Access access, const void* code);

}  // namespace cuda_stand_in
