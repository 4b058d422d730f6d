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
std::unique_ptr<OperatorDefinition> make_concat(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_flatten(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_softmax(const OperatorRequest&);
std::unique_ptr<OperatorDefinition> make_softmax_cross_entropy(const OperatorRequest&);

}  // namespace ff
