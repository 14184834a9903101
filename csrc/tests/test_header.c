/* The public headers as an embedder's C99 compiler sees them, and the layout of every public
   struct: a change here is a change of the ABI. Compiled a second time as C++11. */
#include <stddef.h>
#include <string.h>

#include "expect.h"
#include "mpcore/mpcore.h"

#if UINTPTR_MAX == UINT64_MAX
/* Refuses to compile unless STRUCT has this size and its fields these offsets. */
#define LAYOUT_JOIN(a, b) a##b
#define LAYOUT_NAME(line) LAYOUT_JOIN(layout_, line)
#define LAYOUT(bytes, fields) \
  extern int LAYOUT_NAME(__LINE__)[sizeof(STRUCT) == (bytes) && (fields) ? 1 : -1]
#define AT(field, bytes) (offsetof(STRUCT, field) == (bytes))

#define STRUCT mpcore_context_options
LAYOUT(48, AT(struct_size, 0) && AT(num_threads, 4) && AT(isa, 8) && AT(parallel_for, 16) &&
               AT(host, 24) && AT(allocate, 32) && AT(deallocate, 40));
#undef STRUCT

#define STRUCT mpcore_matrix
LAYOUT(40, AT(data, 0) && AT(row_stride, 8) && AT(col_stride, 16) && AT(batch_stride, 24) &&
               AT(dtype, 32) && AT(reserved, 36));
#undef STRUCT

#define STRUCT mpcore_gemm_args
LAYOUT(288, AT(struct_size, 0) && AT(activation, 4) && AT(batch, 8) && AT(m, 16) && AT(n, 24) &&
                AT(k, 32) && AT(a, 40) && AT(b, 80) && AT(d, 120) && AT(packed_b, 160) &&
                AT(alpha, 168) && AT(beta, 172) && AT(bias, 176) && AT(bias_dtype, 184) &&
                AT(precision, 188) && AT(residual, 192) && AT(pre_activation, 232) &&
                AT(finite, 272) && AT(sum_squares, 280));
#undef STRUCT

#define STRUCT mpcore_window2d
LAYOUT(120, AT(struct_size, 0) && AT(dtype, 4) && AT(batch, 8) && AT(height, 16) && AT(width, 24) &&
                AT(channels, 32) && AT(out_height, 40) && AT(out_width, 48) &&
                AT(window_height, 56) && AT(window_width, 64) && AT(stride_height, 72) &&
                AT(stride_width, 80) && AT(dilation_height, 88) && AT(dilation_width, 96) &&
                AT(pad_top, 104) && AT(pad_left, 112));
#undef STRUCT

#define STRUCT mpcore_attention_args
LAYOUT(152, AT(struct_size, 0) && AT(dtype, 4) && AT(batch, 8) && AT(heads, 16) &&
                AT(queries, 24) && AT(keys, 32) && AT(depth, 40) && AT(value_depth, 48) &&
                AT(q, 56) && AT(k, 64) && AT(v, 72) && AT(bias, 80) && AT(mask, 88) &&
                AT(bias_strides, 96) && AT(mask_strides, 120) && AT(scale, 144) && AT(causal, 148));
#undef STRUCT

#define STRUCT mpcore_tensor_ref
LAYOUT(24, AT(data, 0) && AT(size, 8) && AT(dtype, 16) && AT(reserved, 20));
#undef STRUCT

#define STRUCT mpcore_loss_scale
LAYOUT(40, AT(struct_size, 0) && AT(growth_steps, 4) && AT(step_counter, 8) && AT(scale, 16) &&
               AT(min_scale, 24) && AT(max_scale, 32));
#undef STRUCT

#define STRUCT mpcore_optim_tensor
LAYOUT(112, AT(size, 0) && AT(param, 8) && AT(grad, 16) && AT(copy, 24) && AT(remainder, 32) &&
                AT(state, 40) && AT(param_dtype, 72) && AT(grad_dtype, 76) && AT(copy_dtype, 80) &&
                AT(state_dtype, 84) && AT(index, 88) && AT(grad_multiplier, 96) &&
                AT(weight_decay, 104));
#undef STRUCT

#define STRUCT mpcore_optim_args
LAYOUT(152, AT(struct_size, 0) && AT(optimizer, 4) && AT(step, 8) && AT(learning_rate, 16) &&
                AT(clipvalue, 24) && AT(beta_1, 32) && AT(beta_2, 40) && AT(epsilon, 48) &&
                AT(momentum, 56) && AT(rho, 64) && AT(learning_rate_power, 72) && AT(l1, 80) &&
                AT(l2, 88) && AT(l2_shrinkage, 96) && AT(beta, 104) && AT(momentum_product, 112) &&
                AT(warmup_steps, 120) && AT(nesterov, 128) && AT(amsgrad, 132) &&
                AT(centered, 136) && AT(rounding, 140) && AT(seed, 144));
#undef STRUCT
#endif

int main(void) {
  EXPECT(mpcore_version() ==
         MPCORE_VERSION_MAJOR * 10000 + MPCORE_VERSION_MINOR * 100 + MPCORE_VERSION_PATCH);
  EXPECT(mpcore_abi_version() == 0);
  EXPECT(strcmp(mpcore_status_name(MPCORE_OK), "MPCORE_OK") == 0);
  EXPECT(mpcore_dtype_size(MPCORE_DTYPE_BF16) == 2);
  return expect_result();
}
