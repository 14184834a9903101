/// @file base.h
/// Types every column of the mpcore C API shares: export macro, version, status codes, dtypes,
/// contexts, buffers, and what the CPU offers.
///
/// Rules that hold for every function of this API:
///  - it never aborts, prints, or throws across the boundary; whatever can fail returns an
///    `mpcore_status`;
///  - after a status other than `MPCORE_OK`, `mpcore_last_error()` says on the calling thread what
///    was wrong and what is valid, and nothing has been written to the caller's memory. One
///    exception: if a host's own `parallel_for` fails, some of its tasks may have run;
///  - sizes and strides are `int64_t` and count elements; pointers need no alignment;
///  - `ctx == NULL` means the process-wide default context;
///  - the floating-point environment of the calling thread is left as it was found.
#ifndef MPCORE_BASE_H_
#define MPCORE_BASE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#if defined(MPCORE_BUILDING)
#define MPCORE_API __declspec(dllexport)
#else
#define MPCORE_API __declspec(dllimport)
#endif
#else
#define MPCORE_API __attribute__((visibility("default")))
#endif

#define MPCORE_VERSION_MAJOR 0
#define MPCORE_VERSION_MINOR 1
#define MPCORE_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/// Outcome of a call. Stored as `int32_t`, so the size does not depend on the compiler.
typedef int32_t mpcore_status;
enum {
  MPCORE_OK = 0,
  MPCORE_INVALID_ARGUMENT = 1,  ///< A value, size, or pointer is not allowed.
  MPCORE_UNSUPPORTED = 2,       ///< A valid request that this build or this CPU cannot serve.
  MPCORE_OUT_OF_MEMORY = 3,
  MPCORE_INTERNAL = 4,  ///< A defect of mpcore; please report it.
  MPCORE_BUSY = 5       ///< The context is in use by another thread.
};

/// Element type. Stored as `int32_t`; the values never change.
typedef int32_t mpcore_dtype;
enum {
  MPCORE_DTYPE_F32 = 0,
  MPCORE_DTYPE_F16 = 1,   ///< IEEE binary16.
  MPCORE_DTYPE_BF16 = 2,  ///< The upper half of a binary32.
  MPCORE_DTYPE_F64 = 3,
  MPCORE_DTYPE_I8 = 8,
  MPCORE_DTYPE_I16 = 9,
  MPCORE_DTYPE_I32 = 10,
  MPCORE_DTYPE_I64 = 11,
  MPCORE_DTYPE_U8 = 12,
  MPCORE_DTYPE_U16 = 13,
  MPCORE_DTYPE_U32 = 14,
  MPCORE_DTYPE_U64 = 15,
  MPCORE_DTYPE_BOOL = 16  ///< One byte; zero is false.
};

/// Version of the library that was loaded, as MAJOR * 10000 + MINOR * 100 + PATCH.
MPCORE_API int32_t mpcore_version(void);
/// Version of the binary interface; equals the number in the library's SONAME.
MPCORE_API int32_t mpcore_abi_version(void);
/// How the library that was loaded was built: compiler and its version, CMake build type, compiler
/// flags, and git commit ("unknown" outside a clone). Static strings; any output may be NULL.
MPCORE_API mpcore_status mpcore_build_info(const char** compiler, const char** type,
                                           const char** flags, const char** commit);
/// Name of a status, "MPCORE_OK" for 0; "unknown status" for a value this version does not know.
MPCORE_API const char* mpcore_status_name(mpcore_status status);
/// What the last failed call on this thread had to say; "" if none failed. Valid until the next
/// call that fails on this thread.
MPCORE_API const char* mpcore_last_error(void);
/// Name of a dtype ("float32", "bfloat16", ...); "unknown dtype" for other values.
MPCORE_API const char* mpcore_dtype_name(mpcore_dtype dtype);
/// Bytes of one element; 0 for an unknown dtype.
MPCORE_API int64_t mpcore_dtype_size(mpcore_dtype dtype);

// --- Contexts ------------------------------------------------------------------------------------

/// Threads, buffers, and ISA level a call works with. One context serves one caller at a time: a
/// second thread that enters an explicit context gets `MPCORE_BUSY`, one that enters the default
/// context waits for its turn.
typedef struct mpcore_context mpcore_context;

/// Runs `task(arg, i)` once for every i in [0, n), on any threads, and returns when all are done.
/// Returns 0 for success.
typedef void (*mpcore_task)(void* arg, int64_t i);
typedef int32_t (*mpcore_parallel_for)(void* host, int64_t n, mpcore_task task, void* arg);

