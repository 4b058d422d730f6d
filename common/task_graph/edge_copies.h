// What the exchange of a block over an edge makes the tasks at both ends copy.
//
// A task reads one dense buffer an input and writes one dense buffer an output. Where the block of a pair is the whole
// buffer at an end, nothing is copied there:
//
//   on one device      the reader uses the other's buffer in place if the block is whole at both ends; else it copies
//                      the block from there into a buffer of its own
//   on two devices     the sender sends its buffer if the block is the whole of it, else it packs the block first; the
//                      receiver receives into its buffer if the block is the whole of it, else elsewhere, and copies
//
// Partial sums are copied too: the consumer adds them up. Backward it is the same with the ends exchanged, but that
// the contributions to one gradient are added up: only a single one is used where it lies or arrives. What goes through
// a collective is packed at the sender or put together at the receiver where the kind says so (collectives.h).
#pragma once

#include "common/strategy.h"
#include "common/task_graph/collectives.h"

namespace ff {

// What an end of the way does with its buffer.
enum class BlockUse : uint8_t {
  // on one device; source: read where it lies; destination: reads the source's buffer and has none of its own
  in_place,
  whole,  // on two devices: sent from, or received into, the buffer itself
  packed  // copied: source: into a buffer to be sent; destination: into its buffer, from the source's or the received
};

struct EdgeCopy {
  BlockUse source, destination;
  bool operator==(const EdgeCopy&) const = default;
};

constexpr EdgeCopy edge_copy(bool whole_at_source, bool whole_at_destination, bool local) {
  if (local)
    return {BlockUse::in_place, whole_at_source && whole_at_destination ? BlockUse::in_place : BlockUse::packed};
  return {whole_at_source ? BlockUse::whole : BlockUse::packed,
          whole_at_destination ? BlockUse::whole : BlockUse::packed};
}
// Pair: a BlockPair, or what else has whole_output, whole_input and partial. `local`: both tasks sit on one device.
template <typename Pair>
constexpr EdgeCopy edge_copy(const Pair& pair, bool local, Direction direction) {
  return direction == Direction::forward ? edge_copy(pair.whole_output, pair.whole_input && !pair.partial, local)
                                         : edge_copy(pair.whole_input, pair.whole_output, local);
}

// Contributions to the gradient of one part of a tensor.
struct GradientSum {
  int64_t bytes = 0;
  int32_t count = 0;
  bool in_place = false;   // the last one would need no copy
  bool exchanged = false;  // it comes through an all-to-all

  void add(int64_t contribution_bytes, BlockUse destination) {
    bytes += contribution_bytes;
    ++count;
    in_place = destination != BlockUse::packed;
  }
  void add(const GradientSum& later) {
    bytes += later.bytes;
    count += later.count;
    if (later.count > 0) in_place = later.in_place, exchanged = later.exchanged;
  }
  // Added up, unless a single one is used as it is. An addition costs its reader as much as a copy of so many bytes.
  int64_t copied_bytes() const { return count == 1 && in_place ? 0 : bytes; }
};

// What the tasks at both ends copy because of a pair, or of an exchange that is a collective, is told to `sink`, part
// by part: of a pair the bytes are added up, of a collective they are all of the edge's. A sink has
//   void assembled(consumer part, bytes)          forward: to assemble its input
//   void packed(producer part, bytes)             forward: to send
//   void packed_gradient(consumer part, bytes)    backward: to send
//   void contributes(producer part, bytes, BlockUse)  backward: a contribution to its output's gradient
template <typename Pair, typename Sink>
void count_copies(const Pair& pair, bool local, bool has_gradient, Sink& sink) {
  const EdgeCopy forward = edge_copy(pair, local, Direction::forward);
  if (forward.source == BlockUse::packed) sink.packed(pair.producer_part, pair.bytes);
  if (forward.destination == BlockUse::packed) sink.assembled(pair.consumer_part, pair.bytes);
  if (!has_gradient) return;
  const EdgeCopy backward = edge_copy(pair, local, Direction::backward);
  if (backward.source == BlockUse::packed) sink.packed_gradient(pair.consumer_part, pair.bytes);
  sink.contributes(pair.producer_part, pair.bytes, backward.destination);
}
template <typename Sink>
void count_copies(const EdgeExchanges& edge, const Exchange& exchange, CollectiveKind forward, bool has_gradient,
                  Sink& sink) {
  const CollectiveKind backward = reversed(forward);
  for (int32_t p : exchange.producers) {
    const int64_t bytes = edge.moved_bytes(exchange, forward, p);
    if (sends_packed(forward)) sink.packed(p, bytes);
    if (has_gradient) sink.contributes(p, bytes, receives_packed(backward) ? BlockUse::packed : BlockUse::whole);
  }
  for (int32_t c : exchange.consumers) {
    if (receives_packed(forward)) sink.assembled(c, edge.consumer_bytes[c]);
    if (has_gradient && sends_packed(backward)) sink.packed_gradient(c, edge.consumer_bytes[c]);
  }
}

// Bytes that the tasks at both ends of an edge copy because of it.
struct EdgeCopyBytes {
  Vector<int64_t> assembled;        // [consumer part], forward: to assemble its input
  Vector<int64_t> packed;           // [producer part], forward: to send
  Vector<int64_t> packed_gradient;  // [consumer part], backward: to send
  Vector<GradientSum> gradients;    // [producer part], backward: contributions to its output's gradient

  // Pairs: a range of BlockPair or the like. Devices are those of the parts.
  template <typename Pairs>
  void set(const Pairs& pairs, const Vector<DeviceId>& producers, const Vector<DeviceId>& consumers,
           bool has_gradient) {
    clear(producers.size(), consumers.size());
    Sink sink{*this};
    for (const auto& pair : pairs)
      count_copies(pair, producers[pair.producer_part] == consumers[pair.consumer_part], has_gradient, sink);
  }

  // Where the edge has collectives, one a exchange.
  void set(const EdgeExchanges& edge, const Vector<Collective>& collectives, bool has_gradient) {
    clear(edge.of_producer.size(), edge.of_consumer.size());
    Sink sink{*this};
    for (int e : collectives.indices()) count_copies(edge, edge.exchanges[e], collectives[e].kind, has_gradient, sink);
  }

 private:
  struct Sink {
    EdgeCopyBytes& bytes;
    void assembled(int32_t part, int64_t more) { bytes.assembled[part] += more; }
    void packed(int32_t part, int64_t more) { bytes.packed[part] += more; }
    void packed_gradient(int32_t part, int64_t more) { bytes.packed_gradient[part] += more; }
    void contributes(int32_t part, int64_t more, BlockUse use) { bytes.gradients[part].add(more, use); }
  };
  void clear(size_t producers, size_t consumers) {
    assembled.assign(consumers, 0);
    packed.assign(producers, 0);
    packed_gradient.assign(consumers, 0);
    gradients.assign(producers, {});
  }
};

}  // namespace ff
