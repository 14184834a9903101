// The contract between api/ and the ISA units: one table of function pointers per level. Everything
// in it is serial, allocates nothing, checks nothing, and works on the range it is given; pointers
// need no alignment. This file knows no ISA, no threads, and no errors.
#ifndef MPCORE_DISPATCH_KERNEL_TABLE_H_
#define MPCORE_DISPATCH_KERNEL_TABLE_H_

#include <stdint.h>

#include "dispatch/tile_kernels.h"
#include "mpcore/base.h"
#include "mpcore/gemm.h"
#include "mpcore/limits.h"
#include "mpcore/nn.h"
#include "mpcore/optim.h"

namespace mpcore {

// Elements per chunk of a reduction: the fixed leaf of the tree that makes sums independent of the
// number of threads. api/ cuts at multiples of it and combines the leaves in order.
constexpr int64_t kReductionChunk = 8192;

// Rows per leaf of a column sum (bias gradients).
constexpr int64_t kColumnSumRows = 64;

// Bound on mr * nr: a tile of fp32 totals fits on the stack.
constexpr int32_t kMaxGemmTile = 512;

// Columns per leaf of the sum of squares of a product, within one row.
constexpr int64_t kSquareColumns = 64;

// The last step of a product: rows x cols of fp32 totals (row stride total_stride) become
// z = alpha * total + beta * d + bias, and d = activation(z) + residual, rounded once.
struct GemmEpilogue {
  const float* total;
  int64_t total_stride;
  int64_t rows, cols;
  float alpha, beta;             // beta == 0: d is not read
  mpcore_matrix d;               // data is at the first element of the range, as in the next two
  mpcore_matrix residual;        // data nullptr: none; may be d
  mpcore_matrix pre_activation;  // data nullptr: not wanted; receives z
  const float* bias;             // cols fp32 values or nullptr
  mpcore_activation activation;
  // nullptr, or for each row (squares_stride apart) a sum for every kSquareColumns columns of D.
  // Each sixteen columns are added to the sum they belong to, so callers go from left to right and
  // begin at multiples of sixteen. `column` is where the range begins in D.
  double* squares;
  int64_t squares_stride, column;
  bool check_finite;
};

// Packs `count` lines of `k` elements into panels of `width` lines, k_padded * width floats each:
// element p of line i to panels[i / width * panel + p * width + i % width]; the rest is zero. Line
// i begins at src + line * line_stride, `line` being lines[i] or, without `lines`, i.
struct GemmPack {
  const void* src;
  mpcore_dtype dtype;
  const int64_t* lines;
  int64_t line_stride, k_stride;
  int64_t count, k, k_padded;
  int32_t width;
  float* panels;
};

// total[rows x cols] (+)= A B with A packed as one panel of width `rows` <= mr and B where it is,
// each of its rows contiguous; cols is a multiple of nr.
struct GemmThin {
  int64_t k;
  int32_t rows;
  const float* a;
  const void* b;
  mpcore_dtype dtype;
  int64_t b_stride, cols;
  float* total;
  int64_t total_stride;
  bool load_total;
};

// How one summation order is computed. Packed operands are fp32 panels:
//   A: ceil(m / mr) panels of k x mr;  B: ceil(n / nr) panels of k x nr; edges are padded with
//   zeros.
// A product is cut along k at multiples of k_step only.
struct GemmOrder {
  int32_t mr, nr, k_step;
  int32_t k_block;  // k that a tile goes through at a time, a multiple of k_step
  // total[rows x nr] (+)= A panel (k x mr) * B panel (k x nr); rows <= mr rows are computed. Asks
  // for the k cache lines from `next` on, which the caller will need soon.
  void (*tile)(int64_t k, int32_t rows, const float* a_panel, const float* b_panel, float* total,
               bool load_total, const float* next);
  void (*thin)(const GemmThin& g);
};

struct GemmKernels {
  GemmOrder chain;  // f32, f16: one FMA chain per element
  GemmOrder pairs;  // bf16: even and odd chains per 32 k, the order of TDPBF16PS
  void (*pack)(const GemmPack& g);
  // Is what was written to d finite? true unless asked by check_finite.
  bool (*epilogue)(const GemmEpilogue& e);
};

constexpr int32_t kPeakCount = 3;

struct LimitKernels {
  // Runs the probe and returns the floating-point operations done; nullptr where the level lacks
  // the instruction.
  int64_t (*peak[kPeakCount])(int64_t iterations);
  // Passes over `arrays`, as many as the pattern names.
  void (*stream)(mpcore_stream stream, int64_t iterations, int64_t n, float* const* arrays);
};

// Softmax cross-entropy of rows with class indices or (labels null) with distributions.
struct SoftmaxXent {
  int64_t rows, cols;
  const void* x;
  const int64_t* labels;
  const float* targets;
  float smoothing;
  const float* scale;  // not read without dx
  float* loss;         // nullptr: not wanted, as dx
  void* dx;
  mpcore_dtype dtype;
};

// Layer normalisation of a block of rows; RMS normalisation unless `center`. Null: no gamma, beta;
// mean and rstd not wanted.
struct RowNorm {
  int64_t rows, cols;
  const void* x;
  const float *gamma, *beta;
  float epsilon;
  bool center;
  void* y;
  float *mean, *rstd;
  mpcore_dtype dtype;
};
// Its backward. To dgamma and dbeta (null: not wanted) the rows add in increasing order, in fp32.
struct RowNormBackward {
  int64_t rows, cols;
  const void* x;
  const float *gamma, *mean, *rstd;
  const void* dy;
  bool center;
  void* dx;  // nullptr: not wanted
  float *dgamma, *dbeta;
  mpcore_dtype dtype;
};

// Columns of a block of rows, with given statistics: y = (x - mean) rstd gamma + beta. Null: no
// mean, gamma, beta.
struct ColumnNorm {
  int64_t rows, cols;
  const void* x;
  const float *mean, *rstd, *gamma, *beta;
  void* y;
  mpcore_dtype dtype;
};
// The sums over the rows of dy h and of dy, h = (x - mean) rstd.
struct ColumnNormSums {
  int64_t rows, cols;
  const void *x, *dy;
  const float *mean, *rstd;
  float *dgamma, *dbeta;
  mpcore_dtype dtype;
};
// dx = (dy - shift - h slope) factor.
struct ColumnNormBackward {
  int64_t rows, cols;
  const void *x, *dy;
  const float *mean, *rstd, *shift, *slope, *factor;
  void* dx;
  mpcore_dtype dtype;
};

struct NormKernels {
  void (*row)(const RowNorm& r);
  void (*row_backward)(const RowNormBackward& r);
  // Of a leaf: the mean as the sum of its rows gives it, and the sums of the differences to it and
  // of their squares.
  void (*column_moments)(int64_t rows, int64_t cols, const void* x, float* mean, float* rest,
                         float* squares, mpcore_dtype dtype);
  void (*column)(const ColumnNorm& c);
  void (*column_sums)(const ColumnNormSums& c);
  void (*column_backward)(const ColumnNormBackward& c);
};

constexpr int kOptimStates = 4;
// Elements that an update works on at a time. Tasks are cut at multiples of it.
constexpr int64_t kOptimBlock = 1024;

// What the rules of an update are made from: the caller's arguments, and what takes a logarithm.
struct OptimScalars {
  const mpcore_optim_args* args;
  double beta_1_power, beta_2_power;  // beta^t
  double mu, next_mu;                 // Nadam's mu(t) and mu(t + 1)
  double warmup;                      // min(1, t / warmup_steps)
};

// One span of one tensor. The kernel picks the arithmetic type by param_dtype.
struct OptimSpan {
  int64_t size, offset;  // offset: of the first element within its tensor
  void* param;
  const void* grad;
  void* copy;       // nullptr: none
  void* remainder;  // nullptr: none
  void* state[kOptimStates];
  mpcore_dtype param_dtype, grad_dtype, copy_dtype, state_dtype;
  double grad_multiplier;
  double decay_rate;  // weight_decay * learning_rate
  double clipvalue;   // 0: off
  bool stochastic;    // is a 16-bit param rounded so?
  bool stream;        // does the copy go past the caches?
  uint64_t param_seed, state_seed[kOptimStates];
  // A rule of two passes: the first writes two sums of squares for each block, of the decayed
  // weights and of the direction of the step; the second, which has nullptr here, is told what to
  // stretch the step by.
  double* squares;
  double ratio;
};

// One row of an image out of the columns of a convolution's gradient: sums (+)= its terms in the
// rows of windows [first, first + rows), or dx = those sums, rounded, unless it is null.
struct ColumnSums {
  const mpcore_window2d* window;
  int64_t groups;
  int64_t row;
  const float* columns;  // of row `first` on; groups x window elements x channels for each window
  int64_t first, rows;
  float* sums;  // a row of the image
  bool load;    // are they added to? else they begin at zero
  void* dx;
};

// Pooling: of one output row, or backward to one row of the image.
struct PoolRow {
  const mpcore_window2d* window;
  mpcore_pooling pooling;
  int64_t row;
  const void* from;  // the image; backward: dy of the image
  void* to;          // the row
  int32_t* argmax;   // of the output row; backward: of the image; nullptr: none
};

// Scores of some queries of one head, cols for each, become probabilities; backward, these and
// their gradients become gradients of the scores.
struct AttentionRows {
  int64_t rows, cols;
  float* scores;        // overwritten; backward: gradients of the probabilities
  void* probabilities;  // backward: read
  mpcore_dtype dtype;
  const float* bias;  // of the first query, bias_stride to the next; or nullptr
  int64_t bias_stride;
  const uint8_t* mask;  // likewise
  int64_t mask_stride;
  int64_t visible;  // keys that the first query sees, each further query one more
  float scale;      // of the scores; backward only
  void* dscores;    // backward only
};

// In words, for people who ask which kernel they get.
struct KernelNotes {
  // How elements of a dtype are computed with, and converted on the way in and out.
  const char* f32;
  const char* f16;
  const char* bf16;
  // How products of a dtype are summed.
  const char* gemm_f32;
  const char* gemm_f16;
  const char* gemm_bf16;
};

struct KernelTable {
  const char* name;
  KernelNotes notes;

