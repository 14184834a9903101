// Trains a two-layer network in mixed precision, from plain C: weights are kept in fp32, products
// run on 16-bit copies, and the loss is scaled so that small gradients survive in float16.
//
//   ./train bfloat16        or        ./train float16
//
// The data: three interleaved spirals, which no linear classifier can tell apart.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpcore/mpcore.h"

enum { kRows = 600, kInputs = 2, kHidden = 64, kClasses = 3, kSteps = 400, kParams = 4 };
static const double kAccuracyBound = 0.95;

// Storage for one 16-bit element, float16 or bfloat16.
typedef uint16_t half_t;

static void check(mpcore_status status) {
  if (status == MPCORE_OK) return;
  fprintf(stderr, "%s: %s\n", mpcore_status_name(status), mpcore_last_error());
  exit(1);
}

static float uniform(uint64_t* state) {  // xorshift64, in [-1, 1)
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return (float)(*state >> 40) / (float)(1 << 23) - 1.0f;
}

static void make_spirals(float* x, int64_t* labels, uint64_t* seed) {
  for (int i = 0; i < kRows; ++i) {
    const int arm = i % kClasses;
    const float radius = 0.1f + 0.9f * (float)i / kRows;
    const float angle = 4.0f * radius + 2.0944f * (float)arm + 0.1f * uniform(seed);
    x[i * kInputs] = radius * cosf(angle);
    x[i * kInputs + 1] = radius * sinf(angle);
    labels[i] = arm;
  }
}

static mpcore_matrix row_major(const void* data, int64_t cols, mpcore_dtype dtype) {
  const mpcore_matrix m = {(void*)data, cols, 1, 0, dtype, 0};
  return m;
}

static mpcore_matrix transposed(mpcore_matrix m) {
  const mpcore_matrix t = {m.data, m.col_stride, m.row_stride, 0, m.dtype, 0};
  return t;
}

// d = activation(a b + bias), a is m x k, b is k x n.
static void product(int64_t m, int64_t n, int64_t k, mpcore_matrix a, mpcore_matrix b,
                    mpcore_matrix d, const float* bias, mpcore_activation activation) {
  mpcore_gemm_args args;
  memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  args.activation = activation;
  args.batch = 1;
  args.m = m;
  args.n = n;
  args.k = k;
  args.a = a;
  args.b = b;
  args.d = d;
  args.alpha = 1.0f;
  args.bias = bias;
  args.bias_dtype = MPCORE_DTYPE_F32;
  check(mpcore_gemm(NULL, &args));
}

// fp32 masters, fp32 gradients, Adam's moments, and the 16-bit copies of the two kernels.
static float w1[kInputs * kHidden], b1[kHidden], w2[kHidden * kClasses], b2[kClasses];
static float dw1[kInputs * kHidden], db1[kHidden], dw2[kHidden * kClasses], db2[kClasses];
static float moments[2][kParams][kHidden * kClasses];
static half_t w1_copy[kInputs * kHidden], w2_copy[kHidden * kClasses];

static half_t x[kRows * kInputs], hidden[kRows * kHidden], d_hidden[kRows * kHidden];
static half_t logits[kRows * kClasses], d_logits[kRows * kClasses];
static int64_t labels[kRows];
static float loss[kRows], gradient_scale[kRows];

static void initialize(mpcore_dtype dtype) {
  uint64_t seed = 88172645463325252u;
  static float x32[kRows * kInputs];
  make_spirals(x32, labels, &seed);
  for (int i = 0; i < kInputs * kHidden; ++i) w1[i] = uniform(&seed);
  for (int i = 0; i < kHidden * kClasses; ++i) w2[i] = 0.2f * uniform(&seed);
  check(mpcore_cast(NULL, kRows * kInputs, x32, MPCORE_DTYPE_F32, x, dtype));
  check(mpcore_cast(NULL, kInputs * kHidden, w1, MPCORE_DTYPE_F32, w1_copy, dtype));
  check(mpcore_cast(NULL, kHidden * kClasses, w2, MPCORE_DTYPE_F32, w2_copy, dtype));
}

static void forward(mpcore_dtype dtype) {
  product(kRows, kHidden, kInputs, row_major(x, kInputs, dtype), row_major(w1_copy, kHidden, dtype),
          row_major(hidden, kHidden, dtype), b1, MPCORE_ACTIVATION_RELU);
  product(kRows, kClasses, kHidden, row_major(hidden, kHidden, dtype),
          row_major(w2_copy, kClasses, dtype), row_major(logits, kClasses, dtype), b2,
          MPCORE_ACTIVATION_LINEAR);
}

