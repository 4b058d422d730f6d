#include "search/optimizer/parallelism.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "common/errors.h"

namespace ff {
namespace {

const Vector<std::string>& keys() {
  static const Vector<std::string> all = {"tp",
                                          "pp",
                                          "vp",
                                          "dp",
                                          "cp",
                                          "ep",
                                          "etp",
                                          "sharding",
                                          "recompute",
                                          "micro_batch",
                                          "attention",
                                          "loss",
                                          "sequence_parallel",
                                          "framework",
                                          "layers",
                                          "recompute_layers",
                                          "precision",
                                          "reduce",
                                          "early_stop",
                                          "compile",
                                          "shard_group",
                                          "stage_dp",
                                          "overlap_grad_reduce",
                                          "overlap_param_gather",
                                          "tp_comm_overlap",
                                          "tp_grad_overlap",
                                          "fp8",
                                          "launch_blocking",
                                          "norm_fusion",
                                          "rope_fusion",
                                          "swiglu_fusion"};
  return all;
}

std::string joined(const Vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::map<std::string, std::string> split(const std::string& text) {
  std::map<std::string, std::string> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const size_t sign = item.find('=');
    if (sign == std::string::npos)
      throw InputError("\"" + item + "\" is not KEY=VALUE, such as tp=8; the keys are " + joined(keys()));
    const std::string key = item.substr(0, sign);
    if (std::find(keys().begin(), keys().end(), key) == keys().end())
      throw InputError("unknown key \"" + key + "\"" + suggestion(key, keys()));
    if (!values.emplace(key, item.substr(sign + 1)).second) throw InputError("\"" + key + "\" is given twice");
    begin = end + 1;
  }
  return values;
}

int64_t number(const std::string& key, const std::string& text, int64_t least = 1) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > (1 << 20))
    throw InputError(key + ": found \"" + text + "\", expected a number from " + std::to_string(least) + " to 1048576");
  return value;
}

std::string one_of(const std::string& key, const std::string& text, const Vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), text) == words.end())
    throw InputError(key + ": found \"" + text + "\", expected one of " + joined(words));
  return text;
}

Precision precision_of_key(const std::string& key, const std::string& text) {
  return precision_of(one_of(key, text, {"fp32", "tf32", "bf16"}));
}

// "5:6:6:7"
Vector<int> numbers(const std::string& key, const std::string& text, int64_t least) {
  Vector<int> result;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    result.push_back(static_cast<int>(number(key, text.substr(begin, end - begin), least)));
    begin = end + 1;
  }
  return result;
}

const Fusion* fusion_of(const std::string& key) {
  const auto found =
      std::find_if(std::begin(fusions), std::end(fusions), [&](const Fusion& fusion) { return fusion.key == key; });
  return found == std::end(fusions) ? nullptr : found;
}

const Vector<std::string> recomputation_names = {"none", "norms", "elementwise", "selective", "full"};

Recomputation recomputation_named(const std::string& name) {
  const auto found = std::find(recomputation_names.begin(), recomputation_names.end(), name);
  return static_cast<Recomputation>(found - recomputation_names.begin());
}

bool runs_deepspeed_or_scaling(const Parallelism& parallelism) {
  return parallelism.framework == "deepspeed" || parallelism.framework == "scaling";
}

// A device of a tensor-parallel group can compute all of what is between split products.
bool may_replicate_length(const Parallelism& parallelism) {
  return parallelism.framework == "megatron" || runs_deepspeed_or_scaling(parallelism);
}

// Nothing runs beside a kernel that the host waits for.
void check_blocking_launches(const Parallelism& parallelism) {
  if (!may_replicate_length(parallelism))
    throw InputError(
        "launch_blocking=on: says how kernels are launched with framework=megatron, deepspeed or scaling, and "
        "framework "
        "is none of these");
  const bool overlaps = parallelism.overlaps_tensor_parallel || parallelism.overlaps_gathers ||
                        parallelism.overlaps_input_gradients == true || parallelism.overlaps_reductions == true;
  if (overlaps || shards_gradients(parallelism.synchronization))
    throw InputError(
        "launch_blocking=on: no collective runs beside a kernel that the host waits for; leave out what is to overlap, "
        "and sharding beyond the optimizer's state, whose collectives are predicted beside kernels");
}

