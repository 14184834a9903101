// Assembles a level's KernelTable from the kernel texts. Included last by each ISA unit, after its
// F32x16 and its Level (name and GEMM tile sizes).
#ifndef MPCORE_KERNELS_TABLE_INL_H_
#define MPCORE_KERNELS_TABLE_INL_H_

#include "dispatch/kernel_table.h"
#include "kernels/cast.inl.h"
#include "kernels/gemm.inl.h"
#include "kernels/grad.inl.h"
#include "kernels/limits.inl.h"
#include "kernels/nn.inl.h"
#include "kernels/nn_attention.inl.h"
#include "kernels/nn_batch_norm.inl.h"
#include "kernels/nn_conv.inl.h"
#include "kernels/nn_norm.inl.h"
#include "kernels/nn_pool.inl.h"
#include "kernels/notes.inl.h"
#include "kernels/optim.inl.h"
#include "kernels/stochastic.inl.h"

namespace mpcore {
namespace {

template <class Level>
constexpr KernelTable make_table() {
  return {
      .name = Level::kName,
      .notes = make_notes<Level>(),
      .cast = cast_kernel,
      .cast_stream = cast_stream_kernel,
      .cast_stochastic = cast_stochastic_kernel,
      .all_finite = all_finite_kernel,
      .unscale = unscale_kernel,
      .sum_squares = sum_squares_kernel,
      .accumulate = accumulate_kernel,
      .lerp = lerp_kernel,
      .optim = optim_kernel,
      .activation = activation_kernel,
      .dense_backward = dense_backward_kernel,
      .softmax = softmax_kernel,
      .softmax_backward = softmax_backward_kernel,
      .log_softmax = log_softmax_kernel,
      .log_softmax_backward = log_softmax_backward_kernel,
      .softmax_xent = softmax_xent_kernel,
      .norm = {.row = row_norm_kernel,
               .row_backward = row_norm_backward_kernel,
               .column_moments = column_moments_kernel,
               .column = column_norm_kernel,
               .column_sums = column_norm_sums_kernel,
               .column_backward = column_norm_backward_kernel},
      .im2col = im2col_kernel,
      .col2im = col2im_kernel,
      .pool = pool_kernel,
      .pool_backward = pool_backward_kernel,
      .attention = attention_kernel,
      .attention_backward = attention_backward_kernel,
      .gemm = make_gemm_kernels<Level>(),
      .limits = make_limit_kernels<Level>(),
  };
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_TABLE_INL_H_
