// What only moves elements: mostly another way of reading a tensor (layout.h).
#include <algorithm>

#include "search/import/convert.h"

namespace ff::importing {
namespace {

const Shape& output_shape(Conversion& c, const Node& node) { return c.model.shapes.at(node.outputs[0]); }

// The tensor axis on which a range of an ONNX axis lies, with the value moved so that the axis is one.
Value with_own_axis(Conversion& c, const Node& node, const Value& x, int axis) {
  if (x.axes[axis].empty()) c.fail(node, "cuts or joins along an axis of size 1, which is not understood");
  if (x.axes[axis][0] == 0) c.fail(node, "cuts or joins the samples, which is not understood");
  Vector<Axis> blocks{{0}};
  const Axis& own = x.axes[axis];
  for (int atom = 1; atom < x.atoms.count(); ++atom) {
    if (std::find(own.begin() + 1, own.end(), atom) != own.end()) continue;
    if (atom == own[0]) blocks.push_back(own);
    else if (blocks.size() > 1 && blocks.back() != own) blocks.back().push_back(atom);
    else blocks.push_back({atom});
  }
  // The tensor's own axes, where one of them is the axis.
  Vector<Axis> lying;
  int atom = 0;
  for (const int64_t size : x.physical) {
    lying.emplace_back();
    for (int64_t have = 1; atom < x.atoms.count() && (have < size || (lying.size() == 1 && atom == 0));) {
      have *= x.atoms[atom];
      lying.back().push_back(atom++);
    }
    if (x.size(lying.back()) != size) return c.arranged(node, x, blocks);
  }
  const bool found = std::find(lying.begin(), lying.end(), own) != lying.end();
  return found ? x : c.arranged(node, x, blocks);
}

// Of the value that with_own_axis gives.
int tensor_axis(const Value& x, int axis) {
  int64_t before = 1;
  for (int atom = 0; atom < x.axes[axis][0]; ++atom) before *= x.atoms[atom];
  int found = 0;
  for (int64_t have = 1; have < before || found == 0; ++found) have *= x.physical[found];
  while (x.physical[found] == 1) ++found;
  return found;
}

// The value with its axis' atoms replaced by one of this size.
Value with_size(const Value& x, int axis, int64_t size, const Value& part) {
  Value result = x;
  result.tensor = part.tensor;
  result.physical = part.physical;
  const Axis old = x.axes[axis];
  const int first = old[0], removed = old.count() - 1;
  result.atoms.erase(result.atoms.begin() + first + 1, result.atoms.begin() + first + 1 + removed);
  if (size > 1) {
    result.atoms[first] = size;
  } else {
    result.atoms.erase(result.atoms.begin() + first);
  }
  const int gone = size > 1 ? removed : removed + 1;
  for (Axis& other : result.axes)
    for (int& atom : other)
      if (atom > first) atom -= gone;
  result.axes[axis] = size > 1 ? Axis{first} : Axis{};
  return result;
}

// One range of an axis.
Value range_of(Conversion& c, const Node& node, const Value& x, int axis, int64_t begin, int64_t end) {
  const int64_t size = x.size(x.axes[axis]);
  if (begin == 0 && end == size) return x;
  const Value own = with_own_axis(c, node, x, axis);
  const Value part =
      c.add(node, "slice", {own.tensor}, {{"axis", tensor_axis(own, axis)}, {"begin", begin}, {"end", end}})[0];
  return with_size(own, axis, end - begin, part);
}

}  // namespace

// Reshape, Flatten, Squeeze and Unsqueeze: ONNX's shape says all.
void convert_reshape(Conversion& c, const Node& node) {
  Value x = c.value(node, 0);
  const Shape shape = output_shape(c, node);
  if (x.reshape(shape)) return c.set(node, 0, x);
  // No factors of the axes give this shape: the elements are put into ONNX's order, and cut anew.
  const Axis order = x.in_order();
  if (order[0] != 0 || shape.empty() || shape[0] != x.batch())
    c.fail(node, "reshapes " + to_string(x.shape()) + " to " + to_string(shape) + " across the samples");
  Vector<Axis> physical{{0}, Axis(order.begin() + 1, order.end())};
  Value flat = c.arranged(node, x, physical);
  flat.atoms = {shape[0]};
  flat.axes = {{0}};
  for (size_t axis = 1; axis < shape.size(); ++axis) {
    flat.axes.emplace_back();
    if (shape[axis] == 1) continue;
    flat.axes.back().push_back(flat.atoms.count());
    flat.atoms.push_back(shape[axis]);
  }
  c.set(node, 0, flat);
}

void convert_transpose(Conversion& c, const Node& node) {
  Value x = c.value(node, 0);
  Vector<int64_t> order;
  for (int axis = x.axes.count() - 1; axis >= 0; --axis) order.push_back(axis);
  Vector<int> axes;
  for (const int64_t axis : c.model.integers(node, "perm", order)) axes.push_back(static_cast<int>(axis));
  x.transpose(axes);
  c.set(node, 0, x);
}

namespace {

// Heads that are put one after the other on the axis of the samples: an axis of their own inside each sample.
Value joined_samples(Conversion& c, const Node& node, const Vector<Value>& parts, int axis) {
  Vector<std::string> tensors;
  Value result;
  for (const Value& part : parts) {
    Axis others;
    Value rest = part;
    for (const int a : rest.axes.indices())
      if (a != axis) others.insert(others.end(), rest.axes[a].begin(), rest.axes[a].end());
    if (part.axes[axis] != Axis{0} || part.shape() != parts[0].shape())
      c.fail(node, "joins along the samples, which is not understood");
    rest = c.arranged(node, rest, {{0}, others});
    tensors.push_back(rest.tensor);
    result = rest;
  }
  result.tensor = c.add(node, "concat", tensors, {{"axis", 1}})[0].tensor;
  result.physical = c.builder.shape(result.tensor);
  result.atoms.insert(result.atoms.begin() + 1, parts.count());
  for (Axis& each : result.axes)
    for (int& atom : each) atom += atom > 0 ? 1 : 0;
  result.axes[axis] = {1, 0};
  return result;
}

// ONNX's axes other than this one, before and behind it in the tensor: as they lie where each is one atom, so that
// nothing is moved, otherwise in ONNX's order. An axis of size 1 comes after the one that precedes it.
std::pair<Vector<int>, Vector<int>> axes_around(const Value& x, int axis) {
  Vector<int> order;
  std::map<int, int> atom_of;  // 0: none but the samples
  bool single = true;
  for (const int a : x.axes.indices()) {
    for (const int atom : x.axes[a]) {
      single = single && (atom == 0 || atom_of[a] == 0);
      atom_of[a] = std::max(atom_of[a], atom);
    }
    order.push_back(a);
  }
  if (single) {
    int place = atom_of[axis];
    for (int a = axis - 1; a >= 0 && place == 0; --a) place = atom_of[a];
    atom_of[axis] = place;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return atom_of[a] < atom_of[b]; });
  }
  const auto own = std::find(order.begin(), order.end(), axis);
  return {{order.begin(), own}, {own + 1, order.end()}};
}

