#include "search/optimizer/exhaustive/topology_symmetry.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/random_topology.h"

using namespace ff;
using namespace ff::exhaustive;

TEST_CASE("symmetries of a topology map routes onto routes") {
  const Topology pairs = load_topology(FF_SOURCE_DIR "/topologies/p100-2x4.json");  // 2 nodes of 4
  CHECK(device_symmetries(pairs).size() == 2 * 24 * 24);
  // too many devices to be tried
  CHECK(device_symmetries(load_topology(FF_SOURCE_DIR "/topologies/p100-4x4.json")).size() == 1);
  for (int number = 0; number < 50; ++number) {
    RandomSource random(static_cast<uint32_t>(number));
    const Topology topology = random_topology(random, 3);
    for (const DevicePermutation& symmetry : device_symmetries(topology))
      for (DeviceId a = 0; a < 3; ++a)
        for (DeviceId b = 0; b < 3; ++b) {
          if (a == b) continue;
          const Route image = topology.route(symmetry.device[a], symmetry.device[b]);
          Vector<ChannelId> mapped;
          for (ChannelId channel : topology.route(a, b).channels) mapped.push_back(symmetry.channel[channel]);
          CHECK(std::ranges::equal(mapped, image.channels));
        }
  }
}
