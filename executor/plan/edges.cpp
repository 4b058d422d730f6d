// What goes from part to part, by transfers or by collectives. Activations go from producers' outputs to consumers'
// inputs; gradients go the same ways back, from input gradients to the output gradient, to which several consumers may
// contribute.
#include <algorithm>
#include <map>
#include <tuple>

#include "common/task_graph/edge_copies.h"
#include "common/task_graph/wiring.h"
#include "executor/plan/planner.h"

namespace ff {
namespace {

using Kind = BufferKey::Kind;

// A region of a block that goes from one part to another.
struct Passage {
  EdgeCopy copy;
  Block region;
  BufferKey packed, received;  // in addition to the blocks at its ends
  Place memory;                // of the source's block; remote: of what is received
  Block memory_block;
  int task = -1, peer = -1;  // of the transfer; -1: local
  int collective = -1;       // index into ProgramPlan::collectives, from whose memory it is taken
};

// Two blocks whose elements lie one after the other, each dense: are they as the elements of one block? Then it
// becomes that. Row-major, of rank 4 with the channels last (backend.h).
bool append_block(Block& block, const Block& next) {
  int joined = -1;
  for (int i = 0; i < block.rank(); ++i) {
    const int axis = stored_axis(block.rank(), i);
    if (joined < 0 && block[axis].size() == 1 && next[axis] == block[axis]) continue;
    if (joined < 0 && next[axis].begin == block[axis].end) joined = axis;
    else if (joined < 0 || !(next[axis] == block[axis])) return false;
  }
  if (joined < 0) return false;
  block[joined].end = next[joined].end;
  return true;
}

// Looks at pairs that overlap on one axis, that on which the fewest do.
bool do_not_overlap(const Vector<Passage>& passages) {
  if (passages.empty()) return true;
  Vector<const Block*> blocks;
  for (const Passage& passage : passages) blocks.push_back(&passage.region);
  int best = 0;
  size_t most = 0;  // different begins
  for (int axis = 0; axis < blocks[0]->rank(); ++axis) {
    Vector<int64_t> begins;
    for (const Block* block : blocks) begins.push_back((*block)[axis].begin);
    sort_and_unique(begins);
    if (begins.size() <= most) continue;
    most = begins.size();
    best = axis;
  }
  std::sort(blocks.begin(), blocks.end(),
            [&](const Block* a, const Block* b) { return (*a)[best].begin < (*b)[best].begin; });
  for (int i : blocks.indices())
    for (int j = i + 1; j < blocks.count() && (*blocks[j])[best].begin < (*blocks[i])[best].end; ++j)
      if (!intersect(*blocks[i], *blocks[j]).empty()) return false;
  return true;
}

class EdgePlanner {
 public:
  EdgePlanner(Planner& planner, Direction direction)
      : planner_(planner), plan_(planner.plan), direction_(direction), forward_(direction == Direction::forward) {
    for (size_t t = 0; t < planner.tasks.tasks.size(); ++t)
      if (const Task& task = planner.tasks.tasks[t]; task.kind == transfer_kind(direction))
        transfers_[task.key] = static_cast<int>(t);
    for (const PartPlan& part : plan_.parts)
      arrivals_.emplace_back(forward_ ? part.inputs.size() : part.outputs.size());
  }

  void plan() {
    for (int edge : planner_.builder.edges().indices())
      if (planner_.tasks.pairs[edge]) plan_edge(edge);
    for (StepPlan& step : plan_.steps)
      if (step.kind == collective_kind(direction_)) plan_collective(step);
    for (size_t p = 0; p < plan_.parts.size(); ++p) {
      PartPlan& part = plan_.parts[p];
      Vector<Place>& assembled = forward_ ? part.inputs : part.output_gradients;
      const Vector<Block>& blocks = forward_ ? part.input_blocks : part.output_blocks;
      for (int i = 0; i < static_cast<int>(assembled.size()) && part.steps(direction_).first >= 0; ++i)
        if (!forward_ || !arrivals_[p][i].empty())  // else an input of the graph
          assembled[i] = assemble(plan_.steps[part.steps(direction_).first],
                                  {forward_ ? Kind::input : Kind::output_gradient, part.op, part.part, i}, blocks[i],
                                  type_of(part, i), arrivals_[p][i]);
    }
  }

