#include "executor/transport/collective_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/errors.h"
#include "common/kernels/bf16.h"

namespace ff {
namespace {

int64_t sum(const Vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
int64_t sum_before(const Vector<int64_t>& counts, int place) {
  return std::accumulate(counts.begin(), counts.begin() + place, int64_t{0});
}

// Of what all send, a range, added up in the order of the ranks.
Vector<float> added(const Vector<CollectiveCall*>& calls, int64_t begin, int64_t elements) {
  Vector<float> total(elements, 0.0f);
  for (const CollectiveCall* call : calls) {
    if (!call->send) continue;
    const auto* const values = static_cast<const float*>(call->send) + begin;
    for (int64_t i = 0; i < elements; ++i) total[i] += values[i];
  }
  return total;
}
Vector<Bf16> added_bf16(const Vector<CollectiveCall*>& calls, int64_t begin, int64_t elements) {
  Vector<Bf16> total(elements, 0);
  for (const CollectiveCall* call : calls) {
    if (!call->send) continue;
    const auto* const values = static_cast<const Bf16*>(call->send) + begin;
    for (int64_t i = 0; i < elements; ++i) total[i] = bf16_of(f32_of(total[i]) + f32_of(values[i]));
  }
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
    if (call->kind != kind || call->type != calls[0]->type || call->root != calls[0]->root ||
        call->elements != calls[0]->elements)
      throw MachineError("ranks disagree about a collective");
  const Vector<int64_t>& elements = calls[0]->elements;
  const DataType type = calls[0]->type;
  const auto copy = [&](const void* source, const CollectiveCall* to, int64_t offset, int64_t count) {
    if (to->receive && count > 0 && source != to->receive_at(offset))
      std::memmove(to->receive_at(offset), source, static_cast<size_t>(bytes_of(type, count)));
  };
  const auto copy_sum = [&](int64_t begin, int64_t count, const Vector<const CollectiveCall*>& receivers) {
    const bool rounded = type == DataType::bf16;
    const Vector<float> sum = rounded ? Vector<float>() : added(calls, begin, count);
    const Vector<Bf16> rounded_sum = rounded ? added_bf16(calls, begin, count) : Vector<Bf16>();
    for (const CollectiveCall* to : receivers)
      copy(rounded ? static_cast<const void*>(rounded_sum.data()) : sum.data(), to, 0, count);
  };
  switch (kind) {
    case CollectiveKind::all_gather:
      for (const CollectiveCall* to : calls)
        for (int from : calls.indices()) copy(calls[from]->send, to, sum_before(elements, from), elements[from]);
      break;
    case CollectiveKind::reduce_scatter:
      for (int to : calls.indices()) copy_sum(sum_before(elements, to), elements[to], {calls[to]});
      break;
    case CollectiveKind::all_to_all:
      for (int from : calls.indices())
        for (int to : calls.indices()) {
          if (calls[from]->send_elements[to] != calls[to]->receive_elements[from])
            throw MachineError("ranks disagree about an all-to-all");
          if (const int64_t count = calls[from]->send_elements[to]; count > 0)
            copy(calls[from]->send_at(sum_before(calls[from]->send_elements, to)), calls[to],
                 sum_before(calls[to]->receive_elements, from), count);
        }
      break;
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce: copy_sum(0, elements[0], {calls.begin(), calls.end()}); break;
    case CollectiveKind::broadcast:
      for (const CollectiveCall* call : calls) copy(calls[call->root]->send, call, 0, elements[0]);
  }
}

}  // namespace ff