// Stages and groups follow from stage_dp; where they are given, too, they must be these.
void set_stages_of_own_width(Parallelism& parallelism, bool pipeline_given, bool data_given) {
  const Vector<int>& groups = parallelism.stage_data;
  const std::string text = "stage_dp=" + colon_separated(groups);
  if (pipeline_given && parallelism.pipeline != groups.count())
    throw InputError("pp=" + std::to_string(parallelism.pipeline) + ": " + text + " has " +
                     std::to_string(groups.count()) + " stages");
  parallelism.pipeline = groups.count();
  const int most = *std::max_element(groups.begin(), groups.end());
  if (data_given && parallelism.data != most)
    throw InputError("dp=" + std::to_string(parallelism.data) + ": the largest of " + text + " is " +
                     std::to_string(most));
  parallelism.data = most;
  if (std::all_of(groups.begin(), groups.end(), [&](int one) { return one == most; })) {
    parallelism.stage_data.clear();
    return;
  }
  if (parallelism.framework != "none")
    throw InputError(text + ": framework=" + parallelism.framework + " has equally many devices in each stage");
  if (parallelism.chunks > 1) throw InputError(text + ": stages of different width have one chunk of layers, vp=1");
  if (parallelism.expert > 1 || parallelism.expert_tensor > 0)
    throw InputError(text + ": experts are not divided (ep, etp) over stages of different width");
}

}  // namespace

int Parallelism::equal_parts() const {
  return std::accumulate(stage_data.begin(), stage_data.end(), data, [](int a, int b) { return std::gcd(a, b); });
}

Parallelism Parallelism::part(int parts) const {
  Parallelism result = *this;
  result.data /= parts;
  for (int& groups : result.stage_data) groups /= parts;
  return result;
}

std::string colon_separated(const Vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ":") + std::to_string(number);
  return text;
}

std::string_view name_of(Recomputation recomputation) { return recomputation_names[static_cast<int>(recomputation)]; }

bool fuses_norms(const Parallelism& parallelism) { return parallelism.fuses_norms.value_or(parallelism.compiled); }

bool fuses_rope(const Parallelism& parallelism) {
  const bool by_itself = !runs_deepspeed_or_scaling(parallelism) && parallelism.compiled;
  return parallelism.fuses_rope.value_or(by_itself);
}

bool fuses_swiglu(const Parallelism& parallelism) {
  const bool by_itself =
      parallelism.framework == "megatron" || (parallelism.framework == "fsdp" && parallelism.compiled);
  return parallelism.fuses_swiglu.value_or(by_itself);
}

bool recomputes_operators(const Parallelism& parallelism) {
  return parallelism.recompute == Recomputation::selective && parallelism.attention != "stored" &&
         (parallelism.framework == "none" || parallelism.framework == "fsdp");
}

bool overlaps_by_default(const Parallelism& parallelism) {
  return parallelism.pipeline == 1 && !may_replicate_length(parallelism) && !parallelism.blocking_launches;
}

namespace {

bool keeps_whole(const Parallelism& parallelism) {
  return parallelism.framework == "fsdp" && parallelism.pipeline > 1 && shards_gradients(parallelism.synchronization);
}

}  // namespace

Synchronization sharding_of_micro_batches(const Parallelism& parallelism) {
  return keeps_whole(parallelism) ? Synchronization::sharded_optimizer : parallelism.synchronization;
}

bool gathers_for_forward(const Parallelism& parallelism) {
  return parallelism.overlaps_gathers && parallelism.synchronization == Synchronization::sharded_optimizer;
}

bool runs_fsdp(const Parallelism& parallelism) {
  return parallelism.framework == "fsdp" || parallelism.framework == "composer";
}

bool overlaps_reductions(const Parallelism& parallelism) {
  return parallelism.overlaps_reductions.value_or(overlaps_by_default(parallelism));
}