 private:
  void plan_edge(int index) {
    const Edge& edge = planner_.builder.edges()[index];
    if (!forward_ && !has_gradient(planner_.graph, edge)) return;
    const int output = planner_.graph.tensors[edge.tensor].output;
    const BlockPairs& pairs = *planner_.tasks.pairs[index];
    for (const int number : pairs.indices()) {
      const BlockPair& pair = pairs[number];
      PartPlan *producer = planner_.local(edge.producer, pair.producer_part),
               *consumer = planner_.local(edge.consumer, pair.consumer_part);
      if (!producer && !consumer) continue;
      const bool local = producer && consumer;
      Passage passage{edge_copy(pair, local, direction_),
                      planner_.builder.region(index, pair, planner_.strategy),
                      {packed_kind(direction_), index, number},
                      {received_kind(direction_), index, number},
                      {},
                      {}};
      const PartPlan *source = forward_ ? producer : consumer, *destination = forward_ ? consumer : producer;
      if (source) {
        passage.memory = forward_ ? source->outputs[output] : source->input_gradients[edge.input];
        passage.memory_block = forward_ ? source->output_blocks[output] : source->input_blocks[edge.input];
      }
      if (!local) {
        passage.task =
            transfers_.at(make_task_key(transfer_kind(direction_), index, pair.consumer_part, pair.producer_part));
        const Task& task = planner_.tasks.tasks[passage.task];
        passage.peer = source ? task.destination : task.device;
      }
      if (destination) arrivals_[destination - plan_.parts.data()][forward_ ? edge.input : output].push_back(passage);
      else send(plan_.steps[source->steps(direction_).last], passage);
    }
  }

  // ---- collectives ----

  // The ends of one: parts and their blocks.
  struct Ends {
    OperatorId op;
    const Vector<int32_t>& parts;
    const Vector<Block>& blocks;  // of `parts`
  };
  Ends ends(const EdgeCollective& moved, bool producers) {
    const Edge& edge = planner_.builder.edges()[moved.edge];
    const Exchange& exchange = moved.exchange();
    const OperatorId op = producers ? edge.producer : edge.consumer;
    const Vector<int32_t>& parts = producers ? exchange.producers : exchange.consumers;
    const auto [it, added] = blocks_.try_emplace({moved.exchanges.get(), moved.number, producers});
    if (added) {
      const OperatorDefinition& definition = *planner_.graph.operators[op].definition;
      const int output = planner_.graph.tensors[edge.tensor].output;
      for (int32_t number : parts) {
        const Block part = definition.part(planner_.strategy[op].degrees, number);
        it->second.push_back(producers ? definition.output_block(output, part)
                                       : definition.input_block(edge.input, part));
      }
    }
    return {op, parts, it->second};
  }
  DeviceId device(const Ends& ends, size_t i) const { return planner_.strategy[ends.op].devices[ends.parts[i]]; }

  void plan_collective(StepPlan& step) {
    const EdgeCollective& moved = planner_.tasks.collectives[planner_.tasks.tasks[step.task].collective];
    const Vector<DeviceId>& holders = moved.collective.holders;
    const auto place_of = [&](DeviceId holder) {
      return static_cast<int>(std::lower_bound(holders.begin(), holders.end(), holder) - holders.begin());
    };
    const Ends from = ends(moved, forward_), to = ends(moved, !forward_);
    CollectivePlan plan;
    plan.kind = moved.kind(direction_);
    plan.type = type_of(planner_.builder.edges()[moved.edge]);
    plan.group = planner_.group_of(holders);
    if (moved.collective.root >= 0) plan.root = place_of(moved.collective.root);
    step.collective = static_cast<int>(plan_.collectives.size());
    if (plan.kind == CollectiveKind::all_to_all) {
      plan.send_elements.assign(holders.size(), 0);
      plan.receive_elements.assign(holders.size(), 0);
    }
    plan_collective_sends(plan, moved, from, to);
    plan_collective_receives(plan, step.collective, moved, from, to);
    switch (plan.kind) {
      case CollectiveKind::all_gather:
        plan.elements.assign(holders.size(), 0);
        for (size_t i = 0; i < from.parts.size(); ++i)
          plan.elements[place_of(device(from, i))] = from.blocks[i].volume();
        break;
      case CollectiveKind::reduce_scatter:
        plan.elements.assign(holders.size(), 0);
        for (size_t i = 0; i < to.parts.size(); ++i) plan.elements[place_of(device(to, i))] = to.blocks[i].volume();
        break;
      case CollectiveKind::all_to_all: break;
      default: plan.elements = {from.blocks[0].volume()};
    }
    plan_.collectives.push_back(std::move(plan));
  }

