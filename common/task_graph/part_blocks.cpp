#include "common/task_graph/part_blocks.h"

#include <algorithm>

namespace ff {

PartBlocks::PartBlocks(const OperatorDefinition& definition, const Degrees& degrees, Role role, int number)
    : definition_(&definition), degrees_(&degrees), role_(role), number_(number), whole_(block(definition.whole())),
      product_(!whole_.empty()) {
  dimension_of_axis_.fill(-1);
  for (int d = 0; d < degrees.count() && product_; ++d) {
    present_behind_[d] = degrees[d];
    if (degrees[d] == 1) continue;
    find_present(d);
    find_axes(d);
  }
}

Block PartBlocks::block(const Block& part) const {
  switch (role_) {
    case Role::output: return definition_->output_block(number_, part);
    case Role::input: return definition_->input_block(number_, part);
    case Role::parameter: return definition_->parameter_block(number_, part);
  }
  return {};
}

Block PartBlocks::at(int dimension, int index) const {
  Block part = definition_->whole();
  part[dimension] = degrees_->interval(dimension, part[dimension].end, index);
  return block(part);
}

void PartBlocks::find_present(int d) {
  const int degree = (*degrees_)[d];
  if (!at(d, 0).empty() && !at(d, degree - 1).empty()) return;
  int first = 0;
  while (first < degree && at(d, first).empty()) ++first;
  int behind = first;
  while (behind < degree && !at(d, behind).empty()) ++behind;
  for (int index = behind; index < degree; ++index) product_ = product_ && at(d, index).empty();
  product_ = product_ && first < behind;
  present_first_[d] = first;
  present_behind_[d] = behind;
}

void PartBlocks::find_axes(int d) {
  if (!product_) return;
  for (const int index : {present_first_[d], present_behind_[d] - 1}) {
    const Block block = at(d, index);
    for (int axis = 0; axis < whole_.rank(); ++axis) {
      if (block[axis] == whole_[axis] || dimension_of_axis_[axis] == d) continue;
      product_ = product_ && dimension_of_axis_[axis] < 0;  // else it follows from two
      dimension_of_axis_[axis] = d;
    }
  }
}

// Leaves the indices whose interval on the axis overlaps this one: begins and ends grow with the index.
void PartBlocks::narrow(int axis, Interval interval, Parts& parts) const {
  const int d = dimension_of_axis_[axis];
  int &first = parts.first[d], &behind = parts.behind[d];
  const auto first_where = [&](const auto& holds) {
    int low = first, high = behind;
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (holds(at(d, middle)[axis])) high = middle;
      else low = middle + 1;
    }
    return low;
  };
  first = first_where([&](Interval one) { return one.end > interval.begin; });
  behind = first_where([&](Interval one) { return one.begin >= interval.end; });
}

PartBlocks::Parts PartBlocks::overlapping(const Block& sought) const {
  Parts parts;
  parts.product = product_;
  if (!product_) {
    for (int part = 0, all = parts_of(*degrees_); part < all; ++part)
      if (!intersect(of(part), sought).empty()) parts.listed.push_back(part);
    return parts;
  }
  parts.first = present_first_;
  parts.behind = present_behind_;
  for (int axis = 0; axis < whole_.rank(); ++axis) {
    if (dimension_of_axis_[axis] >= 0) narrow(axis, sought[axis], parts);
    else if (intersect(whole_[axis], sought[axis]).size() <= 0) parts.behind = parts.first;
  }
  return parts;
}

int64_t PartBlocks::count(const Parts& parts) const {
  if (!parts.product) return std::ssize(parts.listed);
  int64_t count = 1;
  for (int d = 0; d < degrees_->count(); ++d) count *= std::max(0, parts.behind[d] - parts.first[d]);
  return count;
}

int32_t PartBlocks::first(const Parts& parts) const {
  if (!parts.product) return parts.listed[0];
  int32_t part = 0;
  for (int d = 0; d < degrees_->count(); ++d) part = part * (*degrees_)[d] + parts.first[d];
  return part;
}

Vector<int64_t> PartBlocks::boundaries(int axis) const {
  Vector<int64_t> result;
  const auto add = [&](const Block& block) {
    if (block.empty()) return;
    result.push_back(block[axis].begin);
    result.push_back(block[axis].end);
  };
  const int d = product_ ? dimension_of_axis_[axis] : -1;
  if (!product_)
    for (int part = 0, all = parts_of(*degrees_); part < all; ++part) add(of(part));
  else if (d < 0) add(whole_);
  else
    for (int index = present_first_[d]; index < present_behind_[d]; ++index) add(at(d, index));
  sort_and_unique(result);
  return result;
}

bool PartBlocks::leave_no_gap() const {
  for (int axis = 0; axis < whole_.rank() && product_; ++axis) {
    const int d = dimension_of_axis_[axis];
    if (d < 0) continue;
    int64_t reached = at(d, present_first_[d])[axis].end;
    for (int index = present_first_[d] + 1; index < present_behind_[d]; ++index) {
      const Interval next = at(d, index)[axis];
      if (next.begin > reached) return false;
      reached = next.end;
    }
  }
  return product_;
}

std::string blocks_signature(const OperatorDefinition& definition) {
  const Block whole = definition.whole();
  std::string text = definition.signature(whole) + to_string(whole);  // type, attributes, padding
  // Where what is read lies in the input: a slice's range.
  for (int input : definition.inputs().indices()) text += to_string(definition.input_block(input, whole));
  for (const auto* specs : {&definition.inputs(), &definition.outputs()})
    for (const TensorSpec& spec : *specs) {
      text += to_string(spec.shape);
      if (spec.routing)
        for (int64_t number : {spec.routing->experts, spec.routing->capacity, spec.routing->group_samples})
          text += " " + std::to_string(number);
    }
  for (const ParameterSpec& parameter : definition.parameters()) text += to_string(parameter.shape);
  for (const ParallelDimension& dimension : definition.dimensions())
    text += std::to_string(static_cast<int>(dimension.kind));
  return text;
}

}  // namespace ff
