/// @file mpcore.h
/// The whole public C API of mpcore, a mixed-precision training engine for CPUs.
#ifndef MPCORE_MPCORE_H_
#define MPCORE_MPCORE_H_

#include "mpcore/base.h"
#include "mpcore/cast.h"
#include "mpcore/gemm.h"
#include "mpcore/grad.h"
#include "mpcore/limits.h"
#include "mpcore/nn.h"
#include "mpcore/optim.h"

#endif  // MPCORE_MPCORE_H_