  // Calls visit(own, other, place of the other's device in `holders`, region) for what this rank's parts at one end
  // exchange with parts at the other end, in the order of (the other's device, sender, receiver), which both ends of a
  // message share.
  template <class Visit>
  void for_each_passage(const Ends& own_end, const Ends& others, const Vector<DeviceId>& holders, bool sends,
                        const Visit& visit) const {
    Vector<size_t> own, by_device;
    for (size_t i = 0; i < own_end.parts.size(); ++i)
      if (device(own_end, i) == rank()) own.push_back(i);
    if (own.empty()) return;
    for (size_t i = 0; i < others.parts.size(); ++i) by_device.push_back(i);
    const auto before = [&](size_t a, size_t b) { return device(others, a) < device(others, b); };
    if (!std::is_sorted(by_device.begin(), by_device.end(), before))
      std::stable_sort(by_device.begin(), by_device.end(), before);
    int place = 0;
    for (size_t begin = 0, end; begin < by_device.size(); begin = end) {
      for (end = begin; end < by_device.size() && !before(by_device[begin], by_device[end]);) ++end;
      while (holders[place] != device(others, by_device[begin])) ++place;
      const auto visit_pair = [&](size_t o, size_t other) {
        const Block region = intersect(own_end.blocks[o], others.blocks[other]);
        if (!region.empty()) visit(o, other, place, region);
      };
      if (sends) {
        for (const size_t o : own)
          for (size_t i = begin; i < end; ++i) visit_pair(o, by_device[i]);
      } else {
        for (size_t i = begin; i < end; ++i)
          for (const size_t o : own) visit_pair(o, by_device[i]);
      }
    }
  }

  Place block_of(const PartPlan& part, const Edge& edge, bool sent) const {
    const int output = planner_.graph.tensors[edge.tensor].output;
    if (forward_) return sent ? part.outputs[output] : part.inputs[edge.input];
    return sent ? part.input_gradients[edge.input] : part.output_gradients[output];
  }

  void plan_collective_sends(CollectivePlan& plan, const EdgeCollective& moved, const Ends& from, const Ends& to) {
    const Edge& edge = planner_.builder.edges()[moved.edge];
    int64_t elements = 0;
    Vector<std::pair<PartPlan*, BlockCopy>> packed;
    const auto pack = [&](size_t f, size_t, int place, const Block& region) {
      PartPlan* part = planner_.local(from.op, from.parts[f]);
      if (!sends_packed(plan.kind)) {
        plan.send = block_of(*part, edge, true);
        return;
      }
      if (plan.kind == CollectiveKind::all_to_all) plan.send_elements[place] += region.volume();
      if (packed.empty() || packed.back().first != part || !append_block(packed.back().second.region, region))
        packed.push_back({part, {block_of(*part, edge, true), from.blocks[f], {0, elements}, {}, region}});
      elements += region.volume();
    };
    for_each_passage(from, to, moved.collective.holders, true, pack);
    if (packed.empty()) return;
    plan.send = planner_.in_arena({packed_kind(direction_), moved.edge, moved.number}, elements, type_of(edge));
    for (auto& [part, copy] : packed) {
      copy.destination = {plan.send.buffer, plan.send.offset + copy.destination.offset, plan.send.type};
      copy.destination_block = copy.region;
      plan_.steps[part->steps(direction_).last].pack.push_back(copy);
    }
  }

  // What arrives becomes arrivals at the parts, of which assemble() makes their blocks.
  void plan_collective_receives(CollectivePlan& plan, int index, const EdgeCollective& moved, const Ends& from,
                                const Ends& to) {
    const Edge& edge = planner_.builder.edges()[moved.edge];
    const int slot = forward_ ? edge.input : planner_.graph.tensors[edge.tensor].output;
    const BufferKey received{received_kind(direction_), moved.edge, moved.number};
    const auto arrive = [&](size_t t, Passage passage) {
      PartPlan* part = planner_.local(to.op, to.parts[t]);
      passage.collective = index;
      passage.received = received;
      arrivals_[part - plan_.parts.data()][slot].push_back(passage);
    };
    if (!receives_packed(plan.kind)) {
      for (size_t t = 0; t < to.parts.size(); ++t)
        if (device(to, t) == rank())
          arrive(t, {{BlockUse::whole, BlockUse::whole}, to.blocks[t], {}, {}, {}, to.blocks[t]});
      return;
    }
    int64_t elements = 0;
    Vector<std::pair<size_t, Passage>> passages;
    const auto unpack = [&](size_t t, size_t, int place, const Block& region) {
      if (plan.kind == CollectiveKind::all_to_all) plan.receive_elements[place] += region.volume();
      if (passages.empty() || passages.back().first != t || !append_block(passages.back().second.region, region))
        passages.emplace_back(t, Passage{{BlockUse::packed, BlockUse::packed}, region, {}, {}, {0, elements}, {}});
      elements += region.volume();
    };
    for_each_passage(to, from, moved.collective.holders, false, unpack);
    if (passages.empty()) return;
    plan.receive = planner_.in_arena(received, elements, type_of(edge));
    for (auto& [t, passage] : passages) {
      passage.memory = {plan.receive.buffer, plan.receive.offset + passage.memory.offset, plan.receive.type};
      passage.memory_block = passage.region;
      arrive(t, passage);
    }
  }

  // ---- transfers ----

