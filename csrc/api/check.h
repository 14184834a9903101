// Argument checks that several columns share, and the wall that exceptions stop at. Each check
// returns MPCORE_OK or reports what is wrong.
#ifndef MPCORE_API_CHECK_H_
#define MPCORE_API_CHECK_H_

#include <exception>
#include <new>

#include "mpcore/base.h"
#include "mpcore/gemm.h"
#include "runtime/error.h"

namespace mpcore {

// Is the dtype one of f32, f16, bf16?
constexpr bool is_compute_dtype(mpcore_dtype dtype) {
  return dtype == MPCORE_DTYPE_F32 || dtype == MPCORE_DTYPE_F16 || dtype == MPCORE_DTYPE_BF16;
}
constexpr bool is_float_dtype(mpcore_dtype dtype) {
  return is_compute_dtype(dtype) || dtype == MPCORE_DTYPE_F64;
}

// Bytes of one element, 0 for an unknown dtype.
int64_t dtype_size(mpcore_dtype dtype);

constexpr int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

// A size must be >= 0 and size * element bytes must fit in int64.
mpcore_status check_size(const char* function, const char* name, int64_t size);
// A pointer may be null only if there is nothing behind it.
mpcore_status check_pointer(const char* function, const char* name, const void* pointer,
                            int64_t size);
// The dtype must be f32, f16, or bf16.
mpcore_status check_compute_dtype(const char* function, const char* name, mpcore_dtype dtype);
mpcore_status check_activation(const char* function, mpcore_activation activation);
mpcore_status check_matmul_precision(const char* function, mpcore_matmul_precision precision);
// struct_size: at least `known`; bytes beyond `known` must be zero (a newer caller's unused
// fields).
mpcore_status check_struct(const char* function, const char* name, const void* args,
                           uint32_t struct_size, uint32_t known);
// Do the byte ranges [p, p + p_bytes) and [q, q + q_bytes) share a byte? Empty ranges share none.
bool ranges_overlap(const void* p, int64_t p_bytes, const void* q, int64_t q_bytes);

struct ByteRange {
  const char* name;
  const void* data;  // nullptr: none
  int64_t bytes;
};
// An output shares no byte with another array; `may_equal`: or starts where that one starts.
mpcore_status check_apart(const char* function, const ByteRange& out, const ByteRange& other,
                          bool may_equal = false);

inline const void* advance(const void* p, int64_t bytes) {
  return p == nullptr ? nullptr : static_cast<const char*>(p) + bytes;
}
inline void* advance(void* p, int64_t bytes) {
  return p == nullptr ? nullptr : static_cast<char*>(p) + bytes;
}

// Runs the body of an API function and turns every exception into a status: nothing is thrown
// across the C boundary.
template <class Body>
mpcore_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(MPCORE_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return fail(MPCORE_INTERNAL, "unexpected error: %s", error.what());
  } catch (...) {
    return fail(MPCORE_INTERNAL, "unexpected error of unknown type");
  }
}

}  // namespace mpcore

#endif  // MPCORE_API_CHECK_H_
