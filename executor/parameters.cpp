#include "executor/parameters.h"

#include <algorithm>

#include "common/philox.h"
#include "executor/plan/runs.h"

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

// A shard's part of a piece, and where it lies in the piece's packed elements.
struct ShardOfPiece {
  DeviceId holder;
  int64_t in_piece, in_shard, elements;
};
// By holder, ascending. `offset`: of the piece in the packed buffer of its unit.
Vector<ShardOfPiece> shards_of_piece(const SynchronizationUnit& unit, int64_t packed, int64_t offset, int64_t volume) {
  Vector<ShardOfPiece> shards;
  const int64_t length = shard_elements(packed, unit.holders.count());
  for (const int h : unit.holders.indices()) {
    const int64_t begin = std::max(offset, h * length), end = std::min(offset + volume, (h + 1) * length);
    if (begin < end) shards.push_back({unit.holders[h], begin - offset, begin - h * length, end - begin});
  }
  return shards;
}

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

// The elements of `block` in a dense tensor, whole[shape], one after the other.
Vector<float> part_of(const Vector<float>& whole, const Shape& shape, const Block& block) {
  Vector<float> part;
  for_each_run(Block(shape), block, [&](int64_t offset, int64_t length) {
    part.insert(part.end(), whole.begin() + offset, whole.begin() + offset + length);
  });
  return part;
}

void set_part(Vector<float>& whole, const Shape& shape, const Block& block, const Vector<float>& part) {
  auto from = part.begin();
  for_each_run(Block(shape), block, [&](int64_t offset, int64_t length) {
    std::copy(from, from + length, whole.begin() + offset);
    from += length;
  });
}

constexpr int tag = 0;  // no transfer of an iteration is in progress, and messages arrive in order

// Brings what `owner` has to rank 0: `values` there, of so many elements. All others do nothing.
void bring_to_rank_0(Transport& transport, DeviceId owner, int64_t elements, Vector<float>& values) {
  if (owner == 0) return;
  if (owner == transport.rank()) {
    Request request = transport.send(values.data(), elements * element_bytes, 0, tag);
    transport.wait(request);
  } else if (transport.rank() == 0) {
    values.resize(elements);
    Request request = transport.receive(values.data(), elements * element_bytes, owner, tag);
    transport.wait(request);
  }
}

// What of a unit's shard is asked for: a state of the optimizer, or the weights.
Place shard_place(const ShardPlan& shard, ParameterData data) {
  return data == ParameterData::weight ? shard.weights : shard.states[state_number(data)];
}

// Of one unit whose holders have a shard each; this rank's own plan of it, or null.
void gather_shards(Program& program, Transport& transport, ParameterData data, const SynchronizationUnit& unit,
                   const UnitPlan* own, HostTensors& tensors) {
  const PackedUnit layout = packed(unit);
  Vector<float> shard, values;
  if (own) {
    shard.resize(own->shard.elements);
    program.backend().load_to_host(program.address(shard_place(own->shard, data)), shard.data(), {own->shard.elements});
  }
  for (const int p : unit.pieces.indices()) {
    const ParameterPiece& piece = *unit.pieces[p];
    const Parameter& parameter = program.graph().parameters[piece.parameter];
    Vector<float> whole(piece.block.volume());
    for (const ShardOfPiece& one : shards_of_piece(unit, layout.elements, layout.offsets[p], piece.block.volume())) {
      values.clear();
      if (one.holder == transport.rank())
        values.assign(shard.begin() + one.in_shard, shard.begin() + one.in_shard + one.elements);
      bring_to_rank_0(transport, one.holder, one.elements, values);
      if (transport.rank() == 0) std::copy(values.begin(), values.end(), whole.begin() + one.in_piece);
    }
    if (transport.rank() != 0) continue;
    Vector<float>& tensor = tensors[parameter.name];
    tensor.resize(volume(parameter.spec.shape));
    set_part(tensor, parameter.spec.shape, piece.block, whole);
  }
}

// This rank's plan of a unit; null: it is no holder.
const UnitPlan* own_plan(const Program& program, const SynchronizationUnit& unit) {
  for (const int u : program.plan().units.indices()) {
    const SynchronizationUnit& held = program.tasks().units[u];
    if (held.group == unit.group && held.number == unit.number) return &program.plan().units[u];
  }
  return nullptr;
}

// Do holders have it in shards?
bool has_shards(Program& program, int group, const SynchronizationUnit& unit, ParameterData data) {
  if (!is_sharded(program.builder().synchronization(group)) || !program.builder().groups()[group].trained ||
      data == ParameterData::gradient)
    return false;
  return data != ParameterData::weight ||
         (unit.holders.size() > 1 && shard_rounds(program.builder(), group).parameters);
}

