// What the MPI transport moves is whole and in order, and all-reduces add in rank order, bit for bit. Run by mpirun, on
// one host and on emulated ones (tests/integration).
//
//     mpirun -n N test_mpi_ranks
#include <cstdio>
#include <string>

#include "common/errors.h"
#include "executor/transport/mpi/mpi.h"

namespace ff {
namespace {

void expect(bool holds, const Transport& transport, const std::string& what) {
  if (!holds) throw InputError("rank " + std::to_string(transport.rank()) + ": " + what);
}

// What `rank` sends as message number `number`: any rank can say it.
Vector<float> values_of(int rank, int number, int64_t elements) {
  Vector<float> values(elements);
  int64_t state = 64 * number + rank;
  for (float& value : values) {
    state = (state * 1103515245 + 12345) & 0x7FFFFFFF;  // the C standard's example
    value = static_cast<float>(state - 0x40000000) * 1e-3f;
  }
  return values;
}

// Messages of many sizes between all pairs, all on their way at once, those of one tag in order.
void test_messages(Transport& transport) {
  const Vector<int64_t> sizes = {1, 3, 1000, 32'767, 32'768, 32'769, 300'000, 5, 700'000};
  Vector<Vector<float>> out, in;
  Vector<Request> requests;
  const int size = transport.size(), rank = transport.rank();
  for (const int number : sizes.indices())
    for (int other = 0; other < size; ++other) {
      out.push_back(values_of(rank, number * size + other, sizes[number]));
      in.emplace_back(sizes[number]);
    }
  for (const int number : sizes.indices())
    for (int other = 0; other < size; ++other) {
      if (other == rank) continue;
      const int at = number * size + other;
      const int tag = number % 2;  // several messages have the same
      requests.push_back(transport.receive(in[at].data(), sizes[number] * 4, other, tag));
      requests.push_back(transport.send(out[at].data(), sizes[number] * 4, other, tag));
    }
  for (Request& request : requests) transport.wait(request);
  for (const int number : sizes.indices())
    for (int other = 0; other < size; ++other)
      if (other != rank)
        expect(in[number * size + other] == values_of(other, number * size + rank, sizes[number]), transport,
               "message " + std::to_string(number) + " from rank " + std::to_string(other) + " is another one");
}

// One byte, and a receive that is posted when its message has been here for long.
void test_odd_and_late_messages(Transport& transport) {
  const int next = (transport.rank() + 1) % transport.size(),
            before = (transport.rank() + transport.size() - 1) % transport.size();
  const Vector<float> large = values_of(transport.rank(), 7, 1'000'000);
  const char letter = static_cast<char>('a' + transport.rank());
  Request first = transport.send(&letter, 1, next, 1), second = transport.send(large.data(), 4'000'000, next, 2);
  transport.barrier();
  char came = 0;
  Vector<float> arrived(1'000'000);
  Request one = transport.receive(&came, 1, before, 1), two = transport.receive(arrived.data(), 4'000'000, before, 2);
  transport.wait(two);
  transport.wait(one);
  transport.wait(first);
  transport.wait(second);
  expect(came == 'a' + before && arrived == values_of(before, 7, 1'000'000), transport, "a late receive is wrong");
}

Vector<float> sum_of(const Vector<int>& ranks, int number, int64_t elements) {
  Vector<float> sum = values_of(ranks[0], number, elements);
  for (size_t r = 1; r < ranks.size(); ++r) {
    const Vector<float> term = values_of(ranks[r], number, elements);
    for (int64_t i = 0; i < elements; ++i) sum[i] += term[i];
  }
  return sum;
}

// Several at once, in groups that overlap.
void test_all_reduces(Transport& transport) {
  const int rank = transport.rank(), size = transport.size();
  Vector<Vector<int>> all{{}, {}, {}};  // everyone; without the last; every second one
  for (int r = 0; r < size; ++r) {
    all[0].push_back(r);
    if (r + 1 < size) all[1].push_back(r);
    if (r % 2 == 0) all[2].push_back(r);
  }
  Vector<Vector<int>> own;
  for (const Vector<int>& group : all)
    for (const int member : group)
      if (member == rank) own.push_back(group);
  const Vector<GroupId> groups = transport.make_groups(own);
  const Vector<int64_t> sizes = {1, 4096, 4097, 32'768, 65'537, 1'000'003, 2};
  Vector<Vector<float>> values;
  Vector<Request> requests;
  for (const int number : sizes.indices())
    for (size_t g = 0; g < own.size(); ++g) values.push_back(values_of(rank, number, sizes[number]));
  for (const int number : sizes.indices())
    for (const int g : own.indices())
      requests.push_back(transport.all_reduce(groups[g], values[requests.size()].data(), sizes[number], 0));
  for (Request& request : requests) transport.wait(request);
  size_t at = 0;
  for (const int number : sizes.indices())
    for (const Vector<int>& group : own)
      expect(values[at++] == sum_of(group, number, sizes[number]), transport,
             "an all-reduce of " + std::to_string(sizes[number]) + " elements among " + std::to_string(group.size()) +
                 " ranks does not add in rank order");
  transport.barrier();
}

// A rank that waits for nothing of the transport gets its messages on all the same, in time: others wait for them.
void test_control_while_messages_go_on(Transport& transport) {
  const int peer = transport.rank() ^ 1;
  const bool paired = peer < transport.size();
  const Vector<float> out = values_of(transport.rank(), 3, 3'000'000);
  Vector<float> in(paired ? 3'000'000 : 0);
  Request receive, send;
  if (paired) {
    receive = transport.receive(in.data(), 12'000'000, peer, 5);
    send = transport.send(out.data(), 12'000'000, peer, 5);
  }
  const bool first = transport.rank() % 2 == 0;
  if (first) transport.wait(receive);  // while the other is in the gathering already
  const Vector<std::string> names = transport.gather("rank " + std::to_string(transport.rank()));
  expect(
      transport.broadcast(transport.rank() == 0 ? names.back() : "") == "rank " + std::to_string(transport.size() - 1),
      transport, "control data is wrong");
  transport.wait(receive);
  transport.wait(send);
  if (paired) expect(in == values_of(peer, 3, 3'000'000), transport, "a message sent with control data is wrong");
}

}  // namespace
}  // namespace ff

int main() {
  try {
    const auto transport = ff::make_mpi_transport();
    try {
      for (int round = 0; round < 3; ++round) {
        ff::test_messages(*transport);
        ff::test_odd_and_late_messages(*transport);
        ff::test_all_reduces(*transport);
        ff::test_control_while_messages_go_on(*transport);
      }
      transport->barrier();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "test_mpi_ranks: %s\n", error.what());
      transport->abort(1);
    }
    if (transport->rank() == 0) std::printf("%d ranks: all messages and sums are right\n", transport->size());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "test_mpi_ranks: %s\n", error.what());
    return 1;
  }
}
