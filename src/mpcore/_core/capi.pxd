"""The C API of mpcore, as far as Python uses it."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "mpcore/mpcore.h" nogil:
    enum:
        MPCORE_OK
        MPCORE_INVALID_ARGUMENT
        MPCORE_UNSUPPORTED
        MPCORE_OUT_OF_MEMORY

        MPCORE_DTYPE_F32
        MPCORE_DTYPE_F16
        MPCORE_DTYPE_BF16
        MPCORE_DTYPE_F64
        MPCORE_DTYPE_I8
        MPCORE_DTYPE_I16
        MPCORE_DTYPE_I32
        MPCORE_DTYPE_I64
        MPCORE_DTYPE_U8
        MPCORE_DTYPE_U16
        MPCORE_DTYPE_U32
        MPCORE_DTYPE_U64
        MPCORE_DTYPE_BOOL

    ctypedef struct mpcore_context:
        pass

    # base.h
    int32_t mpcore_version()
    int32_t mpcore_build_info(
        const char** compiler, const char** type, const char** flags, const char** commit)
    const char* mpcore_status_name(int32_t status)
    const char* mpcore_last_error()
    const char* mpcore_dtype_name(int32_t dtype)
    int32_t mpcore_set_num_threads(mpcore_context* ctx, int32_t num_threads)
    int32_t mpcore_get_num_threads(mpcore_context* ctx, int32_t* num_threads)
    int32_t mpcore_set_isa(mpcore_context* ctx, const char* isa)
    int32_t mpcore_get_isa(mpcore_context* ctx, const char** isa)
    int32_t mpcore_isa_count()
    int32_t mpcore_isa_describe(
        int32_t index, const char** name, int32_t* available, const char** reason)
    int32_t mpcore_kernel_describe(
        mpcore_context* ctx, int32_t column, int32_t dtype, const char** text)
    const char* mpcore_cpu_name()
    int32_t mpcore_buffer_allocate(int64_t size, void** out)
    void mpcore_buffer_free(void* pointer, int64_t size)
    int32_t mpcore_buffer_info(int64_t* in_use, int64_t* cached, int64_t* limit)
    void mpcore_buffer_trim()

    # cast.h
    int32_t mpcore_cast(
        mpcore_context* ctx, int64_t n, const void* src, int32_t src_dtype,
        void* dst, int32_t dst_dtype)
    int32_t mpcore_cast_stochastic(
        mpcore_context* ctx, int64_t n, const float* src, void* dst, int32_t dst_dtype,
        uint64_t seed, uint64_t offset)

    # gemm.h
    ctypedef struct mpcore_matrix:
        void* data
        int64_t row_stride
        int64_t col_stride
        int64_t batch_stride
        int32_t dtype

    ctypedef struct mpcore_gemm_args:
        uint32_t struct_size
        int32_t activation
        int64_t batch
        int64_t m
        int64_t n
        int64_t k
        mpcore_matrix a
        mpcore_matrix b
        mpcore_matrix d
        const void* packed_b
        float alpha
        float beta
        const void* bias
        int32_t bias_dtype
        int32_t precision
        mpcore_matrix residual
        mpcore_matrix pre_activation
        int32_t* finite
        double* sum_squares

    int32_t mpcore_gemm(mpcore_context* ctx, const mpcore_gemm_args* args)
    int32_t mpcore_gemm_pack_size(
        mpcore_context* ctx, int64_t k, int64_t n, int32_t dtype, int32_t precision,
        int64_t* size)
    int32_t mpcore_gemm_pack(
        mpcore_context* ctx, int64_t k, int64_t n, const mpcore_matrix* b,
        int32_t precision, void* packed, int64_t size)
    int32_t mpcore_set_float32_matmul_precision(mpcore_context* ctx, int32_t precision)
    int32_t mpcore_get_float32_matmul_precision(
        mpcore_context* ctx, int32_t* precision)

    # grad.h
    ctypedef struct mpcore_tensor_ref:
        void* data
        int64_t size
        int32_t dtype
        int32_t reserved

    int32_t mpcore_all_finite(
        mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* tensors,
        int32_t* finite)
    int32_t mpcore_unscale(
        mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* tensors,
        const mpcore_tensor_ref* outputs, double multiplier, int32_t* finite)
    int32_t mpcore_accumulate(
        mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* totals,
        const mpcore_tensor_ref* tensors, double multiplier)
    int32_t mpcore_lerp(
        mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* averages,
        const mpcore_tensor_ref* tensors, double momentum)
    int32_t mpcore_norms(
        mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* tensors,
        double* norms, double* global_norm)

    ctypedef struct mpcore_loss_scale:
        uint32_t struct_size
        int32_t growth_steps
        int64_t step_counter
        double scale
        double min_scale
        double max_scale

    int32_t mpcore_loss_scale_update(mpcore_loss_scale* state, int32_t finite)

    # limits.h
    int32_t mpcore_run_peak(
        mpcore_context* ctx, int32_t peak, int64_t iterations, int64_t* operations)
    int32_t mpcore_run_stream(
        mpcore_context* ctx, int32_t stream, int64_t iterations, int64_t n,
        float* const* arrays, int64_t* bytes)

    # nn.h
    int32_t mpcore_activation_forward(
        mpcore_context* ctx, int32_t activation, int64_t n, const void* x, void* y,
        int32_t dtype)
    int32_t mpcore_dense_backward(
        mpcore_context* ctx, int32_t activation, int64_t rows, int64_t cols,
        const void* y, const void* dy, void* dz, float* db, int32_t dtype)
    int32_t mpcore_softmax(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* x, void* y,
        int32_t dtype)
    int32_t mpcore_softmax_backward(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* y,
        const void* dy, void* dx, int32_t dtype)
    int32_t mpcore_softmax_xent(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
        const int64_t* labels, const float* scale, float* loss, void* dx,
        int32_t dtype)

    int32_t mpcore_log_softmax(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* x, void* y,
        int32_t dtype)
    int32_t mpcore_log_softmax_backward(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* y,
        const void* dy, void* dx, int32_t dtype)
    int32_t mpcore_softmax_xent_smoothed(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
        const int64_t* labels, const float* targets, float smoothing,
        const float* scale, float* loss, void* dx, int32_t dtype)

    # nn.h: normalisation
    int32_t mpcore_layer_norm(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
        const float* gamma, const float* beta, float epsilon, void* y, float* mean,
        float* rstd, int32_t dtype)
    int32_t mpcore_layer_norm_backward(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
        const float* gamma, const float* mean, const float* rstd, const void* dy,
        void* dx, float* dgamma, float* dbeta, int32_t dtype)
    int32_t mpcore_rms_norm(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
        const float* gamma, float epsilon, void* y, float* rstd, int32_t dtype)
    int32_t mpcore_rms_norm_backward(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
        const float* gamma, const float* rstd, const void* dy, void* dx, float* dgamma,
        int32_t dtype)
    int32_t mpcore_batch_norm_moments(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* x, float* mean,
        float* variance, int32_t dtype)
    int32_t mpcore_batch_norm(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
        const float* mean, const float* variance, float epsilon, const float* gamma,
        const float* beta, void* y, int32_t dtype)
    int32_t mpcore_batch_norm_backward(
        mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
        const float* mean, const float* variance, float epsilon, const float* gamma,
        const void* dy, int32_t constant_moments, void* dx, float* dgamma,
        float* dbeta, int32_t dtype)

    # optim.h
    enum:
        MPCORE_OPTIMIZER_SGD
        MPCORE_OPTIMIZER_ADAM
        MPCORE_OPTIMIZER_ADAMAX
        MPCORE_OPTIMIZER_NADAM
        MPCORE_OPTIMIZER_RMSPROP
        MPCORE_OPTIMIZER_ADAGRAD
        MPCORE_OPTIMIZER_ADADELTA
        MPCORE_OPTIMIZER_FTRL
        MPCORE_OPTIMIZER_LION
        MPCORE_OPTIMIZER_LAMB
        MPCORE_OPTIMIZER_SCHEDULE_FREE_ADAMW

    ctypedef struct mpcore_optim_tensor:
        int64_t size
        void* param
        const void* grad
        void* copy
        void* remainder
        void* state[4]
        int32_t param_dtype
        int32_t grad_dtype
        int32_t copy_dtype
        int32_t state_dtype
        int64_t index
        double grad_multiplier
        double weight_decay

    ctypedef struct mpcore_optim_args:
        uint32_t struct_size
        int32_t optimizer
        int64_t step
        double learning_rate
        double clipvalue
        double beta_1
        double beta_2
        double epsilon
        double momentum
        double rho
        double learning_rate_power
        double l1
        double l2
        double l2_shrinkage
        double beta
        double momentum_product
        int64_t warmup_steps
        int32_t nesterov
        int32_t amsgrad
        int32_t centered
        int32_t rounding
        uint64_t seed

    int32_t mpcore_optim_step(
        mpcore_context* ctx, const mpcore_optim_args* args, int64_t count,
        const mpcore_optim_tensor* tensors)

    # nn.h: windows, attention
    ctypedef struct mpcore_window2d:
        uint32_t struct_size
        int32_t dtype
        int64_t batch
        int64_t height
        int64_t width
        int64_t channels
        int64_t out_height
        int64_t out_width
        int64_t window_height
        int64_t window_width
        int64_t stride_height
        int64_t stride_width
        int64_t dilation_height
        int64_t dilation_width
        int64_t pad_top
        int64_t pad_left

    int32_t mpcore_conv2d(
        mpcore_context* ctx, const mpcore_window2d* window, int64_t filters,
        int64_t groups, int32_t activation, const void* x, const void* kernel,
        const float* bias, void* y, void* pre_activation)
    int32_t mpcore_conv2d_backward_input(
        mpcore_context* ctx, const mpcore_window2d* window, int64_t filters,
        int64_t groups, const void* dz, const void* kernel, void* dx)
    int32_t mpcore_conv2d_backward_kernel(
        mpcore_context* ctx, const mpcore_window2d* window, int64_t filters,
        int64_t groups, const void* x, const void* dz, float* dkernel)
    int32_t mpcore_pool2d(
        mpcore_context* ctx, const mpcore_window2d* window, int32_t pooling,
        const void* x, void* y, int32_t* argmax)
    int32_t mpcore_pool2d_backward(
        mpcore_context* ctx, const mpcore_window2d* window, int32_t pooling,
        const int32_t* argmax, const void* dy, void* dx)

    ctypedef struct mpcore_attention_args:
        uint32_t struct_size
        int32_t dtype
        int64_t batch
        int64_t heads
        int64_t queries
        int64_t keys
        int64_t depth
        int64_t value_depth
        const void* q
        const void* k
        const void* v
        const float* bias
        const uint8_t* mask
        int64_t bias_strides[3]
        int64_t mask_strides[3]
        float scale
        int32_t causal

    int32_t mpcore_attention(
        mpcore_context* ctx, const mpcore_attention_args* args, void* y)
    int32_t mpcore_attention_backward(
        mpcore_context* ctx, const mpcore_attention_args* args, const void* dy,
        void* dq, void* dk, void* dv)