// As [batch, axes before it, the axis, axes after it].
Value joined_in_four_axes(Conversion& c, const Node& node, const Vector<Value>& parts, int axis) {
  const auto [before, behind] = axes_around(parts[0], axis);
  Vector<std::string> tensors;
  Value first;
  int64_t total = 0;
  for (const int i : parts.indices()) {
    Vector<Axis> physical{{0}, {}, parts[i].axes[axis], {}};
    const auto add = [&](Axis& to, const Vector<int>& axes) {
      for (const int a : axes)
        for (const int atom : parts[i].axes[a])
          if (atom != 0) to.push_back(atom);
    };
    add(physical[1], before);
    add(physical[3], behind);
    const Value own = c.arranged(node, parts[i], physical);
    tensors.push_back(own.tensor);
    total += own.physical[2];
    if (i == 0) first = own;
  }
  Value result = c.add(node, "concat", tensors, {{"axis", 2}})[0];
  result.atoms = {first.atoms[0]};
  result.axes.assign(first.axes.size(), Axis{});
  const auto add = [&](int a) {
    for (const int atom : first.axes[a]) {
      result.axes[a].push_back(atom == 0 ? 0 : result.atoms.count());
      if (atom != 0) result.atoms.push_back(first.atoms[atom]);
    }
  };
  for (const int a : before) add(a);
  if (total > 1) result.axes[axis] = {result.atoms.count()};
  if (total > 1) result.atoms.push_back(total);
  for (const int a : behind) add(a);
  return result;
}

