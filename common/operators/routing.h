// What every backend, and the tests' reference, decide alike about tokens and experts: which experts a token chooses,
// and where the rows of a slot lie. Plain functions of numbers, for processors and GPUs.
#pragma once

#include <cstdint>

namespace ff {

constexpr int most_choices = 16;  // of experts, by a token

template <class Number>
struct ExpertChoice {
  Number logit = 0;
  int32_t expert = -1;  // none yet
};

// Larger logits come first; of equal ones, lower experts. What is not a number comes behind all numbers, so that the
// choices of a token are different experts in any case.
template <class Number>
constexpr bool comes_before(const ExpertChoice<Number>& a, const ExpertChoice<Number>& b) {
  if (a.expert < 0 || b.expert < 0) return b.expert < 0 && a.expert >= 0;
  const bool a_is_number = a.logit == a.logit, b_is_number = b.logit == b.logit;
  if (a_is_number != b_is_number) return a_is_number;
  if (a_is_number && a.logit != b.logit) return a.logit > b.logit;
  return a.expert < b.expert;
}

// The `count` experts that come first, in their order, to `chosen`. There are at least so many.
template <class Number>
constexpr void choose_experts(const Number* logits, int64_t experts, int64_t count, ExpertChoice<Number>* chosen) {
  for (int64_t k = 0; k < count; ++k) chosen[k] = {};
  for (int64_t e = 0; e < experts; ++e) {
    const ExpertChoice<Number> one{logits[e], static_cast<int32_t>(e)};
    int64_t place = count;
    for (; place > 0 && comes_before(one, chosen[place - 1]); --place)
      if (place < count) chosen[place] = chosen[place - 1];
    if (place < count) chosen[place] = one;
  }
}

// The second expert is kept if twice its share of the two gates exceeds a uniform number from [0, 1): always where it
// is as good as the first (GShard, Lepikhin et al. 2020, arXiv 2006.16668, algorithm 1).
template <class Number>
constexpr bool keeps_second(Number weight, float uniform) {
  return 2 * weight > static_cast<Number>(uniform);
}

// Rows of a block [experts, groups * capacity, channels], whose groups' tokens are numbered from 0.
struct ExpertRows {
  int64_t groups, group_tokens, capacity;

  constexpr int64_t row(int64_t token, int64_t slot) const {
    const int64_t expert = slot / capacity, position = slot - expert * capacity;
    return (expert * groups + token / group_tokens) * capacity + position;
  }
};

}  // namespace ff
