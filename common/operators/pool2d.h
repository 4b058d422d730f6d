#pragma once

#include "common/operators/sequence.h"

namespace ff {

// input [batch, channels, height, width] -> [batch, channels, out_height, out_width].
class Pool2d : public OperatorDefinition {
 public:
  explicit Pool2d(const OperatorRequest& request);
  // The same on an input of shape `image` and with these windows; the other attributes are the request's.
  Pool2d(const OperatorRequest& request, const Shape& image, const Window& height, const Window& width);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;
  bool reads_every_element(int input) const override {
    return height.leaves_no_gap() && width.leaves_no_gap() && OperatorDefinition::reads_every_element(input);
  }
  std::string attribute_text() const override;
  std::string signature(const Block& part) const override;
  bool backward_reads_input(int) const override { return false; }
  // a byte: which one
  int64_t workspace_bytes(const Block& part) const override { return method == Method::max ? part.volume() : 0; }
  Work forward_work(const Block& part) const override;

  enum class Method { max, average };
  Method method;
  Window height, width;
  bool count_padding;  // average: divide by the kernel's area even where it covers padding
};

// input [batch, length, channels] -> [batch, out_length, channels].
class Pool1d : public OnSequence<Pool2d> {
 public:
  explicit Pool1d(const OperatorRequest& request);
};

}  // namespace ff
