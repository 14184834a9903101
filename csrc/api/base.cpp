#include "mpcore/base.h"

#include <cinttypes>
#include <cstring>

#include "api/check.h"
#include "dispatch/cpu.h"
#include "dispatch/dispatch.h"
#include "runtime/context.h"
#include "runtime/error.h"
#include "runtime/memory.h"

using mpcore::check_pointer;
using mpcore::fail;
using mpcore::guarded;

int32_t mpcore_version() {
  return MPCORE_VERSION_MAJOR * 10000 + MPCORE_VERSION_MINOR * 100 + MPCORE_VERSION_PATCH;
}

int32_t mpcore_abi_version() { return MPCORE_ABI_VERSION; }

const char* mpcore_status_name(mpcore_status status) {
  switch (status) {
    case MPCORE_OK:
      return "MPCORE_OK";
    case MPCORE_INVALID_ARGUMENT:
      return "MPCORE_INVALID_ARGUMENT";
    case MPCORE_UNSUPPORTED:
      return "MPCORE_UNSUPPORTED";
    case MPCORE_OUT_OF_MEMORY:
      return "MPCORE_OUT_OF_MEMORY";
    case MPCORE_INTERNAL:
      return "MPCORE_INTERNAL";
    case MPCORE_BUSY:
      return "MPCORE_BUSY";
    default:
      return "unknown status";
  }
}

const char* mpcore_last_error() { return mpcore::last_error(); }

const char* mpcore_dtype_name(mpcore_dtype dtype) {
  switch (dtype) {
    case MPCORE_DTYPE_F32:
      return "float32";
    case MPCORE_DTYPE_F16:
      return "float16";
    case MPCORE_DTYPE_BF16:
      return "bfloat16";
    case MPCORE_DTYPE_F64:
      return "float64";
    case MPCORE_DTYPE_I8:
      return "int8";
    case MPCORE_DTYPE_I16:
      return "int16";
    case MPCORE_DTYPE_I32:
      return "int32";
    case MPCORE_DTYPE_I64:
      return "int64";
    case MPCORE_DTYPE_U8:
      return "uint8";
    case MPCORE_DTYPE_U16:
      return "uint16";
    case MPCORE_DTYPE_U32:
      return "uint32";
    case MPCORE_DTYPE_U64:
      return "uint64";
    case MPCORE_DTYPE_BOOL:
      return "bool";
    default:
      return "unknown dtype";
  }
}

int64_t mpcore_dtype_size(mpcore_dtype dtype) { return mpcore::dtype_size(dtype); }

mpcore_status mpcore_context_create(const mpcore_context_options* options, mpcore_context** out) {
  return guarded([&]() -> mpcore_status {
    constexpr const char* kFunction = "mpcore_context_create";
    if (const auto status = check_pointer(kFunction, "out", out, 1)) return status;
    mpcore_context_options known{};
    if (options != nullptr) {
      if (const auto status = mpcore::check_struct(kFunction, "options", options,
                                                   options->struct_size, sizeof known)) {
        return status;
      }
      std::memcpy(&known, options, sizeof known);
    }
    return mpcore::create_context(known, out);
  });
}

void mpcore_context_destroy(mpcore_context* ctx) { mpcore::destroy_context(ctx); }

mpcore_status mpcore_set_num_threads(mpcore_context* ctx, int32_t num_threads) {
  return guarded([&] { return mpcore::set_num_threads(ctx, num_threads); });
}

mpcore_status mpcore_get_num_threads(mpcore_context* ctx, int32_t* num_threads) {
  return guarded([&]() -> mpcore_status {
    if (const auto status =
            check_pointer("mpcore_get_num_threads", "num_threads", num_threads, 1)) {
      return status;
    }
    return mpcore::get_num_threads(ctx, num_threads);
  });
}

mpcore_status mpcore_set_isa(mpcore_context* ctx, const char* isa) {
  return guarded([&] { return mpcore::set_isa(ctx, isa); });
}

