#include "common/philox.h"

#include <catch2/catch.hpp>

using namespace ff;

// The known answers of Random123, the authors' library (tests/kat_vectors, "philox4x32 10").
TEST_CASE("philox draws its authors' known answers") {
  CHECK(philox(0, 0, 0) == Array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}) ==
        Array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e) ==
        Array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform numbers are those of their counter's lane, in [0, 1)") {
  CHECK(uniform_float(0) == 0);
  CHECK(uniform_float(0xFFFFFFFF) == 1 - 1.0f / 16777216);
  for (uint64_t index = 0; index < 8; ++index)
    CHECK(uniform_at(7, index, 3) == uniform_float(philox(7, index / 4, 3)[index % 4]));
}
