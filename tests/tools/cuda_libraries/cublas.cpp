// Stands for cuBLAS and cuBLASLt: handles are made, products are noted as launches and not computed. The builder makes
// the other functions that the provider names.
#include "notes.h"

#include <cstdlib>
#include <map>
#include <mutex>

#define FUNCTION extern "C" int

namespace {
struct Handle {
    const void* stream = nullptr;
    int mode = 0;
    char rest[64];
};

int product(const char* name, void* handle) { return stand_in_launch(name, ((Handle*)handle)->stream), 0; }
}  // namespace

FUNCTION cublasCreate_v2(void** made) { return NOTE("cublasCreate", nullptr, 0), *made = new Handle, 0; }
FUNCTION cublasDestroy_v2(void* handle) { return delete (Handle*)handle, 0; }
FUNCTION cublasSetStream_v2(void* handle, const void* stream) { return ((Handle*)handle)->stream = stream, 0; }
FUNCTION cublasGetMathMode(void* handle, int* mode) { return *mode = ((Handle*)handle)->mode, 0; }
FUNCTION cublasSetMathMode(void* handle, int mode) { return ((Handle*)handle)->mode = mode, 0; }
FUNCTION cublasSgemm_v2(void* handle) { return product("cublasSgemm", handle); }
FUNCTION cublasDgemm_v2(void* handle) { return product("cublasDgemm", handle); }
FUNCTION cublasGemmEx(void* handle) { return product("cublasGemmEx", handle); }
FUNCTION cublasSgemmBatched(void* handle) { return product("cublasSgemmBatched", handle); }
FUNCTION cublasDgemmBatched(void* handle) { return product("cublasDgemmBatched", handle); }
FUNCTION cublasGemmBatchedEx(void* handle) { return product("cublasGemmBatchedEx", handle); }
FUNCTION cublasSgemmStridedBatched(void* handle) { return product("cublasSgemmStridedBatched", handle); }
FUNCTION cublasDgemmStridedBatched(void* handle) { return product("cublasDgemmStridedBatched", handle); }
FUNCTION cublasGemmStridedBatchedEx(void* handle) { return product("cublasGemmStridedBatchedEx", handle); }
FUNCTION cublasScopy_v2(void* handle) { return product("cublasScopy", handle); }
FUNCTION cublasSscal_v2(void* handle) { return product("cublasSscal", handle); }
FUNCTION cublasSgeam(void* handle) { return product("cublasSgeam", handle); }
FUNCTION cublasDgeam(void* handle) { return product("cublasDgeam", handle); }
extern "C" const char* cublasGetStatusName(int) { return "CUBLAS_STATUS_OF_THE_STAND_IN"; }
extern "C" const char* cublasGetStatusString(int) { return "a status of the stand-in"; }
FUNCTION cublasLtCreate(void** made) { return NOTE("cublasLtCreate", nullptr, 0), *made = malloc(64), 0; }
