// What goes from part to part. Activations go from producers' outputs to consumers' inputs; gradients go the same ways
// back, from input gradients to the output gradient, to which several consumers may contribute.
#include <algorithm>

#include "common/task_graph/edge_copies.h"
#include "executor/plan/planner.h"

namespace ff {
namespace {

using Kind = BufferKey::Kind;

// A region of a block that goes from one part to another.
struct Passage {
  EdgeCopy copy;
  Block region;
  BufferKey packed, received;  // where it is, beside the blocks at its ends
  Place memory;                // of the source's block; remote: of what is received
  Block memory_block;
  int task = -1, peer = -1;  // of the transfer; -1: local
};

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
    for (int edge = 0; edge < static_cast<int>(planner_.builder.edges().size()); ++edge) plan_edge(edge);
    for (size_t p = 0; p < plan_.parts.size(); ++p) {
      PartPlan& part = plan_.parts[p];
      Vector<Place>& assembled = forward_ ? part.inputs : part.output_gradients;
      const Vector<Block>& blocks = forward_ ? part.input_blocks : part.output_blocks;
      for (int i = 0; i < static_cast<int>(assembled.size()) && part.steps(direction_).first >= 0; ++i)
        if (!forward_ || !arrivals_[p][i].empty())  // else an input of the graph
          assembled[i] = assemble(plan_.steps[part.steps(direction_).first],
                                  {forward_ ? Kind::input : Kind::output_gradient, part.op, part.part, i}, blocks[i],
                                  arrivals_[p][i]);
    }
  }

 private:
  void plan_edge(int index) {
    const Edge& edge = planner_.builder.edges()[index];
    if (!forward_ && !has_gradient(planner_.graph, edge)) return;
    const int output = planner_.graph.tensors[edge.tensor].output;
    const auto pairs = planner_.builder.pairs(index, planner_.strategy);
    for (int number = 0; number < static_cast<int>(pairs->size()); ++number) {
      const BlockPair& pair = (*pairs)[number];
      PartPlan *producer = planner_.local(edge.producer, pair.producer_part),
               *consumer = planner_.local(edge.consumer, pair.consumer_part);
      if (!producer && !consumer) continue;
      const bool local = producer && consumer;
      Passage passage{edge_copy(pair, local, direction_),
                      planner_.builder.region(index, pair, planner_.strategy),
                      {forward_ ? Kind::packed_activation : Kind::packed_gradient, index, number},
                      {forward_ ? Kind::received_activation : Kind::received_gradient, index, number},
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

  void send(StepPlan& step, const Passage& sent) {
    Place memory = sent.memory;
    if (sent.copy.source == BlockUse::packed) {
      memory = planner_.in_arena(sent.packed, sent.region.volume());
      step.pack.push_back({sent.memory, sent.memory_block, memory, sent.region, sent.region});
    }
    step.sends.push_back(static_cast<int>(plan_.sends.size()));
    plan_.sends.push_back({sent.task, sent.peer, memory, sent.region.volume() * element_bytes});
  }

  void receive(StepPlan& step, const Passage& received, Place memory) {
    step.receives.push_back(static_cast<int>(plan_.receives.size()));
    plan_.receives.push_back({received.task, received.peer, memory, received.region.volume() * element_bytes});
  }

  // Where the whole block lies for the kernel. What arrives is copied together, and added up where it overlaps; only a
  // single arrival is used where it lies or arrives.
  Place assemble(StepPlan& step, const BufferKey& key, const Block& block, Vector<Passage>& arrivals) {
    const BlockUse use = arrivals.size() == 1 ? arrivals[0].copy.destination : BlockUse::packed;
    if (use == BlockUse::in_place) return arrivals[0].memory;
    const Place assembled = planner_.in_arena(key, block.volume());
    if (use == BlockUse::whole) {
      receive(step, arrivals[0], assembled);
      return assembled;
    }
    // One that covers everything goes first: it overwrites, and the others are added.
    const auto covers = [&](const Passage& arrival) { return arrival.region == block; };
    std::stable_partition(arrivals.begin(), arrivals.end(), covers);
    const bool first_covers = !arrivals.empty() && covers(arrivals[0]);
    bool disjoint = true;
    int64_t covered = 0;
    for (size_t i = 0; i < arrivals.size(); ++i) {
      covered += arrivals[i].region.volume();
      for (size_t j = 0; j < i && disjoint; ++j) disjoint = intersect(arrivals[i].region, arrivals[j].region).empty();
    }
    if (!first_covers && (!disjoint || covered < block.volume())) step.zeros.push_back({assembled, block.volume()});
    for (Passage& arrival : arrivals) {
      if (arrival.task >= 0) {
        arrival.memory = planner_.in_arena(arrival.received, arrival.region.volume());
        arrival.memory_block = arrival.region;
        receive(step, arrival, arrival.memory);
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
  Vector<Vector<Vector<Passage>>> arrivals_;  // [part][input; backward: output]
};

}  // namespace

void plan_edges(Planner& planner) {
  for (const Direction direction : directions) EdgePlanner(planner, direction).plan();
}

}  // namespace ff
