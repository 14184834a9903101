// What a call of mpcore_gemm may hold, checked once for every path.
#ifndef MPCORE_API_GEMM_ARGS_H_
#define MPCORE_API_GEMM_ARGS_H_

#include "mpcore/gemm.h"

namespace mpcore {

// MPCORE_OK if every field is valid and every array lies apart from the outputs.
mpcore_status check_gemm(const mpcore_gemm_args* args);

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_ARGS_H_
