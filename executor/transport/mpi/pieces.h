// Messages between hosts, in pieces (open_mpi_settings.h) that are few at a time on their way: what is sent later, and
// in the other direction, comes soon. Both ends know how a message is cut, and pieces arrive in order.
#pragma once

#include <deque>
#include <map>

#include "common/vector.h"
#include "executor/transport/mpi/calls.h"

namespace ff {

class PiecedMessages {
 public:
  void send(int slot, const void* memory, int64_t bytes, int destination, int tag);
  void receive(int slot, void* memory, int64_t bytes, int source, int tag);
  // All pieces of the slot's message have arrived, or left.
  bool complete(int slot) const { return remaining_.find(slot) == remaining_.end(); }
  bool pending() const { return !remaining_.empty(); }
  // Goes as far as the network allows. Returns how many pieces have come or gone.
  int advance();

 private:
  // Enough that a link never waits for the next look at it (progress_thread.h), and no more: 1 MiB.
  static constexpr int most_on_their_way = 8;

  struct Unsent {
    int slot;
    const char* memory;
    int64_t bytes;
    int tag;
  };
  // To one rank.
  struct Outbox {
    std::deque<Unsent> messages;
    int on_their_way = 0;
  };

  void begin_pieces(int destination, Outbox& outbox);

  // The pieces that MPI has been given: requests, and of each its message's slot and, of a send, the destination.
  struct Piece {
    int slot, destination;  // -1: a receive
  };
  Vector<MPI_Request> requests_;
  Vector<Piece> pieces_;
  Vector<int> finished_;  // of MPI_Testsome
  std::map<int, Outbox> outboxes_;
  std::map<int, int64_t> remaining_;  // pieces, by slot
};

}  // namespace ff
