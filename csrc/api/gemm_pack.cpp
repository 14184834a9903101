#include "api/gemm_pack.h"

#include <cinttypes>
#include <cstring>

#include "api/check.h"
#include "api/gemm_args.h"
#include "api/gemm_panels.h"
#include "api/gemm_tiles.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

constexpr char kMagic[8] = {'m', 'p', 'c', 'o', 'r', 'e', 'B', '1'};

// The beginning of a packed block; 64 bytes, so that what follows keeps the block's alignment.
struct Header {
  char magic[8];
  char level[16];
  PackedShape shape;
  char reserved[16];
};
static_assert(sizeof(Header) == 64);

Header make_header(const Session& session, const PackedShape& shape) {
  Header header{.magic = {}, .level = {}, .shape = shape, .reserved = {}};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  std::strncpy(header.level, session.kernels().name, sizeof(header.level) - 1);
  return header;
}

mpcore_status check_shape(const char* function, int64_t k, int64_t n, mpcore_dtype dtype,
                          mpcore_matmul_precision precision) {
  if (const auto s = check_size(function, "k", k)) return s;
  if (const auto s = check_size(function, "n", n)) return s;
  if (const auto s = check_compute_dtype(function, "dtype", dtype)) return s;
  return check_matmul_precision(function, precision);
}

mpcore_status packed_size(const char* function, const Session& session, const PackedShape& shape,
                          int64_t* size) {
  const int64_t data = pack_format(session, shape).size(session, shape);
  if (data >= 0 && !__builtin_add_overflow(data, int64_t{sizeof(Header)}, size)) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT,
              "%s: k * n must fit in memory (got k=%" PRId64 ", n=%" PRId64 ")", function, shape.k,
              shape.n);
}

mpcore_status pack_size(mpcore_context* ctx, int64_t k, int64_t n, mpcore_dtype dtype,
                        mpcore_matmul_precision precision, int64_t* size) {
  constexpr const char* kName = "mpcore_gemm_pack_size";
  if (const auto s = check_shape(kName, k, n, dtype, precision)) return s;
  if (const auto s = check_pointer(kName, "size", size, 1)) return s;
  const Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  return packed_size(kName, session, {k, n, dtype, resolve_precision(session, dtype, precision)},
                     size);
}

mpcore_status pack(mpcore_context* ctx, int64_t k, int64_t n, const mpcore_matrix* b,
                   mpcore_matmul_precision precision, void* packed, int64_t size) {
  constexpr const char* kName = "mpcore_gemm_pack";
  if (const auto s = check_pointer(kName, "b", b, 1)) return s;
  if (const auto s = check_shape(kName, k, n, b->dtype, precision)) return s;
  if (const auto s = check_pointer(kName, "packed", packed, 1)) return s;
  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const PackedShape shape{k, n, b->dtype, resolve_precision(session, b->dtype, precision)};
  int64_t needed = 0;
  if (const auto s = packed_size(kName, session, shape, &needed)) return s;
  if (size < needed)
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: size must be >= %" PRId64 ", see mpcore_gemm_pack_size (got size=%" PRId64 ")",
                kName, needed, size);
  if (const auto s = check_packing(kName, *b, k, n, packed, needed)) return s;
  const Header header = make_header(session, shape);
  std::memcpy(packed, &header, sizeof(header));
  return pack_format(session, shape)
      .pack(session, shape, *b, static_cast<char*>(packed) + sizeof(header));
}

}  // namespace

const PackFormat& pack_format(const Session& session, const PackedShape& shape) {
  return tiles_can(session, shape.dtype, shape.precision, shape.k) ? kTileFormat : kPanelFormat;
}

mpcore_status open_packed(const Session& session, const PackedShape& shape, const void* packed,
                          const void** data) {
  Header header;
  std::memcpy(&header, packed, sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return fail(MPCORE_INVALID_ARGUMENT,
                "mpcore_gemm: packed_b must come from mpcore_gemm_pack of this version");
  const Header wanted = make_header(session, shape);
  if (std::memcmp(header.level, wanted.level, sizeof(header.level)) != 0 ||
      header.shape != wanted.shape)
    return fail(MPCORE_INVALID_ARGUMENT,
                "mpcore_gemm: packed_b must be packed for this product: level %s, %s, k=%" PRId64
                ", n=%" PRId64 ", precision=%d (got %.15s, %s, k=%" PRId64 ", n=%" PRId64
                ", precision=%d)",
                wanted.level, mpcore_dtype_name(shape.dtype), shape.k, shape.n, shape.precision,
                header.level, mpcore_dtype_name(header.shape.dtype), header.shape.k, header.shape.n,
                header.shape.precision);
  *data = static_cast<const char*>(packed) + sizeof(header);
  return MPCORE_OK;
}

}  // namespace mpcore

mpcore_status mpcore_gemm_pack_size(mpcore_context* ctx, int64_t k, int64_t n, mpcore_dtype dtype,
                                    mpcore_matmul_precision precision, int64_t* size) {
  return mpcore::guarded([&] { return mpcore::pack_size(ctx, k, n, dtype, precision, size); });
}

mpcore_status mpcore_gemm_pack(mpcore_context* ctx, int64_t k, int64_t n, const mpcore_matrix* b,
                               mpcore_matmul_precision precision, void* packed, int64_t size) {
  return mpcore::guarded([&] { return mpcore::pack(ctx, k, n, b, precision, packed, size); });
}
