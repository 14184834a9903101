// Which process this is: how a forked child knows that it is one.
#ifndef MPCORE_RUNTIME_PROCESS_H_
#define MPCORE_RUNTIME_PROCESS_H_

#include <stdint.h>

namespace mpcore {

// The process id, without a system call where the kernel allows it: getpid() can take longer than a
// small product. Never 0.
int32_t current_process();

}  // namespace mpcore

#endif  // MPCORE_RUNTIME_PROCESS_H_
