#include "executor/checkpoint.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/json_file.h"
#include "common/safetensors.h"

namespace ff {
namespace {

Shape shape_of(const JsonPlace& place) {
  Shape shape;
  for (const JsonPlace& size : place.at("shape").items()) shape.push_back(size.as_integer(0, int64_t{1} << 50));
  return shape;
}

// One tensor of the file, checked against its parameter.
Vector<float> read_tensor(const JsonPlace& place, const Parameter& parameter, const std::string& content,
                          size_t data_at) {
  place.allow_keys({"dtype", "shape", "data_offsets"}, "key of a tensor");
  const JsonPlace dtype = place.at("dtype");
  if (dtype.as_string() != "F32") dtype.fail("found " + dtype.value().dump() + ", expected \"F32\"");
  const Shape shape = shape_of(place);
  if (shape != parameter.spec.shape)
    place.at("shape").fail("found " + to_string(shape) + ", but the graph's parameter " + parameter.name +
                           " has shape " + to_string(parameter.spec.shape));
  const auto offsets = place.at("data_offsets").items();
  if (offsets.size() != 2)
    place.at("data_offsets").fail("has " + std::to_string(offsets.size()) + " elements, expected 2");
  const int64_t size = static_cast<int64_t>(content.size() - data_at);
  const int64_t begin = offsets[0].as_integer(0, INT64_MAX), end = offsets[1].as_integer(0, INT64_MAX);
  const int64_t expected = volume(shape) * element_bytes;
  if (end > size)
    place.at("data_offsets")
        .fail("the data ends at byte " + std::to_string(end) + ", but the file is truncated: it holds " +
              std::to_string(size) + " bytes of data");
  if (begin > end || end - begin != expected)
    place.at("data_offsets")
        .fail("span " + std::to_string(end - begin) + " bytes, expected " + std::to_string(expected));
  Vector<float> values(volume(shape));
  if (expected > 0) std::memcpy(values.data(), content.data() + data_at + begin, static_cast<size_t>(expected));
  return values;
}

// Files of other programs say nothing of them.
std::optional<int64_t> read_count(const JsonPlace& metadata, const std::string& key) {
  const auto place = metadata.find(key);
  if (!place) return std::nullopt;
  const std::string text = place->as_string();
  if (text.empty() || text.size() > 15 || text.find_first_not_of("0123456789") != std::string::npos)
    place->fail("found \"" + text + "\", expected a number of iterations");
  return std::stoll(text);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path + ": cannot open: " + std::strerror(errno));
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    throw InputError(path + ": is not a regular file, expected a safetensors file");
  std::string content;
  char part[1 << 16];
  while (file.read(part, sizeof part) || file.gcount() > 0) content.append(part, static_cast<size_t>(file.gcount()));
  if (!file.eof()) throw InputError(path + ": cannot read: " + std::strerror(errno));
  return content;
}

std::shared_ptr<const Vector<float>> not_owned(const Vector<float>& values) {
  return {std::shared_ptr<void>(), &values};
}

}  // namespace

void save_checkpoint(const std::string& path, const Graph& graph, const Checkpoint& checkpoint) {
  Vector<NamedTensor> tensors;
  const auto add = [&](const Parameter& parameter, const std::string& name, const HostTensors& values) {
    const auto it = values.find(parameter.name);
    if (it != values.end())
      tensors.push_back({name, parameter.spec.shape, [&values = it->second] { return not_owned(values); }});
  };
  for (const Parameter& parameter : graph.parameters) {
    add(parameter, parameter.name, checkpoint.weights);
    for (const auto& [state, values] : checkpoint.states) add(parameter, parameter.name + "." + state, values);
  }
  std::map<std::string, std::string> metadata = {{"graph", graph.name},
                                                 {"iterations", std::to_string(checkpoint.iterations)},
                                                 {"updates", std::to_string(checkpoint.updates)}};
  if (!checkpoint.pytorch.empty()) metadata["pytorch"] = checkpoint.pytorch;
  write_safetensors(path, metadata, tensors);
}

Checkpoint load_checkpoint(const std::string& path, const Graph& graph) {
  const std::string content = read_file(path);
  const size_t length = safetensors_header_length(content, content.size(), path);
  const JsonPlace root = parse_json(content.substr(8, length), path);
  root.expect_object();
  const size_t data_at = 8 + length;
  std::map<std::string, std::pair<const Parameter*, std::string>> expected;  // by tensor name: parameter, state or ""
  Vector<std::string> names;
  for (const Parameter& parameter : graph.parameters) {
    expected[parameter.name] = {&parameter, ""};
    for (const std::string& state : all_state_names()) expected[parameter.name + "." + state] = {&parameter, state};
    names.push_back(parameter.name);
  }
  Checkpoint checkpoint;
  for (const auto& [name, place] : root.members()) {
    if (name == "__metadata__") {
      checkpoint.iterations = read_count(place, "iterations").value_or(0);
      checkpoint.updates = read_count(place, "updates").value_or(checkpoint.iterations);
      if (const auto table = place.find("pytorch")) checkpoint.pytorch = table->as_string();
      continue;
    }
    const auto it = expected.find(name);
    if (it == expected.end())
      place.fail("the graph \"" + graph.name + "\" has no parameter \"" + name + "\"" + suggestion(name, names));
    const auto& [parameter, state] = it->second;
    (state.empty() ? checkpoint.weights : checkpoint.states[state])[parameter->name] =
        read_tensor(place, *parameter, content, data_at);
  }
  for (const std::string& name : names)
    if (!checkpoint.weights.count(name))
      throw InputError(path + ": lacks the tensor \"" + name + "\", a parameter of the graph \"" + graph.name + "\"");
  return checkpoint;
}

}  // namespace ff
