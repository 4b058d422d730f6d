// What parts on several ranks sum up: gradients of parameters, unit by unit, and statistics.
#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "common/task_graph/parameter_buffers.h"
#include "executor/plan/planner.h"
#include "executor/plan/runs.h"

namespace ff {
namespace {

Place moved(Place place, int64_t elements) { return {place.buffer, place.offset + elements}; }

// Of a run of a piece in the packed buffer: where it is within the shard, and how much of the run comes before.
struct RunInShard {
  int64_t in_shard, skipped, elements;
};
RunInShard within_shard(const ShardPlan& shard, int64_t packed_offset, int64_t elements) {
  const int64_t begin = std::max(packed_offset, shard.begin),
                end = std::min(packed_offset + elements, shard.begin + shard.elements);
  return {begin - shard.begin, begin - packed_offset, std::max<int64_t>(0, end - begin)};
}

// The optimizer works on the first local buffer that contains the piece; the others copy the result.
void plan_update(const ProgramPlan& plan, const ParameterPiece& piece, Place gradient, UnitPlan& unit) {
  const ParameterBuffer* first = nullptr;
  const auto storage = [](const ParameterBuffer& buffer) { return parameter_storage(buffer.block); };
  const auto update = [&](Place weight, Place gradients, const Vector<Place>& states, int64_t moved_by,
                          int64_t length) {
    unit.updates.push_back({weight, gradients, {}, length});
    for (const Place state : states) unit.updates.back().states.push_back(moved(state, moved_by));
  };
  for (const int b : plan.parameters.indices()) {
    const ParameterBuffer& buffer = plan.parameters[b];
    if (buffer.parameter != piece.parameter || !buffer.block.contains(piece.block)) continue;
    const Block region = parameter_storage(piece.block);
    if (unit.is_sharded())
      unit.shard.from_gathered.push_back({gradient, region, buffer.weight, storage(buffer), region});
    else if (first) unit.spread.push_back({first->weight, storage(*first), buffer.weight, storage(buffer), region});
    if (first) continue;
    first = &buffer;
    Place run = gradient;
    for_each_run(buffer.block, piece.block, [&](int64_t offset, int64_t length) {
      if (unit.shard.elements == 0) {
        update(moved(buffer.weight, offset), run, buffer.states, offset, length);
      } else if (const RunInShard own = within_shard(unit.shard, run.offset, length); own.elements > 0) {
        const Place values = unit.is_sharded() ? moved(unit.shard.values, own.in_shard) : run;
        const Place weight = moved(buffer.weight, offset + own.skipped);
        update(weight, values, unit.shard.states, own.in_shard, own.elements);
        const Block block({own.elements});
        if (unit.is_sharded()) unit.shard.updated.push_back({weight, block, values, block, block});
      }
      run.offset += length;
    });
  }
}

// Of the piece at an offset of the packed weights, of which a shard may be all that is here.
void plan_update_of_shard(const ParameterPiece& piece, int64_t packed_offset, UnitPlan& unit) {
  const RunInShard own = within_shard(unit.shard, packed_offset, piece.block.volume());
  if (own.elements == 0) return;
  const ShardPlan& shard = unit.shard;
  const Place weight = moved(shard.weights, unit.has_sharded_weights() ? own.in_shard : shard.begin + own.in_shard),
              values = moved(shard.values, own.in_shard);
  unit.updates.push_back({weight, values, {}, own.elements});
  for (const Place state : shard.states) unit.updates.back().states.push_back(moved(state, own.in_shard));
  const Block block({own.elements});
  if (!unit.has_sharded_weights()) unit.shard.updated.push_back({weight, block, values, block, block});
}

// Which part of the unit this rank updates, and what that takes.
ShardPlan plan_shard(Planner& planner, const SynchronizationUnit& unit, int64_t packed) {
  ShardPlan shard;
  const int64_t holders = unit.holders.count();
  const auto own = std::find(unit.holders.begin(), unit.holders.end(), planner.settings.rank);
  shard.elements = shard_elements(packed, holders);
  shard.begin = (own - unit.holders.begin()) * shard.elements;
  for (int state = 0; state < planner.settings.state_buffers; ++state)
    shard.states.push_back(planner.allocate(shard.elements, true));
  if (holders < 2) return shard;
  shard.values = planner.allocate(shard.elements, true);
  shard.rounds = planner.rounds[unit.group];
  if (shard.rounds.gradients)
    shard.weights = planner.allocate(shard.rounds.parameters ? shard.elements : holders * shard.elements, true);
  return shard;
}

UnitPlan plan_unit(Planner& planner, const SynchronizationUnit& unit) {
  UnitPlan plan;
  if (unit.owner == no_owner) plan.group = planner.group_of(unit.holders);
  const PackedUnit layout = packed(unit);
  const Synchronization synchronization = planner.builder.synchronization(unit.group);
  plan.elements = packed_elements(layout.elements, unit.holders.count(), synchronization);
  const bool in_rounds = planner.rounds[unit.group].gradients && unit.holders.size() > 1;
  if (!in_rounds) plan.packed = planner.allocate(plan.elements, true);  // the gaps stay zero
  if (is_sharded(synchronization)) plan.shard = plan_shard(planner, unit, layout.elements);
  for (size_t p = 0; p < unit.pieces.size(); ++p) {
    plan.gradients.push_back(in_rounds ? Place() : Place{plan.packed.buffer, layout.offsets[p]});
    if (!in_rounds) {
      plan_update(planner.plan, *unit.pieces[p], plan.gradients[p], plan);
      continue;
    }
    plan_update_of_shard(*unit.pieces[p], layout.offsets[p], plan);
    for (ParameterBuffer& buffer : planner.plan.parameters)
      if (buffer.parameter == unit.pieces[p]->parameter && buffer.block == unit.pieces[p]->block &&
          !plan.has_sharded_weights())
        buffer.weight = moved(plan.shard.weights, layout.offsets[p]);
  }
  return plan;
}

// The unit whose piece the block is, and which; -1: it is none.
std::pair<int, int> piece_of(const Planner& planner, const ParameterBuffer& buffer) {
  for (const int u : planner.plan.units.indices())
    for (const int p : planner.plan.units[u].gradients.indices())
      if (const ParameterPiece& piece = *planner.tasks.units[u].pieces[p];
          piece.parameter == buffer.parameter && piece.block == buffer.block)
        return {u, p};
  return {-1, -1};
}

// Of a block that a backward task writes the gradient of: within the packed buffer of its unit if the block is one
// piece.
Place parameter_gradient(Planner& planner, const ParameterBuffer& buffer) {
  if (const auto [unit, piece] = piece_of(planner, buffer); unit >= 0) return planner.plan.units[unit].gradients[piece];
  const ParameterBufferSizes sizes = parameter_buffer_sizes(planner.graph, buffer.parameter, buffer.block.volume(),
                                                            planner.settings.state_buffers, {true, /*is_piece=*/false});
  return planner.allocate(sizes.gradient);
}

// In the arena: what a unit that is sharded in rounds has whole in one of them.
Place whole_unit(const Planner& planner, int unit, BufferKey::Kind kind, int round) {
  const SynchronizationUnit& of = planner.tasks.units[unit];
  return planner.in_arena({kind, of.group, of.number, round}, planner.plan.units[unit].elements);
}

// Unit, piece and round, of those in rounds.
using WrittenPieces = std::set<std::tuple<int, int, int>>;

// Parts with the same block of a parameter share its gradient: the first backward task writes, the others add. In
// rounds, those of one.
WrittenPieces place_parameter_gradients(Planner& planner) {
  using Kind = BufferKey::Kind;
  ProgramPlan& plan = planner.plan;
  WrittenPieces written;
  Vector<Place> gradients(plan.parameters.size());
  for (StepPlan& step : plan.steps) {
    if (!is_compute(step.kind)) continue;
    PartPlan& part = plan.parts[step.part];
    const int micro_batch = micro_batch_of_part(planner.builder, planner.strategy, part.op, part.part);
    const Direction direction = step.kind == TaskKind::recompute ? Direction::backward : direction_of(step.kind);
    for (const int parameter : part.parameters) {
      const ParameterBuffer& buffer = plan.parameters[parameter];
      const bool trained = planner.graph.parameters[buffer.parameter].spec.trained;
      const auto [unit, piece] = trained ? piece_of(planner, buffer) : std::pair(-1, -1);
      const bool in_rounds = unit >= 0 && plan.units[unit].in_rounds();
      const int64_t offset = in_rounds ? packed(planner.tasks.units[unit]).offsets[piece] : 0;
      const int round = in_rounds ? plan.units[unit].shard.rounds.round_of(micro_batch) : 0;
      if (in_rounds && plan.units[unit].has_sharded_weights())
        step.gathered.push_back(moved(
            whole_unit(planner, unit, Kind::gathered_parameters, ShardRounds::gathering(round, direction)), offset));
      else step.gathered.push_back({});
      if (step.kind != TaskKind::backward) continue;
      if (in_rounds) {
        const Place gradient = moved(whole_unit(planner, unit, Kind::packed_parameter_gradient, round), offset);
        part.accumulate.push_back(!written.emplace(unit, piece, round).second);
        part.parameter_gradients.push_back(gradient);
        continue;
      }
      Place& gradient = gradients[parameter];
      part.accumulate.push_back(gradient.exists());
      if (trained && !gradient.exists()) gradient = parameter_gradient(planner, buffer);
      part.parameter_gradients.push_back(gradient);
    }
  }
  return written;
}

// In rounds: where each reduce-scatter and gathering has the whole unit. What no backward task writes there is zero:
// gaps between the pieces, and pieces that no part here contributes to.
void place_whole_units(Planner& planner, const WrittenPieces& written) {
  using Kind = BufferKey::Kind;
  for (StepPlan& step : planner.plan.steps) {
    if (!is_parameter_collective(step.kind)) continue;
    const UnitPlan& unit = planner.plan.units[step.unit];
    step.packed = unit.packed;
    if (!unit.in_rounds()) continue;
    if (step.kind == TaskKind::parameter_all_gather) {
      if (planner.tasks.tasks[step.task].round % 2 == 1) step.gathers_for = Direction::backward;
      step.packed = unit.has_sharded_weights() ? whole_unit(planner, step.unit, Kind::gathered_parameters,
                                                            planner.tasks.tasks[step.task].round)
                                               : unit.shard.weights;
      continue;
    }
    step.packed = whole_unit(planner, step.unit, Kind::packed_parameter_gradient, planner.tasks.tasks[step.task].round);
    const SynchronizationUnit& of = planner.tasks.units[step.unit];
    const PackedUnit layout = packed(of);
    int64_t reached = 0;
    for (const int p : of.pieces.indices()) {
      if (!written.contains({step.unit, p, planner.tasks.tasks[step.task].round})) continue;
      if (reached < layout.offsets[p]) step.zeros.push_back({moved(step.packed, reached), layout.offsets[p] - reached});
      reached = layout.offsets[p] + of.pieces[p]->block.volume();
    }
    if (reached < unit.elements) step.zeros.push_back({moved(step.packed, reached), unit.elements - reached});
  }
}

// Each collective of parameters is waited for by the first step that needs it. Those that none waits for, the end of
// the iteration does.
void plan_parameter_waits(Planner& planner) {
  std::unordered_map<int, int> step_of;  // by task
  for (const int s : planner.plan.steps.indices()) step_of[planner.plan.steps[s].task] = s;
  for (const int s : planner.plan.steps.indices()) {
    if (!is_parameter_collective(planner.plan.steps[s].kind)) continue;
    const int task = planner.plan.steps[s].task;
    int first = planner.plan.steps.count();
    for (int32_t next = planner.tasks.successor_begin[task]; next < planner.tasks.successor_begin[task + 1]; ++next)
      if (const auto found = step_of.find(planner.tasks.successors[next]); found != step_of.end())
        first = std::min(first, found->second);
    if (first < planner.plan.steps.count()) planner.plan.steps[first].parameter_waits.push_back(s);
  }
}

// The piece's gradients that do not lie in the packed buffer are copied or added there.
void plan_pack(Planner& planner, const ParameterPiece& piece, Place packed, UnitPlan& unit) {
  const ProgramPlan& plan = planner.plan;
  const Block storage = parameter_storage(piece.block);
  Vector<Place> added;  // gradients that contain the piece: in place first
  for (const bool in_place : {true, false})
    for (const auto& [op, number] : piece.users) {
      const PartPlan* part = planner.local(op, number);
      if (!part || part->backward.last < 0) continue;
      for (size_t p = 0; p < part->parameters.size(); ++p) {
        const ParameterBuffer& buffer = plan.parameters[part->parameters[p]];
        const Place gradient = part->parameter_gradients[p];
        if (buffer.parameter != piece.parameter || (gradient == packed) != in_place) continue;
        if (std::find(added.begin(), added.end(), gradient) != added.end()) continue;
        if (!in_place)
          unit.pack.push_back({gradient, parameter_storage(buffer.block), packed, storage, storage, !added.empty()});
        added.push_back(gradient);
      }
    }
  // Holders whose users have no backward pass contribute nothing.
  if (added.empty()) unit.zeros.push_back({packed, piece.block.volume()});
}

}  // namespace

// Gradients lie packed by unit; backward writes directly there where a part's whole parameter block is one piece.
void plan_synchronization(Planner& planner) {
  const Vector<SynchronizationUnit>& units = planner.tasks.units;
  for (const SynchronizationUnit& unit : units) {
    const bool held = std::find(unit.holders.begin(), unit.holders.end(), planner.settings.rank) != unit.holders.end();
    planner.plan.units.push_back(held ? plan_unit(planner, unit) : UnitPlan{});
  }
  place_whole_units(planner, place_parameter_gradients(planner));
  plan_parameter_waits(planner);
  for (size_t u = 0; u < units.size(); ++u) {
    UnitPlan& unit = planner.plan.units[u];
    if (unit.in_rounds()) continue;  // nothing is cut
    for (size_t p = 0; p < unit.gradients.size(); ++p) plan_pack(planner, *units[u].pieces[p], unit.gradients[p], unit);
  }
}

void plan_statistics(Planner& planner) {
  ProgramPlan& plan = planner.plan;
  for (StepPlan& step : plan.steps) {
    if (!is_reduction(step.kind)) continue;
    const Task& task = planner.tasks.tasks[step.task];
    const OperatorDefinition& definition = *planner.graph.operators[task.op].definition;
    const StatisticsReduction& shared = planner.tasks.reductions[task.reduction];
    const int slots = definition.gathers_statistics() ? static_cast<int>(shared.parts.size()) : 1;
    const auto local = [&](int number) { return planner.local(task.op, number) != nullptr; };
    const bool single = std::count_if(shared.parts.begin(), shared.parts.end(), local) == 1;
    ReductionPlan reduction;
    reduction.group = planner.group_of(shared.holders);
    reduction.elements = shared.bytes / element_bytes;
    reduction.common = planner.allocate(reduction.elements);
    reduction.in_evaluation = definition.statistics_in_evaluation();
    step.reduction = static_cast<int>(plan.reductions.size());
    int first_behind = static_cast<int>(plan.steps.size());
    for (size_t member = 0; member < shared.parts.size(); ++member) {
      const int64_t own_elements = reduction.elements / slots;
      Place own = reduction.common;
      if (slots > 1) own.offset += static_cast<int64_t>(member) * own_elements;
      const PartPlan* part = planner.local(task.op, shared.parts[member]);
      if (!part) {
        Vector<ZeroFill>& zeros = reduction.zeros;
        if (slots == 1) continue;
        if (!zeros.empty() && zeros.back().memory.offset + zeros.back().elements == own.offset)
          zeros.back().elements += own_elements;
        else zeros.push_back({own, own_elements});
        continue;
      }
      if (slots == 1 && !single) reduction.parts.push_back(own = planner.allocate(own_elements));
      const PartSteps& steps = part->steps(direction_of(step.kind));
      plan.steps[steps.first].statistics = own;
      plan.steps[steps.last].statistics = reduction.common;
      plan.steps[steps.last].statistics_slots = slots;
      first_behind = std::min(first_behind, steps.last);
    }
    plan.steps[first_behind].reduction = step.reduction;
    plan.reductions.push_back(std::move(reduction));
  }
}

// Of all parts with the same states, the first forward task updates them.
void plan_state_updates(Planner& planner) {
  std::set<std::pair<OperatorId, int>> updated;  // (operator, parameter buffer)
  for (StepPlan& step : planner.plan.steps) {
    if (step.kind != TaskKind::forward) continue;
    const PartPlan& part = planner.plan.parts[step.part];
    for (const int parameter : part.parameters)
      if (!planner.graph.parameters[planner.plan.parameters[parameter].parameter].spec.trained &&
          updated.emplace(part.op, parameter).second)
        step.updates_state = true;
  }
}

// The bf16 copies of weights are made anew in each iteration, in front of the first step that reads them: so they are
// right whatever has changed the weights, an update, a checkpoint, or what another rank has sent.
void plan_weight_copies(Planner& planner) {
  std::set<int> made;
  for (StepPlan& step : planner.plan.steps) {
    if (!is_compute(step.kind)) continue;
    for (const int parameter : planner.plan.parts[step.part].parameters) {
      const ParameterBuffer& buffer = planner.plan.parameters[parameter];
      if (!buffer.copy.exists() || !made.insert(parameter).second) continue;
      const Block storage = parameter_storage(buffer.block);
      step.weight_copies.push_back({buffer.weight, storage, buffer.copy, storage, storage});
    }
  }
}

}  // namespace ff
