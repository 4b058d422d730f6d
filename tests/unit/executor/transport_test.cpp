#include <atomic>
#include <catch2/catch.hpp>

#include "common/errors.h"
#include "executor/transport/in_process.h"
#include "temporary_directory.h"

namespace ff {

TEST_CASE("messages of one tag arrive in order, whichever side is first") {
  Array<int, 4> received{};
  run_in_process(2, [&](Transport& transport) {
    Array<int, 4> sent = {1, 2, 3, 4};
    Array<Request, 4> requests;
    for (int round = 0; round < 2; ++round) {
      if (transport.rank() == round) transport.barrier();  // the other rank posts first
      for (size_t i = 0; i < 4; ++i)
        requests[i] =
            transport.rank() == 0 ? transport.send(&sent[i], 4, 1, 9) : transport.receive(&received[i], 4, 0, 9);
      if (transport.rank() != round) transport.barrier();
      for (Request& request : requests) transport.wait(request);
      if (transport.rank() == 1) {
        CHECK(received == Array<int, 4>{1, 2, 3, 4});
        received = {};
      }
    }
    Request none;
    transport.wait(none);
    CHECK(transport.test(none));
  });
}

TEST_CASE("an all-reduce adds in rank order within its group") {
  run_in_process(4, [](Transport& transport) {
    const int rank = transport.rank();
    // (1e8 + 1) - 1e8 depends on the order of the additions.
    const float terms[] = {1e8f, 1.0f, -1e8f, 8.0f};
    const float in_order = ((0.0f + terms[0]) + terms[1]) + terms[2];
    Vector<float> values(3, terms[rank]);
    Vector<Vector<int>> own;
    if (rank < 3) own.push_back({0, 1, 2});
    if (rank == 1 || rank == 2) own.push_back({1, 2});
    const Vector<GroupId> groups = transport.make_groups(own);
    CHECK(groups.size() == own.size());
    if (rank < 3) {
      Request request = transport.all_reduce(groups[0], values.data(), 3, 0);
      transport.wait(request);
      CHECK(values == Vector<float>(3, in_order));
      if (rank > 0) {
        values = {static_cast<float>(rank)};
        request = transport.all_reduce(groups[1], values.data(), 1, 0);
        transport.wait(request);
        CHECK(values[0] == 3.0f);
      }
    }
    transport.barrier();
  });
}

TEST_CASE("control data reaches everyone") {
  run_in_process(3, [](Transport& transport) {
    for (int round = 0; round < 20; ++round) {
      const auto all = transport.gather(std::string(static_cast<size_t>(transport.rank()), 'x'));
      if (transport.rank() == 0) CHECK(all == Vector<std::string>{"", "x", "xx"});
      else CHECK(all.empty());
      CHECK(transport.broadcast(transport.rank() == 0 ? "from 0" : "ignored") == "from 0");
    }
  });
}

TEST_CASE("a failing rank ends the others, whatever they wait for") {
  for (const std::string waiting : {"receive", "all-reduce", "barrier"}) {
    std::atomic<int> woken = 0;
    const std::string message = message_of<InputError>([&] {
      run_in_process(4, [&](Transport& transport) {
        if (transport.rank() == 2) throw InputError("rank 2 gives up");
        float value = 0;
        try {
          if (waiting == "receive") {
            Request request = transport.receive(&value, 4, 2, 0);
            transport.wait(request);
          } else if (waiting == "all-reduce") {
            Request request = transport.all_reduce(transport.make_groups({{0, 1, 2, 3}})[0], &value, 1, 0);
            transport.wait(request);
          } else {
            transport.barrier();
          }
        } catch (const MachineError& error) {
          CHECK(error.what() == "rank " + std::to_string(transport.rank()) + ": another rank failed");
          ++woken;
          throw;
        }
      });
    });
    CHECK(message == "rank 2 gives up");
    CHECK(woken == 3);
  }
}

}  // namespace ff