  // cast; src may equal dst where the elements have one size. cast_stream gives the same bits and
  // is for arrays that the caches cannot hold.
  void (*cast)(const void* src, mpcore_dtype src_dtype, void* dst, mpcore_dtype dst_dtype,
               int64_t n);
  void (*cast_stream)(const void* src, mpcore_dtype src_dtype, void* dst, mpcore_dtype dst_dtype,
                      int64_t n);
  // f32 to f16 or bf16; element i takes random number offset + i of the seed.
  void (*cast_stochastic)(const void* src, void* dst, mpcore_dtype dst_dtype, int64_t n,
                          uint64_t seed, uint64_t offset);

  // grad
  bool (*all_finite)(const void* x, mpcore_dtype dtype, int64_t n);
  // y = x * multiplier, y may be x; are the results finite?
  bool (*unscale)(const void* x, void* y, mpcore_dtype dtype, int64_t n, double multiplier);
  // One sum for each leaf of kReductionChunk elements; the last may be shorter. f64 elements are
  // multiplied first.
  void (*sum_squares)(const void* x, mpcore_dtype dtype, int64_t n, double* sums,
                      double multiplier);
  // total (f32 or f64) += x * multiplier; average = momentum * average + (1 - momentum) * x.
  void (*accumulate)(void* total, mpcore_dtype total_dtype, const void* x, mpcore_dtype x_dtype,
                     int64_t n, double multiplier);
  void (*lerp)(void* average, mpcore_dtype average_dtype, const void* x, mpcore_dtype x_dtype,
               int64_t n, double momentum);

