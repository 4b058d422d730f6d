// Reverse-mode differentiation in double precision: a forward pass written once gives the gradients too.
#pragma once

#include <cmath>

#include "common/vector.h"

namespace ff::reference {

class Tape;

// A number on a tape. Constants have no tape.
struct Number {
  double value = 0;
  Tape* tape = nullptr;
  int node = -1;
  Number(double constant = 0) : value(constant) {}
  Number(double v, Tape* t, int n) : value(v), tape(t), node(n) {}
};

// Its memory goes to the thread's next tape: gigabytes for large cases.
class Tape {
 public:
  Tape() { nodes_.swap(spare()); }
  ~Tape() {
    nodes_.clear();
    nodes_.swap(spare());
  }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  Number variable(double value) { return {value, this, add(-1, 0, -1, 0)}; }
  Number result(double value, const Number& a, double slope_a, const Number& b = {}, double slope_b = 0) {
    return {value, this, add(a.node, slope_a, b.node, slope_b)};
  }
  // Adds `gradient` to what is known of d objective / d number.
  void seed(const Number& number, double gradient) {
    if (number.node >= 0) nodes_[number.node].gradient += gradient;
  }
  void sweep() {
    for (size_t n = nodes_.size(); n-- > 0;) {
      const Node& node = nodes_[n];
      if (node.a >= 0) nodes_[node.a].gradient += node.gradient * node.slope_a;
      if (node.b >= 0) nodes_[node.b].gradient += node.gradient * node.slope_b;
    }
  }
  double gradient(const Number& number) const { return nodes_[number.node].gradient; }

 private:
  struct Node {
    int a, b;
    double slope_a, slope_b, gradient;
  };
  static Vector<Node>& spare() {
    thread_local Vector<Node> memory;
    return memory;
  }
  int add(int a, double slope_a, int b, double slope_b) {
    nodes_.push_back({a, b, slope_a, slope_b, 0});
    return static_cast<int>(nodes_.size()) - 1;
  }
  Vector<Node> nodes_;
};

inline Number combine(double value, const Number& a, double slope_a, const Number& b, double slope_b) {
  Tape* tape = a.tape ? a.tape : b.tape;
  return tape ? tape->result(value, a, slope_a, b, slope_b) : Number(value);
}
inline Number operator+(const Number& a, const Number& b) { return combine(a.value + b.value, a, 1, b, 1); }
inline Number operator-(const Number& a, const Number& b) { return combine(a.value - b.value, a, 1, b, -1); }
inline Number operator*(const Number& a, const Number& b) { return combine(a.value * b.value, a, b.value, b, a.value); }
inline Number operator/(const Number& a, const Number& b) {
  return combine(a.value / b.value, a, 1 / b.value, b, -a.value / (b.value * b.value));
}
inline Number apply(double value, const Number& a, double slope) { return combine(value, a, slope, {}, 0); }
inline Number exp(const Number& a) { return apply(std::exp(a.value), a, std::exp(a.value)); }
inline Number sqrt(const Number& a) { return apply(std::sqrt(a.value), a, 0.5 / std::sqrt(a.value)); }
inline Number tanh(const Number& a) {
  return apply(std::tanh(a.value), a, 1 - std::tanh(a.value) * std::tanh(a.value));
}
inline Number relu(const Number& a) { return apply(a.value > 0 ? a.value : 0, a, a.value > 0 ? 1 : 0); }
inline Number sigmoid(const Number& a) {
  const double s = 1 / (1 + std::exp(-a.value));
  return apply(s, a, s * (1 - s));
}

}  // namespace ff::reference
