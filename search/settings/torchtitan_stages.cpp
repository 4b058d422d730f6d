#include "search/settings/torchtitan_stages.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "common/errors.h"
#include "common/json_file.h"

namespace ff {
namespace {

int divided_up(int a, int b) { return (a + b - 1) / b; }

bool is_layer(const std::string& module, int number) { return module == "layers." + std::to_string(number); }

}  // namespace

int chunks_of(const TorchtitanStages& stages, int pipeline, bool interleaved, int layers) {
  if (stages.layers_per_chunk == 0) return interleaved ? 2 * pipeline : pipeline;
  const int chunks = divided_up(layers + stages.first_less + stages.last_less, stages.layers_per_chunk);
  const std::string what = std::to_string(layers) + " layers, and " + std::to_string(stages.first_less) + " and " +
                           std::to_string(stages.last_less) + " for the embedding and the output, make " +
                           std::to_string(chunks) + " chunks";
  if (chunks % pipeline != 0)
    throw InputError(what + ", which the " + std::to_string(pipeline) + " stages do not divide");
  if (interleaved ? chunks < 2 * pipeline : chunks != pipeline)
    throw InputError(what + ", expected " + (interleaved ? "at least two for each of the " : "one for each of the ") +
                     std::to_string(pipeline) + " stages");
  return chunks;
}

Vector<int> layers_of(const TorchtitanStages& stages, int chunks, int layers) {
  if (chunks == 1) return {layers};
  const int all = layers + stages.first_less + stages.last_less, of_each = all / chunks;
  if (std::max({1, stages.first_less, stages.last_less}) > of_each)
    throw InputError(std::to_string(layers) + " layers, and " + std::to_string(stages.first_less) + " and " +
                     std::to_string(stages.last_less) + " for the embedding and the output, leave " +
                     std::to_string(of_each) + " to each of the " + std::to_string(chunks) +
                     " chunks: torchtitan refuses to run that");
  Vector<int> result(chunks, of_each);
  for (int more = 0; more < all % chunks; ++more) ++result[more];
  result[0] -= stages.first_less;
  result[chunks - 1] -= stages.last_less;
  return result;
}

std::optional<TorchtitanStages> torchtitan_stages(const Vector<int>& of_chunks, int pipeline) {
  const int chunks = of_chunks.count(), layers = std::accumulate(of_chunks.begin(), of_chunks.end(), 0);
  const int most = *std::max_element(of_chunks.begin(), of_chunks.end()) + 1;
  std::optional<TorchtitanStages> best;
  const auto from_default = [](const TorchtitanStages& one) {
    return std::abs(one.first_less - 1) + std::abs(one.last_less - 1);
  };
  for (int first = 0; first <= most; ++first)
    for (int last = 0; last <= most; ++last) {
      TorchtitanStages stages{first, last};
      const int all = layers + first + last;
      if ((best && from_default(*best) <= from_default(stages)) || std::max({1, first, last}) > all / chunks ||
          layers_of(stages, chunks, layers) != of_chunks)
        continue;
      if (chunks > 2 * pipeline) stages.layers_per_chunk = divided_up(all, chunks);
      if (stages.layers_per_chunk == 0 || divided_up(all, stages.layers_per_chunk) == chunks) best = stages;
    }
  return best;
}

std::string torchtitan_modules(const Vector<int>& of_chunks) {
  std::string text;
  for (int layer = 0; const int c : of_chunks.indices()) {
    std::string modules = c == 0 ? "\"tok_embeddings\"" : "";
    const auto add = [&](const std::string& module) { modules += (modules.empty() ? "\"" : ", \"") + module + "\""; };
    for (const int end = layer + of_chunks[c]; layer < end; ++layer) add("layers." + std::to_string(layer));
    if (c + 1 == of_chunks.count()) add("norm"), add("output");
    text += (c == 0 ? "[" : ", [") + modules + "]";
  }
  return "[" + text + "]";
}

Vector<int> layers_of_modules(const std::string& list, int layers) {
  std::string text = list;
  std::replace(text.begin(), text.end(), '\'', '"');
  const Json chunks = Json::parse(text, nullptr, false);
  const auto fail = [](const std::string& what) {
    throw InputError(what + "; expected a list of each chunk's modules, such as " + torchtitan_modules({1, 1}));
  };
  if (!chunks.is_array() || chunks.empty()) fail("is no list");
  Vector<int> of_chunks;
  int next = 0;
  for (size_t c = 0; c < chunks.size(); ++c) {
    if (!chunks[c].is_array()) fail("chunk " + std::to_string(c) + " is no list");
    const int first = next;
    for (const Json& module : chunks[c]) {
      const std::string name = module.is_string() ? module.get<std::string>() : module.dump();
      const bool begins = c == 0 && name == "tok_embeddings",
                 ends = c + 1 == chunks.size() && (name == "norm" || name == "output" || name == "lm_head");
      if (is_layer(name, next)) ++next;
      else if (!begins && !ends) fail("chunk " + std::to_string(c) + " has \"" + name + "\"");
    }
    of_chunks.push_back(next - first);
  }
  if (next != layers) fail("has " + std::to_string(next) + " layers, the graph has " + std::to_string(layers));
  return of_chunks;
}

int recomputed_every(const Parallelism& plan, int layers) {
  const Vector<int> of_chunks = layers_of_chunks(plan, layers), of_stages = layers_of_stages(plan, layers);
  Vector<int> recomputed(plan.pipeline, 0);
  for (const int c : of_chunks.indices())
    recomputed[c % plan.pipeline] += std::min(of_chunks[c], plan.recompute_layers);
  for (int every = 2; every <= of_stages[0]; ++every) {
    const auto as_many = [&](int of_stage, int number) { return of_stage / every == number; };
    if (std::equal(of_stages.begin(), of_stages.end(), recomputed.begin(), as_many)) return every;
  }
  return 0;
}

int recomputed_of_chunk(const Parallelism& plan, int layers, int every) {
  const Vector<int> of_stages = layers_of_stages(plan, layers);
  return divided_up(*std::max_element(of_stages.begin(), of_stages.end()) / every, plan.chunks);
}

}  // namespace ff
