// What a training framework does in another way than ffexec, as far as predictions know it ("framework" and "attention"
// of optimizer/parallelism.h). Analytic costs alone: what is measured is what ffexec runs.
#pragma once

#include <cstdint>

#include "common/graph.h"

namespace ff {

struct FrameworkConventions {
  // Attention writes and reads its probabilities.
  bool stored_attention = false;
  // These are computed again in front of backward, and not kept (selective recomputation: Korthikanti et al. 2022,
  // arXiv 2205.05198, section 5).
  bool recomputes_attention = false;
  // Keys are projected, and queries and keys turned, again in front of backward (recompute=selective of
  // framework=fsdp: torchtitan's selective activation checkpointing by operator keeps every other product alone, and
  // those of a layer are queries, keys, values, ... in turn).
  bool recomputes_keys = false;
  // Else: which generation of FlashAttention's kernels, and whether those written in Triton.
  int flash_attention = 2;
  bool triton_attention = false;
  // Those of cuDNN, where their rates are known.
  bool cudnn_attention = false;
  // The host waits for each kernel (CUDA_LAUNCH_BLOCKING=1): what it spends on the next one comes after that.
  bool blocking_launches = false;
  // Sequences are gathered from padded ones in front of attention, and scattered again after it: queries, keys, values
  // and the output each by a call of flash_attn.bert_padding (flash_attn_fn of llm-foundry's attention.py until January
  // 2024, where nothing is padded either).
  bool gathers_padded = false;
  // Kernels that PyTorch's autograd has beside ours. The gradients of queries, keys and values are copied into one
  // array, as they are parts of one product's output (torch.chunk, torch.split). Those of a norm's parameters are a
  // second kernel (layer_norm_kernel.cu and Apex alike), which reads the input and the output's gradient again. The
  // gradient of a linear layer's bias is a sum over the output's gradient, which is read once more (addmm's backward;
  // Megatron-LM's LinearWithGradAccumulation alike). The two gradients of a tensor that a residual addition and a norm
  // read are added: two arrays are read and one is written; the addition itself has no kernel backward.
  // The two gradients of an elementwise product are a kernel each, unless gates are fused.
  bool autograd_copies = false;
  // Gated layers are one kernel: of the activation and the product, which is all that is kept (Megatron-LM's
  // bias_swiglu_impl, since January 2024; what torch.compile makes of them). Not those of experts.
  bool fused_gates = false;
  // Likewise of experts, whose kernel also multiplies tokens by their weights, so that they are not kept behind the
  // experts (weighted_bias_swiglu_impl of Megatron-Core's experts.py, 2025).
  bool fused_expert_gates = false;
  // The two products of a gated layer read their input once: what tensor and expert parallelism exchange of it is
  // exchanged once. (Scaling's ColumnParallelLinear without sequence parallelism sums its own input's gradients.)
  bool shares_gate_inputs = false;
  // The two products of a gated layer are one, so that their input has one gradient, where else two are added up. What
  // a gate multiplies is that product's output, whose gradients are copied into one array (swiglu of ParallelMLP in
  // Megatron-LM's transformer.py: torch.chunk).
  bool joined_gates = false;
  // Norms read f32 copies of their inputs (InternEvo's modeling_internlm.py of July 2023: norm1(residual.float())).
  bool norms_in_f32 = false;
  // RMS norms are sequences of elementwise kernels on f32 copies, as models of Llama write them in PyTorch
  // (eager_norm_forward_bytes).
  bool eager_norms = false;
  // Norms, with these copies, and one of two residual additions are computed again in front of backward
  // (dropout_selective_checkpoint there, where layers are not recomputed).
  bool recomputes_norms = false;
  // What turns queries and keys between products and attention.
  enum class Rotation {
    none,             // nothing beside attention's kernel, as ffexec
    kernel,           // reads and writes them once, forward and backward (rotary_emb.apply_rotary of flash-attn)
    complex_product,  // elementwise kernels on f32 copies, as models of Llama write it (complex_rotation_bytes)
    halves            // elementwise kernels in bf16, as Megatron-LM writes it (halves_rotation_forward_bytes)
  };
  Rotation rotation = Rotation::none;
  // Stages wait for what they send to one another and receive: devices do not compute meanwhile. (dist.send and recv in
  // DeepSpeed's runtime/pipe/p2p.py; Megatron-LM's p2p_communication.py, where chunks are not interleaved.)
  bool waits_for_stages = false;
  // Bytes that adding a micro-batch's gradient to the others' moves for each parameter: bf16 ones by autograd's
  // AccumulateGrad. Times the share of micro-batches that are not the first.
  double accumulated_bytes = 0;
  // Full recomputation computes forward of a layer to its end, beyond what backward reads (common/recomputation.h).
  bool recomputes_whole_segments = false;
  // Full recomputation is a second forward pass of a layer: it repeats what tensor, expert and context parallelism
  // exchange inside (CheckpointFunction of PyTorch, of Megatron-LM's tensor_parallel/random.py and of DeepSpeed alike).
  // ffexec keeps what was received.
  bool recomputes_exchanges = false;
  // The loss is a sequence of elementwise kernels on f32 copies of the logits, not one kernel.
  bool unfused_loss = false;
  // Logits that tensor parallelism splits by class are gathered, in place of statistics, and each device computes the
  // loss of all (TransformerLMHead with parallel_output=False in Scaling's model/layers/lm_head.py).
  bool gathers_logits = false;
  // Cross-entropies of the logits beside the loss, to be logged: unfused, forward only. Not in memory: they are
  // computed after backward, when activations are no longer there.
  int logged_losses = 0;
  // The optimizer's step is a sequence of elementwise kernels, not one kernel.
  bool unfused_optimizer = false;
  // By the norm of all gradients: a device updates when all of its gradients are reduced.
  bool clips_gradients = false;
  // With a sharded optimizer updated weights are gathered while the next forward pass computes
  // (--overlap-param-gather).
  bool gathers_for_forward = false;
  // Gradients that more devices than this have alike are reduced after backward: those of norms and biases with
  // sequence parallelism, which Megatron-LM reduces among tensor-parallel ranks there (_allreduce_layernorm_grads in
  // finalize_model_grads.py). 0: none.
  int late_reductions_beyond = 0;
  // Gradients are reduced, and weights of a sharded optimizer gathered, in buckets of at least so many elements, filled
  // in the order of backward (gradient_buckets.h). 0: each weight by itself.
  int64_t bucket_elements = 0;
  // Sharded parameters and gradients are gathered and reduced by layers. (FSDP's units are transformer blocks:
  // fully_shard of each in torchtitan's parallelize_llama.py, fsdp_wrap_fn of Composer's models; Megatron-FSDP's are
  // TransformerLayers.)
  bool shards_layers = false;
  // Chunks of layers but the first one of the first stage are a bucket each.
  bool buckets_of_first_chunk = false;
  // Bytes that the product of a weight's gradient itself reads and writes, for each weight, to add it to those of other
  // micro-batches: of values of the gradients' type. 0: the product does not add.
  double added_by_products_bytes = 0;
  // Products with weights are in fp8, but for the router's and those in front of the loss, as by TransformerEngine with
  // delayed scaling (fp8_operators). Kernels convert what they read, with the transposed copies that products of
  // gradients need on Hopper. Tensor parallelism gathers converted values. Converted weights are kept, beside their
  // transposed copies (module/linear.py, layernorm_linear.py and base.py of TransformerEngine 1.x).
  bool fp8 = false;
  double fp8_weight_bytes = 0;  // that each micro-batch moves for a weight's element, to have it in fp8
  // Weights of those products are kept and gathered in fp8 alone (--fp8-param-gather).
  bool fp8_weights = false;
  // What lies between the products that tensor parallelism splits is computed by each device of a group, in full.
  bool replicates_length = false;
  // By how many devices the length is split apart from tensor parallelism.
  int context = 1;
  // Parts of attention by length exchange keys and values (MultiHeadAttention::exchange_keys).
  bool exchanges_keys = false;
  // In a pipeline a device goes through with the pass of a micro-batch before it begins with another one.
  bool whole_passes = false;
  // What tensor parallelism gathers in front of a product, and reduces and scatters behind one, is exchanged in as many
  // chunks as there are devices, each beside the product of another (userbuffers of TransformerEngine, which
  // Megatron-LM's --tp-comm-overlap takes). What the product does not hide remains, and at least one chunk. Not of the
  // output in front of a loss. Products of chunks are taken to be as fast as whole ones.
  bool overlaps_tensor_parallel = false;
  // Else: in backward of a product that tensor parallelism splits by output, the sum of the input's gradients runs
  // beside the product of the weights' gradients; with sequence parallelism the input is gathered again beside the
  // product of the input's gradients. (LinearWithGradAccumulationAndAsyncCommunication in Megatron-LM's layers.py since
  // March 2022, and TransformerEngine's Linear alike.)
  bool overlaps_input_gradients = false;
  // Collectives have the algorithms of NCCL alone (CommunicationModel).
  bool nccl_collectives = false;
  // Collectives of parameters run while the device computes, and occupy a part of it (KernelEfficiency::collectives).
  // They do not queue with other transfers and collectives (TaskCosts::separate_parameters).
  bool overlapped_collectives = false;
  // A device goes on when a reduction of gradients begins, which is when the one before is complete (torch.cuda
  // .synchronize in HybridZeroOptimizer._reduce_and_copy of InternLM, July 2023).
  bool waits_for_reductions = false;
  // In front of the reduction of gradients, on the device: bytes that are moved for each parameter.
  double gradient_copy_bytes = 0;
  // What kernels keep, and need while they run, follows framework_workspace_bytes and framework_scratch_bytes.
  bool framework_memory = false;
  // Inputs that all-gathers assemble, of products that tensor parallelism splits, are gathered again after forward;
  // what is kept is the shard (Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2), or nothing where layers are
  // recomputed. In memory alone: backward's gather is hidden behind a product, recomputation's is recomputes_exchanges.
  bool gathers_inputs_again = false;
  // Bytes of a gradient where each holder has all gradients. Sharded optimizer state has the master weights too, so
  // that holders have whole weights in bf16 alone.
  int whole_gradient_bytes = 4;
  // In bf16: what is moved of a gathered weight's, and of a reduced gradient's, four bytes.
  double gathered_share = 1, reduced_share = 1;
  // Sharded state is split among so many neighbouring ranks that have the same parameters, and each such group has all
  // of it; 0: among all ranks. Gradients are reduced among all ranks (hybrid sharding, InternEvo's zero1).
  int shard_group = 0;
  // All-to-alls send tokens from where they were sorted by expert, and receive them where they are sorted again: that
  // is what dispatch, combine and the copies beside the experts do. ffexec packs what it sends, and assembles what it
  // receives. (Permutations in Megatron-Core's token_dispatcher.py.)
  bool exchanges_in_place = false;
  // Weights are gathered where kernels read them; ffexec copies them from the packed buffer.
  bool gathers_in_place = false;
  // With a sharded optimizer gradients are all-reduced, although a rank updates a share of the parameters alone.
  bool all_reduces_gradients = false;
  // With a sharded optimizer a parameter has one owner, which broadcasts it after the update. Ranks take the parameters
  // from the largest on, each the one that has fewest elements so far; a rank's parameters are one array, and so one
  // broadcast. (HybridZeroOptimizer._partition_param_list, _reduce_grads_by_rank with reduce_rank None, and
  // broadcast_params, in InternLM's solver/optimizer/hybrid_zero_optim.py of July 2023.)
  bool whole_parameter_owners = false;
  // f32 arrays that a step reads and writes beyond clipping and the optimizer's own kernels.
  double step_streams = 0;
  bool operator==(const FrameworkConventions&) const = default;
};

// Of Adam with decoupled weight decay, one elementwise kernel an operation, as torch.optim.AdamW(foreach=False) and
// Composer's DecoupledAdamW are written: reads and writes of f32 arrays. Weight decay 2, first moment 2 + 3, second
// moment 2 + 3, square root 2, its two scalar operations 2 + 2, parameter 4.
constexpr double unfused_adam_streams = 22;
// The norm reads the gradients; they are read and written to be scaled.
constexpr double clipping_streams = 3;
// FSDP, for each parameter of a unit, whose gradient is reduced in so many bytes: gradients are gathered into one array
// (backward of torch.split: 2 bytes read, 2 written), converted to f32 if that is reduced (2 read, 4 written), and
// divided by a part of the number of devices, so that sums do not overflow (read and written; torch/distributed/fsdp/
// _runtime_utils.py, _post_backward_hook, and algorithms/_comm_hooks/default_hooks.py, gradient_predivide_factor).
constexpr double fsdp_gradient_copy_bytes(int reduced_bytes) {
  return 4 + (reduced_bytes == 4 ? 6 : 0) + 2 * reduced_bytes;
}

// AccumulateGrad: two bf16 gradients are read, one is written.
constexpr double autograd_accumulation_bytes = 6;
// FSDP with stages, for each parameter and micro-batch after the first: a bf16 gradient is added to a f32 one
// (accumulate_unsharded_grad_if_needed in torch/distributed/fsdp/_fully_shard/_fsdp_param.py).
constexpr double fsdp_accumulation_bytes = 10;
// DeepSpeed's BF16_Optimizer (runtime/bf16_optimizer.py, April 2022, and the branch before it): each micro-batch's
// gradient is converted (2 + 4) and added to a f32 one (4 + 4 + 4). At the end the f32 gradients are multiplied, summed
// up by an all-reduce and copied back (4 + 4 each; runtime/engine.py, allreduce_bucket), read for the norm (4), scaled
// (4 + 4) and set to zero (4), all of them on each rank.
constexpr double bf16_optimizer_accumulation_bytes = 18, bf16_optimizer_copy_bytes = 32;
// InternEvo's HybridZeroOptimizer, for each parameter of a bucket in bf16: flattened, divided by the number of devices,
// and copied back (each read and written: solver/optimizer/utils.py, store.py).
constexpr double internevo_gradient_copy_bytes = 12;
// Scaling's allreduce_bucket, likewise, with copies to f32 and back around the all-reduce (2 + 4 each:
// allreduce_tensor_in_float32 in core/optimizer/allreduce.py).
constexpr double scaling_gradient_copy_bytes(bool reduces_bf16) { return 12 + (reduces_bf16 ? 0 : 12); }
// InternEvo's step, for each parameter that a rank owns, in bytes of four. Overflow is looked for in a f32 copy of the
// gradient (has_inf_or_nan: 2 + 4 and 4), the norm is that of another such copy (2 + 4 and 4), gradients are flattened
// (2 + 2), converted (2 + 4) and scaled (4 + 4); without the norm and the scaling of clipping_streams.
constexpr double internevo_step_streams = (10 + 10 + 4 + 6 + 8) / 4.0 - clipping_streams;
// For each element. Copy to f32 and its gradient's back: 2 and 4 bytes. A norm in f32 has 4 for 2 in its input and its
// input's gradient: forward 2 more, backward (the input is read twice) 6.
constexpr double norm_copy_bytes = 6, f32_norm_forward_bytes = 2, f32_norm_backward_bytes = 6;
// For each element of a RMS norm in bf16, as torchtitan (models/norms.py, RMSNorm), fms (modules/layernorm.py) and
// transformers (LlamaRMSNorm) write it. Forward: copy to f32 (2 + 4), square (4 + 4), mean (4), product with the rows'
// inverse root (4 + 4), copy to bf16 (4 + 2), product with the weights (2 + 2). Backward: both gradients of that
// product (2 + 2, and 4 + 2 and their sum, 2), gradient of the copy (2 + 4), of the product with the rows' root: for
// the copy (4 + 4) and for the root (8 + 4, sum 4); of the mean (4), of the square (pow_backward: power 4 + 4, times
// two 4 + 4, times gradient 8 + 4), the sum of the copy's two gradients (8 + 4), and its gradient in bf16 (4 + 2).
constexpr double eager_norm_forward_bytes = 6 + 8 + 4 + 8 + 6 + 4,
                 eager_norm_backward_bytes = 12 + 6 + 8 + 16 + 4 + 28 + 12 + 6;
// Kept from forward to backward, beyond what one kernel keeps: the f32 copy (4) and what the weights multiply (2), in
// place of the input (2).
constexpr int64_t eager_norm_kept_bytes = 4 + 2 - 2;
// For each element that is turned, each pass: copy to f32 (2 + 4), complex product (4 + 4), copy to bf16 (4 + 2), as
// torchtitan's apply_rotary_emb (models/llama/model.py).
constexpr double complex_rotation_bytes = 20;
// The same by Megatron-LM's apply_rotary_pos_emb without its fusion (core/models/common, rotary_pos_embedding.py;
// Megatron-DeepSpeed's is the same), in bf16. Forward: products with cosines and with sines (2 + 2 each), a half of the
// channels is negated (1 + 1) and the halves are exchanged (2 + 2), the sum (4 + 2), and its copy by torch.cat with
// channels that are not turned, of which there are none (2 + 2). Backward: the same products and halves, the sum of
// their gradients (4 + 2); the gradients of both slices of the input, the empty one's too, are filled with zeros (2
// each), one is copied into (2 + 2), and they are added (4 + 2).
constexpr double halves_rotation_forward_bytes = 8 + 2 + 4 + 6 + 4,
                 halves_rotation_backward_bytes = 8 + 2 + 4 + 6 + 4 + 4 + 6;
// Forward of a norm in f32: 4 bytes read, 2 written; of the addition, half of 6.
constexpr double recomputed_norm_bytes = 6, recomputed_addition_bytes = 3;

// Bytes that attention with stored probabilities moves for each query, head and key. Forward: the scores are written,
// scaled, masked and normalized by one kernel, dropped, and read; backward the same in reverse, with the probabilities
// and their gradients. Activations of two bytes, masks of one.
constexpr double stored_forward_bytes = 2 + 4 + 5 + 2, stored_backward_bytes = 2 + 5 + 6 + 4;
// flash_attn.bert_padding, arrays that are read or written. unpad_input is torch.gather; its backward fills the
// gradient with zeros and scatters into it. pad_input fills the output with zeros and assigns to indexed rows; its
// backward is an indexed read. Forward, of queries, keys and values: 2, of the output: 3; backward: 3 and 2.
constexpr double gathered_arrays = 2, scattered_arrays = 3;
// Of Composer with llm-foundry's models: train_metrics has LanguageCrossEntropy and LanguagePerplexity, which are
// updated in each micro-batch (Trainer._eval_train_metrics).
constexpr int composer_logged_losses = 2;
// What the host spends on a kernel of PyTorch without compilation, in microseconds. Of Llama 7B, 25.5 tokens/s on an
// A100 are computed by a forward pass of one token whose time is that of the host (PyTorch's blog, "Accelerating
// Generative AI with PyTorch II", November 2023, starting point). Its 32 layers launch 48 kernels each, counted in the
// source of gpt-fast of that time (model.py): 16 of two norms, 18 of rotation, 5 products, 9 others.
constexpr double host_us_of_kernel = 1e6 / 25.5 / (32 * 48);
// Bytes that an unfused cross-entropy moves for each logit. Forward: the copy to f32 (2 + 4), the logarithm of softmax
// (4 + 4); of these one a token is picked. Backward: its gradient is written (4), that of the logarithm of softmax (4 +
// 4 + 4), and its copy to bf16 (4 + 2). As torch.nn.functional.cross_entropy under autocast.
constexpr double unfused_loss_forward_bytes = 6 + 8, unfused_loss_backward_bytes = 4 + 12 + 6;

// Are its products those of inputs with weights, attention's own aside?
bool is_projection(const OperatorDefinition& definition);

// Of layers or root mean squares, as transformers have them.
bool is_norm(const OperatorDefinition& definition);

// In fp8, bytes that are moved for an element in bf16: a value and its transposed copy are written. A norm's kernel
// writes fp8 in place of bf16; the transposed copy is read and written by a kernel of its own.
constexpr int fp8_conversion_bytes = 2 + 1 + 1, fp8_conversion_behind_norm_bytes = 1 - 2 + 2;
// Where weights are in fp8 already, of the transposed copy: read and written.
constexpr int fp8_transposition_bytes = 1 + 1;
// Bytes that an fp8 weight and its transposed copy need: as many as one in bf16.
constexpr int64_t fp8_weight_copies = 2;
// How an operator's products are in fp8; nothing where they are not.
struct Fp8Use {
  int input_bytes;  // that are moved for each element of its input: 0 where another operator has it in fp8
};
Vector<std::optional<Fp8Use>> fp8_operators(const Graph& graph, const FrameworkConventions& conventions);
// [parameter]: the weights of those products; biases are in bf16.
Vector<bool> fp8_weights(const Graph& graph, const FrameworkConventions& conventions);
// [parameter]: none unless conventions.fp8_weights.
Vector<bool> weights_gathered_in_fp8(const Graph& graph, const FrameworkConventions& conventions);

// How many times its share a device of a tensor-parallel group computes and keeps, of what is between split products:
// with sequence parallelism each has a share of the length, without it (replicates_length) all of it.
int64_t length_replication(const OperatorDefinition& definition, const Block& part,
                           const FrameworkConventions& conventions);

// Of a loss of classes: logits of which a device computes it.
int64_t logits_of_loss(const OperatorDefinition& definition, const Block& part,
                       const FrameworkConventions& conventions);

// Bytes that a part keeps from forward to backward, beyond inputs and outputs, in the types of mixed precision.
// Attention: queries, keys and values, and a f32 logarithm for each query and head; if it stores probabilities, these
// instead of the logarithms. An unfused loss by classes: f32 logarithms of probabilities. An eager norm: copies of its
// input. All others as ffexec. Other
// parts' keys and values are not among it: they are gathered for as long as the kernels run. Of gathered logits those
// of all classes.
int64_t framework_workspace_bytes(const OperatorDefinition& definition, const Block& part,
                                  const FrameworkConventions& conventions);
// Beyond that, while the part's kernels run: gradients of queries, keys, values and stored probabilities, keys and
// values of other parts with theirs; an unfused loss has two f32 gradients of the logits.
int64_t framework_scratch_bytes(const OperatorDefinition& definition, const Block& part,
                                const FrameworkConventions& conventions);

// Bytes that kernels between attention's own and its products move: those that gather and scatter padded sequences, and
// those that turn queries and keys.
double framework_attention_bytes(const OperatorDefinition& definition, const Block& part, bool backward,
                                 const FrameworkConventions& conventions);

// The two products of a gated layer, which read one tensor.
struct GatedProducts {
  TensorId input;
  OperatorId first, second;
};
Vector<GatedProducts> gated_products(const Graph& graph);

// The graph with definitions that follow the conventions: of attention that exchanges keys, and of gated layers.
Graph with_conventions(Graph graph, const FrameworkConventions& conventions);

}  // namespace ff
