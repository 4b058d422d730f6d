#include <google/protobuf/io/coded_stream.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "common/errors.h"
#include "search/import/onnx_functions.h"
#include "search/import/reader.h"

namespace ff::importing {
namespace {

using Tensor = ::onnx::TensorProto;
constexpr int64_t most_elements = int64_t{1} << 33;  // of one tensor
constexpr int most_axes = 8;

std::string read_file(const std::string& path) {
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path + ": cannot open: " + std::strerror(errno));
  if (std::filesystem::is_directory(path, ignored)) throw InputError(path + ": is a folder, expected an ONNX file");
  std::string content;
  char part[1 << 16];
  while (file.read(part, sizeof part) || file.gcount() > 0) {
    content.append(part, static_cast<size_t>(file.gcount()));
    if (content.size() > INT32_MAX)
      throw InputError(path + ": has more than 2 GiB, which ONNX files with tensors inside cannot have");
  }
  return content;
}

// IEEE half precision: 1 bit sign, 5 bits exponent (bias 15), 10 bits fraction.
float from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude = exponent == 31 ? (fraction ? std::nanf("") : INFINITY)
                          : exponent     ? std::ldexp(1.0f + static_cast<float>(fraction) / 1024, exponent - 15)
                                         : std::ldexp(static_cast<float>(fraction), -24);
  return bits >> 15 ? -magnitude : magnitude;
}

// The upper half of a float.
float from_bfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Letters of one to four bytes: the first says how many follow.
bool is_utf8(const std::string& text) {
  size_t following = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (following > 0) {
      if ((byte & 0xC0) != 0x80) return false;
      --following;
    } else if (byte >= 0x80) {
      if (byte < 0xC2 || byte > 0xF4) return false;
      following = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    }
  }
  return following == 0;
}

class Reader {
 public:
  explicit Reader(const std::string& path) { model_.file = path; }

  Model read(const std::string& content) {
    ::onnx::ModelProto proto;
    google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(content.data()),
                                                  static_cast<int>(content.size()));
    stream.SetTotalBytesLimit(INT32_MAX);
    if (!proto.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
      model_.fail("is not an ONNX file, or is truncated or damaged");
    if (!proto.has_graph() || proto.graph().node_size() == 0) model_.fail("is not an ONNX model: it has no nodes");
    for (const auto& set : proto.opset_import())
      if (set.domain().empty() || set.domain() == "ai.onnx") model_.opset = set.version();
    model_.producer = proto.producer_name();
    inline_functions(proto, model_.file);
    read_graph(*proto.mutable_graph());
    sort_nodes(model_);
    return std::move(model_);
  }

 private:
  void read_graph(::onnx::GraphProto& graph) {
    model_.name = graph.name();
    expect_names(graph);
    read_initializers(graph);
    for (const ::onnx::ValueInfoProto& input : graph.input())
      if (!model_.constants.count(input.name())) model_.inputs.push_back(read_input(input));
    for (const ::onnx::ValueInfoProto& output : graph.output()) model_.outputs.push_back(output.name());
    if (model_.outputs.empty()) model_.fail("has no outputs");
    for (::onnx::NodeProto& node : *graph.mutable_node()) model_.nodes.push_back(read_node(node));
  }

  void read_initializers(::onnx::GraphProto& graph) {
    for (Tensor& tensor : *graph.mutable_initializer()) {
      if (tensor.name().empty()) model_.fail("has an initializer without a name");
      Constant constant = read_tensor(tensor, "initializer \"" + tensor.name() + "\"");
      if (constant.type == ElementType::f32) constant.parameter = tensor.name();
      if (!model_.constants.emplace(tensor.name(), std::move(constant)).second)
        model_.fail("the initializer \"" + tensor.name() + "\" comes twice");
      Tensor().Swap(&tensor);  // Clear() would keep the room of its bytes
    }
    if (graph.sparse_initializer_size() > 0) model_.fail("has sparse initializers, which are not understood");
  }

