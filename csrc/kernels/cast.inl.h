// Conversion of n elements between dtypes, with one rounding. The floating-point mode is kIeee.
#ifndef MPCORE_KERNELS_CAST_INL_H_
#define MPCORE_KERNELS_CAST_INL_H_

#include <stdint.h>
#include <string.h>

#include "kernels/convert.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// Elements per block: whole cache lines of every dtype.
constexpr int kBlock = 64;

template <class T>
constexpr bool kIsHalf = false;
template <>
constexpr bool kIsHalf<F16> = true;
template <>
constexpr bool kIsHalf<BF16> = true;

template <class S>
inline void load_block(const S* src, F32x16 (&x)[4]) {
  for (int j = 0; j < 4; ++j) x[j] = F32x16::load(src + j * kLanes);
}

template <class S, class D, class F>
inline void convert_each(const void* __restrict src, void* __restrict dst, F&& f) {
  const auto* from = static_cast<const Loose<S>*>(src);
  auto* to = static_cast<Loose<D>*>(dst);
  for (int j = 0; j < kBlock; ++j) to[j].value = f(from[j].value);
}

// One block; the two do not overlap. Steps of one width each: compilers do not vectorize a loop
// that goes from 8 or 32 bits to 64 and back.
template <class S, class D>
inline void convert_block(const void* __restrict src, void* __restrict dst) {
  constexpr bool kFromCompute = kIsHalf<S> || __is_same(S, float);
  constexpr bool kToCompute = kIsHalf<D> || __is_same(D, float);
  constexpr bool kFrom64 = !kIsFloat<S> && sizeof(S) == 8;
  constexpr bool kTo64 = !kIsFloat<D> && sizeof(D) == 8;
  if constexpr (__is_same(S, Bool)) {
    uint8_t step[kBlock];
    convert_each<uint8_t, uint8_t>(src, step, [](uint8_t x) -> uint8_t { return x != 0; });
    convert_block<uint8_t, D>(step, dst);
  } else if constexpr (kIsHalf<S> && __is_same(S, D)) {
    convert_each<S, S>(src, dst, [](S x) { return quieted(x); });
  } else if constexpr (kIsHalf<S> && __is_same(D, Bool)) {
    convert_each<uint16_t, uint8_t>(src, dst, [](uint16_t x) { return (x & 0x7fffu) != 0; });
  } else if constexpr (__is_same(D, Bool)) {
    convert_each<S, uint8_t>(src, dst, [](S x) { return x != S{0}; });
  } else if constexpr (kFromCompute && kToCompute) {
    F32x16 x[4];
    load_block(static_cast<const S*>(src), x);
    if constexpr (!kIsHalf<D>)  // NaN becomes quiet; in a half it is so anyway
      for (int j = 0; j < 4; ++j) x[j] = select(is_nan(x[j]), x[j] + x[j], x[j]);
    store_block(x, static_cast<D*>(dst));
  } else if constexpr (kFromCompute && !kIsFloat<D> && sizeof(D) < 4) {
    F32x16 x[4];
    float step[kBlock];
    const F32x16 low = F32x16::set(Limits<D>::kMin), high = F32x16::set(Limits<D>::kMax);
    load_block(static_cast<const S*>(src), x);
    for (int j = 0; j < 4; ++j)
      x[j] = min(max(select(is_nan(x[j]), F32x16::zero(), x[j]), low), high);
    store_block(x, step);
    convert_each<float, D>(step, dst,
                           [](float x) { return static_cast<D>(static_cast<int32_t>(x)); });
  } else if constexpr (kIsHalf<S>) {
    float step[kBlock];
    F32x16 x[4];
    load_block(static_cast<const S*>(src), x);
    store_block(x, step);
    convert_block<float, D>(step, dst);
  } else if constexpr (__is_same(S, double) && __is_same(D, F16)) {
    float step[kBlock];
    convert_each<S, float>(src, step, [](double x) { return odd_float_for_f16(x); });
    convert_block<float, D>(step, dst);
  } else if constexpr (kIsHalf<D>) {
    float step[kBlock];
    convert_each<S, float>(src, step, [](S x) { return odd_float(x); });
    convert_block<float, D>(step, dst);
  } else if constexpr (kFrom64 && __is_same(D, float) && !kConverts64) {
    double step[kBlock];
    convert_each<S, double>(src, step, [](S x) { return odd_double(x); });
    convert_each<double, D>(step, dst, [](double x) { return static_cast<float>(x); });
  } else if constexpr (kIsFloat<S> && !kIsFloat<D> && kHoldsEnds<D, S>) {
    S step[kBlock];
    convert_each<S, S>(src, step, [](S x) {
      return clamped(x, static_cast<S>(Limits<D>::kMin), static_cast<S>(Limits<D>::kMax));
    });
    using Wide = decltype(D{} + D{});  // int, or what is wider
    convert_each<S, D>(step, dst, [](S x) { return static_cast<D>(static_cast<Wide>(x)); });
  } else if constexpr (__is_same(S, float) && kTo64) {
    double step[kBlock];
    convert_each<S, double>(src, step, [](float x) { return static_cast<double>(x); });
    convert_block<double, D>(step, dst);
  } else {
    convert_each<S, D>(src, dst, [](S x) { return converted<D>(x); });
  }
}

