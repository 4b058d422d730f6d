// conv1d and pool1d: the same as on images of height 1.
#pragma once

#include "tests/unit/common/kernels/reference/reference.h"

namespace ff::reference {

// The reference of an operator on sequences [batch, length, channel], `image` being that of the same on [batch,
// channel, 1, length].
Reference on_images(const OperatorDefinition& definition, const Reference& image);

}  // namespace ff::reference