Value joined_values(Conversion& c, const Node& node, Vector<Value> parts, int axis) {
  if (std::any_of(parts.begin(), parts.end(), [&](const Value& part) {
        return std::find(part.axes[axis].begin(), part.axes[axis].end(), 0) != part.axes[axis].end();
      }))
    return joined_samples(c, node, parts, axis);
  bool samples_first = parts[0].axes.size() <= 4;
  for (const Value& part : parts)
    samples_first = samples_first && part.batch_axis() >= 0 && (part.batch_axis() == 0 || !part.axes[axis].empty());
  if (!samples_first) return joined_in_four_axes(c, node, parts, axis);
  // All are moved as the first one lies; those of size 1 along the axis have none there, so that the others say where.
  Value first = parts[0];
  for (const Value& part : parts)
    if (first.axes[axis].empty()) first = part;
  if (first.axes[axis].empty()) {  // rows of size 1 each: one axis of the tensor is all of them
    for (Value& part : parts) part = c.arranged(node, part);
    Vector<std::string> tensors;
    for (const Value& part : parts) tensors.push_back(part.tensor);
    return c.add(node, "concat", tensors, {{"axis", axis}})[0];
  }
  const bool stays = first.axes[axis].size() == 1 &&
                     (first.physical == first.atoms || std::all_of(first.axes.begin(), first.axes.end(),
                                                                   [](const Axis& own) { return own.size() <= 1; }));
  Vector<int> order;  // ONNX axes in the tensor's order
  for (const int a : first.axes.indices()) order.push_back(a);
  if (stays) {
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      const int left = first.axes[a].empty() ? INT32_MAX : first.axes[a][0],
                right = first.axes[b].empty() ? INT32_MAX : first.axes[b][0];
      return left != right ? left < right : a < b;
    });
  } else if (const int batch = first.batch_axis(); batch > 0) {
    order.erase(order.begin() + batch);
    order.insert(order.begin(), batch);
  }
  Vector<std::string> tensors;
  for (const Value& part : parts) {
    Vector<Axis> physical;
    for (const int a : order) physical.push_back(part.axes[a]);
    tensors.push_back(c.arranged(node, part, physical).tensor);
  }
  const int64_t at = std::find(order.begin(), order.end(), axis) - order.begin();
  Value result = c.add(node, "concat", tensors, {{"axis", at}})[0];
  Vector<int> back(order.size(), 0);
  for (const int i : order.indices()) back[order[i]] = i;
  result.transpose(back);
  return result;
}

}  // namespace

void convert_concat(Conversion& c, const Node& node) {
  const int axis = c.model.axis(node, c.model.integer(node, "axis", 1), output_shape(c, node).size());
  // A trained row in front of a sequence (a class token, repeated for each sample by Expand) is a prefix.
  if (const Constant* repeated = c.repeated(node, 0); repeated && node.inputs.size() == 2 && !c.repeated(node, 1)) {
    const Constant& token = *repeated;
    Value x = c.value(node, 1);
    const bool sequence = x.axes.size() == 3 && axis == 1 && x.batch_axis() == 0 && token.shape.size() == 3;
    if (sequence && token.shape[0] == 1 && token.is_parameter() && !c.is_as_value(token)) {
      Constant rows = token;
      rows.shape.erase(rows.shape.begin());
      x = c.arranged(node, x);
      return c.set(node, 0,
                   c.add_with_parameters(node, "prefix", {x.tensor}, {{"rows", rows.shape[0]}}, {{"weight", rows}}));
    }
  }
  // A constant among them is the same for all samples, which are where the others have them.
  int batch_axis = 0;
  for (const std::string& input : node.inputs)
    if (const auto it = c.values.find(input); it != c.values.end()) batch_axis = std::max(0, it->second.batch_axis());
  Vector<Value> parts;
  for (const int i : node.inputs.indices()) parts.push_back(c.value(node, static_cast<size_t>(i), batch_axis));
  if (c.is_without_samples())  // an axis for them, meanwhile
    for (Value& part : parts) part.axes.insert(part.axes.begin(), Axis{0});
  const Value joined = joined_values(c, node, parts, axis + (c.is_without_samples() ? 1 : 0));
  Value result = joined;
  if (c.is_without_samples()) result.axes.erase(result.axes.begin());
  c.set(node, 0, result);
}

