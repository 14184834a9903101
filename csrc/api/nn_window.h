// Windows that slide over images: what convolution and pooling check and know about them.
#ifndef MPCORE_API_NN_WINDOW_H_
#define MPCORE_API_NN_WINDOW_H_

#include <stdint.h>

#include "mpcore/nn.h"

namespace mpcore {

// MPCORE_OK if every field is valid and the arrays that windows name fit in memory; `depth` is
// whatever else the last axis of the output has in place of the channels.
mpcore_status check_window(const char* function, const mpcore_window2d* window, int64_t depth);

inline int64_t image_size(const mpcore_window2d& w) { return w.height * w.width * w.channels; }
inline int64_t input_size(const mpcore_window2d& w) { return w.batch * image_size(w); }
inline int64_t out_pixels(const mpcore_window2d& w) { return w.out_height * w.out_width; }
inline int64_t window_size(const mpcore_window2d& w) { return w.window_height * w.window_width; }

}  // namespace mpcore

#endif  // MPCORE_API_NN_WINDOW_H_
