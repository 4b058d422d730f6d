// Is there memory for the simulation of all devices and micro-batches of a plan?
#pragma once

#include <string>

#include "common/strategy.h"

namespace ff {

// Parts of all operators in so many micro-batches.
int64_t parts_of_iteration(const Strategy& strategy, int micro_batches = 1);

// Bytes: of the machine, or what the control groups of the process may have, if that is less.
int64_t machine_memory_bytes();

// Throws MachineError where the machine has less memory than the simulation of that many parts needs. `instead`: the
// end of the message, what does with less.
void expect_room_for_simulation(int64_t parts, const std::string& instead);
void expect_room_for_tasks(int64_t tasks, const std::string& instead);  // likewise

}  // namespace ff
