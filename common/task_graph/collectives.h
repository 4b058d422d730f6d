// Collectives: where the blocks that the parts of two operators exchange over an edge are an all-gather, a
// reduce-scatter and the like among one set of devices, they are one task of that kind instead of a transfer a pair.
// Both programs ask here, so that what is priced is what runs.
//
// An edge falls into exchanges: in each, every consumer part reads something of every producer part's block. That
// depends on the degrees alone. Which collective an exchange is:
//
//   forward          producers write             consumers read           devices                     backward
//   all_gather       a block each                all blocks, each part    the same, one part each     reduce_scatter
//   all_to_all       a block each                their own share of all   the same, one part each     all_to_all
//   reduce_scatter   partial sums                their own part of it     the same, one part each     all_gather
//   all_reduce       partial sums                all of it, each part     the same, one part each     all_reduce
//   broadcast        one block, one part         all of it, each part     a consumer part each        reduce
//   reduce           partial sums                all of it, one part      a producer part each        broadcast
//
// So it is the neighbours' configurations that say whether a sum is all-reduced or reduce-scattered. An exchange of at
// least `large_exchange` pairs that is none of these, but of blocks or disjoint shares of them, is an all_to_all among
// whatever devices its parts are on. Two devices exchange transfers: a collective between two is no more than that. An
// edge has a collective for each of its exchanges, or transfers alone.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/strategy.h"
#include "common/task_graph/edges.h"
#include "common/vector.h"

namespace ff {

enum class CollectiveKind : uint8_t { all_gather, reduce_scatter, all_to_all, all_reduce, broadcast, reduce };
std::string_view to_string(CollectiveKind kind);
// What moves the gradients of what this moves: the same with senders and receivers exchanged.
CollectiveKind reversed(CollectiveKind kind);

// Of these a device sends a buffer in which the blocks for each receiver lie one after the other; else its block as it
// is.
constexpr bool sends_packed(CollectiveKind kind) {
  return kind == CollectiveKind::all_to_all || kind == CollectiveKind::reduce_scatter;
}
// Of these a device receives blocks one after the other, to be put together; else all of what it reads, as it is.
constexpr bool receives_packed(CollectiveKind kind) {
  return kind == CollectiveKind::all_to_all || kind == CollectiveKind::all_gather;
}

constexpr int64_t large_exchange = 1024;  // pairs of parts

struct Exchange {
  enum class Reading : uint8_t { whole, disjoint, other };  // of the producers' blocks, by the consumers
  Vector<int32_t> producers, consumers;                     // parts, ascending
  bool sums = false;                                        // the producers' blocks are partial sums
  Reading reading = Reading::other;
  int64_t bytes = 0;  // of the producers' blocks together; of a sum: of one
  // How often a producer sends its block in an all_to_all.
  int64_t copies_sent() const { return reading == Reading::whole ? consumers.count() : 1; }
};

// The exchanges of an edge under given degrees, in the order of their first consumers. None where some exchange is
// incomplete (halos), or of fewer parts than a collective has devices at least.
struct EdgeExchanges {
  Vector<Exchange> exchanges;
  int least_size = least_collective_size;    // devices of a collective
  Vector<int32_t> of_producer, of_consumer;  // [part]: its exchange; -1: none, nothing of it is read, it reads nothing
  Vector<int64_t> producer_bytes, consumer_bytes;  // [part]: of its block
  // Of a producer part's block that move, either way.
  int64_t moved_bytes(const Exchange& exchange, CollectiveKind kind, int32_t producer) const {
    return (kind == CollectiveKind::all_to_all ? exchange.copies_sent() : 1) * producer_bytes[producer];
  }
};
// Can there be a collective for an exchange of so many parts, whatever they read and where they are?
bool may_be_collective(int64_t producers, int64_t consumers, bool sums, int least_size);
EdgeExchanges find_exchanges(const EdgeBlocks& blocks, int least_size = least_collective_size);

// One exchange among the devices that its parts are on.
struct Collective {
  CollectiveKind kind;       // forward
  Vector<DeviceId> holders;  // ascending
  DeviceId root = -1;        // broadcast: where the producer is; reduce: the consumer
  // all_gather, reduce_scatter: of all blocks together; all_to_all: what one device sends or receives at most;
  // else: of the block.
  int64_t bytes = 0;
  bool operator==(const Collective&) const = default;
};
// One a exchange; none where the edge has transfers.
Vector<Collective> collectives_of(const EdgeExchanges& exchanges, const Vector<DeviceId>& producers,
                                  const Vector<DeviceId>& consumers);

}  // namespace ff