namespace {

// Throws InputError where settings need others, or exclude each other.
void check_together(const Parallelism& parallelism) {
  if (!parallelism.sequence_parallel && parallelism.tensor > 1 && !may_replicate_length(parallelism))
    throw InputError(
        "sequence_parallel=off with tp above 1: every device of a group would compute what is between the layers, and "
        "plans of ffexec have no operators that several devices compute alike; leave it out, or predict what "
        "framework=megatron, deepspeed or scaling takes");
  if (!parallelism.reduce.empty() && parallelism.framework == "none")
    throw InputError("reduce: says in which type a framework reduces gradients, and framework is not given");
  if (parallelism.fused_loss && parallelism.framework == "none")
    throw InputError("loss=fused: says that a framework has one kernel for the loss, and framework is not given");
  if (parallelism.blocking_launches) check_blocking_launches(parallelism);
  if (parallelism.overlaps_tensor_parallel && (parallelism.framework != "megatron" || !parallelism.sequence_parallel))
    throw InputError(
        "tp_comm_overlap=on: says that Megatron-LM hides the collectives of tensor parallelism behind products, which "
        "needs framework=megatron and not sequence_parallel=off");
  if (parallelism.overlaps_input_gradients && parallelism.framework != "megatron")
    throw InputError(
        "tp_grad_overlap: says whether Megatron-LM exchanges gradients of inputs beside products, and framework is not "
        "megatron");
  if (parallelism.fp8 && parallelism.framework != "megatron")
    throw InputError(
        "fp8: says that TransformerEngine computes products in fp8, which ffexec does not, and framework is not "
        "megatron");
  if (parallelism.overlaps_gathers &&
      (parallelism.framework != "megatron" || parallelism.synchronization != Synchronization::sharded_optimizer))
    throw InputError(
        "overlap_param_gather=on: says that Megatron-LM gathers updated weights while the next forward pass computes, "
        "which needs framework=megatron and sharding=optimizer");
  if (parallelism.overlaps_gathers && !overlaps_reductions(parallelism))
    throw InputError("overlap_param_gather=on: Megatron-LM takes it with overlap_grad_reduce=on alone");
  if (parallelism.shard_group > 0 && (parallelism.framework == "none" || !is_sharded(parallelism.synchronization)))
    throw InputError(
        "shard_group: says among how many ranks a framework splits sharded state, and framework or sharding is not "
        "given");
  if (parallelism.recompute == Recomputation::norms && parallelism.framework != "none" &&
      parallelism.framework != "megatron")
    throw InputError("recompute=norms: layers compute norms again with framework=megatron or none, not with " +
                     parallelism.framework);
  if (parallelism.recompute == Recomputation::elementwise && parallelism.framework != "none")
    throw InputError("recompute=elementwise: is for framework=none, no setting of " + parallelism.framework +
                     " says it");
  if (parallelism.recompute_layers > 0 && parallelism.recompute != Recomputation::full)
    throw InputError("recompute_layers: says how many layers of a chunk recompute=full is for, and that is not given");
  if (!parallelism.early_stop && !runs_fsdp(parallelism))
    throw InputError(
        "early_stop=off: says where recomputation of framework=fsdp or composer ends, and neither is given");
  if (!parallelism.compiled && !runs_fsdp(parallelism) && !runs_deepspeed_or_scaling(parallelism))
    throw InputError(
        "compile=off: says that a model runs without torch.compile, and framework is none of fsdp, composer, "
        "deepspeed, scaling");
  for (const Fusion& fusion : fusions)
    if (parallelism.*fusion.given && (parallelism.framework == "none" || parallelism.framework == "internevo"))
      throw InputError(std::string(fusion.key) +
                       ": says which kernels a framework has, and framework is none of megatron, deepspeed, fsdp, "
                       "composer, scaling");
}

}  // namespace

