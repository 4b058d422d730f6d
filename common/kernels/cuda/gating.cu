#include "common/operators/gating.h"

#include <algorithm>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"
#include "common/operators/routing.h"
#include "common/philox.h"

namespace ff::cuda {
namespace {

using Warp = RowThreads<32>;
using Choice = ExpertChoice<float>;

// A warp a row, however long: its threads exchange what they found.
template <class Body>
void for_each_row_by_warp(const Context& context, int64_t rows, const Body& body) {
  for_each_row(context, rows, Warp::threads, [=] __device__(auto, int64_t row) { body(row); });
}

// Of a row of logits, the expert that comes first behind `previous`; all threads of the warp get it.
__device__ Choice next_choice(const float* logits, int64_t experts, const Choice& previous) {
  Choice best;
  for (int64_t e = Warp::thread(); e < experts; e += Warp::threads) {
    const Choice one{logits[e], static_cast<int32_t>(e)};
    if ((previous.expert < 0 || comes_before(previous, one)) && comes_before(one, best)) best = one;
  }
  for (int other = 1; other < Warp::threads; other *= 2) {
    const Choice found{__shfl_xor_sync(0xffffffffu, best.logit, other),
                       __shfl_xor_sync(0xffffffffu, best.expert, other)};
    if (comes_before(found, best)) best = found;
  }
  return best;
}

// Of exp(logit - largest).
__device__ float sum_of_experts(const float* logits, int64_t experts, float largest) {
  float sum = 0;
  for (int64_t e = Warp::thread(); e < experts; e += Warp::threads) sum += expf(logits[e] - largest);
  return Warp::sum(sum);
}

// What a warp finds of a token. The choice of a thread is that with its number, since top_k is at most the number of
// threads; its weight.
struct TokenChoice {
  Choice choice;
  float largest, sum, weight;  // weight: exp(logit - largest) / sum; 0 where the thread has no choice
};

__device__ TokenChoice choose(const float* logits, int64_t experts, int64_t top_k, bool normalized) {
  static_assert(most_choices <= Warp::threads);
  TokenChoice result{};
  Choice last;
  for (int64_t k = 0; k < top_k; ++k) {
    last = next_choice(logits, experts, last);
    if (k == 0) result.largest = last.logit;
    if (k == Warp::thread()) result.choice = last;
  }
  const float own = result.choice.expert < 0 ? 0.0f : expf(result.choice.logit - result.largest);
  result.sum = normalized ? Warp::sum(own) : sum_of_experts(logits, experts, result.largest);
  result.weight = own / result.sum;
  return result;
}

// Leaves the experts of a token's choices where their slots will be, and their weights.
void choose_all(const Context& context, const float* logits, int64_t tokens, int64_t experts, int64_t top_k,
                bool normalized, int32_t* chosen, float* weights) {
  for_each_row_by_warp(context, tokens, [=] __device__(int64_t token) {
    const TokenChoice one = choose(logits + token * experts, experts, top_k, normalized);
    if (one.choice.expert < 0) return;
    chosen[token * top_k + Warp::thread()] = one.choice.expert;
    weights[token * top_k + Warp::thread()] = one.weight;
  });
}

void drop_second_choices(const Context& context, uint64_t stream, int64_t iteration, int64_t first_token,
                         int64_t tokens, const float* weights, int32_t* chosen) {
  const int64_t* iteration_memory = context.iteration_memory();
  for_each_index(context, tokens, [=] __device__(int64_t token) {
    const uint64_t draw = static_cast<uint64_t>(iteration_memory ? *iteration_memory : iteration);
    const uint64_t index = static_cast<uint64_t>(first_token + token);
    const auto bits = philox(stream, index / 4, draw);
    const uint32_t lane = static_cast<uint32_t>(index % 4);
    const uint32_t word = lane == 0 ? bits[0] : lane == 1 ? bits[1] : lane == 2 ? bits[2] : bits[3];
    if (!keeps_second(weights[token * 2 + 1], uniform_float(word))) chosen[token * 2 + 1] = -1;
  });
}

// One choice of each thread of a warp: how many of its expert come before it. They are those that were `taken` by
// earlier calls, and those of lower threads.
__device__ int take_place(int32_t expert, int* taken) {
  const unsigned equal = __match_any_sync(0xffffffffu, expert), earlier = equal & ((1u << Warp::thread()) - 1);
  const int place = expert < 0 ? 0 : taken[expert] + __popc(earlier);
  __syncwarp();
  if (expert >= 0 && earlier == 0) taken[expert] += __popc(equal);
  __syncwarp();
  return place;
}

// A block a group. Its choices, all first ones in the order of the tokens, then the second ones and so on, are divided
// into one stretch per warp. Warps first count the experts of theirs, so that each knows what the stretches before it
// take.
__global__ void take_places_kernel(int64_t group_tokens, int64_t experts, int64_t capacity, int64_t top_k,
                                   int32_t* slots, float* weights) {
  FF_DYNAMIC_SHARED(int, taken);  // [warp, expert]
  const int warp = static_cast<int>(threadIdx.x) / Warp::threads, warps = static_cast<int>(blockDim.x) / Warp::threads;
  int* of_warp = taken + warp * experts;
  const int64_t choices = group_tokens * top_k, length = (choices + warps - 1) / warps, begin = warp * length,
                behind = begin + length, end = behind < choices ? behind : choices;
  slots += blockIdx.x * choices;
  weights += blockIdx.x * choices;
  const auto place_of = [&](int64_t choice) {  // where it lies: [token, choice]
    return choice % group_tokens * top_k + choice / group_tokens;
  };
  for (int64_t e = Warp::thread(); e < experts; e += Warp::threads) of_warp[e] = 0;
  __syncwarp();
  for (int64_t first = begin; first < end; first += Warp::threads) {
    const int64_t choice = first + Warp::thread();
    take_place(choice < end ? slots[place_of(choice)] : -1, of_warp);
  }
  __syncthreads();
  for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) {
    int before = 0;
    for (int w = 0; w < warps; ++w) {
      int& count = taken[w * experts + e];
      const int stretch = count;
      count = before;
      before += stretch;
    }
  }
  __syncthreads();
  for (int64_t first = begin; first < end; first += Warp::threads) {
    const int64_t choice = first + Warp::thread();
    const int32_t expert = choice < end ? slots[place_of(choice)] : -1;
    const int64_t place = take_place(expert, of_warp);
    if (choice >= end) continue;
    const bool fits = expert >= 0 && place < capacity;
    slots[place_of(choice)] = fits ? static_cast<int32_t>(expert * capacity + place) : -1;
    if (!fits) weights[place_of(choice)] = 0;
  }
}

// Each warp has a count of every expert in shared memory, of which a block has 48 KiB.
void take_places(const Context& context, int64_t groups, int64_t group_tokens, int64_t experts, int64_t capacity,
                 int64_t top_k, int32_t* slots, float* weights) {
  const int64_t bytes = experts * static_cast<int64_t>(sizeof(int)), steps = (group_tokens * top_k + 31) / 32;
  const int64_t warps = std::max<int64_t>(1, std::min<int64_t>({16, steps, (int64_t{48} << 10) / bytes}));
  launch(context, static_cast<unsigned>(groups), static_cast<unsigned>(warps * Warp::threads),
         static_cast<size_t>(warps * bytes), take_places_kernel, group_tokens, experts, capacity, top_k, slots,
         weights);
}

// As the processor's kernel has it: weight * (gradient - sum) of a choice, -gate * sum of other experts where weights
// are gates of all.
void logit_gradients(const Context& context, const float* logits, const int32_t* slots, const float* gradients,
                     int64_t tokens, int64_t experts, int64_t top_k, bool normalized, float* result) {
  for_each_row_by_warp(context, tokens, [=] __device__(int64_t token) {
    const float* row = logits + token * experts;
    float* of_row = result + token * experts;
    const TokenChoice one = choose(row, experts, top_k, normalized);
    const int64_t at = token * top_k + Warp::thread();
    const float gradient = one.choice.expert < 0 || slots[at] < 0 ? 0.0f : gradients[at],
                sum = Warp::sum(one.weight * gradient);
    for (int64_t e = Warp::thread(); e < experts; e += Warp::threads)
      of_row[e] = normalized || sum == 0 ? 0.0f : -sum * expf(row[e] - one.largest) / one.sum;
    Choice chosen;
    for (int64_t k = 0; k < top_k; ++k) {
      chosen = next_choice(row, experts, chosen);
      if (chosen.expert % Warp::threads != Warp::thread()) continue;  // else this thread wrote there before
      const float own = slots[token * top_k + k] < 0 ? 0.0f : gradients[token * top_k + k];
      of_row[chosen.expert] = expf(chosen.logit - one.largest) / one.sum * (own - sum);
    }
  });
}

class TopKGatingKernel : public Kernel {
 public:
  TopKGatingKernel(const Context& context, const TopKGating& gating, const KernelRequest& request)
      : context_(context), top_k_(gating.top_k), experts_(gating.routing.experts), capacity_(gating.routing.capacity),
        group_tokens_(gating.group_tokens), groups_(request.part[0].size()), tokens_(groups_ * group_tokens_),
        first_token_(request.part[0].begin * group_tokens_), random_(gating.random_routing),
        normalized_(gating.normalized), stream_(random_stream(request.seed, request.operator_name)) {}