void convert_slice(Conversion& c, const Node& node) {
  Value x = c.value(node, 0);
  const Vector<SliceRange> ranges = slice_ranges(c.model, node, x.shape());
  for (const int axis : ranges.indices()) {
    const SliceRange& range = ranges[axis];
    if (range.count == x.shape()[axis] && (range.step == 1 || range.count == 1)) continue;
    if (range.step != 1 && range.count > 1) c.fail(node, "takes every other element, which is not understood");
    x = range_of(c, node, x, axis, range.begin, range.begin + range.count);
  }
  c.set(node, 0, x);
}

void convert_split(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  const int axis = c.model.axis(node, c.model.integer(node, "axis", 0), x.axes.size());
  const Vector<int64_t> sizes = split_sizes(c.model, node, x.shape()[axis]);
  if (sizes.size() == 1) return c.set(node, 0, x);
  const Axis& own_atoms = x.axes[axis];
  if (own_atoms.size() > 1 && own_atoms.back() == 0 && own_atoms[0] != 0 &&
      std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size == x.batch(); })) {
    // Heads before the samples on one axis: each is all samples.
    Value apart = x;
    apart.axes[axis].pop_back();
    apart.axes.push_back({0});
    for (const int i : sizes.indices()) {
      Value part = range_of(c, node, apart, axis, i, i + 1);
      part.axes.pop_back();
      part.axes[axis] = {0};
      c.set(node, static_cast<size_t>(i), part);
    }
    return;
  }
  if (x.type != DataType::f32) {
    int64_t begin = 0;
    for (const int i : sizes.indices()) {
      c.set(node, static_cast<size_t>(i), range_of(c, node, x, axis, begin, begin + sizes[i]));
      begin += sizes[i];
    }
    return;
  }
  const Value own = with_own_axis(c, node, x, axis);
  const Vector<Value> parts = c.add(node, "split", {own.tensor}, {{"axis", tensor_axis(own, axis)}, {"sizes", sizes}});
  for (const int i : parts.indices()) c.set(node, static_cast<size_t>(i), with_size(own, axis, sizes[i], parts[i]));
}

namespace {

// Rows of a trained table by constant indices, some of them several times: a product with zeros and ones.
void gather_of_initializers(Conversion& c, const Node& node) {
  Value x = c.value(node, 0);
  const Constant& indices = c.required_constant(node, 1, "the indices");
  const int axis = c.model.axis(node, c.model.integer(node, "axis", 0), x.axes.size());
  const int64_t size = x.shape()[axis];
  Vector<float> matrix(indices.elements() * size, 0.0f);
  for (int64_t i = 0; i < indices.elements(); ++i) {
    const int64_t index = indices.as_integers()[i];
    matrix[i * size + (index < 0 ? index + size : index)] = 1;
  }
  Shape shape = x.shape();
  x = product_along(c, node, x, axis, Constant::of_floats({indices.elements(), size}, std::move(matrix)));
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, indices.shape.begin(), indices.shape.end());
  if (!x.reshape(shape)) c.fail(node, "chooses rows in a way that is not understood");
  c.set(node, 0, x);
}

}  // namespace

