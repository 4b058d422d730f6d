// Fuzz target: ONNX files. The bytes are a file; what is imported is a graph that the reader of graphs takes, with the
// parameters that it has. Anything else is refused with an InputError.
//   cmake --preset fuzz && cmake --build --preset fuzz && build/fuzz/tests/onnx_fuzz -max_total_time=3600
//   -max_len=24000 build/fuzz/onnx_corpus tests/fuzz/onnx_cases
#include <google/protobuf/stubs/logging.h>

#include "search/import/import.h"
#include "search/import/reader.h"

using namespace ff;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const google::protobuf::LogSilencer silence;
  ImportOptions options;
  options.batch = 2;
  options.cross_entropy = size % 2 == 0;
  if (size % 4 == 3) options.choices.frozen = {"*"};
  options.sizes = {{"length", 3}};
  try {
    import_model(importing::parse_onnx(std::string(reinterpret_cast<const char*>(bytes), size), "fuzz.onnx"), options);
  } catch (const InputError&) {}
  return 0;
}
