#include "common/task_graph/parameter_pieces.h"

#include <catch2/catch.hpp>

#include "tests/support/random_source.h"

using namespace ff;

namespace {

std::string text(const Vector<CutPiece>& pieces) {
  std::string result;
  for (const CutPiece& piece : pieces) {
    result += to_string(piece.block) + " in";
    for (int32_t block : piece.containing) result += " " + std::to_string(block);
    result += "\n";
  }
  return result;
}

}  // namespace

TEST_CASE("blocks of one axis are cut wherever one begins or ends") {
  CHECK(text(cut_into_pieces({{{0, 6}}, {{6, 12}}, {{0, 4}}, {{4, 8}}})) ==
        "[0:4] in 0 2\n"
        "[4:6] in 0 3\n"
        "[6:8] in 1 3\n"
        "[8:12] in 1\n");
}

// Rows in halves by one operator, columns in halves by another: four pieces, each in one block of either.
TEST_CASE("blocks of two axes are cut into a grid, row by row") {
  CHECK(text(cut_into_pieces({{{0, 2}, {0, 4}}, {{2, 4}, {0, 4}}, {{0, 4}, {0, 2}}, {{0, 4}, {2, 4}}})) ==
        "[0:2, 0:2] in 0 2\n"
        "[0:2, 2:4] in 0 3\n"
        "[2:4, 0:2] in 1 2\n"
        "[2:4, 2:4] in 1 3\n");
}

TEST_CASE("cells that lie in no block are no pieces") {
  CHECK(text(cut_into_pieces({{{0, 2}, {0, 2}}, {{2, 4}, {2, 4}}})) ==
        "[0:2, 0:2] in 0\n"
        "[2:4, 2:4] in 1\n");
}

TEST_CASE("pieces are disjoint, lie whole in the blocks that contain them, and make up every block") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomSource random(seed);
    Vector<Block> blocks;
    const int64_t rank = random.between(1, 3);
    for (int64_t count = random.between(1, 6); count > 0; --count) {
      Block block;
      for (int64_t axis = 0; axis < rank; ++axis) {
        const int64_t begin = random.between(0, 6);
        block.append({begin, random.between(begin + 1, 8)});
      }
      if (std::find(blocks.begin(), blocks.end(), block) == blocks.end()) blocks.push_back(block);
    }
    const Vector<CutPiece> pieces = cut_into_pieces(blocks);
    Vector<int64_t> covered(blocks.size(), 0);
    for (size_t i = 0; i < pieces.size(); ++i) {
      REQUIRE_FALSE(pieces[i].containing.empty());
      for (size_t b = 0, next = 0; b < blocks.size(); ++b) {
        const bool listed = next < pieces[i].containing.size() && pieces[i].containing[next] == static_cast<int32_t>(b);
        next += listed;
        REQUIRE(blocks[b].contains(pieces[i].block) == listed);
        REQUIRE(intersect(blocks[b], pieces[i].block).empty() != listed);
        if (listed) covered[b] += pieces[i].block.volume();
      }
      for (size_t other = 0; other < i; ++other) REQUIRE(intersect(pieces[i].block, pieces[other].block).empty());
    }
    for (size_t b = 0; b < blocks.size(); ++b) REQUIRE(covered[b] == blocks[b].volume());
  }
}
