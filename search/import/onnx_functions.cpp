#include "search/import/onnx_functions.h"

#include <map>
#include <utility>

#include "common/errors.h"
#include "common/vector.h"

namespace ff::importing {
namespace {

using ::onnx::AttributeProto;
using ::onnx::FunctionProto;
using ::onnx::NodeProto;

// The default of a function's attribute, or null. Messages older than ONNX 1.13 cannot read it: `unknown` then.
template <class Function>
const AttributeProto* default_of(const Function& function, const std::string& name, bool& unknown) {
  if constexpr (requires { function.attribute_proto(); }) {
    for (const AttributeProto& each : function.attribute_proto())
      if (each.name() == name) return &each;
  } else {
    unknown = !function.unknown_fields().empty();
  }
  return nullptr;
}

class Inliner {
 public:
  Inliner(const ::onnx::ModelProto& model, std::string path) : path_(std::move(path)) {
    for (const auto& set : model.opset_import())
      if (is_standard(set.domain())) opset_ = set.version();
    for (const FunctionProto& function : model.functions())
      if (!is_standard(function.domain()) &&
          !functions_.try_emplace({function.domain(), function.name()}, &function).second)
        fail("defines the function \"" + function.name() + "\" of the domain \"" + function.domain() +
             "\" more than once; overloads are not supported");
  }

  // What takes the place of a node, in order.
  void expand(const NodeProto& node, int depth) {
    constexpr int most_nested = 64;
    constexpr size_t most_nodes = size_t{1} << 20;
    const auto found = functions_.find({node.domain(), node.op_type()});
    if (found == functions_.end() || is_standard(node.domain())) {
      if (nodes_.size() >= most_nodes) fail("its functions have too many nodes");
      nodes_.push_back(node);
      return;
    }
    const FunctionProto& function = *found->second;
    if (depth >= most_nested) fail("the function \"" + function.name() + "\" calls itself, or is nested too deeply");
    expect_same_opset(function);
    const std::map<std::string, std::string> names = names_of(node, function);
    for (const NodeProto& own : function.node()) {
      NodeProto inner = own;
      for (std::string& input : *inner.mutable_input()) input = renamed(input, names);
      for (std::string& output : *inner.mutable_output()) output = renamed(output, names);
      inner.set_name(node.name().empty() ? own.name() : node.name() + "/" + own.name());
      set_attributes(inner, node, function);
      for (const AttributeProto& attribute : inner.attribute())
        if (attribute.has_g())
          fail("the function \"" + function.name() + "\" has a " + own.op_type() +
               " with a graph inside, which is not "
               "supported");
      expand(inner, depth + 1);
    }
  }

  Vector<NodeProto>& nodes() { return nodes_; }

 private:
  static bool is_standard(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }
  [[noreturn]] void fail(const std::string& message) const { throw InputError(path_ + ": " + message); }

  void expect_same_opset(const FunctionProto& function) const {
    for (const auto& set : function.opset_import())
      if (is_standard(set.domain()) && set.version() != opset_)
        fail("the function \"" + function.name() + "\" is of operator set " + std::to_string(set.version()) +
             ", the model of " + std::to_string(opset_));
  }

  // Of a function's inputs and outputs: those of the call; inputs that the call leaves out are left out inside.
  std::map<std::string, std::string> names_of(const NodeProto& node, const FunctionProto& function) {
    if (node.input_size() > function.input_size() || node.output_size() > function.output_size())
      fail("the node \"" + node.name() + "\" calls the function \"" + function.name() + "\" with " +
           std::to_string(node.input_size()) + " inputs and " + std::to_string(node.output_size()) +
           " outputs, expected up to " + std::to_string(function.input_size()) + " and " +
           std::to_string(function.output_size()));
    std::map<std::string, std::string> names;
    for (int i = 0; i < function.input_size(); ++i)
      names[function.input(i)] = i < node.input_size() ? node.input(i) : "";
    prefix_ = "call " + std::to_string(calls_++) + ": ";
    for (const NodeProto& own : function.node())
      for (const std::string& output : own.output())
        if (!output.empty()) names.emplace(output, prefix_ + output);
    for (int i = 0; i < function.output_size() && i < node.output_size(); ++i) {
      // An output that is an input of the function too would need a node of its own.
      if (names.count(function.output(i)) && names[function.output(i)].rfind(prefix_, 0) != 0)
        fail("the function \"" + function.name() + "\" returns its input \"" + function.output(i) + "\"");
      if (!node.output(i).empty()) names[function.output(i)] = node.output(i);
    }
    names[""] = "";
    return names;
  }

  std::string renamed(const std::string& name, const std::map<std::string, std::string>& names) const {
    const auto found = names.find(name);
    return found == names.end() ? prefix_ + name : found->second;
  }

  // Attributes that refer to one of the function's get what the call says, or the function's default.
  void set_attributes(NodeProto& inner, const NodeProto& call, const FunctionProto& function) const {
    google::protobuf::RepeatedPtrField<AttributeProto> attributes;
    for (const AttributeProto& own : inner.attribute()) {
      if (own.ref_attr_name().empty()) {
        *attributes.Add() = own;
        continue;
      }
      bool unknown = false;
      const AttributeProto* given = default_of(function, own.ref_attr_name(), unknown);
      for (const AttributeProto& each : call.attribute())
        if (each.name() == own.ref_attr_name()) given = &each;
      if (!given && unknown)
        fail("the function \"" + function.name() + "\" has a default of the attribute \"" + own.ref_attr_name() +
             "\" that this build cannot read");
      if (!given) continue;  // left out
      AttributeProto* set = attributes.Add();
      *set = *given;
      set->set_name(own.name());
    }
    *inner.mutable_attribute() = std::move(attributes);
  }

  std::string path_, prefix_;
  int64_t opset_ = 0;
  int calls_ = 0;
  std::map<std::pair<std::string, std::string>, const FunctionProto*> functions_;
  Vector<NodeProto> nodes_;
};

}  // namespace

void inline_functions(::onnx::ModelProto& model, const std::string& path) {
  if (model.functions_size() == 0) return;
  Inliner inliner(model, path);
  for (const NodeProto& node : model.graph().node()) inliner.expand(node, 0);
  model.mutable_graph()->clear_node();
  for (NodeProto& node : inliner.nodes()) *model.mutable_graph()->add_node() = std::move(node);
}

}  // namespace ff::importing