template <class S, class D>
__attribute__((noinline)) void convert_blocks(const void* src, void* dst, int64_t blocks) {
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  // Asking for the destination early is worth 7 to 10 % where it comes from L2.
  constexpr int64_t kLine = 64, kAhead = 256, kWritten = kBlock * sizeof(D);
  for (int64_t b = 0; b < blocks; ++b) {
    if (blocks > 1)
      for (int64_t k = 0; k < kWritten; k += kLine) __builtin_prefetch(to + kAhead + k, 1);
    convert_block<S, D>(from, to);
    from += kBlock * sizeof(S);
    to += kBlock * sizeof(D);
  }
}

using ConvertBlocks = void (*)(const void* src, void* dst, int64_t blocks);

template <class S>
inline ConvertBlocks converter_from(mpcore_dtype dst_dtype) {
  // Integers wrap, so that between them only the size of the destination counts.
  constexpr bool kInteger = !kIsFloat<S> && !kIsHalf<S>;
  switch (dst_dtype) {
    case MPCORE_DTYPE_F32:
      return convert_blocks<S, float>;
    case MPCORE_DTYPE_F16:
      return convert_blocks<S, F16>;
    case MPCORE_DTYPE_BF16:
      return convert_blocks<S, BF16>;
    case MPCORE_DTYPE_F64:
      return convert_blocks<S, double>;
    case MPCORE_DTYPE_I8:
      if constexpr (!kInteger) return convert_blocks<S, int8_t>;
      [[fallthrough]];
    case MPCORE_DTYPE_U8:
      return convert_blocks<S, uint8_t>;
    case MPCORE_DTYPE_I16:
      if constexpr (!kInteger) return convert_blocks<S, int16_t>;
      [[fallthrough]];
    case MPCORE_DTYPE_U16:
      return convert_blocks<S, uint16_t>;
    case MPCORE_DTYPE_I32:
      if constexpr (!kInteger) return convert_blocks<S, int32_t>;
      [[fallthrough]];
    case MPCORE_DTYPE_U32:
      return convert_blocks<S, uint32_t>;
    case MPCORE_DTYPE_I64:
      if constexpr (!kInteger) return convert_blocks<S, int64_t>;
      [[fallthrough]];
    case MPCORE_DTYPE_U64:
      return convert_blocks<S, uint64_t>;
    default:
      return convert_blocks<S, Bool>;
  }
}

// The function for a pair, and the sizes of its elements.
struct Converter {
  ConvertBlocks blocks;
  int64_t src_size, dst_size;
};