  // Its initializers are those of the model: they may be trained.
  std::shared_ptr<const Subgraph> read_subgraph(Node& node, ::onnx::GraphProto& graph) {
    expect_names(graph);
    read_initializers(graph);
    Subgraph result;
    std::set<std::string> known{""};
    const auto capture = [&](const std::string& value) {
      if (known.count(value) || !result.captured.emplace(value, node.inputs.count()).second) return;
      node.inputs.push_back(value);
    };
    for (const ::onnx::ValueInfoProto& input : graph.input()) {
      result.inputs.push_back(input.name());
      known.insert(input.name());
    }
    for (::onnx::NodeProto& proto : *graph.mutable_node()) {
      result.nodes.push_back(read_node(proto));
      const Node& inner = result.nodes.back();
      for (const std::string& input : inner.inputs) capture(input);
      for (const std::string& output : inner.outputs)
        if (!output.empty() && (result.captured.count(output) || !known.insert(output).second))
          model_.fail(inner, "writes the value \"" + output + "\", which is known before");
    }
    for (const ::onnx::ValueInfoProto& output : graph.output()) {
      result.outputs.push_back(output.name());
      capture(output.name());
    }
    return std::make_shared<const Subgraph>(std::move(result));
  }

  void expect_names(const ::onnx::GraphProto& graph) const {
    const auto expect = [&](const std::string& name) {
      if (!is_utf8(name)) model_.fail("has a name that is not UTF-8");
    };
    for (const Tensor& tensor : graph.initializer()) expect(tensor.name());
    for (const ::onnx::ValueInfoProto& input : graph.input()) expect(input.name());
    for (const ::onnx::NodeProto& node : graph.node()) {
      expect(node.name());
      expect(node.op_type());
      for (const std::string& output : node.output()) expect(output);
    }
  }

  Node read_node(::onnx::NodeProto& proto) {
    Node node{proto.name(), proto.op_type(), {}, {}};
    if (!proto.domain().empty() && proto.domain() != "ai.onnx") node.op = proto.domain() + "." + proto.op_type();
    for (const std::string& input : proto.input()) node.inputs.push_back(input);
    for (const std::string& output : proto.output()) node.outputs.push_back(output);
    const auto given =
        std::find_if(node.outputs.begin(), node.outputs.end(), [](const auto& name) { return name != ""; });
    if (given == node.outputs.end()) model_.fail(node, "has no outputs");
    if (node.outputs[0].empty()) node.outputs[0] = *given + "#first";  // nobody reads it, but nodes are found by it
    if (node.op == "Loop") node.inputs.resize(std::max<size_t>(2, node.inputs.size()));
    for (::onnx::AttributeProto& attribute : *proto.mutable_attribute()) read_attribute(node, attribute);
    return node;
  }