  void forward(const KernelArguments& arguments) override {
    int32_t* slots = reinterpret_cast<int32_t*>(arguments.outputs[0]);
    float* weights = arguments.outputs[1];
    choose_all(context_, static_cast<const float*>(arguments.inputs[0]), tokens_, experts_, top_k_, normalized_, slots,
               weights);
    if (random_ && arguments.training)
      drop_second_choices(context_, stream_, arguments.iteration, first_token_, tokens_, weights, slots);
    take_places(context_, groups_, group_tokens_, experts_, capacity_, top_k_, slots, weights);
  }

  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      logit_gradients(context_, static_cast<const float*>(arguments.inputs[0]),
                      reinterpret_cast<const int32_t*>(arguments.outputs[0]), arguments.output_gradients[1], tokens_,
                      experts_, top_k_, normalized_, arguments.input_gradients[0]);
  }
  void set_part(const Block& part, const std::string&) override { first_token_ = part[0].begin * group_tokens_; }

 private:
  const Context& context_;
  int64_t top_k_, experts_, capacity_, group_tokens_, groups_, tokens_, first_token_;
  bool random_, normalized_;
  uint64_t stream_;
};

// counts [group, expert] += 1 at the first choice of each token. Integers, whose sum does not depend on the order.
void count_first_choices(const Context& context, const float* logits, int64_t tokens, int64_t group_tokens,
                         int64_t experts, int32_t* counts) {
  for_each_row_by_warp(context, tokens, [=] __device__(int64_t token) {
    const Choice first = next_choice(logits + token * experts, experts, {});
    if (Warp::thread() == 0) atomicAdd(counts + token / group_tokens * experts + first.expert, 1);
  });
}

