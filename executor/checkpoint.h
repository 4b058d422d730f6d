// Checkpoints as safetensors files: an 8-byte little-endian header length, a JSON header {"NAME": {"dtype", "shape",
// "data_offsets"}, "__metadata__": {...}}, then the data. Tensors are named like parameters ("conv1.weight"), their
// optimizer's state "conv1.weight.velocity" (SGD with momentum), "conv1.weight.exp_avg" and "conv1.weight.exp_avg_sq"
// (Adam, AdamW). They hold whole tensors, so that any strategy on any number of ranks can go on from
// them.
#pragma once

#include <string>

#include "common/graph.h"
#include "executor/parameters.h"

namespace ff {

struct Checkpoint {
  HostTensors weights;
  std::map<std::string, HostTensors> states;  // by state_names(), then parameter; empty: the optimizer has none
  int64_t iterations = 0;                     // after which these are the values; in the metadata
  int64_t updates = 0;                        // that the states have seen; in the metadata
  // What ffsearch import wrote into the metadata of the file that training began with: the names of the PyTorch model
  // (search/import/pytorch_table.h). Kept as it is, so that a checkpoint alone leads back to PyTorch.
  std::string pytorch = {};
};

// Shapes are those of the graph's parameters. Atomic; throws MachineError.
void save_checkpoint(const std::string& path, const Graph& graph, const Checkpoint& checkpoint);

// Throws InputError unless every parameter of the graph is there, as F32 in its shape, and nothing else is.
Checkpoint load_checkpoint(const std::string& path, const Graph& graph);

}  // namespace ff
