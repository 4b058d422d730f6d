// How torchtitan divides layers among the stages of a pipeline and which of them it computes again, in the words of its
// configuration (torchtitan 0.2: config/job_config.py, distributed/pipeline_parallel.py and activation_checkpoint.py).
#pragma once

#include <optional>
#include <string>

#include "common/vector.h"
#include "search/optimizer/parallelism.h"

namespace ff {

// The embedding and the output count as so many layers of the first and the last chunk, and the chunks have equally
// many of all these, or the first ones have one more.
struct TorchtitanStages {
  int first_less = 1;        // pipeline_parallel_first_stage_less_layers
  int last_less = 1;         // pipeline_parallel_last_stage_less_layers
  int layers_per_chunk = 0;  // pipeline_parallel_layers_per_stage; 0: not said
};

// Chunks of the whole pipeline: where layers_per_chunk is not said, one for each of the `pipeline` stages, two with
// interleaved stages. Throws InputError where torchtitan refuses to run.
int chunks_of(const TorchtitanStages& stages, int pipeline, bool interleaved, int layers);

// [chunk]: its layers. Throws InputError where torchtitan refuses to run.
Vector<int> layers_of(const TorchtitanStages& stages, int chunks, int layers);

// What gives these chunks; nothing where they must be written one by one.
std::optional<TorchtitanStages> torchtitan_stages(const Vector<int>& of_chunks, int pipeline);

// The modules of each chunk, of module_fqns_per_model_part: [["tok_embeddings", "layers.0"], ["layers.1", "norm",
// "output"]].
std::string torchtitan_modules(const Vector<int>& of_chunks);

// Of such a list: the layers of each chunk. Throws InputError for what is none of all `layers` in order, or has other
// modules.
Vector<int> layers_of_modules(const std::string& list, int layers);

// selective_ac_option = "N", with which every N-th layer of a stage is computed again: the N with which as many are as
// `plan` has in each stage; 0 where there is none.
int recomputed_every(const Parallelism& plan, int layers);

// The layers of a chunk that are computed again, where every N-th one of a stage is: of the stage that has most.
int recomputed_of_chunk(const Parallelism& plan, int layers, int every);

}  // namespace ff
