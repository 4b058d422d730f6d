#include "search/import/layout.h"

#include <algorithm>

namespace ff::importing {

Value Value::plain(std::string tensor, const Shape& shape, DataType type) {
  Value value{std::move(tensor), shape, type, {}};
  for (const int axis : shape.indices()) {
    value.axes.emplace_back();
    if (axis > 0 && shape[axis] == 1) continue;
    value.axes.back().push_back(value.atoms.count());
    value.atoms.push_back(shape[axis]);
  }
  return value;
}

int64_t Value::size(const Axis& axis) const {
  int64_t size = 1;
  for (const int atom : axis) size *= atoms[atom];
  return size;
}

Shape Value::shape() const {
  Shape shape;
  for (const Axis& axis : axes) shape.push_back(size(axis));
  return shape;
}

void Value::transpose(const Vector<int>& order) {
  Vector<Axis> reordered;
  for (const int axis : order) reordered.push_back(axes[axis]);
  axes = std::move(reordered);
}

void Value::split_atom(int atom, int64_t outer_size) {
  atoms.insert(atoms.begin() + atom + 1, atoms[atom] / outer_size);
  atoms[atom] = outer_size;
  for (Axis& axis : axes) {
    for (int& other : axis)
      if (other > atom) ++other;
    if (const auto it = std::find(axis.begin(), axis.end(), atom); it != axis.end()) axis.insert(it + 1, atom + 1);
  }
}

bool Value::reshape(const Shape& shape) {
  Value result = *this;
  result.axes = {result.in_order()};  // one axis of all atoms, from whose front the new ones are taken
  Vector<Axis> taken;
  size_t next = 0;
  const auto flat = [&]() -> Axis& { return result.axes[0]; };
  for (const int64_t size : shape) {
    const size_t begin = next;
    int64_t have = 1;
    while (next < flat().size() && (have < size || result.atoms[flat()[next]] == 1)) {
      const int atom = flat()[next];
      const int64_t all = result.atoms[atom];
      if (size % (have * all) != 0) {
        if (atom == 0 || size % have != 0 || all % (size / have) != 0) return false;
        result.split_atom(atom, size / have);
      }
      have *= result.atoms[flat()[next++]];
    }
    if (have != size) return false;
    taken.push_back({static_cast<int>(begin), static_cast<int>(next)});
  }
  if (next != flat().size()) return false;
  Vector<Axis> found;
  for (const Axis& range : taken) found.emplace_back(flat().begin() + range[0], flat().begin() + range[1]);
  result.axes = std::move(found);
  *this = std::move(result);
  return true;
}

Axis Value::in_order() const {
  Axis order;
  for (const Axis& axis : axes) order.insert(order.end(), axis.begin(), axis.end());
  return order;
}

Vector<int> Value::axis_of_atoms() const {
  Vector<int> of(atoms.size(), -1);
  for (const int axis : axes.indices())
    for (const int atom : axes[axis]) of[atom] = axis;
  return of;
}

int Value::batch_axis() const {
  for (const int axis : axes.indices())
    if (axes[axis] == Axis{0}) return axis;
  return -1;
}

bool refine(Value& a, int axis_of_a, Value& b, int axis_of_b) {
  size_t i = 0;
  for (;; ++i) {
    const Axis &left = a.axes[axis_of_a], &right = b.axes[axis_of_b];
    if (i == left.size() || i == right.size()) return left.size() == right.size();
    const int64_t x = a.atoms[left[i]], y = b.atoms[right[i]];
    if ((left[i] == 0) != (right[i] == 0)) return false;
    if (x == y) continue;
    if (x > y ? x % y != 0 : y % x != 0) return false;
    if (x > y) a.split_atom(left[i], y);
    else b.split_atom(right[i], x);
  }
}

}  // namespace ff::importing