/// How to make a context. Set `struct_size = sizeof(mpcore_context_options)` and zero the rest for
/// the defaults.
typedef struct mpcore_context_options {
  uint32_t struct_size;
  /// Threads that take part in a call, the caller included; 0: MPCORE_NUM_THREADS, else the CPUs
  /// this process may use (affinity mask and cgroup quota). At most 1024.
  int32_t num_threads;
  /// Name of an ISA level, or NULL: MPCORE_ISA, else the highest this CPU can run. Choosing amx, by
  /// name or as the highest, asks the operating system for it; refused, the level below is chosen.
  const char* isa;
  /// The host's own threads, used in place of mpcore's pool; NULL: mpcore's pool. A call may be cut
  /// into many more tasks than `num_threads`; if that is 1, it runs on the calling thread alone.
  mpcore_parallel_for parallel_for;
  void* host;
  /// The host's allocator for workspace; both or neither. `allocate` returns memory aligned to
  /// `alignment` bytes (a power of two), or NULL.
  void* (*allocate)(void* host, size_t size, size_t alignment);
  void (*deallocate)(void* host, void* pointer, size_t size);
} mpcore_context_options;

/// Creates a context. @p options NULL: all defaults. @p out receives the context.
/// Errors: INVALID_ARGUMENT (options), UNSUPPORTED (this CPU lacks the level), OUT_OF_MEMORY.
MPCORE_API mpcore_status mpcore_context_create(const mpcore_context_options* options,
                                               mpcore_context** out);
/// Destroys a context and joins its threads. NULL is ignored. No call may be using it.
MPCORE_API void mpcore_context_destroy(mpcore_context* ctx);
/// Sets how many threads calls use from now on; 0 restores the default. This and mpcore_set_isa are
/// MPCORE_BUSY from inside a task of the same context.
MPCORE_API mpcore_status mpcore_set_num_threads(mpcore_context* ctx, int32_t num_threads);
MPCORE_API mpcore_status mpcore_get_num_threads(mpcore_context* ctx, int32_t* num_threads);
/// Forces a level by name; NULL restores the default. A level that does not exist is
/// INVALID_ARGUMENT, one this CPU lacks UNSUPPORTED; the message lists the valid ones.
MPCORE_API mpcore_status mpcore_set_isa(mpcore_context* ctx, const char* isa);
/// Name of the level in force, a static string.
MPCORE_API mpcore_status mpcore_get_isa(mpcore_context* ctx, const char** isa);

// --- CPU -----------------------------------------------------------------------------------------

/// Number of ISA levels this build knows, lowest first. They run from 0 to this number - 1.
MPCORE_API int32_t mpcore_isa_count(void);
/// Describes level @p index: its name, whether it can be selected here (1 or 0), and the reason
/// ("available", or what is missing). Any output may be NULL; strings are static. Whether AMX is
/// available is known only by asking the operating system for it, as selecting the level would; a
/// refusal says why and may be gone at a later call.
MPCORE_API mpcore_status mpcore_isa_describe(int32_t index, const char** name, int32_t* available,
                                             const char** reason);
/// A family of functions of this API.
typedef int32_t mpcore_column;
enum {
  MPCORE_COLUMN_CAST = 0,
  MPCORE_COLUMN_GEMM = 1,
  MPCORE_COLUMN_NN = 2,
  MPCORE_COLUMN_GRAD = 3,
  MPCORE_COLUMN_OPTIM = 4
};
/// Says in words which kernel the context uses for operands of @p dtype (f32, f16, or bf16), as a
/// static string for people to read. Errors: INVALID_ARGUMENT, UNSUPPORTED (dtype).
MPCORE_API mpcore_status mpcore_kernel_describe(mpcore_context* ctx, mpcore_column column,
                                                mpcore_dtype dtype, const char** text);
/// Brand name of the CPU, a static string; "unknown" where it cannot be read.
MPCORE_API const char* mpcore_cpu_name(void);

// --- Buffers -------------------------------------------------------------------------------------

/// 64-byte aligned memory from the library's pool: freed blocks are kept, up to an eighth of the
/// memory this process may use and 1 GiB, and handed out again without page faults. The contents
/// are undefined. Any thread may free.
MPCORE_API mpcore_status mpcore_buffer_allocate(int64_t size, void** out);
/// Gives a block back. NULL is ignored. @p size is the size it was allocated with.
MPCORE_API void mpcore_buffer_free(void* pointer, int64_t size);
/// Bytes handed out and not yet freed, bytes kept for reuse, and the bound on the latter. Any
/// output may be NULL.
MPCORE_API mpcore_status mpcore_buffer_info(int64_t* in_use, int64_t* cached, int64_t* limit);
/// Returns all cached blocks to the system.
MPCORE_API void mpcore_buffer_trim(void);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_BASE_H_
