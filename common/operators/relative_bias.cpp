#include "common/operators/relative_bias.h"

#include <algorithm>
#include <cmath>

#include "common/operators/operator_list.h"

namespace ff {
namespace {

// T5's: the first half of a direction's buckets have one distance each, the others distances that grow by a factor, up
// to max_distance.
Vector<int64_t> t5_boundaries(int64_t buckets, int64_t max_distance) {
  const int64_t exact = buckets / 2;
  Vector<int64_t> boundaries;
  for (int64_t bucket = 1; bucket <= exact; ++bucket) boundaries.push_back(bucket);
  for (int64_t bucket = exact + 1; bucket < buckets; ++bucket) {
    const double fraction = static_cast<double>(bucket - exact) / static_cast<double>(buckets - exact);
    const double from =
        static_cast<double>(exact) * std::pow(static_cast<double>(max_distance) / static_cast<double>(exact), fraction);
    boundaries.push_back(std::max(boundaries.back(), static_cast<int64_t>(std::ceil(from - 1e-9))));
  }
  return boundaries;
}

}  // namespace

RelativeBias::RelativeBias(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(4, 4);
  request.allow_attributes({"buckets", "directions", "boundaries", "max_distance"});
  buckets = request.integer("buckets", 32, 1, 1 << 20);
  const std::string choice = request.choice("directions", "both", {"both", "past", "signed"});
  directions = choice == "both" ? Directions::both : choice == "past" ? Directions::past : Directions::with_sign;
  if (directions == Directions::both && buckets % 2 != 0)
    request.required_attribute("buckets").fail("found " + std::to_string(buckets) +
                                               ", expected an even number: each direction has half of them");
  const int64_t each = directions == Directions::both ? buckets / 2 : buckets;
  if (request.attribute("boundaries") || directions == Directions::with_sign) {
    const JsonPlace place = request.required_attribute("boundaries");
    if (request.attribute("max_distance")) place.fail("says what \"max_distance\" says; expected one of the two");
    const int64_t least = directions == Directions::with_sign ? -(int64_t{1} << 40) : 1;
    for (const JsonPlace& item : place.items()) {
      boundaries.push_back(item.as_integer(least, int64_t{1} << 40));
      if (boundaries.size() > 1 && boundaries[boundaries.count() - 2] > boundaries.back())
        item.fail("found " + std::to_string(boundaries.back()) + ", expected at least the one before");
    }
    if (boundaries.count() >= each)
      place.fail("has " + std::to_string(boundaries.size()) + " distances, expected fewer than the " +
                 std::to_string(each) + " buckets" + (directions == Directions::both ? " of a direction" : ""));
  } else if (each > 1) {
    boundaries = t5_boundaries(each, request.integer("max_distance", std::max<int64_t>(128, each), each, 1 << 30));
  }
  outputs_ = {{"", inputs_[0].shape}};
  const Shape& shape = inputs_[0].shape;
  parameters_ = {{"weight", {buckets, shape[1]}, 0.03}};  // as position_embedding's
  dimensions_ = {{"sample", DimensionKind::sample, shape[0]},
                 {"head", DimensionKind::parameter, shape[1]},
                 {"query", DimensionKind::attribute, shape[2]},
                 {"key", DimensionKind::attribute, shape[3]}};
}

int64_t RelativeBias::bucket(int64_t distance) const {
  const int64_t counted = directions == Directions::both   ? std::abs(distance)
                          : directions == Directions::past ? std::max<int64_t>(0, -distance)
                                                           : distance;
  const int64_t within = std::upper_bound(boundaries.begin(), boundaries.end(), counted) - boundaries.begin();
  return within + (directions == Directions::both && distance > 0 ? buckets / 2 : 0);
}

Vector<int32_t> RelativeBias::part_buckets(const Block& part) const {
  Vector<int32_t> result;
  for (int64_t distance = part[3].begin - (part[2].end - 1); distance < part[3].end - part[2].begin; ++distance)
    result.push_back(static_cast<int32_t>(bucket(distance)));
  return result;
}

// A number for each distance.
int64_t RelativeBias::workspace_bytes(const Block& part) const {
  return (part[2].size() + part[3].size() - 1) * static_cast<int64_t>(sizeof(int32_t));
}

std::string RelativeBias::attribute_text() const {
  std::string text = "buckets=" + std::to_string(buckets) +
                     (directions == Directions::both   ? ""
                      : directions == Directions::past ? " past"
                                                       : " signed") +
                     " boundaries=";
  for (const int i : boundaries.indices()) text += (i > 0 ? "," : "") + std::to_string(boundaries[i]);
  return text;
}

std::string RelativeBias::signature(const Block& part) const {
  return OperatorDefinition::signature(part) + " distance=" + std::to_string(part[3].begin - part[2].begin);
}

std::unique_ptr<OperatorDefinition> make_relative_bias(const OperatorRequest& request) {
  return std::make_unique<RelativeBias>(request);
}

}  // namespace ff