// Of a table by tokens: an embedding. Of a value by one constant index: a slice without its axis; by consecutive ones:
// a slice.
void convert_gather(Conversion& c, const Node& node) {
  if (c.is_without_samples()) return gather_of_initializers(c, node);
  if (const Constant* table = c.constant(node, 0)) {
    const Value tokens = c.value(node, 1);
    if (tokens.type != DataType::i32) c.fail(node, "has indices that are no graph input of integers");
    if (table->shape.size() != 2 || c.model.integer(node, "axis", 0) != 0)
      c.fail(node, "chooses from a table of shape " + to_string(table->shape) + ", which is not understood");
    Axis others;
    for (int atom = 1; atom < tokens.atoms.count(); ++atom) others.push_back(atom);
    const Value lies = others.empty() ? c.arranged(node, tokens, {{0}}) : c.arranged(node, tokens, {{0}, others});
    const Value rows =
        c.add_with_parameters(node, "embedding", {lies.tensor},
                              {{"vocabulary", table->shape[0]}, {"channels", table->shape[1]}}, {{"weight", *table}});
    Value result = lies;
    result.tensor = rows.tensor;
    result.physical = rows.physical;
    result.type = DataType::f32;
    result.axes.push_back(table->shape[1] > 1 ? Axis{result.atoms.count()} : Axis{});
    if (table->shape[1] > 1) result.atoms.push_back(table->shape[1]);
    return c.set(node, 0, result);
  }
  Value x = c.value(node, 0);
  const Constant& indices = c.required_constant(node, 1, "the indices");
  const int axis = c.model.axis(node, c.model.integer(node, "axis", 0), x.axes.size());
  const int64_t size = x.shape()[axis], first = indices.elements() > 0 ? indices.as_integers()[0] : size;
  const int64_t begin = first < 0 ? first + size : first;
  for (int64_t i = 0; i < indices.elements(); ++i)
    if (const int64_t index = indices.as_integers()[i]; (index < 0 ? index + size : index) != begin + i)
      c.fail(node, "chooses elements that do not follow one another, which is not understood");
  if (begin < 0 || begin + indices.elements() > size || indices.shape.size() > 1)
    c.fail(node, "chooses what is not there");
  x = range_of(c, node, x, axis, begin, begin + indices.elements());
  if (indices.shape.empty()) {
    if (!x.axes[axis].empty()) c.fail(node, "takes one sample, which is not understood");
    x.axes.erase(x.axes.begin() + axis);
  }
  c.set(node, 0, x);
}

// To the shape that it has, or repeated along one axis of size 1 (keys that several heads have in common): copies
// joined. Constants are expanded while folding, and an initializer that is repeated for all samples is seen where it is
// joined to them.
void convert_expand(Conversion& c, const Node& node) {
  if (c.constant(node, 0) && !c.is_without_samples()) return;
  Value x = c.value(node, 0);
  const Shape before = x.shape(), &asked = output_shape(c, node);
  while (x.axes.size() < asked.size()) x.axes.insert(x.axes.begin(), Axis{});
  int repeated = -1;
  for (const int axis : asked.indices()) {
    if (x.shape()[axis] == asked[axis]) continue;
    if (repeated >= 0)
      c.fail(node, "repeats elements along several axes: " + to_string(before) + " to " + to_string(asked) +
                       ", which is not understood");
    repeated = axis;
  }
  if (repeated < 0) return c.set(node, 0, x);
  const int64_t times = asked[repeated];
  // Copies lie after the axis that ONNX has before them: those of a head next to one another.
  int last = 0;  // atom of the axes before
  for (int axis = 0; axis < repeated; ++axis)
    if (!x.axes[axis].empty()) last = x.axes[axis].back();
  Axis outer, inner;
  for (int atom = 1; atom < x.atoms.count(); ++atom) (atom <= last ? outer : inner).push_back(atom);
  // [batch, outer, inner] becomes [batch, outer, times * inner]
  Value result = last == 0 ? c.arranged(node, x, {{0}, inner}) : c.arranged(node, x, {{0}, outer, inner});
  const Vector<std::string> copies(static_cast<size_t>(times), result.tensor);
  result.tensor = c.add(node, "concat", copies, {{"axis", last == 0 ? 1 : 2}})[0].tensor;
  result.physical = c.builder.shape(result.tensor);
  result.atoms.insert(result.atoms.begin() + last + 1, times);
  for (Axis& axis : result.axes)
    for (int& atom : axis) atom += atom > last ? 1 : 0;
  result.axes[repeated] = {last + 1};
  c.set(node, 0, result);
}

}  // namespace ff::importing