void set_value(Parallelism& result, const std::string& key, const std::string& value) {
  if (key == "tp") result.tensor = static_cast<int>(number(key, value));
  else if (key == "pp") result.pipeline = static_cast<int>(number(key, value));
  else if (key == "vp") result.chunks = static_cast<int>(number(key, value));
  else if (key == "dp") result.data = static_cast<int>(number(key, value));
  else if (key == "micro_batch") result.micro_batch = number(key, value);
  else if (key == "sharding")
    result.synchronization = with_sharding(Synchronization::all_reduce,
                                           one_of(key, value, {"none", "optimizer", "gradients", "parameters"}));
  else if (key == "shard_group") result.shard_group = static_cast<int>(number(key, value));
  else if (key == "recompute") {
    result.recompute = recomputation_named(one_of(key, value, recomputation_names));
  } else if (key == "sequence_parallel") result.sequence_parallel = one_of(key, value, {"on", "off"}) == "on";
  else if (key == "attention")
    result.attention = one_of(key, value, {"fused", "flash2", "cudnn", "varlen", "flash1", "triton", "stored"});
  else if (key == "reduce") result.reduce = one_of(key, value, {"f32", "bf16"});
  else if (key == "overlap_grad_reduce") result.overlaps_reductions = one_of(key, value, {"on", "off"}) == "on";
  else if (key == "overlap_param_gather") result.overlaps_gathers = one_of(key, value, {"on", "off"}) == "on";
  else if (key == "tp_comm_overlap") result.overlaps_tensor_parallel = one_of(key, value, {"on", "off"}) == "on";
  else if (key == "tp_grad_overlap") result.overlaps_input_gradients = one_of(key, value, {"on", "off"}) == "on";
  else if (key == "fp8") {
    result.fp8_weights = one_of(key, value, {"on", "off", "weights"}) == "weights";
    result.fp8 = value != "off";
  } else if (const Fusion* fusion = fusion_of(key)) result.*fusion->given = one_of(key, value, {"on", "off"}) == "on";
  else if (key == "launch_blocking") result.blocking_launches = one_of(key, value, {"on", "off"}) == "on";
  else if (key == "early_stop") result.early_stop = one_of(key, value, {"on", "off"}) == "on";
  else if (key == "compile") result.compiled = one_of(key, value, {"on", "off"}) == "on";
  else if (key == "loss") result.fused_loss = one_of(key, value, {"unfused", "fused"}) == "fused";
  else if (key == "layers") result.layers = numbers(key, value, 0);
  else if (key == "stage_dp") result.stage_data = numbers(key, value, 1);
  else if (key == "recompute_layers") result.recompute_layers = static_cast<int>(number(key, value));
  else if (key == "framework")
    result.framework =
        one_of(key, value, {"none", "megatron", "fsdp", "composer", "deepspeed", "internevo", "scaling"});
  else if (key == "ep") result.expert = static_cast<int>(number(key, value));
  else if (key == "etp") result.expert_tensor = static_cast<int>(number(key, value));
  else if (key == "cp") result.context = static_cast<int>(number(key, value));
  else precision_of_key(key, value);  // precision_of_settings
}

Parallelism parse_parallelism(const std::string& text) {
  Parallelism result;
  const std::map<std::string, std::string> values = split(text);
  for (const auto& [key, value] : values) set_value(result, key, value);
  check_together(result);
  if (!result.stage_data.empty()) set_stages_of_own_width(result, values.contains("pp"), values.contains("dp"));
  if (result.chunks > 1 && result.pipeline == 1) throw InputError("vp: chunks of layers need stages, pp above 1");
  return result;
}

std::optional<Precision> precision_of_settings(const std::string& text) {
  const std::map<std::string, std::string> values = split(text);
  const auto found = values.find("precision");
  return found == values.end() ? std::nullopt : std::optional(precision_of_key("precision", found->second));
}

std::set<std::string> keys_of_parallelism(const std::string& text) {
  const std::map<std::string, std::string> values = split(text);
  std::set<std::string> result;
  for (const auto& [key, value] : values) result.insert(key);
  if (values.contains("stage_dp")) result.insert({"pp", "dp"});
  if (const auto found = values.find("launch_blocking"); found != values.end() && found->second == "on")
    result.insert({"overlap_grad_reduce", "overlap_param_gather"});
  return result;
}

