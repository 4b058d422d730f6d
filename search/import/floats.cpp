#include "search/import/floats.h"

#include <utility>

namespace ff::importing {

Floats::Floats(Vector<float> values)
    : content_(std::make_shared<Content>(Content{std::make_shared<const Vector<float>>(std::move(values)), {}, {}})) {}

Floats Floats::box(const Shape& shape, const Vector<int64_t>& strides, int64_t offset) const {
  Content content;
  if (content_->values) {
    content.source = content_->values;
    content.places =
        Progressions::consecutive(0, static_cast<int64_t>(content_->values->size())).box(shape, strides, offset);
  } else {
    content.source = content_->source;
    content.places = content_->places.box(shape, strides, offset);
  }
  Floats result;
  result.content_ = std::make_shared<Content>(std::move(content));
  constexpr int64_t fewest_of_a_run = 16;  // else the values take less room
  const Progressions& places = result.content_->places;
  if (static_cast<int64_t>(places.runs().size()) * fewest_of_a_run > places.size()) *result;
  return result;
}

int64_t Floats::size() const {
  return content_->values ? static_cast<int64_t>(content_->values->size()) : content_->places.size();
}

std::shared_ptr<const Vector<float>> Floats::once() const {
  if (content_->values) return content_->values;
  Vector<float> values;
  values.reserve(static_cast<size_t>(content_->places.size()));
  for (const Progressions::Run& run : content_->places.runs())
    for (int64_t i = 0; i < run.count; ++i) values.push_back((*content_->source)[run.first + i * run.step]);
  return std::make_shared<const Vector<float>>(std::move(values));
}

const Vector<float>& Floats::operator*() const {
  if (!content_->values) {
    content_->values = once();
    content_->source = nullptr;
    content_->places = {};
  }
  return *content_->values;
}

}  // namespace ff::importing
