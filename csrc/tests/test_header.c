/* The public headers as an embedder's C99 compiler sees them, and the layout of every public
   struct: a change here is a change of the ABI. Compiled a second time as C++11. */
#include <stddef.h>
#include <string.h>

#include "expect.h"
#include "mpcore/mpcore.h"

#define STATIC_ASSERT_JOIN(a, b) a##b
#define STATIC_ASSERT_NAME(line) STATIC_ASSERT_JOIN(static_assert_, line)
#define STATIC_ASSERT(condition) extern int STATIC_ASSERT_NAME(__LINE__)[(condition) ? 1 : -1]
#define OFFSET(type, field, bytes) STATIC_ASSERT(offsetof(type, field) == (bytes))

#if UINTPTR_MAX == UINT64_MAX
STATIC_ASSERT(sizeof(mpcore_context_options) == 48);
OFFSET(mpcore_context_options, struct_size, 0);
OFFSET(mpcore_context_options, num_threads, 4);
OFFSET(mpcore_context_options, isa, 8);
OFFSET(mpcore_context_options, parallel_for, 16);
OFFSET(mpcore_context_options, host, 24);
OFFSET(mpcore_context_options, allocate, 32);
OFFSET(mpcore_context_options, deallocate, 40);

STATIC_ASSERT(sizeof(mpcore_matrix) == 40);
OFFSET(mpcore_matrix, data, 0);
OFFSET(mpcore_matrix, row_stride, 8);
OFFSET(mpcore_matrix, col_stride, 16);
OFFSET(mpcore_matrix, batch_stride, 24);
OFFSET(mpcore_matrix, dtype, 32);
OFFSET(mpcore_matrix, reserved, 36);

STATIC_ASSERT(sizeof(mpcore_gemm_args) == 288);
OFFSET(mpcore_gemm_args, struct_size, 0);
OFFSET(mpcore_gemm_args, activation, 4);
OFFSET(mpcore_gemm_args, batch, 8);
OFFSET(mpcore_gemm_args, m, 16);
OFFSET(mpcore_gemm_args, n, 24);
OFFSET(mpcore_gemm_args, k, 32);
OFFSET(mpcore_gemm_args, a, 40);
OFFSET(mpcore_gemm_args, b, 80);
OFFSET(mpcore_gemm_args, d, 120);
OFFSET(mpcore_gemm_args, packed_b, 160);
OFFSET(mpcore_gemm_args, alpha, 168);
OFFSET(mpcore_gemm_args, beta, 172);
OFFSET(mpcore_gemm_args, bias, 176);
OFFSET(mpcore_gemm_args, bias_dtype, 184);
OFFSET(mpcore_gemm_args, precision, 188);
OFFSET(mpcore_gemm_args, residual, 192);
OFFSET(mpcore_gemm_args, pre_activation, 232);
OFFSET(mpcore_gemm_args, finite, 272);
OFFSET(mpcore_gemm_args, sum_squares, 280);

STATIC_ASSERT(sizeof(mpcore_window2d) == 120);
OFFSET(mpcore_window2d, struct_size, 0);
OFFSET(mpcore_window2d, dtype, 4);
OFFSET(mpcore_window2d, batch, 8);
OFFSET(mpcore_window2d, height, 16);
OFFSET(mpcore_window2d, width, 24);
OFFSET(mpcore_window2d, channels, 32);
OFFSET(mpcore_window2d, out_height, 40);
OFFSET(mpcore_window2d, out_width, 48);
OFFSET(mpcore_window2d, window_height, 56);
OFFSET(mpcore_window2d, window_width, 64);
OFFSET(mpcore_window2d, stride_height, 72);
OFFSET(mpcore_window2d, stride_width, 80);
OFFSET(mpcore_window2d, dilation_height, 88);
OFFSET(mpcore_window2d, dilation_width, 96);
OFFSET(mpcore_window2d, pad_top, 104);
OFFSET(mpcore_window2d, pad_left, 112);

