// An ONNX model as plain values: what the reader makes of the file and the passes rewrite, free of protobuf. Names of
// values are ONNX's; every value is written once, and nodes are in an order in which they can be computed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <variant>

#include "common/block.h"
#include "common/vector.h"
#include "search/import/floats.h"
#include "search/import/progressions.h"

namespace ff::importing {

enum class ElementType { f32, integer, boolean };

// The double that people would write for the float: 0.1, not 0.10000000149.
double shortest(float value);

// Which number of which initializer each element of a constant is. The float initializers of a file are numbered
// through, element by element, one initializer after the other (Initializer::first). Rearranging (transposing, cutting,
// joining, looking up rows) moves these numbers with the values; so at the end it is known, for each element of a
// trained parameter, what the file calls it, and whether one number of the file has become two parameters.
struct Origin {
  static constexpr int64_t none = Progressions::none;  // no number of an initializer
  std::shared_ptr<const Progressions> numbers{};       // null: of no element

  static Origin of(Progressions numbers);
  bool known() const { return numbers != nullptr; }
  int64_t at(int64_t element) const { return numbers ? numbers->at(element) : none; }
};

// A tensor whose values are known: an initializer of the file, or computed from such. Floats of other widths are read
// as f32, integers of all widths as 64 bits. Copies share the values.
struct Constant {
  ElementType type = ElementType::f32;
  Shape shape;
  Floats floats;                                    // of f32
  std::shared_ptr<const Vector<int64_t>> integers;  // of the others
  // The initializer that all of its numbers are of, in whatever order: what may be trained. "": computed, of several,
  // constant, or none of the file's initializers.
  std::string parameter{};
  Origin origin{};                        // of what may be trained
  std::set<std::string> computed_from{};  // initializers that may be trained and that arithmetic has changed
  std::set<std::string> frozen{};         // initializers that are constant and that it is made of; for messages
  bool looked_up = false;                 // rows of a table by constant indices

  static Constant of_floats(Shape shape, Vector<float> values);
  static Constant of_integers(Shape shape, Vector<int64_t> values, ElementType type = ElementType::integer);
  static Constant scalar(float value) { return of_floats({}, {value}); }

  int64_t elements() const { return volume(shape); }
  double at(int64_t index) const;
  double number() const;  // the only element, as people would write it
  Vector<int64_t> as_integers() const;
  bool is_scalar() const { return elements() == 1; }
  // Is nothing in it trained?
  bool is_fixed() const { return parameter.empty() && !origin.known() && computed_from.empty(); }
  bool is_partly_trained() const;  // other numbers than those of initializers beside them
  // Is each element a number of its own of an initializer? So a layer can have it as a parameter.
  bool is_parameter() const;
  bool has_origin_of(const Constant& other) const;  // element by element the same numbers of the same initializers
  bool is_same_as(const Constant& other) const;     // the same origin, and the same values
};

using Attribute = std::variant<int64_t, double, std::string, Vector<int64_t>, Vector<double>, Constant>;

struct Subgraph;

struct Node {
  std::string name, op;
  Vector<std::string> inputs, outputs;  // "": left out
  std::map<std::string, Attribute> attributes{};
  std::map<std::string, std::shared_ptr<const Subgraph>> graphs{};  // "body" of a Loop

  bool has_input(size_t index) const { return index < inputs.size() && !inputs[index].empty(); }
  bool has_output(size_t index) const { return index < outputs.size() && !outputs[index].empty(); }
  // How messages name it: operator "name".
  std::string text() const { return op + " \"" + (name.empty() && !outputs.empty() ? outputs[0] : name) + "\""; }
};

// A graph inside a node: the body of a Loop, the branches of an If. What it reads of the graph around it are inputs of
// the node too, after those that the file gives; so who follows values needs to know nothing of it.
struct Subgraph {
  Vector<std::string> inputs, outputs;
  Vector<Node> nodes;
  std::map<std::string, int> captured;  // by the name inside: which input of the node
};

struct ModelInput {
  struct Dimension {
    int64_t size = -1;     // -1: symbolic
    std::string symbol{};  // may be empty
  };
  std::string name;
  ElementType type = ElementType::f32;
  Vector<Dimension> dimensions;
  int sample_axis = 0;
};

// A float initializer, and what becomes of it (initializers.h).
struct Initializer {
  enum class Fate { open, trained, constant };
  std::string name;
  Shape shape;
  int64_t first = 0;       // the number of its first element
  std::string reader{};    // the first node that reads it; "": none
  std::string twin{};      // the initializer that the exporter had merged it with, as their values are equal
  Fate fate = Fate::open;  // of those that are constant, the reason
  std::string reason{};
  bool chosen = false;  // by a flag
  // How messages name it: "name" [shape].
  std::string text() const { return "\"" + name + "\" " + to_string(shape); }
};

struct Model {
  std::string file, name, producer;
  int64_t opset = 0;
  Vector<ModelInput> inputs;  // without initializers
  Vector<std::string> outputs;
  Vector<Node> nodes;
  std::map<std::string, Constant> constants;
  // What has been folded of initializers that may be trained: the nodes that wrote these constants.
  std::map<std::string, Node> folded;
  Vector<Initializer> initializers;  // those of floats, by their first number
  // Of values that are not constant, once infer_shapes has found them.
  std::map<std::string, Shape> shapes;
  std::map<std::string, ElementType> types;

  const Constant* constant(const std::string& value) const;
  // What has this number.
  const Initializer& initializer_of(int64_t number) const;
  // Calls with the parts of a progression of numbers that are of one initializer each.
  void for_each_initializer(const Progressions::Run& run,
                            const std::function<void(const Initializer&, const Progressions::Run&)>& call) const;
  // Names of the initializers whose numbers a constant has.
  std::set<std::string> origins(const Constant& constant) const;
  // The node that writes a value, or null. Valid until nodes change.
  std::map<std::string, const Node*> producers() const;

  [[noreturn]] void fail(const std::string& message) const;  // InputError with the file's name
  [[noreturn]] void fail(const Node& node, const std::string& message) const;

  // Attributes, or what stands for them where they are left out. Of another type: fails.
  int64_t integer(const Node& node, const std::string& name, int64_t otherwise) const;
  double number(const Node& node, const std::string& name, double otherwise) const;
  std::string text(const Node& node, const std::string& name, const std::string& otherwise) const;
  Vector<int64_t> integers(const Node& node, const std::string& name, const Vector<int64_t>& otherwise) const;
  // What older operator sets say as an attribute and newer ones as a constant input.
  Vector<int64_t> integers_or_input(const Node& node, const std::string& name, size_t input,
                                    const Vector<int64_t>& otherwise) const;
  double number_or_input(const Node& node, const std::string& name, size_t input, double otherwise) const;
  // An axis as it is counted from 0; -1 is the last. `rank` axes there are.
  int axis(const Node& node, int64_t axis, size_t rank) const;
};

// Puts nodes into an order in which they can be computed. A cycle, a value that nothing writes, or one that is written
// twice fails.
void sort_nodes(Model& model);
// Nodes whose values nobody needs.
void remove_dead_nodes(Model& model);

}  // namespace ff::importing
