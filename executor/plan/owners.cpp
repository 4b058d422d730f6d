// Parameters that one rank updates for all that hold them (Synchronization::parameter_server): it receives the others'
// gradients, adds them to its own, updates, and sends the values back.
#include <algorithm>
#include <map>

#include "executor/plan/planner.h"

namespace ff {
namespace {

using Kind = BufferKey::Kind;

class OwnerPlanner {
 public:
  explicit OwnerPlanner(Planner& planner) : planner_(planner), plan_(planner.plan) {
    for (int s : plan_.steps.indices()) {
      const StepPlan& step = plan_.steps[s];
      if (step.kind == TaskKind::barrier) barrier_ = s;
      if (step.kind == TaskKind::update) updates_[step.unit] = s;
    }
  }

  void plan() {
    for (int t : planner_.tasks.tasks.indices())
      if (const Task& task = planner_.tasks.tasks[t]; is_parameter_transfer(task.kind) && meets(task)) {
        if (task.kind == TaskKind::parameter_gradient) plan_gradient(t, task);
        else plan_values(t, task);
      }
    for (const auto& [u, update] : updates_) {
      const SynchronizationUnit& unit = planner_.tasks.units[u];
      if (unit.holders.size() < 2) continue;
      if (unit.owner == rank()) pack_values(unit, update);
      else hand_over(plan_.units[u]);
    }
    if (!planner_.settings.follows_backend) wait_for_gradients_sent();
  }

 private:
  int rank() const { return planner_.settings.rank; }
  bool meets(const Task& task) const { return task.device == rank() || task.destination == rank(); }
  static Block dense(int64_t elements) { return Block(Shape{elements}); }

  int add_send(int step, int task, int peer, Place memory, int64_t elements) {
    const int number = plan_.sends.count();
    if (!planner_.settings.ordered) plan_.steps[step].sends.push_back(number);
    plan_.sends.push_back({task, peer, -1, memory, elements * element_bytes});
    return number;
  }

  Place receive(int step, int task, int peer, const BufferKey& key, int64_t elements) {
    const Place memory = planner_.in_arena(key, elements);
    plan_.steps[step].receives.push_back(plan_.receives.count());
    plan_.receives.push_back({task, peer, -1, memory, elements * element_bytes, key});
    return memory;
  }

  // To the owner: from where the gradients lie packed, and there they are added.
  void plan_gradient(int number, const Task& task) {
    const SynchronizationUnit& unit = planner_.tasks.units[task.unit];
    const UnitPlan& its = plan_.units[task.unit];
    if (task.device == rank()) {
      gradients_sent_.push_back(add_send(barrier_, number, task.destination, its.packed, its.elements));
      return;
    }
    const int update = updates_.at(task.unit);
    const Place received =
        receive(update, number, task.device, {Kind::received_parameter_gradient, unit.group, unit.number, task.device},
                its.elements);
    const Block all = dense(its.elements);
    plan_.steps[update].gather.push_back({received, all, its.packed, all, all, /*add=*/true});
  }

  // From the owner: to every local buffer that contains a piece.
  void plan_values(int number, const Task& task) {
    const SynchronizationUnit& unit = planner_.tasks.units[task.unit];
    const UnitPlan& its = plan_.units[task.unit];
    const int update = updates_.at(task.unit);
    if (task.device == rank()) {
      add_send(update, number, task.destination,
               planner_.in_arena({Kind::packed_parameter_values, unit.group, unit.number}, its.elements), its.elements);
      return;
    }
    const Place received =
        receive(update, number, task.device, {Kind::received_parameter_values, unit.group, unit.number}, its.elements);
    for_each_piece(unit, its, received, [&](const ParameterPiece& piece, Place values, const ParameterBuffer& buffer) {
      const Block storage = parameter_storage(piece.block);
      plan_.steps[update].gather.push_back({values, storage, buffer.weight, parameter_storage(buffer.block), storage});
      return true;
    });
  }

  // What the owner sends, from the first buffer with a piece, which is the one that is updated.
  void pack_values(const SynchronizationUnit& unit, int update) {
    const UnitPlan& its = plan_.units[plan_.steps[update].unit];
    const Place sent = planner_.in_arena({Kind::packed_parameter_values, unit.group, unit.number}, its.elements);
    for_each_piece(unit, its, sent, [&](const ParameterPiece& piece, Place values, const ParameterBuffer& buffer) {
      const Block storage = parameter_storage(piece.block);
      plan_.steps[update].pack.push_back({buffer.weight, parameter_storage(buffer.block), values, storage, storage});
      return false;
    });
    int64_t reached = 0;  // the gaps between pieces are sent too
    const auto zero_up_to = [&](int64_t end) {
      if (reached < end)
        plan_.steps[update].zeros.push_back({Place{sent.buffer, sent.offset + reached}, end - reached});
    };
    for (const int p : unit.pieces.indices()) {
      zero_up_to(its.gradients[p].offset);
      reached = its.gradients[p].offset + unit.pieces[p]->block.volume();
    }
    zero_up_to(its.elements);
  }

  // Calls visit(piece, its place in memory laid out as the packed unit, buffer) for the local buffers with the piece,
  // as long as it returns true.
  template <class Visit>
  void for_each_piece(const SynchronizationUnit& unit, const UnitPlan& its, Place memory, const Visit& visit) const {
    for (int p : unit.pieces.indices()) {
      const ParameterPiece& piece = *unit.pieces[p];
      const Place place{memory.buffer, memory.offset + its.gradients[p].offset};
      for (const ParameterBuffer& buffer : plan_.parameters)
        if (buffer.parameter == piece.parameter && buffer.block.contains(piece.block) && !visit(piece, place, buffer))
          break;
    }
  }

  // The barrier packs what another rank owns, and nothing is updated here.
  void hand_over(UnitPlan& unit) {
    StepPlan& barrier = plan_.steps[barrier_];
    barrier.zeros.insert(barrier.zeros.end(), unit.zeros.begin(), unit.zeros.end());
    barrier.gather.insert(barrier.gather.end(), unit.pack.begin(), unit.pack.end());
    unit.zeros = {};
    unit.pack = {};
    unit.updates = {};
    unit.spread = {};
  }

  // A gradient is sent from where the next iteration's backward pass writes it.
  void wait_for_gradients_sent() {
    for (StepPlan& step : plan_.steps)
      for (const int send : gradients_sent_)
        if (writes_to(step, plan_.sends[send].memory.buffer)) step.waits.push_back(send);
  }
  bool writes_to(const StepPlan& step, int buffer) const {
    if (step.kind == TaskKind::barrier) return true;
    if (step.kind != TaskKind::backward) return false;
    const Vector<Place>& gradients = plan_.parts[step.part].parameter_gradients;
    return std::any_of(gradients.begin(), gradients.end(), [&](Place place) { return place.buffer == buffer; });
  }

  Planner& planner_;
  ProgramPlan& plan_;
  int barrier_ = -1;            // step
  std::map<int, int> updates_;  // by unit: step
  Vector<int> gradients_sent_;  // sends
};

}  // namespace

void plan_owners(Planner& planner) { OwnerPlanner(planner).plan(); }

}  // namespace ff
