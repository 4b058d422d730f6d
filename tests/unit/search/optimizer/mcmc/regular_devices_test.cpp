#include "search/optimizer/mcmc/regular_devices.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace ff;

TEST_CASE("regular devices are consecutive, one of every node, or the like") {
  CHECK(RegularDevices{6, 1, 8}.of(4, 8) == Vector<DeviceId>{6, 7, 0, 1});
  // 2 nodes of 4 devices: alternately from each.
  CHECK(RegularDevices{0, 4, 8}.of(4, 8) == Vector<DeviceId>{0, 4, 1, 5});
  // The first 4 devices alone, in another order.
  CHECK(RegularDevices{0, 2, 4}.of(4, 8) == Vector<DeviceId>{0, 2, 1, 3});
}

TEST_CASE("no device has two parts of regular devices, of which every kind is drawn") {
  RandomStream random(4, 0);
  int consecutive = 0, jumping = 0;
  for (int i = 0; i < 3000; ++i) {
    const int devices = 1 + random.below(24), parts = random_divisor(devices, random);
    Vector<DeviceId> drawn = random_regular_devices(parts, devices, random).of(parts, devices);
    REQUIRE(drawn.count() == parts);
    if (parts > 1) (drawn[1] == (drawn[0] + 1) % devices ? consecutive : jumping) += 1;
    for (const DeviceId device : drawn) REQUIRE((device >= 0 && device < devices));
    std::sort(drawn.begin(), drawn.end());
    REQUIRE(std::adjacent_find(drawn.begin(), drawn.end()) == drawn.end());
  }
  CHECK(consecutive > 500);
  CHECK(jumping > 200);
}
