// What a call of mpcore_gemm may hold, checked once for every path.
#ifndef MPCORE_API_GEMM_ARGS_H_
#define MPCORE_API_GEMM_ARGS_H_

#include "mpcore/gemm.h"
#include "runtime/context.h"

namespace mpcore {

// MPCORE_OK if every field is valid and every array lies apart from the outputs.
mpcore_status check_gemm(const mpcore_gemm_args* args);

// The same of a B that is packed to a block of `size` bytes.
mpcore_status check_packing(const char* function, const mpcore_matrix& b, int64_t k, int64_t n,
                            const void* packed, int64_t size);

// What a precision of a call stands for: never DEFAULT, and HIGHEST unless operands are float32.
mpcore_matmul_precision resolve_precision(const Session& session, mpcore_dtype dtype,
                                          mpcore_matmul_precision precision);

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_ARGS_H_
