// What the kernels of a level are made of, in words.
#ifndef MPCORE_KERNELS_NOTES_INL_H_
#define MPCORE_KERNELS_NOTES_INL_H_

#include "dispatch/kernel_table.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// A level whose products of a dtype are not those of kernels/gemm.inl.h says so in a note of its
// own.
template <class Level>
constexpr KernelNotes make_notes() {
  KernelNotes notes = {
      .f32 = kF32Note,
      .f16 = kF16Note,
      .bf16 = kBf16Note,
      .gemm_f32 = "one fp32 FMA chain",
      .gemm_f16 = "one fp32 FMA chain",
      .gemm_bf16 = "fp32 FMA chains over even and odd k, the order of TDPBF16PS",
  };
  if constexpr (requires { Level::kGemmF32Note; }) notes.gemm_f32 = Level::kGemmF32Note;
  if constexpr (requires { Level::kGemmF16Note; }) notes.gemm_f16 = Level::kGemmF16Note;
  if constexpr (requires { Level::kGemmBf16Note; }) notes.gemm_bf16 = Level::kGemmBf16Note;
  return notes;
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_NOTES_INL_H_