// Of each token the sum over the experts of count * gate.
void weigh_gates(const Context& context, const float* gates, const int32_t* counts, int64_t tokens,
                 int64_t group_tokens, int64_t experts, float* sums) {
  for_each_row(context, tokens, experts, [=] __device__(auto row_threads, int64_t token) {
    using Row = decltype(row_threads);
    const int32_t* of_group = counts + token / group_tokens * experts;
    float sum = 0;
    for (int64_t e = Row::thread(); e < experts; e += Row::threads)
      sum += static_cast<float>(of_group[e]) * gates[token * experts + e];
    sum = Row::sum(sum);
    if (Row::thread() == 0) sums[token] = sum;
  });
}

void sum_groups(const Context& context, const float* sums, int64_t groups, int64_t group_tokens, float factor,
                float* losses) {
  for_each_row(context, groups, group_tokens, [=] __device__(auto row_threads, int64_t group) {
    using Row = decltype(row_threads);
    float sum = 0;
    for (int64_t token = Row::thread(); token < group_tokens; token += Row::threads)
      sum += sums[group * group_tokens + token];
    sum = Row::sum(sum);
    if (Row::thread() == 0) losses[group] = sum * factor;
  });
}

void gate_gradients(const Context& context, const float* gates, const int32_t* counts, const float* sums,
                    int64_t tokens, int64_t group_tokens, int64_t experts, float scale, float* result) {
  for_each_index(context, tokens * experts, [=] __device__(int64_t i) {
    const int64_t token = i / experts, expert = i - token * experts;
    const float count = static_cast<float>(counts[token / group_tokens * experts + expert]);
    result[i] = scale * gates[i] * (count - sums[token]);
  });
}

class LoadBalancingLossKernel : public Kernel {
 public:
  LoadBalancingLossKernel(const Context& context, const LoadBalancingLoss& loss, const Block& part)
      : context_(context), experts_(loss.experts), group_tokens_(loss.group_tokens), groups_(part[0].size()),
        tokens_(groups_ * group_tokens_),
        factor_(1 / (static_cast<double>(experts_) * static_cast<double>(group_tokens_) *
                     static_cast<double>(group_tokens_))),
        scale_(static_cast<float>(loss.weight / static_cast<double>(volume(loss.outputs()[0].shape)) * factor_)),
        gates_(context, tokens_ * experts_), sums_(context, tokens_), counts_(context, groups_ * experts_) {}

  void forward(const KernelArguments& arguments) override {
    const float* logits = static_cast<const float*>(arguments.inputs[0]);
    softmax(context_, logits, tokens_, experts_, gates_.data());
    fill_zero(context_, counts_.data(), counts_.bytes());
    count_first_choices(context_, logits, tokens_, group_tokens_, experts_, counts_.data());
    weigh_gates(context_, gates_.data(), counts_.data(), tokens_, group_tokens_, experts_, sums_.data());
    sum_groups(context_, sums_.data(), groups_, group_tokens_, static_cast<float>(factor_), arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      gate_gradients(context_, gates_.data(), counts_.data(), sums_.data(), tokens_, group_tokens_, experts_, scale_,
                     arguments.input_gradients[0]);
  }

  int64_t workspace_bytes() const override { return gates_.bytes() + sums_.bytes() + counts_.bytes(); }

 private:
  const Context& context_;
  int64_t experts_, group_tokens_, groups_, tokens_;
  double factor_;           // of the sum over tokens and experts of count * gate: 1 / (experts * tokens^2)
  float scale_;             // of its gradient
  Memory<float> gates_;     // [token, expert]
  Memory<float> sums_;      // [token]: over the experts, count * gate
  Memory<int32_t> counts_;  // [group, expert]: tokens whose first choice it is
};

}  // namespace

std::unique_ptr<Kernel> make_top_k_gating_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<TopKGatingKernel>(context, dynamic_cast<const TopKGating&>(request.definition), request);
}
std::unique_ptr<Kernel> make_load_balancing_loss_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<LoadBalancingLossKernel>(context, dynamic_cast<const LoadBalancingLoss&>(request.definition),
                                                   request.part);
}

}  // namespace ff::cuda
