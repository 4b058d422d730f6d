// Parameters as whole tensors on the host: initialization, gathering from the ranks, and setting. Used by checkpoints,
// --verify and tests.
#pragma once

#include <map>
#include <string>

#include "common/vector.h"
#include "executor/program/program.h"

namespace ff {

// Whole tensors by name, row-major.
using HostTensors = std::map<std::string, Vector<float>>;

enum class ParameterData { weight, first_state, second_state, gradient };  // states: of the optimizer, in its order

// Initial values from (seed, parameter name, element index), so that every split draws the same.
void initialize_parameters(Program& program, uint64_t seed);

// Rank 0: whole tensors, by Parameter::name; the others send what they hold and return nothing. All ranks call.
// Parameters that are not trained have no state and no gradient; a gradient is that of the last iteration, summed
// over the devices; where the optimizer's state is sharded, updated values have taken its place.
HostTensors gather_parameters(Program& program, ParameterData data);

// Stores blocks of whole tensors in this rank's buffers. Parameters that `tensors` lacks keep their values.
void set_parameters(Program& program, ParameterData data, const HostTensors& tensors);

// All states of the program's optimizer, by name (state_names).
std::map<std::string, HostTensors> gather_states(Program& program);
// Those that `states` has; others keep their values.
void set_states(Program& program, const std::map<std::string, HostTensors>& states);

}  // namespace ff
