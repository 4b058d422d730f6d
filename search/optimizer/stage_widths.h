// Stages of different numbers of devices, for clusters of devices of several models.
#pragma once

#include "common/topology.h"

namespace ff {

// [way][stage]: data-parallel groups of `of_group` devices each, in the order of the topology's links: the devices of
// each model, where they follow each other, are one or several equal stages of their own. By peak rates no stage has
// more than twice that of another: else the slowest would need more layers, and its devices wait. Without ways in which
// all stages have equally many groups. Nothing where models change more than twice, or within a group.
Vector<Vector<int>> stage_widths(const Topology& topology, int of_group);

}  // namespace ff