STATIC_ASSERT(sizeof(mpcore_attention_args) == 152);
OFFSET(mpcore_attention_args, struct_size, 0);
OFFSET(mpcore_attention_args, dtype, 4);
OFFSET(mpcore_attention_args, batch, 8);
OFFSET(mpcore_attention_args, heads, 16);
OFFSET(mpcore_attention_args, queries, 24);
OFFSET(mpcore_attention_args, keys, 32);
OFFSET(mpcore_attention_args, depth, 40);
OFFSET(mpcore_attention_args, value_depth, 48);
OFFSET(mpcore_attention_args, q, 56);
OFFSET(mpcore_attention_args, k, 64);
OFFSET(mpcore_attention_args, v, 72);
OFFSET(mpcore_attention_args, bias, 80);
OFFSET(mpcore_attention_args, mask, 88);
OFFSET(mpcore_attention_args, bias_strides, 96);
OFFSET(mpcore_attention_args, mask_strides, 120);
OFFSET(mpcore_attention_args, scale, 144);
OFFSET(mpcore_attention_args, causal, 148);

STATIC_ASSERT(sizeof(mpcore_tensor_ref) == 24);
OFFSET(mpcore_tensor_ref, data, 0);
OFFSET(mpcore_tensor_ref, size, 8);
OFFSET(mpcore_tensor_ref, dtype, 16);
OFFSET(mpcore_tensor_ref, reserved, 20);

STATIC_ASSERT(sizeof(mpcore_loss_scale) == 40);
OFFSET(mpcore_loss_scale, struct_size, 0);
OFFSET(mpcore_loss_scale, growth_steps, 4);
OFFSET(mpcore_loss_scale, step_counter, 8);
OFFSET(mpcore_loss_scale, scale, 16);
OFFSET(mpcore_loss_scale, min_scale, 24);
OFFSET(mpcore_loss_scale, max_scale, 32);

STATIC_ASSERT(sizeof(mpcore_optim_tensor) == 112);
OFFSET(mpcore_optim_tensor, size, 0);
OFFSET(mpcore_optim_tensor, param, 8);
OFFSET(mpcore_optim_tensor, grad, 16);
OFFSET(mpcore_optim_tensor, copy, 24);
OFFSET(mpcore_optim_tensor, remainder, 32);
OFFSET(mpcore_optim_tensor, state, 40);
OFFSET(mpcore_optim_tensor, param_dtype, 72);
OFFSET(mpcore_optim_tensor, grad_dtype, 76);
OFFSET(mpcore_optim_tensor, copy_dtype, 80);
OFFSET(mpcore_optim_tensor, state_dtype, 84);
OFFSET(mpcore_optim_tensor, index, 88);
OFFSET(mpcore_optim_tensor, grad_multiplier, 96);
OFFSET(mpcore_optim_tensor, weight_decay, 104);

STATIC_ASSERT(sizeof(mpcore_optim_args) == 152);
OFFSET(mpcore_optim_args, struct_size, 0);
OFFSET(mpcore_optim_args, optimizer, 4);
OFFSET(mpcore_optim_args, step, 8);
OFFSET(mpcore_optim_args, learning_rate, 16);
OFFSET(mpcore_optim_args, clipvalue, 24);
OFFSET(mpcore_optim_args, beta_1, 32);
OFFSET(mpcore_optim_args, beta_2, 40);
OFFSET(mpcore_optim_args, epsilon, 48);
OFFSET(mpcore_optim_args, momentum, 56);
OFFSET(mpcore_optim_args, rho, 64);
OFFSET(mpcore_optim_args, learning_rate_power, 72);
OFFSET(mpcore_optim_args, l1, 80);
OFFSET(mpcore_optim_args, l2, 88);
OFFSET(mpcore_optim_args, l2_shrinkage, 96);
OFFSET(mpcore_optim_args, beta, 104);
OFFSET(mpcore_optim_args, momentum_product, 112);
OFFSET(mpcore_optim_args, warmup_steps, 120);
OFFSET(mpcore_optim_args, nesterov, 128);
OFFSET(mpcore_optim_args, amsgrad, 132);
OFFSET(mpcore_optim_args, centered, 136);
OFFSET(mpcore_optim_args, rounding, 140);
OFFSET(mpcore_optim_args, seed, 144);
#endif

int main(void) {
  EXPECT(mpcore_version() ==
         MPCORE_VERSION_MAJOR * 10000 + MPCORE_VERSION_MINOR * 100 + MPCORE_VERSION_PATCH);
  EXPECT(mpcore_abi_version() == 0);
  EXPECT(strcmp(mpcore_status_name(MPCORE_OK), "MPCORE_OK") == 0);
  EXPECT(mpcore_dtype_size(MPCORE_DTYPE_BF16) == 2);
  return expect_result();
}