// Gradients of loss_scale times the mean loss; returns the mean loss itself.
static double backward(mpcore_dtype dtype, double loss_scale) {
  for (int i = 0; i < kRows; ++i) gradient_scale[i] = (float)(loss_scale / kRows);
  check(mpcore_softmax_xent(NULL, kRows, kClasses, logits, labels, gradient_scale, loss, d_logits,
                            dtype));
  const mpcore_matrix dz2 = row_major(d_logits, kClasses, dtype);
  check(mpcore_dense_backward(NULL, MPCORE_ACTIVATION_LINEAR, kRows, kClasses, NULL, d_logits, NULL,
                              db2, dtype));
  product(kHidden, kClasses, kRows, transposed(row_major(hidden, kHidden, dtype)), dz2,
          row_major(dw2, kClasses, MPCORE_DTYPE_F32), NULL, MPCORE_ACTIVATION_LINEAR);
  product(kRows, kHidden, kClasses, dz2, transposed(row_major(w2_copy, kClasses, dtype)),
          row_major(d_hidden, kHidden, dtype), NULL, MPCORE_ACTIVATION_LINEAR);
  check(mpcore_dense_backward(NULL, MPCORE_ACTIVATION_RELU, kRows, kHidden, hidden, d_hidden,
                              d_hidden, db1, dtype));
  product(kInputs, kHidden, kRows, transposed(row_major(x, kInputs, dtype)),
          row_major(d_hidden, kHidden, dtype), row_major(dw1, kHidden, MPCORE_DTYPE_F32), NULL,
          MPCORE_ACTIVATION_LINEAR);
  double mean = 0;
  for (int i = 0; i < kRows; ++i) mean += loss[i] / kRows;
  return mean;
}

// Skips the step if a gradient overflowed; either way the loss scale learns of it. Returns 1 if the
// step was taken.
static int update(mpcore_dtype dtype, mpcore_loss_scale* scale, int64_t step) {
  float* const params[kParams] = {w1, b1, w2, b2};
  float* const grads[kParams] = {dw1, db1, dw2, db2};
  half_t* const copies[kParams] = {w1_copy, NULL, w2_copy, NULL};
  const int64_t sizes[kParams] = {kInputs * kHidden, kHidden, kHidden * kClasses, kClasses};

  mpcore_tensor_ref refs[kParams];
  mpcore_optim_tensor tensors[kParams];
  memset(tensors, 0, sizeof tensors);
  for (int i = 0; i < kParams; ++i) {
    const mpcore_tensor_ref ref = {grads[i], sizes[i], MPCORE_DTYPE_F32, 0};
    refs[i] = ref;
    tensors[i].size = sizes[i];
    tensors[i].param = params[i];
    tensors[i].grad = grads[i];
    tensors[i].copy = copies[i];
    tensors[i].state[0] = moments[0][i];
    tensors[i].state[1] = moments[1][i];
    tensors[i].param_dtype = MPCORE_DTYPE_F32;
    tensors[i].grad_dtype = MPCORE_DTYPE_F32;
    tensors[i].copy_dtype = dtype;
    tensors[i].state_dtype = MPCORE_DTYPE_F32;
    tensors[i].grad_multiplier = 1.0 / scale->scale;
  }

  int32_t finite = 0;
  check(mpcore_all_finite(NULL, kParams, refs, &finite));
  check(mpcore_loss_scale_update(scale, finite));
  if (!finite) return 0;

  mpcore_optim_args adam;
  memset(&adam, 0, sizeof adam);
  adam.struct_size = sizeof adam;
  adam.optimizer = MPCORE_OPTIMIZER_ADAM;
  adam.learning_rate = 0.01;
  adam.beta_1 = 0.9;
  adam.beta_2 = 0.999;
  adam.epsilon = 1e-7;
  adam.step = step;
  check(mpcore_optim_step(NULL, &adam, kParams, tensors));
  return 1;
}

static double accuracy(mpcore_dtype dtype) {
  static float scores[kRows * kClasses];
  forward(dtype);
  check(mpcore_cast(NULL, kRows * kClasses, logits, dtype, scores, MPCORE_DTYPE_F32));
  int correct = 0;
  for (int i = 0; i < kRows; ++i) {
    int best = 0;
    for (int j = 1; j < kClasses; ++j) {
      if (scores[i * kClasses + j] > scores[i * kClasses + best]) best = j;
    }
    correct += best == labels[i];
  }
  return (double)correct / kRows;
}

int main(int argc, char** argv) {
  const char* const name = argc > 1 ? argv[1] : "bfloat16";
  mpcore_dtype dtype;
  if (strcmp(name, "bfloat16") == 0) {
    dtype = MPCORE_DTYPE_BF16;
  } else if (strcmp(name, "float16") == 0) {
    dtype = MPCORE_DTYPE_F16;
  } else {
    fprintf(stderr, "usage: %s [bfloat16|float16]\n", argv[0]);
    return 2;
  }

  mpcore_loss_scale scale;
  check(mpcore_loss_scale_init(&scale));
  scale.growth_steps = 100;
  initialize(dtype);

  int64_t taken = 0;
  for (int i = 1; i <= kSteps; ++i) {
    forward(dtype);
    const double mean_loss = backward(dtype, scale.scale);
    taken += update(dtype, &scale, taken + 1);
    if (i % 100 == 0) {
      printf("step %3d  loss %.4f  loss scale %g  skipped %d\n", i, mean_loss, scale.scale,
             (int)(i - taken));
    }
  }

  const double final_accuracy = accuracy(dtype);
  printf("%s  accuracy %.4f\n", name, final_accuracy);
  return final_accuracy >= kAccuracyBound ? 0 : 1;
}
