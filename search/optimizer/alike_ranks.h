// Devices that split the layers of a group by tensor parallelism, and do the same at the same time: one is simulated
// for all of them. Then so are those that split the sequence (context parallelism) and exchange keys, and groups that
// split the experts and exchange tokens: as ranks, too.
//
// Where two ranks have the same tasks with the same costs, exchange blocks with devices of their own rank alone, meet
// other ranks only in collectives of the whole group, and share no link with them but for these, they have the same
// timeline (by induction over the events in the order (ready time, key)): the tasks of one of them, with the
// collectives that it takes part in, stand for those of both. The first device of a group may do more than the others:
// of a product whose result is added up over the group it alone adds the bias.
#pragma once

#include "common/strategy.h"
#include "search/optimizer/evaluator.h"
#include "search/optimizer/parallelism.h"

namespace ff {

// [rank]: the devices with this place in their groups; those at equal places of two ranks belong to one group.
Vector<Vector<DeviceId>> ranks_of_tensors(const Parallelism& parallelism, const Topology& topology);
// [rank]: the devices with this piece of the sequence; those at equal places of two ranks are at the same place of
// their tensor-parallel groups.
Vector<Vector<DeviceId>> ranks_of_context(const Parallelism& parallelism, const Topology& topology);
// [rank]: the devices of this one of the data-parallel groups that split the experts; those at equal places of two
// ranks are at the same place of their groups.
Vector<Vector<DeviceId>> ranks_of_experts(const Parallelism& parallelism, const Topology& topology);

// [rank]: the first rank that does what it does, at the same time. Compared task by task with their costs, and the
// memory that they need. `strategy` is that of one micro-batch, as is the evaluator's graph: the others have the same
// tasks. `stand_ins` as in Replicas: devices that another one stands for are not compared.
Vector<int> alike_ranks(const Vector<Vector<DeviceId>>& ranks, const Vector<DeviceId>& stand_ins,
                        const Strategy& strategy, Evaluator& evaluator);

// How it is known which ranks do the same.
enum class StandIns {
  compared,
  assumed,  // all but the first do, where their routes from stage to stage share no link; else compared: for
            // estimates, with have_own_transfers
};

// The problem's replicas, with stand-ins among the devices that split the layers of each group, and among groups that
// split the experts, where some do the same. `strategy` of one micro-batch, with these settings.
std::shared_ptr<const Replicas> with_stand_ins(const Problem& problem, const Parallelism& parallelism,
                                               const Strategy& strategy, StandIns how = StandIns::compared);

// What is assumed so: do the devices that are simulated have transfers among themselves alone?
bool have_own_transfers(const TaskGraph& tasks, const Strategy& strategy, const Vector<Edge>& edges,
                        const Replicas* replicas);

}  // namespace ff
