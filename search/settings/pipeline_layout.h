// Megatron-Core's notation for the layers of pipeline chunks, of --pipeline-model-parallel-layout: "Et*3|(tt|)*29,m|L"
// (docs/user-guide/features/pipeline_parallel_layout.md there). Stages of each round of chunks follow one another; E is
// the embedding, t a layer, L the loss; commas mean nothing.
#pragma once

#include <string>

#include "common/vector.h"

namespace ff {

// Of the layers of each chunk, in order.
std::string pipeline_layout(const Vector<int>& layers);

// Likewise. Throws InputError for what is not in the notation, for chunks without layers between the first and the last
// one, for an embedding that is not in the first chunk or a loss that is not in the last one, and for layers of another
// kind (m).
Vector<int> layers_of_layout(const std::string& layout);

}  // namespace ff
