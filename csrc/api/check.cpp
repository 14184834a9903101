#include "api/check.h"

#include <cinttypes>
#include <cstdint>
#include <limits>

namespace mpcore {
namespace {

constexpr int64_t kLargestElement = 8;
// A struct_size beyond this is garbage, not a newer caller; reading that far could fault.
constexpr uint32_t kLargestGrowth = 4096;

}  // namespace

int64_t dtype_size(mpcore_dtype dtype) {
  switch (dtype) {
    case MPCORE_DTYPE_I8:
    case MPCORE_DTYPE_U8:
    case MPCORE_DTYPE_BOOL:
      return 1;
    case MPCORE_DTYPE_F16:
    case MPCORE_DTYPE_BF16:
    case MPCORE_DTYPE_I16:
    case MPCORE_DTYPE_U16:
      return 2;
    case MPCORE_DTYPE_F32:
    case MPCORE_DTYPE_I32:
    case MPCORE_DTYPE_U32:
      return 4;
    case MPCORE_DTYPE_F64:
    case MPCORE_DTYPE_I64:
    case MPCORE_DTYPE_U64:
      return 8;
    default:
      return 0;
  }
}

mpcore_status check_size(const char* function, const char* name, int64_t size) {
  if (size < 0) {
    return fail(MPCORE_INVALID_ARGUMENT, "%s: %s must be >= 0 (got %s=%" PRId64 ")", function, name,
                name, size);
  }
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / kLargestElement;
  if (size > kMax) {
    return fail(MPCORE_INVALID_ARGUMENT, "%s: %s must be <= %" PRId64 " (got %s=%" PRId64 ")",
                function, name, kMax, name, size);
  }
  return MPCORE_OK;
}

mpcore_status check_pointer(const char* function, const char* name, const void* pointer,
                            int64_t size) {
  if (pointer == nullptr && size != 0) {
    return fail(MPCORE_INVALID_ARGUMENT, "%s: %s must not be NULL", function, name);
  }
  return MPCORE_OK;
}

mpcore_status check_compute_dtype(const char* function, const char* name, mpcore_dtype dtype) {
  if (is_compute_dtype(dtype)) return MPCORE_OK;
  return fail(dtype_size(dtype) == 0 ? MPCORE_INVALID_ARGUMENT : MPCORE_UNSUPPORTED,
              "%s: %s must be float32, float16, or bfloat16 (got %s)", function, name,
              mpcore_dtype_name(dtype));
}

mpcore_status check_activation(const char* function, mpcore_activation activation) {
  if (activation >= MPCORE_ACTIVATION_LINEAR && activation <= MPCORE_ACTIVATION_SILU)
    return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT,
              "%s: activation must be linear (0), relu (1), sigmoid (2), tanh (3), gelu (4), "
              "gelu_tanh (5), or silu (6) (got %" PRId32 ")",
              function, activation);
}

mpcore_status check_matmul_precision(const char* function, mpcore_matmul_precision precision) {
  if (precision >= MPCORE_MATMUL_PRECISION_DEFAULT && precision <= MPCORE_MATMUL_PRECISION_MEDIUM)
    return MPCORE_OK;
  return fail(
      MPCORE_INVALID_ARGUMENT,
      "%s: precision must be default (0), highest (1), high (2), or medium (3) (got %" PRId32 ")",
      function, precision);
}

mpcore_status check_struct(const char* function, const char* name, const void* args,
                           uint32_t struct_size, uint32_t known) {
  if (struct_size < known || struct_size - known > kLargestGrowth) {
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: %s->struct_size must be sizeof(*%s), here %" PRIu32
                " (got struct_size=%" PRIu32 ")",
                function, name, name, known, struct_size);
  }
  const auto* bytes = static_cast<const unsigned char*>(args);
  for (uint32_t i = known; i < struct_size; ++i) {
    if (bytes[i] != 0) {
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: %s uses a field this version does not know (byte %" PRIu32
                  " must be 0; this version knows %" PRIu32 " bytes)",
                  function, name, i, known);
    }
  }
  return MPCORE_OK;
}

bool ranges_overlap(const void* p, int64_t p_bytes, const void* q, int64_t q_bytes) {
  if (p_bytes <= 0 || q_bytes <= 0) return false;
  const auto p_first = reinterpret_cast<uintptr_t>(p);
  const auto q_first = reinterpret_cast<uintptr_t>(q);
  return p_first < q_first ? q_first - p_first < static_cast<uintptr_t>(p_bytes)
                           : p_first - q_first < static_cast<uintptr_t>(q_bytes);
}

mpcore_status check_apart(const char* function, const ByteRange& out, const ByteRange& other,
                          bool may_equal) {
  if (out.data == nullptr || other.data == nullptr) return MPCORE_OK;
  if (may_equal && out.data == other.data) return MPCORE_OK;
  if (!ranges_overlap(out.data, out.bytes, other.data, other.bytes)) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT, "%s: %s must not overlap %s%s", function, out.name,
              other.name, may_equal ? ", unless they are equal" : "");
}

}  // namespace mpcore