namespace {

// Megatron-LM without --overlap-grad-reduce reduces all gradients of a chunk of layers at once, as before 2023; with it
// in buckets of 40 million parameters, or a million for each data-parallel rank, and only those of the first stage's
// first chunk (distributed_data_parallel.py). DeepSpeed has buckets of 500 million elements
// (buffered_allreduce_fallback in runtime/engine.py; reduce_bucket_size and allgather_bucket_size by default), Scaling
// too (allreduce_no_retain in core/optimizer/allreduce.py).
void set_buckets(const Parallelism& parallelism, FrameworkConventions& conventions) {
  if (runs_deepspeed_or_scaling(parallelism)) conventions.bucket_elements = 500'000'000;
  if (parallelism.framework != "megatron") return;
  conventions.buckets_of_first_chunk = true;
  conventions.bucket_elements = overlaps_reductions(parallelism)
                                    ? std::max<int64_t>(40'000'000, int64_t{1'000'000} * parallelism.data)
                                    : std::numeric_limits<int64_t>::max();
}

// InternEvo is built on DeepSpeed's mixed precision; Scaling has an optimizer of the same kind.
bool accumulates_as_deepspeed(const Parallelism& parallelism) {
  return parallelism.framework == "internevo" || runs_deepspeed_or_scaling(parallelism);
}

void set_attention(const Parallelism& parallelism, FrameworkConventions& result) {
  result.stored_attention = parallelism.attention == "stored";
  result.recomputes_attention = result.stored_attention && parallelism.recompute == Recomputation::selective;
  result.triton_attention = parallelism.attention == "triton";
  result.cudnn_attention =
      parallelism.attention == "cudnn" || (parallelism.attention == "fused" && parallelism.framework == "megatron");
  result.flash_attention = parallelism.attention == "flash1" || result.triton_attention ? 1 : 2;
  result.gathers_padded = parallelism.attention == "varlen";
}

void set_kernels(const Parallelism& parallelism, FrameworkConventions& result) {
  const bool internevo = parallelism.framework == "internevo", scaling = parallelism.framework == "scaling",
             fsdp = runs_fsdp(parallelism);
  result.unfused_loss = !parallelism.fused_loss;
  result.logged_losses = parallelism.framework == "composer" ? composer_logged_losses : 0;
  result.unfused_optimizer = fsdp || internevo;
  result.clips_gradients = true;
  result.blocking_launches = parallelism.blocking_launches;
  result.autograd_copies = true;
  result.fused_gates = fuses_swiglu(parallelism);
  result.fused_expert_gates = result.fused_gates && parallelism.framework == "megatron";
  result.joined_gates = !fsdp && !internevo && !scaling;
  result.norms_in_f32 = internevo;
  result.eager_norms = !fuses_norms(parallelism);
  using Rotation = FrameworkConventions::Rotation;
  result.rotation = fuses_rope(parallelism) ? Rotation::kernel : fsdp ? Rotation::complex_product : Rotation::halves;
  result.whole_passes = true;
  result.step_streams = internevo ? internevo_step_streams : 0;
}

void set_recomputation(const Parallelism& parallelism, FrameworkConventions& result) {
  result.recomputes_norms = parallelism.framework == "internevo" && parallelism.recompute != Recomputation::full;
  result.recomputes_keys = recomputes_operators(parallelism);
  result.recomputes_whole_segments = !runs_fsdp(parallelism) || !parallelism.early_stop;
  result.recomputes_exchanges = parallelism.recompute == Recomputation::full;
  result.gathers_inputs_again =
      result.recomputes_exchanges || (parallelism.framework == "megatron" && parallelism.sequence_parallel);
}

void set_fp8(const Parallelism& parallelism, int64_t micro_batches, FrameworkConventions& result) {
  result.fp8 = parallelism.fp8;
  if (parallelism.fp8)  // weights are converted in the first micro-batch, for all
    result.fp8_weight_bytes = (parallelism.fp8_weights ? fp8_transposition_bytes : fp8_conversion_bytes) /
                              static_cast<double>(std::max<int64_t>(1, micro_batches));
  result.fp8_weights = parallelism.fp8_weights;
}

// Of which bytes gradients are, where they are added up, and how they are reduced.
void set_gradients(const Parallelism& parallelism, int64_t micro_batches, FrameworkConventions& result) {
  const bool internevo = parallelism.framework == "internevo", scaling = parallelism.framework == "scaling",
             fsdp = runs_fsdp(parallelism), deepspeed = accumulates_as_deepspeed(parallelism);
  const bool bf16_optimizer = parallelism.framework == "deepspeed" && parallelism.reduce == "f32";
  if (bf16_optimizer) result.accumulated_bytes = bf16_optimizer_accumulation_bytes;
  else if ((deepspeed || keeps_whole(parallelism)) && micro_batches > 1)
    result.accumulated_bytes = (deepspeed ? autograd_accumulation_bytes : fsdp_accumulation_bytes) *
                               static_cast<double>(micro_batches - 1) / static_cast<double>(micro_batches);
  const bool reduces_bf16 = parallelism.reduce.empty() ? deepspeed && !scaling : parallelism.reduce == "bf16";
  // Megatron-LM has one array of gradients, of the type in which they are reduced (grad_reduce_in_fp32 of
  // distributed_data_parallel_config.py).
  const bool bf16_gradients = deepspeed || (parallelism.framework == "megatron" && reduces_bf16);
  result.whole_gradient_bytes = bf16_optimizer ? 2 + 4 : bf16_gradients ? 2 : 4;
  // wgrad_gemm_accum_fp32 and _fp16 in Megatron-LM's layers.py, accumulate in TransformerEngine's general_gemm.
  if (parallelism.framework == "megatron") result.added_by_products_bytes = 2 * result.whole_gradient_bytes;
  result.gradient_copy_bytes = fsdp             ? fsdp_gradient_copy_bytes(reduces_bf16 ? 2 : 4)
                               : internevo      ? internevo_gradient_copy_bytes
                               : scaling        ? scaling_gradient_copy_bytes(reduces_bf16)
                               : bf16_optimizer ? bf16_optimizer_copy_bytes
                                                : 0;
  result.reduced_share = reduces_bf16 ? 0.5 : 1;
  result.whole_parameter_owners = internevo && parallelism.synchronization == Synchronization::sharded_optimizer;
  result.all_reduces_gradients = result.whole_parameter_owners || bf16_optimizer || scaling;
  result.waits_for_reductions = internevo;
  if (parallelism.framework == "megatron" && parallelism.tensor > 1)
    result.late_reductions_beyond = parallelism.ranks_of_parameters();
  set_buckets(parallelism, result);
}

// What devices gather, when, and beside what.
void set_exchanges(const Parallelism& parallelism, FrameworkConventions& result) {
  const bool internevo = parallelism.framework == "internevo", scaling = parallelism.framework == "scaling",
             fsdp = runs_fsdp(parallelism), megatron = parallelism.framework == "megatron";
  result.replicates_length = !parallelism.sequence_parallel && parallelism.tensor > 1;
  result.context = parallelism.context;
  result.exchanges_keys = parallelism.context > 1;
  result.nccl_collectives = true;
  result.overlapped_collectives = true;
  result.gathered_share = 0.5;
  result.overlaps_tensor_parallel = parallelism.overlaps_tensor_parallel && parallelism.tensor > 1;
  result.overlaps_input_gradients = megatron && parallelism.tensor > 1 &&
                                    parallelism.overlaps_input_gradients.value_or(!parallelism.blocking_launches);
  result.gathers_for_forward = gathers_for_forward(parallelism) || keeps_whole(parallelism);
  result.shards_layers = fsdp || megatron;
  if (parallelism.shard_group > 0 && parallelism.ranks_of_parameters() % parallelism.shard_group == 0)
    result.shard_group = parallelism.shard_group;
  result.gathers_in_place = true;
  result.exchanges_in_place = true;
  result.shares_gate_inputs = !(scaling && result.replicates_length);
  result.gathers_logits = scaling && parallelism.tensor > 1;
  result.waits_for_stages = parallelism.pipeline > 1 && !fsdp && !internevo && parallelism.chunks == 1;
}

}  // namespace