  void send(StepPlan& step, const Passage& sent) {
    Place memory = sent.memory;
    if (sent.copy.source == BlockUse::packed) {
      memory = planner_.in_arena(sent.packed, sent.region.volume(), sent.memory.type);
      step.pack.push_back({sent.memory, sent.memory_block, memory, sent.region, sent.region});
    }
    if (!planner_.settings.ordered) step.sends.push_back(static_cast<int>(plan_.sends.size()));
    plan_.sends.push_back({sent.task, sent.peer, -1, memory, bytes_of(memory.type, sent.region)});
  }

  void receive(StepPlan& step, const Passage& received, Place memory, const BufferKey& key) {
    step.receives.push_back(static_cast<int>(plan_.receives.size()));
    plan_.receives.push_back({received.task, received.peer, -1, memory, bytes_of(memory.type, received.region), key});
  }

  int rank() const { return planner_.settings.rank; }
  DataType type_of(const Edge& edge) const { return planner_.graph.tensors[edge.tensor].type; }
  // Of a part's input; backward: of its output.
  DataType type_of(const PartPlan& part, int slot) const {
    const OperatorDefinition& definition = *planner_.graph.operators[part.op].definition;
    return forward_ ? definition.inputs()[slot].type : definition.outputs()[slot].type;
  }

  // Where the whole block lies for the kernel. What arrives is copied together, and added up where it overlaps; only a
  // single arrival is used where it lies or arrives.
  Place assemble(StepPlan& step, const BufferKey& key, const Block& block, DataType type, Vector<Passage>& arrivals) {
    const BlockUse use = arrivals.size() == 1 ? arrivals[0].copy.destination : BlockUse::packed;
    if (use == BlockUse::in_place) return arrivals[0].memory;
    const Place assembled = planner_.in_arena(key, block.volume(), type);
    if (use == BlockUse::whole) {
      if (arrivals[0].collective < 0) receive(step, arrivals[0], assembled, key);
      else plan_.collectives[arrivals[0].collective].receive = assembled;
      return assembled;
    }
    // One that covers everything goes first: it overwrites, and the others are added.
    const auto covers = [&](const Passage& arrival) { return arrival.region == block; };
    std::stable_partition(arrivals.begin(), arrivals.end(), covers);
    const bool first_covers = !arrivals.empty() && covers(arrivals[0]);
    int64_t covered = 0;
    for (const Passage& arrival : arrivals) covered += arrival.region.volume();
    const bool disjoint = do_not_overlap(arrivals);
    if (!first_covers && (!disjoint || covered < block.volume())) step.zeros.push_back({assembled, block.volume()});
    for (Passage& arrival : arrivals) {
      if (arrival.task >= 0) {
        arrival.memory = planner_.in_arena(arrival.received, arrival.region.volume(), type);
        arrival.memory_block = arrival.region;
        receive(step, arrival, arrival.memory, arrival.received);
      } else if (arrival.collective >= 0 && !arrival.memory.exists()) {
        arrival.memory = planner_.in_arena(arrival.received, arrival.region.volume(), type);
        plan_.collectives[arrival.collective].receive = arrival.memory;
      }
      const bool adds = !disjoint && !(first_covers && &arrival == arrivals.data());
      step.gather.push_back({arrival.memory, arrival.memory_block, assembled, block, arrival.region, adds});
    }
    return assembled;
  }

  Planner& planner_;
  ProgramPlan& plan_;
  const Direction direction_;
  const bool forward_;
  std::unordered_map<TaskKey, int> transfers_;
  // By exchanges (which equal layers share), number of the exchange, and end: of its parts.
  std::map<std::tuple<const EdgeExchanges*, int, bool>, Vector<Block>> blocks_;
  Vector<Vector<Vector<Passage>>> arrivals_;  // [part][input; backward: output]
};

}  // namespace

void plan_edges(Planner& planner) {
  for (const Direction direction : directions) EdgePlanner(planner, direction).plan();
}

// The first of this rank's steps that needs what a collective brings waits for it.
void plan_collective_waits(Planner& planner) {
  ProgramPlan& plan = planner.plan;
  for (const StepPlan& step : plan.steps) {
    if (step.collective < 0) continue;
    const EdgeCollective& moved = planner.tasks.collectives[planner.tasks.tasks[step.task].collective];
    const PartTasksAt released =
        exchange_join(direction_of(step.kind), planner.builder.edges()[moved.edge], moved.exchange()).released;
    int first = static_cast<int>(plan.steps.size());
    for (int32_t number : released.parts)
      if (const PartPlan* part = planner.local(released.op, number))
        first = std::min(first, part->steps(released.direction).first);
    if (first < static_cast<int>(plan.steps.size())) plan.steps[first].collectives.push_back(step.collective);
  }
}

}  // namespace ff
