// What goes from part to part. Activations go from producers' outputs to consumers' inputs; gradients go the same ways
// back, from input gradients to the output gradient, to which several consumers may contribute.
#include <algorithm>

#include "executor/plan/planner.h"

namespace ff {
namespace {

using Kind = BufferKey::Kind;

// A region of a block that comes from one part: local, or received.
struct Arrival {
  const BlockPair* pair;
  bool whole_source, whole_destination;  // is the region all of the block at that end?
  Block region;
  int task = -1;  // -1: local
  int peer = -1;
  BufferKey received;  // where a part of the block is received
  Place memory;        // local: of the source's block
  Block memory_block;
};

class EdgePlanner {
 public:
  explicit EdgePlanner(Planner& planner) : planner_(planner), plan_(planner.plan) {
    for (size_t t = 0; t < planner.tasks.tasks.size(); ++t)
      if (const Task& task = planner.tasks.tasks[t]; is_transfer(task.kind)) transfers_[task.key] = static_cast<int>(t);
  }

  void plan(Direction direction) {
    direction_ = direction;
    const bool forward = direction == Direction::forward;
    arrivals_.assign(plan_.parts.size(), {});
    for (size_t p = 0; p < plan_.parts.size(); ++p)
      arrivals_[p].resize(forward ? plan_.parts[p].inputs.size() : plan_.parts[p].outputs.size());
    for (int edge = 0; edge < static_cast<int>(planner_.builder.edges().size()); ++edge) plan_edge(edge);
    for (size_t p = 0; p < plan_.parts.size(); ++p) {
      PartPlan& part = plan_.parts[p];
      if (forward) {
        for (int i = 0; i < static_cast<int>(part.inputs.size()); ++i)
          if (!arrivals_[p][i].empty())  // else an input of the graph
            part.inputs[i] =
                assemble(part, {Kind::input, part.op, part.part, i}, part.input_blocks[i], arrivals_[p][i]);
      } else if (part.backward.first >= 0) {
        for (int o = 0; o < static_cast<int>(part.output_gradients.size()); ++o)
          part.output_gradients[o] =
              assemble(part, {Kind::output_gradient, part.op, part.part, o}, part.output_blocks[o], arrivals_[p][o]);
      }
    }
  }

 private:
  void plan_edge(int index) {
    const bool forward = direction_ == Direction::forward;
    const Edge& edge = planner_.builder.edges()[index];
    if (!forward && !planner_.gradient_wanted(edge.consumer, edge.input)) return;
    const int output = planner_.graph.tensors[edge.tensor].output;
    const auto pairs = planner_.builder.pairs(index, planner_.strategy);
    for (int number = 0; number < static_cast<int>(pairs->size()); ++number) {
      const BlockPair& pair = (*pairs)[number];
      PartPlan *producer = planner_.local(edge.producer, pair.producer_part),
               *consumer = planner_.local(edge.consumer, pair.consumer_part);
      if (!producer && !consumer) continue;
      PartPlan *source = forward ? producer : consumer, *destination = forward ? consumer : producer;
      Arrival arrival{&pair,
                      forward ? pair.whole_output : pair.whole_input,
                      forward ? pair.whole_input : pair.whole_output,
                      planner_.builder.region(index, pair, planner_.strategy),
                      -1,
                      -1,
                      {forward ? Kind::received_activation : Kind::received_gradient, index, number},
                      {},
                      {}};
      if (source) {
        arrival.memory = forward ? source->outputs[output] : source->input_gradients[edge.input];
        arrival.memory_block = forward ? source->output_blocks[output] : source->input_blocks[edge.input];
      }
      if (!producer || !consumer) {
        arrival.task =
            transfers_.at(make_task_key(transfer_kind(direction_), index, pair.consumer_part, pair.producer_part));
        arrival.peer = producer ? planner_.strategy[edge.consumer].devices[pair.consumer_part]
                                : planner_.strategy[edge.producer].devices[pair.producer_part];
      }
      if (destination)
        arrivals_[destination - plan_.parts.data()][forward ? edge.input : output].push_back(std::move(arrival));
      else send(*source, arrival, {forward ? Kind::packed_activation : Kind::packed_gradient, index, number});
    }
  }

  // Behind the source's step: packed first unless the region is all of its block.
  void send(const PartPlan& source, const Arrival& sent, const BufferKey& packed) {
    StepPlan& step = plan_.steps[source.steps(direction_).last];
    Place memory = sent.memory;
    if (!sent.whole_source) {
      memory = planner_.in_arena(packed, sent.region.volume());
      step.pack.push_back({sent.memory, sent.memory_block, memory, sent.region, sent.region});
    }
    step.sends.push_back(static_cast<int>(plan_.sends.size()));
    plan_.sends.push_back({sent.task, sent.peer, memory, sent.pair->bytes});
  }

  void receive(StepPlan& step, const Arrival& arrival, Place memory) {
    step.receives.push_back(static_cast<int>(plan_.receives.size()));
    plan_.receives.push_back({arrival.task, arrival.peer, memory, arrival.pair->bytes});
  }

  // Where the whole block lies for the kernel: a single arrival of all of it stays where it is or is received in place;
  // others are copied together, and added up where they overlap.
  Place assemble(const PartPlan& part, const BufferKey& key, const Block& block, Vector<Arrival>& arrivals) {
    StepPlan& step = plan_.steps[part.steps(direction_).first];
    const bool single = arrivals.size() == 1 && arrivals[0].whole_destination;
    if (single && arrivals[0].task < 0 && arrivals[0].whole_source) return arrivals[0].memory;
    const Place assembled = planner_.in_arena(key, block.volume());
    if (single && arrivals[0].task >= 0) {
      receive(step, arrivals[0], assembled);
      return assembled;
    }
    // One that covers everything goes first: it overwrites, and the others are added.
    std::stable_partition(arrivals.begin(), arrivals.end(), [](const Arrival& a) { return a.whole_destination; });
    const bool first_covers = !arrivals.empty() && arrivals[0].whole_destination;
    bool disjoint = true;
    int64_t covered = 0;
    for (size_t i = 0; i < arrivals.size(); ++i) {
      covered += arrivals[i].region.volume();
      for (size_t j = 0; j < i && disjoint; ++j) disjoint = intersect(arrivals[i].region, arrivals[j].region).empty();
    }
    if (!first_covers && (!disjoint || covered < block.volume())) step.zeros.push_back({assembled, block.volume()});
    for (size_t i = 0; i < arrivals.size(); ++i) {
      Arrival& arrival = arrivals[i];
      if (arrival.task >= 0) {
        arrival.memory = planner_.in_arena(arrival.received, arrival.region.volume());
        arrival.memory_block = arrival.region;
        receive(step, arrival, arrival.memory);
      }
      const bool overwrites = disjoint || (first_covers && i == 0);
      step.gather.push_back({arrival.memory, arrival.memory_block, assembled, block, arrival.region, !overwrites});
    }
    return assembled;
  }

  Planner& planner_;
  ProgramPlan& plan_;
  Direction direction_ = Direction::forward;
  std::unordered_map<TaskKey, int> transfers_;
  Vector<Vector<Vector<Arrival>>> arrivals_;  // [part][input; backward: output]
};

}  // namespace

void plan_edges(Planner& planner) {
  EdgePlanner edges(planner);
  for (const Direction direction : directions) edges.plan(direction);
}

}  // namespace ff
