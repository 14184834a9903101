// The last error of the calling thread, and how api/ reports one.
#ifndef MPCORE_RUNTIME_ERROR_H_
#define MPCORE_RUNTIME_ERROR_H_

#include "mpcore/base.h"

namespace mpcore {

// Formats the message (printf style), keeps it for mpcore_last_error() on this thread, and returns
// `status`, so that a check reads: if (n < 0) return fail(MPCORE_INVALID_ARGUMENT, "...", n);
[[gnu::format(printf, 2, 3)]] mpcore_status fail(mpcore_status status, const char* format,
                                                 ...) noexcept;

const char* last_error() noexcept;

}  // namespace mpcore

#endif  // MPCORE_RUNTIME_ERROR_H_
