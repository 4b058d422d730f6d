#include "executor/transport/mpi/pieces.h"

#include <algorithm>

#include "executor/transport/mpi/open_mpi_settings.h"

namespace ff {
namespace {

int64_t piece_count(int64_t bytes) { return std::max<int64_t>(1, (bytes + piece_bytes - 1) / piece_bytes); }

}  // namespace

void PiecedMessages::send(int slot, const void* memory, int64_t bytes, int destination, int tag) {
  remaining_[slot] = piece_count(bytes);
  Outbox& outbox = outboxes_[destination];
  outbox.messages.push_back({slot, static_cast<const char*>(memory), bytes, tag});
  begin_pieces(destination, outbox);
}

void PiecedMessages::receive(int slot, void* memory, int64_t bytes, int source, int tag) {
  remaining_[slot] = piece_count(bytes);
  for (int64_t piece = 0; piece < piece_count(bytes); ++piece) {
    requests_.emplace_back();
    pieces_.push_back({slot, -1});
    check_mpi(MPI_Irecv(static_cast<char*>(memory) + piece * piece_bytes,
                        static_cast<int>(std::min(bytes - piece * piece_bytes, piece_bytes)), MPI_BYTE, source, tag,
                        MPI_COMM_WORLD, &requests_.back()),
              "MPI_Irecv");
  }
}

void PiecedMessages::begin_pieces(int destination, Outbox& outbox) {
  while (!outbox.messages.empty() && outbox.on_their_way < most_on_their_way) {
    Unsent& message = outbox.messages.front();
    const int64_t bytes = std::min(message.bytes, piece_bytes);
    requests_.emplace_back();
    pieces_.push_back({message.slot, destination});
    check_mpi(MPI_Isend(message.memory, static_cast<int>(bytes), MPI_BYTE, destination, message.tag, MPI_COMM_WORLD,
                        &requests_.back()),
              "MPI_Isend");
    ++outbox.on_their_way;
    message.memory += bytes;
    message.bytes -= bytes;
    if (message.bytes == 0) outbox.messages.pop_front();
  }
}

int PiecedMessages::advance() {
  int steps = 0;
  while (!requests_.empty()) {
    finished_.resize(requests_.size());
    int count = 0;
    check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, finished_.data(),
                           MPI_STATUSES_IGNORE),
              "MPI_Testsome");
    if (count <= 0) break;  // MPI_UNDEFINED is negative
    steps += count;
    std::sort(finished_.begin(), finished_.begin() + count, std::greater<>());
    bool sent = false;
    for (int i = 0; i < count; ++i) {
      const int index = finished_[i];
      const Piece piece = pieces_[index];
      if (const auto it = remaining_.find(piece.slot); --it->second == 0) remaining_.erase(it);
      if (piece.destination >= 0) {
        Outbox& outbox = outboxes_[piece.destination];
        --outbox.on_their_way;
        sent = true;
      }
      requests_[index] = requests_.back();
      pieces_[index] = pieces_.back();
      requests_.pop_back();
      pieces_.pop_back();
    }
    if (!sent) break;
    for (auto& [destination, outbox] : outboxes_) begin_pieces(destination, outbox);
  }
  return steps;
}

}  // namespace ff
