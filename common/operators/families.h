// The factories of the operator families; operator.cpp holds the list that names them.
#pragma once

#include "common/operators/operator.h"

namespace ff {

std::unique_ptr<OperatorDefinition> make_conv2d(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_pool2d(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_linear(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_elementwise(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_dropout(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_local_response_normalization(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_batch_norm(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_layer_norm(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_embedding(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_lstm(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_concat(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_conv1d(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_pool1d(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_position_embedding(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_attention(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_multi_head_attention(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_matmul(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_mean(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_stack(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_slice(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_pad(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_transpose(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_reshape(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_flatten(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_softmax(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_softmax_cross_entropy(const OperatorRequest&);

}  // namespace ff
