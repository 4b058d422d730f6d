// What datasheets say of processors and GPUs, for analytic kernel costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ff::discovery {

struct GpuDatasheet {
  const char* model;        // a word of the GPU's name, and the key of its device model and profile
  const char* variant;      // another word that the name must have; "" for any
  double peak_tflops;       // f32, of the CUDA cores
  double peak_tf32_tflops;  // TF32 on the tensor cores, dense; 0: the GPU has none
  double peak_bf16_tflops;  // bf16 on the tensor cores with f32 accumulation, dense; 0: the GPU has none
  double memory_gb_per_s;
  double memory_gb;  // 1e9 bytes
  const char* title;
};

// The datasheet of a GPU by its name, "Tesla P100-SXM2-16GB"; null for one that is not known here.
const GpuDatasheet* gpu_datasheet(const std::string& name);

// A short name for a GPU: its datasheet's, or the first word of its name that has a digit, in small letters.
std::string gpu_key(const std::string& name);

// f32 operations that a core of this machine does in a cycle, by its vector units: AVX-512, AVX2 and FMA, or less.
double flops_per_cycle_here(std::string& source);

}  // namespace ff::discovery
