// std::vector and std::array that any integer indexes.
//
// Operators, devices, parts and edges have signed numbers, as -1 means none, while the standard containers count in
// size_t. Converting at each index would put a cast into every line that says something; here it is said once. The
// index is checked where assertions are on.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

namespace ff {

// 0, 1, .. count - 1: for (OperatorId op : graph.operators.indices()).
class Indices {
 public:
  class Iterator {
   public:
    explicit Iterator(int value) : value_(value) {}
    int operator*() const { return value_; }
    Iterator& operator++() { return ++value_, *this; }
    bool operator==(const Iterator&) const = default;

   private:
    int value_;
  };
  explicit Indices(int count) : count_(count) {}
  Iterator begin() const { return Iterator(0); }
  Iterator end() const { return Iterator(count_); }

 private:
  int count_;
};

template <typename T>
class Vector : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  Vector(std::vector<T> other) : std::vector<T>(std::move(other)) {}
  template <std::integral Size>
  explicit Vector(Size size) : std::vector<T>(static_cast<size_t>(size)) {}
  template <std::integral Size>
  Vector(Size size, const T& value) : std::vector<T>(static_cast<size_t>(size), value) {}

  using std::vector<T>::assign;
  template <std::integral Size>
  void assign(Size size, const T& value) {
    std::vector<T>::assign(static_cast<size_t>(size), value);
  }
  template <std::integral Size>
  void resize(Size size) {
    std::vector<T>::resize(static_cast<size_t>(size));
  }
  template <std::integral Size>
  void resize(Size size, const T& value) {
    std::vector<T>::resize(static_cast<size_t>(size), value);
  }
  int count() const { return static_cast<int>(this->size()); }
  Indices indices() const { return Indices(count()); }

  template <std::integral Index>
  decltype(auto) operator[](Index index) {
    assert(static_cast<size_t>(index) < this->size());
    return std::vector<T>::operator[](static_cast<size_t>(index));
  }
  template <std::integral Index>
  decltype(auto) operator[](Index index) const {
    assert(static_cast<size_t>(index) < this->size());
    return std::vector<T>::operator[](static_cast<size_t>(index));
  }
};

template <typename T, size_t size_>
struct Array : std::array<T, size_> {
  template <std::integral Index>
  constexpr T& operator[](Index index) {
    assert(static_cast<size_t>(index) < size_);
    return std::array<T, size_>::operator[](static_cast<size_t>(index));
  }
  template <std::integral Index>
  constexpr const T& operator[](Index index) const {
    assert(static_cast<size_t>(index) < size_);
    return std::array<T, size_>::operator[](static_cast<size_t>(index));
  }
};

// What a set would hold: ascending, each once.
template <typename T>
void sort_and_unique(Vector<T>& values) {
  if (!std::is_sorted(values.begin(), values.end())) std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace ff