inline Converter converter(mpcore_dtype src_dtype, mpcore_dtype dst_dtype) {
  const auto size = [](mpcore_dtype dtype) -> int64_t {
    switch (dtype) {
      case MPCORE_DTYPE_F64:
      case MPCORE_DTYPE_I64:
      case MPCORE_DTYPE_U64:
        return 8;
      case MPCORE_DTYPE_F32:
      case MPCORE_DTYPE_I32:
      case MPCORE_DTYPE_U32:
        return 4;
      case MPCORE_DTYPE_I8:
      case MPCORE_DTYPE_U8:
      case MPCORE_DTYPE_BOOL:
        return 1;
      default:
        return 2;
    }
  };
  const auto blocks = [=]() -> ConvertBlocks {
    switch (src_dtype) {
      case MPCORE_DTYPE_F32:
        return converter_from<float>(dst_dtype);
      case MPCORE_DTYPE_F16:
        return converter_from<F16>(dst_dtype);
      case MPCORE_DTYPE_BF16:
        return converter_from<BF16>(dst_dtype);
      case MPCORE_DTYPE_F64:
        return converter_from<double>(dst_dtype);
      case MPCORE_DTYPE_I8:
        return converter_from<int8_t>(dst_dtype);
      case MPCORE_DTYPE_I16:
        return converter_from<int16_t>(dst_dtype);
      case MPCORE_DTYPE_I32:
        return converter_from<int32_t>(dst_dtype);
      case MPCORE_DTYPE_I64:
        return converter_from<int64_t>(dst_dtype);
      case MPCORE_DTYPE_U8:
        return converter_from<uint8_t>(dst_dtype);
      case MPCORE_DTYPE_U16:
        return converter_from<uint16_t>(dst_dtype);
      case MPCORE_DTYPE_U32:
        return converter_from<uint32_t>(dst_dtype);
      case MPCORE_DTYPE_U64:
        return converter_from<uint64_t>(dst_dtype);
      default:
        return converter_from<Bool>(dst_dtype);
    }
  };
  return {blocks(), size(src_dtype), size(dst_dtype)};
}

constexpr int64_t kLargestElement = 8;

// Fewer elements than a block, by way of one.
inline void convert_rest(const Converter& c, const char* src, char* dst, int64_t n) {
  if (n == 0) return;
  char from[kBlock * kLargestElement], to[kBlock * kLargestElement];
  memset(from, 0, sizeof(from));
  memcpy(from, src, static_cast<size_t>(n * c.src_size));
  c.blocks(from, to, 1);
  memcpy(dst, to, static_cast<size_t>(n * c.dst_size));
}

inline void convert(const Converter& c, const char* src, char* dst, int64_t n) {
  const int64_t blocks = n / kBlock, whole = blocks * kBlock;
  if (src != dst) {
    c.blocks(src, dst, blocks);
  } else {  // in place: every block is read before it is written
    for (int64_t i = 0; i < whole; i += kBlock)
      convert_rest(c, src + i * c.src_size, dst + i * c.dst_size, kBlock);
  }
  convert_rest(c, src + whole * c.src_size, dst + whole * c.dst_size, n - whole);
}

void cast_kernel(const void* src, mpcore_dtype src_dtype, void* dst, mpcore_dtype dst_dtype,
                 int64_t n) {
  convert(converter(src_dtype, dst_dtype), static_cast<const char*>(src), static_cast<char*>(dst),
          n);
}

// Past the caches: the destination is not fetched before it is written, the source is asked for
// ahead of time, and four places at once keep more of the memory busy than one.
void cast_stream_kernel(const void* src_bytes, mpcore_dtype src_dtype, void* dst_bytes,
                        mpcore_dtype dst_dtype, int64_t n) {
  constexpr int64_t kLine = 64, kAhead = 1024, kStreams = 4;
  const Converter c = converter(src_dtype, dst_dtype);
  const char* src = static_cast<const char*>(src_bytes);
  char* dst = static_cast<char*>(dst_bytes);
  // Elements up to the first whole line; no number of them gets there from an odd address.
  const auto off = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(dst) % kLine);
  if (src == dst || off % c.dst_size != 0) return convert(c, src, dst, n);
  const int64_t head = off / c.dst_size < n ? off / c.dst_size : n;
  convert_rest(c, src, dst, head);
  src += head * c.src_size;
  dst += head * c.dst_size;
  const int64_t blocks = (n - head) / (kStreams * kBlock);  // of each stream
  const int64_t read = kBlock * c.src_size, written = kBlock * c.dst_size;
  alignas(kLine) char block[kBlock * kLargestElement];
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t s = 0; s < kStreams; ++s) {
      const char* from = src + (s * blocks + b) * read;
      char* to = dst + (s * blocks + b) * written;
      for (int64_t k = 0; k < read; k += kLine) __builtin_prefetch(from + kAhead + k);
      c.blocks(from, block, 1);
      for (int64_t k = 0; k < written; k += kLine) stream_line(to + k, block + k);
    }
  }
  stream_fence();
  const int64_t done = kStreams * blocks;
  convert(c, src + done * read, dst + done * written, n - head - done * kBlock);
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_CAST_INL_H_
