// The analytic model: roofline with a launch floor (Williams et al. 2009, "Roofline"), from the topology's device
// model.
#pragma once

#include <string>

#include "common/kernels/backend.h"
#include "common/kernels/cuda/cuda_backend.h"
#include "common/topology.h"
#include "search/cost/conventions.h"
#include "search/cost/profile.h"

namespace ff {

// Does the type compute matrix products or convolutions, to which --precision applies?
bool computes_products(std::string_view type);

// max(launch, flops / peak rate, bytes / memory bandwidth), the rates times the fractions that the device model's
// KernelEfficiency has, if any: in bf16 of matrix products by their shape, and of fused attention by its length, of
// whose operations a causal mask leaves half. In TF32 and bf16 the peak rate of matrix products and
// convolutions is the model's peak_tf32_tflops or peak_bf16_tflops. Throws InputError where the model has none. `how`
// gets the terms as text, each with its rate and time.
double analytic_kernel_us(const DeviceModel& model, const OperatorDefinition& definition, const Block& part,
                          Phase phase, KernelUse use, Precision precision = Precision::fp32,
                          const FrameworkConventions& conventions = {}, std::string* how = nullptr);
// Every byte is read once and written once.
double analytic_copy_us(const DeviceModel& model, int64_t bytes);
// SGD with momentum: reads parameter, gradient and velocity, writes parameter and velocity; Adam has two moments.
double analytic_update_us(const DeviceModel& model, int64_t bytes, OptimizerKind optimizer = OptimizerKind::sgd,
                          const FrameworkConventions& conventions = {});

}  // namespace ff