// This rank's shard of a unit, from whole tensors.
void set_shard(Program& program, int u, ParameterData data, const HostTensors& tensors) {
  const SynchronizationUnit& unit = program.tasks().units[u];
  const ShardPlan& shard = program.plan().units[u].shard;
  const PackedUnit layout = packed(unit);
  Vector<float> values(shard.elements, 0.0f);
  for (const int p : unit.pieces.indices()) {
    const ParameterPiece& piece = *unit.pieces[p];
    const Parameter& parameter = program.graph().parameters[piece.parameter];
    const auto found = tensors.find(parameter.name);
    if (found == tensors.end()) continue;
    const Vector<float> part = part_of(found->second, parameter.spec.shape, piece.block);
    for (const ShardOfPiece& one : shards_of_piece(unit, layout.elements, layout.offsets[p], piece.block.volume()))
      if (one.holder == program.transport().rank())
        std::copy_n(part.begin() + one.in_piece, one.elements, values.begin() + one.in_shard);
  }
  store(program, values, shard_place(shard, data));
}

}  // namespace

namespace {

// The elements of a parameter's block that it begins with, row-major.
Vector<float> initial_values(const Parameter& parameter, const Block& block, uint64_t seed) {
  const uint64_t stream = random_stream(seed, parameter.name);
  const float bound = static_cast<float>(parameter.spec.uniform_bound),
              constant = static_cast<float>(parameter.spec.constant);
  Vector<float> values;
  values.reserve(static_cast<size_t>(block.volume()));
  uint64_t counter = UINT64_MAX;
  Array<uint32_t, 4> bits{};
  for_each_run(Block(parameter.spec.shape), block, [&](int64_t offset, int64_t length) {
    for (int64_t i = offset; i < offset + length; ++i) {
      const uint64_t index = static_cast<uint64_t>(i);
      if (bound != 0 && index / 4 != counter) {
        counter = index / 4;
        bits = philox(stream, counter, 0);  // as uniform_at, four numbers at a time
      }
      values.push_back(bound == 0 ? constant : (2 * uniform_float(bits[index % 4]) - 1) * bound);
    }
  });
  return values;
}

}  // namespace

void initialize_parameters(Program& program, uint64_t seed) {
  for (const ParameterBuffer& buffer : program.plan().parameters)
    if (buffer.weight.exists())
      store(program, initial_values(program.graph().parameters[buffer.parameter], buffer.block, seed), buffer.weight);
  for (const int u : program.plan().units.indices()) {
    if (!program.plan().units[u].has_sharded_weights()) continue;
    HostTensors whole;  // one unit at a time
    for (const ParameterPiece* piece : program.tasks().units[u].pieces) {
      const Parameter& parameter = program.graph().parameters[piece->parameter];
      if (!whole.contains(parameter.name))
        whole[parameter.name] = initial_values(parameter, Block(parameter.spec.shape), seed);
    }
    set_shard(program, u, ParameterData::weight, whole);
  }
}

HostTensors gather_parameters(Program& program, ParameterData data) {
  program.finish_sends();
  const bool state = data == ParameterData::first_state || data == ParameterData::second_state;
  if (state && state_number(data) >= state_buffers(program.settings().optimizer)) return {};
  Transport& transport = program.transport().for_host_memory();
  HostTensors tensors;
  TaskGraphBuilder& builder = program.builder();
  const bool owned = builder.synchronization() == Synchronization::parameter_server;
  for (const int g : builder.groups().indices()) {
    if (data != ParameterData::weight && !builder.groups()[g].trained) continue;
    const auto pieces = builder.pieces(g, program.strategy());
    for (const SynchronizationUnit& unit :
         synchronization_units(g, *pieces, program.strategy(), builder.synchronization(g))) {
      if (has_shards(program, g, unit, data)) {
        gather_shards(program, transport, data, unit, own_plan(program, unit), tensors);
        continue;
      }
      // With owners, they alone have the states.
      const DeviceId holder = owned ? unit.owner : unit.holders[0];
      for (const ParameterPiece* piece : unit.pieces) {
        Vector<float> values;
        if (holder == transport.rank()) values = load_piece(program, data, *piece);
        bring_to_rank_0(transport, holder, piece->block.volume(), values);
        if (transport.rank() != 0) continue;
        const Parameter& parameter = program.graph().parameters[piece->parameter];
        Vector<float>& whole = tensors[parameter.name];
        whole.resize(volume(parameter.spec.shape));
        set_part(whole, parameter.spec.shape, piece->block, values);
      }
    }
  }
  return tensors;
}

void set_parameters(Program& program, ParameterData data, const HostTensors& tensors) {
  program.finish_sends();
  for (const int u : program.plan().units.indices()) {
    const SynchronizationUnit& unit = program.tasks().units[u];
    const ShardPlan& shard = program.plan().units[u].shard;
    if (shard.elements > 0 && has_shards(program, unit.group, unit, data)) set_shard(program, u, data, tensors);
  }
  for (const ParameterBuffer& buffer : program.plan().parameters) {
    const Parameter& parameter = program.graph().parameters[buffer.parameter];
    const Place memory = place_of(buffer, data);
    const auto it = tensors.find(parameter.name);
    if (it == tensors.end() || !memory.exists()) continue;
    store(program, part_of(it->second, parameter.spec.shape, buffer.block), memory);
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
