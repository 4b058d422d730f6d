// What every backend, and the tests' reference, decide alike about tokens and experts: which experts a token chooses,
// and where the rows of a slot lie. Plain functions of numbers, for processors and GPUs.
#pragma once

#include <cstdint>

namespace ff {

// The experts with the largest and the next largest logit; of equal logits, the lower index first. Not a number never
// comes before another; the two are different experts in any case.
template <class Number>
struct ExpertChoice {
  struct One {
    Number logit = 0;
    int32_t expert = -1;  // none yet
  };
  One first, second;

  constexpr void add(One one) {
    if (one.expert < 0) return;
    if (comes_before(one, first)) {
      second = first;
      first = one;
    } else if (comes_before(one, second)) {
      second = one;
    }
  }

 private:
  static constexpr bool comes_before(One a, One b) {
    return b.expert < 0 || a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
  }
};

template <class Number>
constexpr ExpertChoice<Number> choose_experts(const Number* logits, int64_t experts) {
  ExpertChoice<Number> choice;
  for (int64_t e = 0; e < experts; ++e) choice.add({logits[e], static_cast<int32_t>(e)});
  return choice;
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
