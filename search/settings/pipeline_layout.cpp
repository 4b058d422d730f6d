#include "search/settings/pipeline_layout.h"

#include <algorithm>

#include "common/errors.h"
#include "search/optimizer/parallelism.h"

namespace ff {
namespace {

// The notation without groups, numbers and commas: "Etttt|tt|ttL".
class Expansion {
 public:
  explicit Expansion(const std::string& layout) : layout_(layout) {}

  std::string whole() {
    const std::string result = sequence();
    if (at_ < layout_.size()) fail(std::string("'") + layout_[at_] + "' has no beginning");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError("found \"" + layout_ + "\": " + what + "; expected a layout such as Et*3|t*4|t*4|t*3,L");
  }

  std::string sequence() {
    std::string result;
    while (at_ < layout_.size() && layout_[at_] != ')') {
      const char next = layout_[at_++];
      if (next == ',') continue;
      std::string piece(1, next);
      if (next == '(') {
        piece = sequence();
        if (at_ == layout_.size()) fail("'(' has no end");
        ++at_;
      } else if (std::string("EtL|").find(next) == std::string::npos) {
        fail(next == 'm' ? "layers of multi-token prediction are not among the settings"
                         : std::string("'") + next + "' is none of E, t, L, |");
      }
      append(result, piece, times());
    }
    return result;
  }

  void append(std::string& result, const std::string& piece, int times) const {
    constexpr size_t most = 1 << 20;
    if (result.size() + piece.size() * static_cast<size_t>(times) > most) fail("it is too long");
    for (int time = 0; time < times; ++time) result += piece;
  }

  // "*3", or once.
  int times() {
    if (at_ == layout_.size() || layout_[at_] != '*') return 1;
    const size_t begin = ++at_;
    while (at_ < layout_.size() && layout_[at_] >= '0' && layout_[at_] <= '9') ++at_;
    constexpr size_t most_digits = 6;
    if (at_ == begin || at_ - begin > most_digits) fail("a number follows '*'");
    return std::stoi(layout_.substr(begin, at_ - begin));
  }

  const std::string& layout_;
  size_t at_ = 0;
};

}  // namespace

std::string pipeline_layout(const Vector<int>& layers) {
  std::string result = "E";
  for (const int chunk : layers.indices()) {
    if (chunk > 0) result += '|';
    if (layers[chunk] > 0) result += layers[chunk] == 1 ? "t" : "t*" + std::to_string(layers[chunk]);
  }
  return result + (layers.back() > 0 ? ",L" : "L");
}

Vector<int> layers_of_layout(const std::string& layout) {
  const std::string whole = Expansion(layout).whole();
  const auto fail = [&](const std::string& what) { throw InputError("found \"" + layout + "\": " + what); };
  if (std::count(whole.begin(), whole.end(), 'E') != 1 || whole[0] != 'E')
    fail("the embedding, E, is not what the first stage begins with");
  if (std::count(whole.begin(), whole.end(), 'L') != 1 || whole.back() != 'L')
    fail("the loss, L, is not what the last stage ends with");
  Vector<int> layers = {0};
  for (const char one : whole)
    if (one == '|') layers.push_back(0);
    else layers[layers.count() - 1] += one == 't';
  if (has_gap(layers)) fail("each part between the first and the last one has a layer, t, or more");
  return layers;
}

}  // namespace ff
