// Finds what exporters leave of an operator that they had no name for. A pattern is written as the expression is:
//
//   Mul(Mul(x, Add(Erf(Mul(x, #0.7071068)), #1)), #0.5)
//
//   Op(...)     a node; Add and Mul have their operands in any order
//   name:Op()   the same, and what it is is kept under the name
//   x           any value; the same name is the same value
//   %w          a constant
//   #0.5        a constant, all of whose elements are this number, within a ten-thousandth
//
// Inputs of a node that the pattern does not have are not looked at.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "search/import/model.h"

namespace ff::importing {

struct Match {
  const Node* root = nullptr;
  std::map<std::string, std::string> values;  // by the pattern's names: ONNX's
  std::map<std::string, const Node*> nodes;
};

class Pattern {
 public:
  explicit Pattern(const std::string& text);
  // Does the first output of `root` have this form?
  std::optional<Match> match(const Model& model, const std::map<std::string, const Node*>& producers,
                             const Node& root) const;

 private:
  enum class Kind { node, value, constant, number };
  struct Term {
    Kind kind;
    std::string name, op;
    double number = 0;
    Vector<Term> inputs{};
  };

  static Term parse(const std::string& text, size_t& at);
  struct Matcher;

  Term root_;
};

}  // namespace ff::importing
