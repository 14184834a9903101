// B packed ahead: a block that says what it is, and the formats behind its header.
#ifndef MPCORE_API_GEMM_PACK_H_
#define MPCORE_API_GEMM_PACK_H_

#include <stdint.h>

#include "mpcore/gemm.h"
#include "runtime/context.h"

namespace mpcore {

struct PackedShape {
  int64_t k, n;
  mpcore_dtype dtype;
  mpcore_matmul_precision precision;  // never DEFAULT

  bool operator==(const PackedShape&) const = default;
};

// How a path keeps B. `data` is 64-byte aligned if the caller's block is.
struct PackFormat {
  // Bytes, or -1 if they do not fit in int64_t.
  int64_t (*size)(const Session& session, const PackedShape& shape);
  mpcore_status (*pack)(Session& session, const PackedShape& shape, const mpcore_matrix& b,
                        void* data);
};

// The format that products of this shape use on the session's level.
const PackFormat& pack_format(const Session& session, const PackedShape& shape);

// What stands behind the header of `packed`; INVALID_ARGUMENT unless it was packed on this level
// for this shape.
mpcore_status open_packed(const Session& session, const PackedShape& shape, const void* packed,
                          const void** data);

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_PACK_H_
