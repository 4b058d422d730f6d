// What the user has decided of a strategy before it is searched for (GShard's annotations: Lepikhin et al. 2020, arXiv
// 2006.16668). The file format, ffannotations/1: docs/formats.md.
#pragma once

#include <optional>
#include <string>

#include "common/strategy.h"

namespace ff {

// Of one operator.
struct Annotation {
  Degrees degrees;                          // one a dimension; 0: left open
  std::optional<Vector<DeviceId>> devices;  // of every part; no degree is open then
  std::string place;                        // the (first) annotation in the file, as a JSON pointer

  bool allows(const Configuration& configuration) const;
  // Is a dimension split, or everything decided? Else the annotation only says what is not to be split.
  bool decides() const;
};

class Annotations {
 public:
  Annotations(std::string file, Vector<std::optional<Annotation>> of_operators)
      : file_(std::move(file)), of_operators_(std::move(of_operators)) {}

  const Annotation* find(OperatorId op) const { return of_operators_[op] ? &*of_operators_[op] : nullptr; }
  bool allow(OperatorId op, const Configuration& configuration) const {
    return !of_operators_[op] || of_operators_[op]->allows(configuration);
  }
  // "annotations.json: /annotations/2", for messages.
  std::string text(OperatorId op) const { return file_ + ": " + of_operators_[op]->place; }
  Indices operators() const { return of_operators_.indices(); }

 private:
  std::string file_;
  Vector<std::optional<Annotation>> of_operators_;
};

// Throws InputError for anything that is not a valid ffannotations/1 for this graph and topology, and where annotations
// contradict each other.
Annotations load_annotations(const std::string& path, const Graph& graph, const Topology& topology);
Annotations parse_annotations(const JsonPlace& place, const Graph& graph, const Topology& topology);

// What the annotation says, with what it leaves open completed: the first sample dimension is split as far as there are
// devices, others are not. Part p is on device p where the annotation does not say otherwise.
Configuration completed(const Annotation& annotation, const OperatorDefinition& definition, int devices);

// The same strategy where the annotations allow it; operators to which they do not are `completed`. `annotations` may
// be none.
Strategy keep_annotations(Strategy strategy, const Annotations* annotations, const Graph& graph,
                          const Topology& topology);

}  // namespace ff
