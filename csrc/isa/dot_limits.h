// The rate of VDPBF16PS, for levels compiled with AVX512_BF16.
#ifndef MPCORE_ISA_DOT_LIMITS_H_
#define MPCORE_ISA_DOT_LIMITS_H_

#include <immintrin.h>
#include <stdint.h>

#include "isa/f32x16_avx512.h"
// After the vector it is written in.
#include "kernels/limits.inl.h"

namespace mpcore {
namespace {

inline int64_t dot_bf16_peak(int64_t iterations) {
  constexpr int kChains = 28;
  const __m512bh x = _mm512_cvtne2ps_pbh(random_lanes(1).v, random_lanes(2).v);
  const __m512bh y = _mm512_cvtne2ps_pbh(random_lanes(3).v, random_lanes(4).v);
  run_chains<kChains>(iterations,
                      [&](F32x16 sum) { return F32x16{_mm512_dpbf16_ps(sum.v, x, y)}; });
  return iterations * kPeakSteps * kChains * kLanes * 4;
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_ISA_DOT_LIMITS_H_