  // "Sigmoid,Tanh": the activations of recurrent layers.
  static std::string joined(const google::protobuf::RepeatedPtrField<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) all += (all.empty() ? "" : ",") + text;
    return all;
  }

  void read_attribute(Node& node, ::onnx::AttributeProto& attribute) {
    using Proto = ::onnx::AttributeProto;
    Attribute& value = node.attributes[attribute.name()];
    switch (attribute.type()) {
      case Proto::FLOAT: value = shortest(attribute.f()); break;
      case Proto::INT: value = static_cast<int64_t>(attribute.i()); break;
      case Proto::STRING: value = attribute.s(); break;
      case Proto::INTS: value = Vector<int64_t>(attribute.ints().begin(), attribute.ints().end()); break;
      case Proto::FLOATS: value = Vector<double>(attribute.floats().begin(), attribute.floats().end()); break;
      case Proto::TENSOR: value = read_tensor(*attribute.mutable_t(), node.text()); break;
      case Proto::STRINGS: value = joined(attribute.strings()); break;
      case Proto::GRAPH: node.graphs[attribute.name()] = read_subgraph(node, *attribute.mutable_g()); [[fallthrough]];
      default: node.attributes.erase(attribute.name()); break;  // no operator that is understood has such
      case Proto::UNDEFINED: model_.fail(node, "has the attribute " + attribute.name() + " without a type");
    }
  }

  ModelInput read_input(const ::onnx::ValueInfoProto& proto) {
    ModelInput input{proto.name(), ElementType::f32, {}};
    if (!proto.type().has_tensor_type() || !proto.type().tensor_type().has_shape())
      model_.fail("the input \"" + proto.name() + "\" has no tensor type with a shape");
    const auto& tensor = proto.type().tensor_type();
    const auto type = element_type(tensor.elem_type());
    if (!type) model_.fail("the input \"" + proto.name() + "\" has elements of type " + type_name(tensor.elem_type()));
    input.type = *type;
    for (const auto& dimension : tensor.shape().dim()) {
      if (dimension.has_dim_value() && dimension.dim_value() < 0)
        model_.fail("the input \"" + proto.name() + "\" has a dimension of size " +
                    std::to_string(dimension.dim_value()));
      // 0 and nothing at all are both used for "any size".
      if (dimension.has_dim_value() && dimension.dim_value() > 0)
        input.dimensions.push_back({dimension.dim_value(), ""});
      else input.dimensions.push_back({-1, dimension.dim_param()});
    }
    return input;
  }

  static std::string type_name(int type) {
    return Tensor::DataType_IsValid(type) ? Tensor::DataType_Name(static_cast<Tensor::DataType>(type))
                                          : std::to_string(type);
  }

  static std::optional<ElementType> element_type(int type) {
    switch (type) {
      case Tensor::FLOAT:
      case Tensor::DOUBLE:
      case Tensor::FLOAT16:
      case Tensor::BFLOAT16: return ElementType::f32;
      case Tensor::INT8:
      case Tensor::UINT8:
      case Tensor::INT16:
      case Tensor::UINT16:
      case Tensor::INT32:
      case Tensor::UINT32:
      case Tensor::INT64: return ElementType::integer;
      case Tensor::BOOL: return ElementType::boolean;
      default: return std::nullopt;
    }
  }

  static int bytes_of(int type) {
    switch (type) {
      case Tensor::DOUBLE:
      case Tensor::INT64: return 8;
      case Tensor::FLOAT:
      case Tensor::INT32:
      case Tensor::UINT32: return 4;
      case Tensor::FLOAT16:
      case Tensor::BFLOAT16:
      case Tensor::INT16:
      case Tensor::UINT16: return 2;
      default: return 1;
    }
  }

  Constant read_tensor(Tensor& tensor, const std::string& what) {
    const auto type = element_type(tensor.data_type());
    if (!type) model_.fail(what + " has elements of type " + type_name(tensor.data_type()));
    Shape shape;
    double elements = 1;
    for (const int64_t size : tensor.dims()) {
      if (size < 0) model_.fail(what + " has a dimension of size " + std::to_string(size));
      shape.push_back(size);
      elements *= static_cast<double>(size);
    }
    if (shape.size() > most_axes) model_.fail(what + " has " + std::to_string(shape.size()) + " axes");
    if (elements > static_cast<double>(most_elements)) model_.fail(what + " has shape " + to_string(shape));
    if (tensor.data_location() == Tensor::EXTERNAL) read_external(tensor, what);
    const int64_t count = volume(shape);
    if (tensor.has_raw_data()) {
      const int64_t expected = count * bytes_of(tensor.data_type());
      if (static_cast<int64_t>(tensor.raw_data().size()) != expected)
        model_.fail(what + " has " + std::to_string(tensor.raw_data().size()) + " bytes, expected " +
                    std::to_string(expected) + " for shape " + to_string(shape));
      return *type == ElementType::f32 ? Constant::of_floats(shape, raw_floats(tensor, count))
                                       : Constant::of_integers(shape, raw_integers(tensor, count), *type);
    }
    return *type == ElementType::f32 ? Constant::of_floats(shape, typed_floats(tensor, count, what))
                                     : Constant::of_integers(shape, typed_integers(tensor, count, what), *type);
  }

  // ONNX writes little-endian, as the machines are that this runs on.
  template <typename T, typename Value>
  static Vector<Value> raw(const std::string& bytes, int64_t count) {
    Vector<Value> values(count);
    for (int64_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof value), sizeof value);
      values[i] = static_cast<Value>(value);
    }
    return values;
  }

  static Vector<float> raw_floats(const Tensor& tensor, int64_t count) {
    const std::string& bytes = tensor.raw_data();
    if (tensor.data_type() == Tensor::FLOAT) return raw<float, float>(bytes, count);
    if (tensor.data_type() == Tensor::DOUBLE) return raw<double, float>(bytes, count);
    return narrow_floats(raw<uint16_t, uint16_t>(bytes, count), tensor.data_type());
  }

  static Vector<float> narrow_floats(const Vector<uint16_t>& bits, int type) {
    Vector<float> values;
    values.reserve(bits.size());
    for (const uint16_t value : bits)
      values.push_back(type == Tensor::FLOAT16 ? from_half(value) : from_bfloat16(value));
    return values;
  }

  static Vector<int64_t> raw_integers(const Tensor& tensor, int64_t count) {
    const std::string& bytes = tensor.raw_data();
    switch (tensor.data_type()) {
      case Tensor::INT64: return raw<int64_t, int64_t>(bytes, count);
      case Tensor::INT32: return raw<int32_t, int64_t>(bytes, count);
      case Tensor::UINT32: return raw<uint32_t, int64_t>(bytes, count);
      case Tensor::INT16: return raw<int16_t, int64_t>(bytes, count);
      case Tensor::UINT16: return raw<uint16_t, int64_t>(bytes, count);
      case Tensor::INT8: return raw<int8_t, int64_t>(bytes, count);
      default: return raw<uint8_t, int64_t>(bytes, count);
    }
  }

  void expect_count(int found, int64_t count, const std::string& what) const {
    if (found != count)
      model_.fail(what + " has " + std::to_string(found) + " values, expected " + std::to_string(count));
  }

  Vector<float> typed_floats(const Tensor& tensor, int64_t count, const std::string& what) const {
    if (tensor.data_type() == Tensor::FLOAT) {
      expect_count(tensor.float_data_size(), count, what);
      return Vector<float>(tensor.float_data().begin(), tensor.float_data().end());
    }
    if (tensor.data_type() == Tensor::DOUBLE) {
      expect_count(tensor.double_data_size(), count, what);
      return Vector<float>(tensor.double_data().begin(), tensor.double_data().end());
    }
    expect_count(tensor.int32_data_size(), count, what);
    Vector<uint16_t> bits;
    for (const int value : tensor.int32_data()) bits.push_back(static_cast<uint16_t>(value));
    return narrow_floats(bits, tensor.data_type());
  }

  Vector<int64_t> typed_integers(const Tensor& tensor, int64_t count, const std::string& what) const {
    if (tensor.data_type() == Tensor::INT64) {
      expect_count(tensor.int64_data_size(), count, what);
      return Vector<int64_t>(tensor.int64_data().begin(), tensor.int64_data().end());
    }
    if (tensor.data_type() == Tensor::UINT32) {
      expect_count(tensor.uint64_data_size(), count, what);
      Vector<int64_t> values;
      for (const uint64_t value : tensor.uint64_data()) values.push_back(static_cast<int64_t>(value));
      return values;
    }
    expect_count(tensor.int32_data_size(), count, what);
    return Vector<int64_t>(tensor.int32_data().begin(), tensor.int32_data().end());
  }

  // Replaces the reference by the bytes. The place is a path relative to the model's folder that does not leave it.
  void read_external(Tensor& tensor, const std::string& what) {
    std::string location;
    int64_t offset = 0, length = -1;
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() == "location") location = entry.value();
      if (entry.key() == "offset") offset = std::atoll(entry.value().c_str());
      if (entry.key() == "length") length = std::atoll(entry.value().c_str());
    }
    const std::filesystem::path relative(location);
    if (location.empty() || relative.is_absolute() || relative.lexically_normal().string().rfind("..", 0) == 0)
      model_.fail(what + " has external data at \"" + location + "\", expected a file below the model's folder");
    const std::filesystem::path path = std::filesystem::path(model_.file).parent_path() / relative;
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    std::error_code ignored;
    if (!file || !std::filesystem::is_regular_file(path, ignored))
      model_.fail(what + " has external data in " + path.string() + ", which cannot be opened");
    const int64_t size = static_cast<int64_t>(file.tellg());
    if (offset < 0 || offset > size || length < -1 || (length >= 0 && length > size - offset))
      model_.fail(what + " has external data at byte " + std::to_string(offset) + " of " + path.string() +
                  ", which has " + std::to_string(size));
    std::string bytes(static_cast<size_t>(length < 0 ? size - offset : length), '\0');
    file.seekg(offset);
    if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) && !bytes.empty())
      model_.fail(what + ": cannot read " + path.string());
    tensor.set_raw_data(std::move(bytes));
  }

  Model model_;
};

}  // namespace

Model parse_onnx(const std::string& content, const std::string& path) { return Reader(path).read(content); }
Model read_onnx_file(const std::string& path) { return parse_onnx(read_file(path), path); }

}  // namespace ff::importing