mpcore_status mpcore_get_isa(mpcore_context* ctx, const char** isa) {
  return guarded([&]() -> mpcore_status {
    if (const auto status = check_pointer("mpcore_get_isa", "isa", isa, 1)) return status;
    return mpcore::get_isa(ctx, isa);
  });
}

int32_t mpcore_isa_count() { return mpcore::level_count(); }

mpcore_status mpcore_isa_describe(int32_t index, const char** name, int32_t* available,
                                  const char** reason) {
  return guarded([&]() -> mpcore_status {
    if (index < 0 || index >= mpcore::level_count()) {
      return fail(MPCORE_INVALID_ARGUMENT,
                  "mpcore_isa_describe: index must be in [0, %" PRId32 ") (got index=%" PRId32 ")",
                  mpcore::level_count(), index);
    }
    if (name != nullptr) *name = mpcore::level_name(index);
    if (available == nullptr && reason == nullptr) return MPCORE_OK;
    const char* const lack = mpcore::level_lacks_here(index);
    if (available != nullptr) *available = lack == nullptr ? 1 : 0;
    if (reason != nullptr) *reason = lack == nullptr ? "available" : lack;
    return MPCORE_OK;
  });
}

mpcore_status mpcore_kernel_describe(mpcore_context* ctx, mpcore_column column, mpcore_dtype dtype,
                                     const char** text) {
  return guarded([&]() -> mpcore_status {
    constexpr const char* kFunction = "mpcore_kernel_describe";
    if (column < MPCORE_COLUMN_CAST || column > MPCORE_COLUMN_OPTIM)
      return fail(MPCORE_INVALID_ARGUMENT, "%s: column is no mpcore_column (got %" PRId32 ")",
                  kFunction, column);
    if (const auto status = mpcore::check_compute_dtype(kFunction, "dtype", dtype)) return status;
    if (const auto status = check_pointer(kFunction, "text", text, 1)) return status;
    mpcore::Session session(ctx);
    if (session.status() != MPCORE_OK) return session.status();
    const mpcore::KernelNotes& notes = session.kernels().notes;
    const bool is_gemm = column == MPCORE_COLUMN_GEMM;
    *text = dtype == MPCORE_DTYPE_F16    ? (is_gemm ? notes.gemm_f16 : notes.f16)
            : dtype == MPCORE_DTYPE_BF16 ? (is_gemm ? notes.gemm_bf16 : notes.bf16)
                                         : (is_gemm ? notes.gemm_f32 : notes.f32);
    return MPCORE_OK;
  });
}

const char* mpcore_cpu_name() { return mpcore::cpu_name(); }

mpcore_status mpcore_buffer_allocate(int64_t size, void** out) {
  return guarded([&]() -> mpcore_status {
    constexpr const char* kFunction = "mpcore_buffer_allocate";
    if (const auto status = check_pointer(kFunction, "out", out, 1)) return status;
    if (size < 0) {
      return fail(MPCORE_INVALID_ARGUMENT, "%s: size must be >= 0 (got size=%" PRId64 ")",
                  kFunction, size);
    }
    void* const block = mpcore::allocate_buffer(size);
    if (block == nullptr) {
      return fail(MPCORE_OUT_OF_MEMORY, "%s: no memory for size=%" PRId64 " bytes", kFunction,
                  size);
    }
    *out = block;
    return MPCORE_OK;
  });
}

void mpcore_buffer_free(void* pointer, int64_t size) { mpcore::free_buffer(pointer, size); }

mpcore_status mpcore_buffer_info(int64_t* in_use, int64_t* cached, int64_t* limit) {
  return guarded([&]() -> mpcore_status {
    const mpcore::BufferInfo info = mpcore::buffer_info();
    if (in_use != nullptr) *in_use = info.in_use;
    if (cached != nullptr) *cached = info.cached;
    if (limit != nullptr) *limit = info.limit;
    return MPCORE_OK;
  });
}

void mpcore_buffer_trim() {
  static_cast<void>(guarded([]() -> mpcore_status {
    mpcore::trim_buffers();
    return MPCORE_OK;
  }));
}