  // optim
  void (*optim)(const OptimScalars& s, const OptimSpan& t);

  // nn
  void (*activation)(mpcore_activation f, const void* x, void* y, mpcore_dtype dtype, int64_t n);
  // One block of rows; writes dz (or not) and adds the fp32 column sums of its rows, taken in
  // leaves of kColumnSumRows rows, to db (double, `cols` values) unless null.
  void (*dense_backward)(mpcore_activation f, int64_t rows, int64_t cols, int64_t row_stride,
                         const void* y, const void* dy, void* dz, double* db, mpcore_dtype dtype);
  void (*softmax)(int64_t rows, int64_t cols, const void* x, void* y, mpcore_dtype dtype);
  void (*softmax_backward)(int64_t rows, int64_t cols, const void* y, const void* dy, void* dx,
                           mpcore_dtype dtype);
  void (*log_softmax)(int64_t rows, int64_t cols, const void* x, void* y, mpcore_dtype dtype);
  void (*log_softmax_backward)(int64_t rows, int64_t cols, const void* y, const void* dy, void* dx,
                               mpcore_dtype dtype);
  void (*softmax_xent)(const SoftmaxXent& s);
  NormKernels norm;

  // nn: convolution. Windows of one output row as rows of a matrix, elements of `size` bytes.
  void (*im2col)(const mpcore_window2d& w, int64_t groups, int64_t size, const void* image,
                 int64_t out_row, void* rows);
  void (*col2im)(const ColumnSums& s);
  // nn: pooling, attention
  void (*pool)(const PoolRow& r);
  void (*pool_backward)(const PoolRow& r);
  void (*attention)(const AttentionRows& r);
  void (*attention_backward)(const AttentionRows& r);

  GemmKernels gemm;
  LimitKernels limits;
  const TileKernels* tiles = nullptr;  // of the levels that have matrix tiles
};

// One complete table per level; the only symbol an ISA unit exports.
extern const KernelTable kScalarTable;
extern const KernelTable kAvx2Table;
extern const KernelTable kAvx512Table;
extern const KernelTable kAvx512Bf16Table;
extern const KernelTable kAvx512Fp16Table;
extern const KernelTable kAmxTable;

}  // namespace mpcore

#endif  // MPCORE_DISPATCH_KERNEL_TABLE_H_
