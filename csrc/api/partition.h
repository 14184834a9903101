// Many tensors as one row of blocks, so that a single parallel region serves all of them and small
// tensors share a task. A block never spans two tensors; where blocks are cut depends on the sizes
// alone.
#ifndef MPCORE_API_PARTITION_H_
#define MPCORE_API_PARTITION_H_

#include <stdint.h>

#include <algorithm>

#include "runtime/context.h"

namespace mpcore {

class Partition {
 public:
  // Tensors have size_of(t) elements, t in [0, count). Workspace comes from the session, which must
  // outlive the partition; valid() is false when it had none to give (message already set).
  template <class SizeOf>
  Partition(Session& session, int64_t count, int64_t block, SizeOf&& size_of)
      : first_(static_cast<int64_t*>(
            session.workspace((count + 1) * static_cast<int64_t>(sizeof(int64_t))))),
        count_(count),
        block_(block) {
    if (first_ == nullptr) return;
    first_[0] = 0;
    for (int64_t t = 0; t < count; ++t)
      first_[t + 1] = first_[t] + (size_of(t) + block - 1) / block;
  }

  bool valid() const { return first_ != nullptr; }
  int64_t blocks() const { return first_[count_]; }
  // Blocks of tensor t are [first_block(t), first_block(t + 1)).
  int64_t first_block(int64_t t) const { return first_[t]; }

  // Calls body(t, begin, end) for the element ranges that blocks [from, to) consist of, in order.
  // The end may lie beyond the tensor: its last block need not be full.
  template <class Body>
  void for_each_piece(int64_t from, int64_t to, Body&& body) const {
    int64_t t = std::upper_bound(first_, first_ + count_ + 1, from) - first_ - 1;
    for (int64_t b = from; b < to; ++t) {
      const int64_t stop = std::min(to, first_[t + 1]);
      if (stop > b) body(t, (b - first_[t]) * block_, (stop - first_[t]) * block_);
      b = stop;
    }
  }

 private:
  int64_t* first_;
  int64_t count_, block_;
};

}  // namespace mpcore

#endif  // MPCORE_API_PARTITION_H_
