// base.h through the shared library: names, validation, environment, levels, buffers.
#include <cstdlib>
#include <cstring>
#include <string>

#include "expect.h"
#include "mpcore/base.h"

namespace {

bool error_has(const char* text) { return std::strstr(mpcore_last_error(), text) != nullptr; }

void test_names() {
  EXPECT(std::strcmp(mpcore_status_name(MPCORE_BUSY), "MPCORE_BUSY") == 0);
  EXPECT(std::strcmp(mpcore_status_name(99), "unknown status") == 0);
  EXPECT(std::strcmp(mpcore_dtype_name(MPCORE_DTYPE_BF16), "bfloat16") == 0);
  EXPECT(std::strcmp(mpcore_dtype_name(7), "unknown dtype") == 0);
  EXPECT(mpcore_dtype_size(MPCORE_DTYPE_F64) == 8 && mpcore_dtype_size(MPCORE_DTYPE_BOOL) == 1);
  EXPECT(mpcore_dtype_size(-1) == 0);
  EXPECT(mpcore_cpu_name()[0] != '\0' && mpcore_cpu_name()[0] != ' ');
}

// A malformed variable is the first call's error, names itself, and can be mended.
void test_environment() {
  int32_t threads = -1;
  setenv("MPCORE_NUM_THREADS", "two", 1);
  EXPECT(mpcore_get_num_threads(nullptr, &threads) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_has("MPCORE_NUM_THREADS=two") && threads == -1);
  for (const char* bad : {"0", "-1", "1025", "3x", "1e3", "99999999999999999999"}) {
    setenv("MPCORE_NUM_THREADS", bad, 1);
    EXPECT(mpcore_get_num_threads(nullptr, &threads) == MPCORE_INVALID_ARGUMENT);
  }
  setenv("MPCORE_NUM_THREADS", "3", 1);
  setenv("MPCORE_ISA", "sse9", 1);
  EXPECT(mpcore_get_num_threads(nullptr, &threads) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_has("MPCORE_ISA=sse9") && error_has("scalar"));
  mpcore_context* ctx = nullptr;
  EXPECT(mpcore_context_create(nullptr, &ctx) == MPCORE_INVALID_ARGUMENT && ctx == nullptr);
  setenv("MPCORE_ISA", "scalar", 1);

  const char* isa = nullptr;
  EXPECT(mpcore_get_num_threads(nullptr, &threads) == MPCORE_OK && threads == 3);
  EXPECT(mpcore_get_isa(nullptr, &isa) == MPCORE_OK && std::strcmp(isa, "scalar") == 0);
  EXPECT(mpcore_set_num_threads(nullptr, 2) == MPCORE_OK);
  EXPECT(mpcore_get_num_threads(nullptr, &threads) == MPCORE_OK && threads == 2);
  EXPECT(mpcore_set_num_threads(nullptr, 0) == MPCORE_OK);
  EXPECT(mpcore_get_num_threads(nullptr, &threads) == MPCORE_OK && threads == 3);
  EXPECT(mpcore_set_num_threads(nullptr, -1) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_has("num_threads=-1"));
  EXPECT(mpcore_get_num_threads(nullptr, &threads) == MPCORE_OK && threads == 3);
  unsetenv("MPCORE_NUM_THREADS");
  unsetenv("MPCORE_ISA");
}

mpcore_context_options whole_options() {
  mpcore_context_options options{};
  options.struct_size = sizeof options;
  return options;
}

void test_context_create() {
  mpcore_context* ctx = nullptr;
  EXPECT(mpcore_context_create(nullptr, nullptr) == MPCORE_INVALID_ARGUMENT && error_has("out"));

  mpcore_context_options options = whole_options();
  options.struct_size = sizeof options - 1;
  EXPECT(mpcore_context_create(&options, &ctx) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_has("struct_size=47") && ctx == nullptr);
  options = whole_options();
  options.struct_size = UINT32_MAX;
  EXPECT(mpcore_context_create(&options, &ctx) == MPCORE_INVALID_ARGUMENT);

  struct {
    mpcore_context_options known = whole_options();
    char later[8] = {};
  } newer;
  newer.known.struct_size = sizeof newer;
  newer.later[7] = 1;
  EXPECT(mpcore_context_create(&newer.known, &ctx) == MPCORE_INVALID_ARGUMENT &&
         error_has("byte 55"));
  newer.later[7] = 0;
  EXPECT(mpcore_context_create(&newer.known, &ctx) == MPCORE_OK);
  mpcore_context_destroy(ctx);

  ctx = nullptr;
  options = whole_options();
  options.num_threads = 1025;
  EXPECT(mpcore_context_create(&options, &ctx) == MPCORE_INVALID_ARGUMENT && ctx == nullptr);
  options = whole_options();
  options.allocate = [](void*, size_t, size_t) -> void* { return nullptr; };
  EXPECT(mpcore_context_create(&options, &ctx) == MPCORE_INVALID_ARGUMENT &&
         error_has("deallocate"));
  mpcore_context_destroy(nullptr);
}

void test_levels() {
  mpcore_context* ctx = nullptr;
  EXPECT(mpcore_context_create(nullptr, &ctx) == MPCORE_OK);
  const char* chosen = nullptr;
  EXPECT(mpcore_get_isa(ctx, &chosen) == MPCORE_OK);
  std::string last;
  for (int32_t i = 0; i < mpcore_isa_count(); ++i) {
    const char *name = nullptr, *reason = nullptr, *isa = nullptr;
    int32_t available = -1;
    EXPECT(mpcore_isa_describe(i, &name, &available, &reason) == MPCORE_OK);
    std::printf("%s: %s\n", name, reason);
    EXPECT((std::strcmp(reason, "available") == 0) == (available == 1));
    EXPECT(mpcore_set_isa(ctx, name) == (available == 1 ? MPCORE_OK : MPCORE_UNSUPPORTED));
    EXPECT(mpcore_get_isa(ctx, &isa) == MPCORE_OK);
    if (available == 1) last = name;
    EXPECT(last == isa);
  }
  EXPECT(mpcore_set_isa(ctx, chosen) == MPCORE_OK);
  EXPECT(mpcore_set_isa(ctx, "scalar") == MPCORE_OK && mpcore_set_isa(ctx, nullptr) == MPCORE_OK);
  const char* isa = nullptr;
  EXPECT(mpcore_get_isa(ctx, &isa) == MPCORE_OK && std::strcmp(isa, chosen) == 0);
  EXPECT(mpcore_set_isa(ctx, "AVX2") == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_has("isa=AVX2") && error_has("scalar") && error_has(chosen));
  EXPECT(mpcore_isa_describe(0, nullptr, nullptr, nullptr) == MPCORE_OK);
  EXPECT(mpcore_isa_describe(-1, nullptr, nullptr, nullptr) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_isa_describe(mpcore_isa_count(), nullptr, nullptr, nullptr) ==
         MPCORE_INVALID_ARGUMENT);
  mpcore_context_destroy(ctx);
}

void test_buffers() {
  void* block = nullptr;
  EXPECT(mpcore_buffer_allocate(-1, &block) == MPCORE_INVALID_ARGUMENT && error_has("size=-1"));
  EXPECT(mpcore_buffer_allocate(1, nullptr) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_buffer_allocate(INT64_MAX, &block) == MPCORE_OUT_OF_MEMORY && block == nullptr);
  EXPECT(mpcore_buffer_allocate(int64_t{1} << 45, &block) == MPCORE_OK ||
         error_has("no memory for size="));
  mpcore_buffer_free(block, int64_t{1} << 45);
  EXPECT(mpcore_buffer_allocate(0, &block) == MPCORE_OK && block != nullptr);
  mpcore_buffer_free(block, 0);
  mpcore_buffer_free(nullptr, 5);
  mpcore_buffer_trim();
  int64_t in_use = -1, cached = -1, limit = -1;
  EXPECT(mpcore_buffer_info(&in_use, &cached, &limit) == MPCORE_OK);
  EXPECT(in_use == 0 && cached == 0 && limit > 0 && limit <= int64_t{1} << 30);
  EXPECT(mpcore_buffer_info(nullptr, nullptr, nullptr) == MPCORE_OK);
}

}  // namespace

int main() {
  EXPECT(std::strcmp(mpcore_last_error(), "") == 0);
  test_names();
  test_environment();
  test_context_create();
  test_levels();
  test_buffers();
  return expect_result();
}
