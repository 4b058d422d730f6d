#include "executor/transport/collective_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/errors.h"

namespace ff {
namespace {

int64_t sum(const Vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
int64_t sum_before(const Vector<int64_t>& counts, int place) {
  return std::accumulate(counts.begin(), counts.begin() + place, int64_t{0});
}

void copy(const float* source, float* destination, int64_t elements) {
  if (destination && elements > 0 && source != destination)
    std::memmove(destination, source, static_cast<size_t>(elements) * sizeof(float));
}

// Of what all send, a range, added up in the order of the ranks.
Vector<float> added(const Vector<CollectiveCall*>& calls, int64_t begin, int64_t elements) {
  Vector<float> total(elements, 0.0f);
  for (const CollectiveCall* call : calls)
    for (int64_t i = 0; i < elements && call->send; ++i) total[i] += call->send[begin + i];
  return total;
}

}  // namespace

int64_t CollectiveCall::sent(int place) const {
  if (!send) return 0;
  if (kind == CollectiveKind::all_to_all) return sum(send_elements);
  if (kind == CollectiveKind::all_gather) return elements[place];
  return kind == CollectiveKind::reduce_scatter ? sum(elements) : elements[0];
}

int64_t CollectiveCall::received(int place) const {
  if (!receive) return 0;
  if (kind == CollectiveKind::all_to_all) return sum(receive_elements);
  if (kind == CollectiveKind::reduce_scatter) return elements[place];
  return kind == CollectiveKind::all_gather ? sum(elements) : elements[0];
}

void perform(const Vector<CollectiveCall*>& calls) {
  const CollectiveKind kind = calls[0]->kind;
  for (const CollectiveCall* call : calls)
    if (call->kind != kind || call->root != calls[0]->root || call->elements != calls[0]->elements)
      throw MachineError("ranks disagree about a collective");
  const Vector<int64_t>& elements = calls[0]->elements;
  switch (kind) {
    case CollectiveKind::all_gather:
      for (const CollectiveCall* to : calls)
        for (int from : calls.indices())
          copy(calls[from]->send, to->receive + sum_before(elements, from), elements[from]);
      break;
    case CollectiveKind::reduce_scatter:
      for (int to : calls.indices())
        copy(added(calls, sum_before(elements, to), elements[to]).data(), calls[to]->receive, elements[to]);
      break;
    case CollectiveKind::all_to_all:
      for (int from : calls.indices())
        for (int to : calls.indices()) {
          if (calls[from]->send_elements[to] != calls[to]->receive_elements[from])
            throw MachineError("ranks disagree about an all-to-all");
          if (const int64_t count = calls[from]->send_elements[to]; count > 0)
            copy(calls[from]->send + sum_before(calls[from]->send_elements, to),
                 calls[to]->receive + sum_before(calls[to]->receive_elements, from), count);
        }
      break;
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce: {
      const Vector<float> total = added(calls, 0, elements[0]);
      for (const CollectiveCall* call : calls) copy(total.data(), call->receive, elements[0]);
      break;
    }
    case CollectiveKind::broadcast:
      for (const CollectiveCall* call : calls) copy(calls[call->root]->send, call->receive, elements[0]);
  }
}

}  // namespace ff
