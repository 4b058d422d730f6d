// What a training framework does in another way than ffexec, as far as predictions know it ("framework" and "attention"
// of optimizer/parallelism.h). Analytic costs alone: what is measured is what ffexec runs.
#pragma once

namespace ff {

struct FrameworkConventions {
  // Attention writes and reads its probabilities.
  bool stored_attention = false;
  // The loss is a sequence of elementwise kernels on f32 copies of the logits, not one kernel.
  bool unfused_loss = false;
  // In bf16: what is moved of a gathered weight's, and of a reduced gradient's, four bytes.
  double gathered_share = 1, reduced_share = 1;
  bool operator==(const FrameworkConventions&) const = default;
};

// Bytes that attention with stored probabilities moves for each query, head and key. Forward: the scores are written,
// scaled, masked and normalized by one kernel, dropped, and read; backward the same in reverse, with the probabilities
// and their gradients. Activations of two bytes, masks of one.
constexpr double stored_forward_bytes = 2 + 4 + 5 + 2, stored_backward_bytes = 2 + 5 + 6 + 4;
// Bytes that an unfused cross-entropy moves for each logit. Forward: the copy to f32 (2 + 4), the logarithm of softmax
// (4 + 4), what is picked of it (4). Backward: its gradient is written (4), that of the logarithm of softmax (4 + 4 +
// 4), and its copy to bf16 (4 + 2). As torch.nn.functional.cross_entropy under autocast.
constexpr double unfused_loss_forward_bytes = 6 + 8 + 4, unfused_loss_backward_bytes = 4 + 12 + 6;

}  // namespace ff
