#include "search/import/pytorch_table.h"

#include <algorithm>

#include "common/block.h"
#include "search/import/rearranging.h"

namespace ff::importing {
namespace {

// The pieces of one parameter.
class PieceFinder {
 public:
  PieceFinder(const Model& model, const std::string& name, const Constant& constant)
      : model_(model), name_(name), constant_(constant), strides_(strides_of(constant.shape)) {}

  // By initializer.
  std::map<std::string, Json> find() {
    if (constant_.elements() > 0) add(Vector<int64_t>(strides_.size(), 0), constant_.shape);
    return std::move(found_);
  }

 private:
  int64_t place(const Vector<int64_t>& index) const {
    int64_t at = 0;
    for (const int axis : index.indices()) at += index[axis] * strides_[axis];
    return at;
  }

  bool belong_together(int64_t a, int64_t b) const { return &model_.initializer_of(a) == &model_.initializer_of(b); }

  // Where the numbers along an axis, from `begin`, do not go on as they did, or are another initializer's.
  Vector<int64_t> cuts(const Vector<int64_t>& begin, int64_t size, int axis) const {
    Vector<int64_t> result{0};
    const int64_t first = place(begin), stride = strides_[axis];
    int64_t step = 0;
    for (int64_t i = 1; i < size; ++i) {
      const int64_t before = constant_.origin.at(first + (i - 1) * stride),
                    number = constant_.origin.at(first + i * stride);
      const bool starts = result.back() == i - 1;
      if (belong_together(before, number) && (starts || number - before == step)) step = number - before;
      else result.push_back(i);
    }
    return result;
  }

  // A block that is a piece, or is cut into such.
  void add(const Vector<int64_t>& begin, const Shape& size) {
    Vector<int64_t> steps(size.size(), 0);
    const int64_t offset = constant_.origin.at(place(begin));
    for (const int axis : size.indices()) {
      if (size[axis] == 1) continue;
      steps[axis] = constant_.origin.at(place(begin) + strides_[axis]) - offset;
      const Vector<int64_t> at = cuts(begin, size[axis], axis);
      if (at.size() > 1) return cut(begin, size, axis, at);
    }
    if (const int axis = first_irregular_axis(begin, size, steps, offset); axis >= 0) {
      Vector<int64_t> all;
      for (int64_t i = 0; i < size[axis]; ++i) all.push_back(i);
      return cut(begin, size, axis, all);
    }
    const Initializer& owner = model_.initializer_of(offset);
    found_[owner.name].push_back(
        {{"parameter", name_}, {"begin", begin}, {"size", size}, {"offset", offset - owner.first}, {"strides", steps}});
  }

  void cut(const Vector<int64_t>& begin, const Shape& size, int axis, const Vector<int64_t>& at) {
    for (const int i : at.indices()) {
      Vector<int64_t> first = begin;
      Shape piece = size;
      first[axis] += at[i];
      piece[axis] = (i + 1 < at.count() ? at[i + 1] : size[axis]) - at[i];
      add(first, piece);
    }
  }

  // Along its edges the block is regular; is it inside? -1: it is.
  int first_irregular_axis(const Vector<int64_t>& begin, const Shape& size, const Vector<int64_t>& steps,
                           int64_t offset) const {
    if (size.empty()) return -1;
    Vector<int64_t> rows;  // the first number of each
    for_each_row(size, steps, offset, [&](int64_t number) { rows.push_back(number); });
    size_t row = 0;
    bool regular = true;
    for_each_row(size, strides_, place(begin), [&](int64_t at) {
      regular = regular && constant_.origin.numbers->goes(at, size.back(), rows[row++], steps.back());
    });
    return regular ? -1
                   : static_cast<int>(std::find_if(size.begin(), size.end(), [](int64_t n) { return n > 1; }) -
                                      size.begin());
  }

  const Model& model_;
  const std::string& name_;
  const Constant& constant_;
  Vector<int64_t> strides_;
  std::map<std::string, Json> found_;
};

// The initializer that an untrained parameter is, number by number; null: none.
const Initializer* whole_initializer(const Model& model, const Constant& constant) {
  if (constant.frozen.size() != 1) return nullptr;
  for (const Initializer& each : model.initializers)
    if (each.name == *constant.frozen.begin()) {
      const Constant* values = model.constant(each.name);
      return values && values->floats && *values->floats == *constant.floats ? &each : nullptr;
    }
  return nullptr;
}

Json whole_piece(const std::string& name, const Shape& shape) {
  const Vector<int64_t> begin(shape.size(), 0);
  return {{"parameter", name}, {"begin", begin}, {"size", shape}, {"offset", 0}, {"strides", strides_of(shape)}};
}

}  // namespace

Json pytorch_table(const Model& model, const Builder& builder) {
  std::map<std::string, Json> pieces;  // by initializer
  for (const auto& [name, parameter] : builder.parameters()) {
    const Constant& constant = parameter.constant;
    if (parameter.trained && constant.origin.known()) {
      for (auto& [initializer, list] : PieceFinder(model, name, constant).find())
        for (Json& piece : list) pieces[initializer].push_back(std::move(piece));
    } else if (const Initializer* whole = whole_initializer(model, constant)) {
      if (!pieces.contains(whole->name)) pieces[whole->name] = Json::array({whole_piece(name, constant.shape)});
    }
  }
  std::map<std::string, std::string> owners;  // parameter -> the first initializer that has become a piece of it
  for (const auto& [initializer, list] : pieces) owners.emplace(list[0]["parameter"].get<std::string>(), initializer);
  Json tensors = Json::object(), summands = Json::object(), constants = Json::array();
  for (const Initializer& each : model.initializers) {
    if (const auto found = pieces.find(each.name); found != pieces.end())
      tensors[each.name] = {{"shape", each.shape}, {"pieces", std::move(found->second)}};
    else if (const auto sum = builder.summed.find(each.name); sum != builder.summed.end())
      summands[each.name] = owners.at(sum->second);
    else constants.push_back(each.name);
  }
  return {{"tensors", std::move(tensors)}, {"summands", std::move(summands)}, {"constants", std::move(constants)}};
}

}  // namespace ff::importing
