// Which rows of an embedding's table a part has.
#pragma once

#include <string>

#include "common/errors.h"
#include "common/kernels/backend.h"
#include "common/operators/embedding.h"

namespace ff::cpu {

class EmbeddingRows {
 public:
  EmbeddingRows(const Embedding& embedding, const KernelRequest& request)
      : name_(request.operator_name), vocabulary_(embedding.vocabulary), rows_(embedding.rows(request.part)) {}

  int64_t count() const { return rows_.size(); }
  // Within the part's rows, or -1 for a token of another part.
  int64_t own(int32_t token) const {
    if (token < 0 || token >= vocabulary_)
      throw InputError(name_ + ": found the token " + std::to_string(token) + ", expected one from 0 to " +
                       std::to_string(vocabulary_ - 1));
    return token >= rows_.begin && token < rows_.end ? token - rows_.begin : -1;
  }

 private:
  const std::string name_;
  const int64_t vocabulary_;
  const Interval rows_;
};

}  // namespace ff::cpu
