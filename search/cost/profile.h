// Profile files, ffprofile/1: measured execution times of kernels, by signature, for one device model.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/json_file.h"
#include "common/kernels/backend.h"

namespace ff {

struct ProfileEntry {
  double us = 0;  // median
  int samples = 0;
  double iqr_over_median = 0;  // interquartile range of the samples over their median
};

struct Profile {
  std::string file;  // for messages; "" where it was not read from one
  std::string device_model;
  // where and with what: host, processor, driver, clocks, libraries, precision, date, threads, concurrent
  Json measured = Json::object();
  std::map<std::string, ProfileEntry> entries;
};

Profile load_profile(const std::string& path);               // throws InputError
void save_profile(const std::string& path, const Profile&);  // atomic

// How a graph uses a kernel, as far as its time depends on it.
struct KernelUse {
  bool input_gradients = false;  // does any input need its gradient (false for the first layer)?
  // Of parameters that several operators share, such as unrolled steps: bytes of all that operators of this type share,
  // with gradients. So much a device goes through again and again, whence they stay in a cache that holds them;
  // gradients are added to. 0: none are shared.
  int64_t shared_bytes = 0;
  // Of a framework (FrameworkConventions::fp8): are its products with weights in fp8, and how many bytes are moved for
  // each element of its input, to have it in fp8?
  bool fp8 = false;
  int fp8_input_bytes = 0;
};

// "forward conv2d ...", "backward ...", "backward-parameters ..." (no input needs its gradient), "... shared=3M": key
// of a profile entry.
std::string kernel_signature(const OperatorDefinition& definition, const Block& part, Phase phase, KernelUse use);

// What a profile calls the updates by an optimizer: "update" by SGD, "adam" by Adam and AdamW.
inline std::string update_entry(OptimizerKind optimizer) { return optimizer == OptimizerKind::sgd ? "update" : "adam"; }

// The profile's entries "copy BYTES", "update BYTES" and "adam BYTES" hold the time of copying, or of updating, so many
// bytes.
// Time for other sizes by linear interpolation between the measured neighbours, by proportion beyond them. Nothing
// without any such entry.
std::optional<double> interpolated_us(const Profile& profile, const std::string& work, int64_t bytes);

}  // namespace ff
