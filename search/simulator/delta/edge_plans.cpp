#include "search/simulator/delta/edge_plans.h"

namespace ff::delta {
namespace {

std::shared_ptr<const EdgePlan> make_plan(const std::shared_ptr<const BlockPairs>& pairs, size_t producers,
                                          size_t consumers) {
  auto plan = std::make_shared<EdgePlan>();
  plan->pairs = pairs;
  plan->consumer_begin.assign(consumers + 1, 0);
  plan->producer_begin.assign(producers + 1, 0);
  for (const BlockPair& pair : *pairs) {
    ++plan->consumer_begin[pair.consumer_part + 1];
    ++plan->producer_begin[pair.producer_part + 1];
  }
  for (size_t c = 0; c < consumers; ++c) plan->consumer_begin[c + 1] += plan->consumer_begin[c];
  for (size_t p = 0; p < producers; ++p) plan->producer_begin[p + 1] += plan->producer_begin[p];
  plan->by_producer.resize(pairs->size());
  Vector<int32_t> next(plan->producer_begin.begin(), plan->producer_begin.end() - 1);
  for (size_t i = 0; i < pairs->size(); ++i)
    plan->by_producer[next[(*pairs)[i].producer_part]++] = static_cast<int32_t>(i);
  plan->one_to_one = pairs->size() == producers && pairs->size() == consumers;
  for (size_t i = 0; i < pairs->size() && plan->one_to_one; ++i)
    plan->one_to_one =
        (*pairs)[i].producer_part == static_cast<int32_t>(i) && (*pairs)[i].consumer_part == static_cast<int32_t>(i);
  return plan;
}

}  // namespace

const std::shared_ptr<const EdgePlan>& EdgePlans::plan(int edge, const Degrees& producer, const Degrees& consumer) {
  edge = builder_.first_alike(edge);
  key_.clear();
  producer.append_to(key_);
  consumer.append_to(key_);
  const auto found = plans_[edge].find(key_);
  if (found != plans_[edge].end()) return found->second;
  const size_t producers = static_cast<size_t>(parts_of(producer)), consumers = static_cast<size_t>(parts_of(consumer));
  const auto pairs = builder_.pairs(edge, producer, consumer);
  if (cached_pairs_ > most_cached_pairs) {
    for (auto& plans : plans_) plans.clear();
    distinct_.clear();
    cached_pairs_ = 0;
  }
  std::shared_ptr<const EdgePlan>& plan = distinct_[{pairs.get(), producers, consumers}];
  if (!plan) {
    plan = make_plan(pairs, producers, consumers);
    cached_pairs_ += pairs->size() + producers + consumers;
  }
  return plans_[edge].emplace(key_, plan).first->second;
}

}  // namespace ff::delta
