#pragma once

#include <string>

namespace ff {

// A layer of four experts as Lepikhin et al. 2020 (arXiv 2006.16668), algorithm 2, writes it: with einsum and a mask.
inline const std::string einsum_experts = R"({"format": "ffgraph/1", "name": "experts", "batch_size": 4,
  "inputs": [{"name": "inputs", "shape": ["batch", 5, 6], "dtype": "f32"},
             {"name": "dispatch_mask", "shape": ["batch", 5, 4, 3], "dtype": "f32"},
             {"name": "targets", "shape": ["batch", 5], "dtype": "i32"}],
  "operators": [
    {"name": "logits", "type": "einsum", "inputs": ["inputs"],
     "attributes": {"equation": "GSM,ME->GSE", "sizes": {"E": 4}}},
    {"name": "gates", "type": "softmax", "inputs": ["logits"]},
    {"name": "combine_weights", "type": "einsum", "inputs": ["gates", "dispatch_mask"],
     "attributes": {"equation": "GSE,GSEC->GSEC"}},
    {"name": "dispatched", "type": "einsum", "inputs": ["dispatch_mask", "inputs"],
     "attributes": {"equation": "GSEC,GSM->EGCM"}},
    {"name": "wi", "type": "einsum", "inputs": ["dispatched"],
     "attributes": {"equation": "EGCM,EMH->EGCH", "sizes": {"H": 8}}},
    {"name": "h", "type": "relu", "inputs": ["wi"]},
    {"name": "wo", "type": "einsum", "inputs": ["h"],
     "attributes": {"equation": "EGCH,EHM->GECM", "sizes": {"M": 6}}},
    {"name": "outputs", "type": "einsum", "inputs": ["combine_weights", "wo"],
     "attributes": {"equation": "GSEC,GECM->GSM"}},
    {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["outputs", "targets"]}]})";

}  // namespace ff
