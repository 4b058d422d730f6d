#include "search/discovery/datasheets.h"

#include <algorithm>
#include <cctype>

#include "common/vector.h"

namespace ff::discovery {
namespace {

// NVIDIA's datasheets by title; TF32 and bf16 rates are without sparsity. Variants of one model stand before the one
// that any name has.
constexpr GpuDatasheet datasheets[] = {
    {"k40m", "", 4.29, 0, 0, 288, 12, "NVIDIA Tesla K40 datasheet, base clock"},
    {"k80", "", 4.37, 0, 0, 240, 12, "NVIDIA Tesla K80 datasheet, half of the board, boost clock"},
    {"p100", "pcie", 9.3, 0, 0, 732, 16, "NVIDIA Tesla P100 datasheet, PCIe"},
    {"p100", "", 10.6, 0, 0, 732, 16, "NVIDIA Tesla P100 datasheet, SXM2"},
    {"v100", "pcie", 14, 0, 0, 900, 16, "NVIDIA V100 datasheet, PCIe"},
    {"v100", "32gb", 15.7, 0, 0, 900, 32, "NVIDIA V100 datasheet, SXM2 of 32 GB"},
    {"v100", "", 15.7, 0, 0, 900, 16, "NVIDIA V100 datasheet, SXM2"},
    {"t4", "", 8.1, 0, 0, 320, 16, "NVIDIA T4 product brief"},
    {"a10", "", 31.2, 62.5, 125, 600, 24, "NVIDIA A10 datasheet"},
    {"a30", "", 10.3, 82, 165, 933, 24, "NVIDIA A30 datasheet"},
    {"a40", "", 37.4, 74.8, 149.7, 696, 48, "NVIDIA A40 datasheet"},
    {"a100", "40gb", 19.5, 156, 312, 1555, 40, "NVIDIA A100 datasheet, 40 GB"},
    {"a100", "pcie", 19.5, 156, 312, 1935, 80, "NVIDIA A100 datasheet, PCIe of 80 GB"},
    {"a100", "", 19.5, 156, 312, 2039, 80, "NVIDIA A100 datasheet, SXM4 of 80 GB"},
    {"a800", "40gb", 19.5, 156, 312, 1555, 40, "NVIDIA A800 datasheet, PCIe of 40 GB"},
    {"a800", "pcie", 19.5, 156, 312, 1935, 80, "NVIDIA A800 datasheet, PCIe of 80 GB"},
    {"a800", "", 19.5, 156, 312, 2039, 80, "NVIDIA A800 datasheet, SXM4 of 80 GB"},
    {"l4", "", 30.3, 60, 121, 300, 24, "NVIDIA L4 datasheet"},
    {"l40", "", 90.5, 90.5, 181.05, 864, 48, "NVIDIA L40 datasheet"},
    {"l40s", "", 91.6, 183, 362.05, 864, 48, "NVIDIA L40S datasheet"},
    {"h100", "pcie", 51, 378, 756, 2000, 80, "NVIDIA H100 datasheet, PCIe"},
    {"h100", "", 67, 494.5, 989.5, 3350, 80, "NVIDIA H100 datasheet, SXM5 of 80 GB"},
    {"h800", "pcie", 51, 378, 756, 2000, 80, "NVIDIA H800 datasheet, PCIe"},
    {"h800", "", 67, 494.5, 989.5, 3350, 80, "NVIDIA H800 datasheet, SXM5 of 80 GB"},
    {"h200", "", 67, 494.5, 989.5, 4800, 141, "NVIDIA H200 datasheet, SXM5"},
};

// "Tesla V100-SXM3-32GB" to tesla, v100, sxm3, 32gb.
Vector<std::string> words_of(const std::string& name) {
  Vector<std::string> words;
  bool within = false;
  for (const char letter : name) {
    const bool part = std::isalnum(static_cast<unsigned char>(letter)) != 0;
    if (part && !within) words.emplace_back();
    if (part) words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    within = part;
  }
  return words;
}

}  // namespace

const GpuDatasheet* gpu_datasheet(const std::string& name) {
  const Vector<std::string> words = words_of(name);
  const auto has = [&](const std::string& word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  for (const GpuDatasheet& sheet : datasheets)
    if (has(sheet.model) && (*sheet.variant == '\0' || has(sheet.variant))) return &sheet;
  return nullptr;
}

std::string gpu_key(const std::string& name) {
  if (const GpuDatasheet* sheet = gpu_datasheet(name)) return sheet->model;
  for (const std::string& word : words_of(name))
    if (std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) return word;
  return "gpu";
}

double flops_per_cycle_here(std::string& source) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    source = "AVX-512, two units";
    return 64;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    source = "AVX2 and FMA, two units";
    return 32;
  }
#endif
  source = "vectors of 128 bits, multiply and add in one unit each";
  return 8;
}

}  // namespace ff::discovery