FrameworkConventions conventions_of(const Parallelism& parallelism, int64_t batch) {
  FrameworkConventions result;
  set_attention(parallelism, result);
  if (parallelism.framework == "none") return result;
  const int64_t micro_batches =
      parallelism.data > 0 && parallelism.micro_batch > 0 ? batch / parallelism.data / parallelism.micro_batch : 1;
  result.framework_memory = true;
  set_kernels(parallelism, result);
  set_recomputation(parallelism, result);
  set_fp8(parallelism, micro_batches, result);
  set_gradients(parallelism, micro_batches, result);
  set_exchanges(parallelism, result);
  return result;
}

std::string to_string(const Parallelism& parallelism) {
  std::string text = "tp=" + std::to_string(parallelism.tensor) + ",pp=" + std::to_string(parallelism.pipeline) +
                     ",vp=" + std::to_string(parallelism.chunks) + ",dp=" + std::to_string(parallelism.data) +
                     ",micro_batch=" + std::to_string(parallelism.micro_batch);
  if (!parallelism.stage_data.empty()) text += ",stage_dp=" + colon_separated(parallelism.stage_data);
  if (parallelism.context > 1) text += ",cp=" + std::to_string(parallelism.context);
  if (parallelism.expert > 1) text += ",ep=" + std::to_string(parallelism.expert);
  if ((parallelism.expert > 1 && parallelism.tensor > 1) || parallelism.of_expert() != parallelism.tensor)
    text += ",etp=" + std::to_string(parallelism.of_expert());
  text += ",sharding=" + std::string(sharding_name(parallelism.synchronization));
  if (parallelism.shard_group > 0) text += ",shard_group=" + std::to_string(parallelism.shard_group);
  const bool nothing = parallelism.recompute == Recomputation::selective && parallelism.attention != "stored" &&
                       !recomputes_operators(parallelism);
  text += ",recompute=" + std::string(name_of(nothing ? Recomputation::none : parallelism.recompute));
  if (parallelism.recompute_layers > 0) text += ",recompute_layers=" + std::to_string(parallelism.recompute_layers);
  if (!parallelism.early_stop) text += ",early_stop=off";
  if (!parallelism.layers.empty()) text += ",layers=" + colon_separated(parallelism.layers);
  if (parallelism.attention != "fused") text += ",attention=" + parallelism.attention;
  if (parallelism.fused_loss) text += ",loss=fused";
  if (!parallelism.compiled) text += ",compile=off";
  if (!parallelism.sequence_parallel) text += ",sequence_parallel=off";
  if (parallelism.framework != "none") text += ",framework=" + parallelism.framework;
  if (const bool overlaps = overlaps_reductions(parallelism); overlaps != overlaps_by_default(parallelism))
    text += std::string(",overlap_grad_reduce=") + (overlaps ? "on" : "off");
  if (gathers_for_forward(parallelism)) text += ",overlap_param_gather=on";
  if (parallelism.overlaps_tensor_parallel && parallelism.tensor > 1) text += ",tp_comm_overlap=on";
  if (parallelism.overlaps_input_gradients == false && parallelism.tensor > 1) text += ",tp_grad_overlap=off";
  if (parallelism.blocking_launches) text += ",launch_blocking=on";
  if (parallelism.fp8) text += parallelism.fp8_weights ? ",fp8=weights" : ",fp8=on";
  for (const Fusion& fusion : fusions) {
    Parallelism by_itself = parallelism;
    by_itself.*fusion.given = {};
    if (const bool on = fusion.is_on(parallelism); on != fusion.is_on(by_itself))
      text += std::string(",") + fusion.key + "=" + (on ? "on" : "off");
  }
  if (!parallelism.reduce.empty()) text += ",reduce=" + parallelism.reduce;
  return text;
}

std::map<std::string, std::string> values_by_key(const Parallelism& parallelism) {
  return split(to_string(parallelism));
}

}  // namespace ff
