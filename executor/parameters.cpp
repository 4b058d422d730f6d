#include "executor/parameters.h"

#include <algorithm>

#include "common/philox.h"
#include "executor/runs.h"

namespace ff {
namespace {

// Buffers are row-major and dense: as one axis, their elements go to and from the host unchanged.
void store(const Program& program, const Vector<float>& host, Place memory) {
  program.backend().store_from_host(host.data(), program.address(memory), {static_cast<int64_t>(host.size())});
}

// The elements of `region` in a dense buffer of `block`, row-major.
Vector<float> load(const Program& program, Place memory, const Block& block, const Block& region) {
  Vector<float> whole(block.volume()), part;
  program.backend().load_to_host(program.address(memory), whole.data(), {block.volume()});
  if (region == block) return whole;
  for_each_run(block, region, [&](int64_t offset, int64_t length) {
    part.insert(part.end(), whole.begin() + offset, whole.begin() + offset + length);
  });
  return part;
}

int state_number(ParameterData data) { return data == ParameterData::second_state ? 1 : 0; }

// Does not exist where the parameter has no such state.
Place place_of(const ParameterBuffer& buffer, ParameterData data) {
  if (data == ParameterData::weight) return buffer.weight;
  return state_number(data) < buffer.states.count() ? buffer.states[state_number(data)] : Place();
}

// This rank's elements of a piece.
Vector<float> load_piece(const Program& program, ParameterData data, const ParameterPiece& piece) {
  const ProgramPlan& plan = program.plan();
  if (data == ParameterData::gradient) {
    for (size_t u = 0; u < plan.units.size(); ++u)
      for (size_t p = 0; p < plan.units[u].gradients.size(); ++p)
        if (const ParameterPiece& held = *program.tasks().units[u].pieces[p];
            held.parameter == piece.parameter && held.block == piece.block)
          return load(program, plan.units[u].gradients[p], piece.block, piece.block);
  } else {
    // The first buffer that contains the piece is the one that is updated.
    for (const ParameterBuffer& buffer : plan.parameters)
      if (buffer.parameter == piece.parameter && buffer.block.contains(piece.block))
        return load(program, place_of(buffer, data), buffer.block, piece.block);
  }
  throw MachineError("a piece of parameter " + program.graph().parameters[piece.parameter].name +
                     " is not on its rank");
}

}  // namespace

void initialize_parameters(Program& program, uint64_t seed) {
  for (const ParameterBuffer& buffer : program.plan().parameters) {
    const Parameter& parameter = program.graph().parameters[buffer.parameter];
    const uint64_t stream = random_stream(seed, parameter.name);
    const float bound = static_cast<float>(parameter.spec.uniform_bound),
                constant = static_cast<float>(parameter.spec.constant);
    Vector<float> values;
    values.reserve(static_cast<size_t>(buffer.block.volume()));
    uint64_t counter = UINT64_MAX;
    Array<uint32_t, 4> bits{};
    for_each_run(Block(parameter.spec.shape), buffer.block, [&](int64_t offset, int64_t length) {
      for (int64_t i = offset; i < offset + length; ++i) {
        const uint64_t index = static_cast<uint64_t>(i);
        if (bound != 0 && index / 4 != counter) {
          counter = index / 4;
          bits = philox(stream, counter, 0);  // as uniform_at, four numbers at a time
        }
        values.push_back(bound == 0 ? constant : (2 * uniform_float(bits[index % 4]) - 1) * bound);
      }
    });
    store(program, values, buffer.weight);
  }
}

HostTensors gather_parameters(Program& program, ParameterData data) {
  program.finish_sends();
  const bool state = data == ParameterData::first_state || data == ParameterData::second_state;
  if (state && state_number(data) >= state_buffers(program.settings().optimizer)) return {};
  Transport& transport = program.transport().for_host_memory();
  HostTensors tensors;
  constexpr int tag = 0;  // no transfer of an iteration is in progress, and messages arrive in order
  for (size_t g = 0; g < program.builder().groups().size(); ++g) {
    if (data != ParameterData::weight && !program.builder().groups()[g].trained) continue;
    for (const auto pieces = program.builder().pieces(static_cast<int>(g), program.strategy());
         const ParameterPiece& piece : *pieces) {
      // With owners, they alone have the states.
      const bool owned = program.builder().synchronization() == Synchronization::parameter_server;
      DeviceId owner = owned ? owner_of(piece.users, program.strategy()) : transport.size();
      for (const auto& [op, part] : piece.users)
        if (!owned) owner = std::min(owner, program.strategy()[op].devices[part]);
      Vector<float> values;
      if (owner == transport.rank()) values = load_piece(program, data, piece);
      const int64_t bytes = piece.block.volume() * element_bytes;
      if (owner == transport.rank() && owner != 0) {
        Request request = transport.send(values.data(), bytes, 0, tag);
        transport.wait(request);
      }
      if (transport.rank() != 0) continue;
      if (owner != 0) {
        values.resize(piece.block.volume());
        Request request = transport.receive(values.data(), bytes, owner, tag);
        transport.wait(request);
      }
      const Parameter& parameter = program.graph().parameters[piece.parameter];
      Vector<float>& whole = tensors[parameter.name];
      whole.resize(volume(parameter.spec.shape));
      auto from = values.begin();
      for_each_run(Block(parameter.spec.shape), piece.block, [&](int64_t offset, int64_t length) {
        std::copy(from, from + length, whole.begin() + offset);
        from += length;
      });
    }
  }
  return tensors;
}

void set_parameters(Program& program, ParameterData data, const HostTensors& tensors) {
  program.finish_sends();
  for (const ParameterBuffer& buffer : program.plan().parameters) {
    const Parameter& parameter = program.graph().parameters[buffer.parameter];
    const Place memory = place_of(buffer, data);
    const auto it = tensors.find(parameter.name);
    if (it == tensors.end() || !memory.exists()) continue;
    Vector<float> values;
    for_each_run(Block(parameter.spec.shape), buffer.block, [&](int64_t offset, int64_t length) {
      values.insert(values.end(), it->second.begin() + offset, it->second.begin() + offset + length);
    });
    store(program, values, memory);
  }
}

namespace {

constexpr ParameterData states_in_order[] = {ParameterData::first_state, ParameterData::second_state};

}  // namespace

std::map<std::string, HostTensors> gather_states(Program& program) {
  std::map<std::string, HostTensors> states;
  const Vector<std::string> names = state_names(program.settings().optimizer);
  for (const int state : names.indices()) states[names[state]] = gather_parameters(program, states_in_order[state]);
  return states;
}

void set_states(Program& program, const std::map<std::string, HostTensors>& states) {
  const Vector<std::string> names = state_names(program.settings().optimizer);
  for (const int state : names.indices())
    if (const auto found = states.find(names[state]); found != states.end())
      set_parameters(program, states_in_order[state], found->second);
}

}  // namespace ff
