// Stands for CUDA's runtime library: memory is the host's, streams and events are addresses, kernels do nothing.
// Only what must give something back is here; every other function that the provider names is made by the builder,
// notes its name and returns success. Layouts are those of CUDA 13's runtime, as its binary interface has them.
#include "notes.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#define FUNCTION extern "C" int

namespace {
struct Dim3 {
    unsigned x, y, z;
};
using Stream = const void*;

struct DeviceProperties {  // cudaDeviceProp: 1,008 bytes, of which these are read
    char name[256];
    char uuid_luid_mask[32];
    size_t total_global_memory, shared_memory_per_block;
    int registers_per_block, warp_size;
    size_t memory_pitch;
    int max_threads_per_block, max_threads_dim[3], max_grid_size[3];
    size_t total_const_memory;
    int major, minor;
    char between_1[16];
    int multiprocessors;
    char between_2[208];
    int l2_cache_bytes;
    char between_3[4];
    int max_threads_per_multiprocessor;
    char between_4[16];
    size_t shared_memory_per_multiprocessor;
    int registers_per_multiprocessor;
    char between_5[36];
    size_t shared_memory_per_block_optin;
    char rest[328];
};
static_assert(sizeof(DeviceProperties) == 1008, "cudaDeviceProp");
static_assert(offsetof(DeviceProperties, major) == 360, "cudaDeviceProp");
static_assert(offsetof(DeviceProperties, multiprocessors) == 384, "cudaDeviceProp");
static_assert(offsetof(DeviceProperties, max_threads_per_multiprocessor) == 604, "cudaDeviceProp");
static_assert(offsetof(DeviceProperties, shared_memory_per_multiprocessor) == 624, "cudaDeviceProp");
static_assert(offsetof(DeviceProperties, shared_memory_per_block_optin) == 672, "cudaDeviceProp");

struct FunctionAttributes {  // cudaFuncAttributes
    size_t shared_bytes, const_bytes, local_bytes;
    int max_threads_per_block, registers;
    char rest[112];
};
static_assert(sizeof(FunctionAttributes) == 144, "cudaFuncAttributes");

struct PointerAttributes {  // cudaPointerAttributes
    int type, device;
    const void *device_pointer, *host_pointer;
    char rest[64];
};
static_assert(sizeof(PointerAttributes) == 88, "cudaPointerAttributes");

struct LaunchConfiguration {  // cudaLaunchConfig_t
    Dim3 grid, block;
    size_t shared_bytes;
    Stream stream;
    void* attributes;
    unsigned attribute_count;
};
static_assert(sizeof(LaunchConfiguration) == 56, "cudaLaunchConfig_t");

constexpr size_t kMemory = size_t(80) << 30;
constexpr int kMajor = 9, kMinor = 0, kMultiprocessors = 132, kWarp = 32, kThreads = 1024, kSharedOptin = 232448;
constexpr int kOnDevice = 2;  // cudaMemoryTypeDevice

thread_local int current = 0;
std::atomic<size_t> taken{0};  // of all GPUs together, and never given back
thread_local LaunchConfiguration pushed;

int devices() {
    const char* wanted = getenv("STAND_IN_GPUS");
    return wanted ? atoi(wanted) : 1;
}

int version() {
    const char* wanted = getenv("STAND_IN_CUDA");
    return wanted ? atoi(wanted) : 13000;
}

std::mutex& guard() {
    static std::mutex* mutex = new std::mutex;
    return *mutex;
}

std::map<const void*, const char*>& kernels() {
    static auto* map = new std::map<const void*, const char*>;
    return *map;
}

int launch(const void* function, Stream stream) {
    const char* name = "?";
    {
        std::lock_guard<std::mutex> held(guard());
        auto found = kernels().find(function);
        if (found != kernels().end()) name = found->second;
    }
    stand_in_launch(name, stream);
    return 0;
}

int handle(const char* name, void** made) {
    NOTE(name, nullptr, 0);
    *made = malloc(64);
    return 0;
}

const char* kind_name(int kind) {
    static const char* names[] = {"host to host", "host to device", "device to host", "device to device", "default"};
    return 0 <= kind && kind <= 4 ? names[kind] : "?";
}

void note_copy(const char* how, int kind, Stream stream, size_t bytes) {
    char text[64];
    strcpy(text, how);
    strcat(text, kind_name(kind));
    NOTE(text, stream, bytes);
}

bool is_left_out(int kind) {
    constexpr int kDeviceToDevice = 3;
    return kind == kDeviceToDevice && stand_in_is_idle();
}
}  // namespace

FUNCTION cudaGetDeviceCount(int* count) { return *count = devices(), *count ? 0 : 100; }
FUNCTION cudaGetDevice(int* device) { return *device = current, 0; }
FUNCTION cudaSetDevice(int device) {
    if (device < 0 || device >= devices()) return 101;  // cudaErrorInvalidDevice
    return current = device, 0;
}
FUNCTION cudaDriverGetVersion(int* found) { return *found = version(), 0; }
FUNCTION cudaRuntimeGetVersion(int* found) { return *found = 13000, 0; }
FUNCTION cudaGetDeviceProperties(DeviceProperties* made, int) {
    memset(made, 0, sizeof *made);
    strcpy(made->name, "stand-in");
    made->total_global_memory = kMemory;
    made->shared_memory_per_block = 49152;
    made->registers_per_block = made->registers_per_multiprocessor = 65536;
    made->warp_size = kWarp;
    made->max_threads_per_block = made->max_threads_dim[0] = made->max_threads_dim[1] = kThreads;
    made->max_threads_dim[2] = 64;
    made->max_grid_size[0] = 2147483647;
    made->max_grid_size[1] = made->max_grid_size[2] = 65535;
    made->major = kMajor;
    made->minor = kMinor;
    made->multiprocessors = kMultiprocessors;
    made->l2_cache_bytes = 50 << 20;
    made->max_threads_per_multiprocessor = 2048;
    made->shared_memory_per_multiprocessor = 233472;
    made->shared_memory_per_block_optin = kSharedOptin;
    return 0;
}
FUNCTION cudaDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
        case 1: *value = kThreads; break;
        case 10: *value = kWarp; break;
        case 16: *value = kMultiprocessors; break;
        case 75: *value = kMajor; break;
        case 76: *value = kMinor; break;
        case 97: *value = kSharedOptin; break;
        default: *value = 1;
    }
    return 0;
}

FUNCTION cudaMalloc(void** made, size_t bytes) {
    taken += bytes;
    return NOTE("cudaMalloc", nullptr, bytes), stand_in_alloc(made, bytes);
}
FUNCTION cudaMallocHost(void** made, size_t bytes) {
    return NOTE("cudaMallocHost", nullptr, bytes), stand_in_alloc(made, bytes);
}
FUNCTION cudaHostAlloc(void** made, size_t bytes, unsigned) {
    return NOTE("cudaHostAlloc", nullptr, bytes), stand_in_alloc(made, bytes);
}
FUNCTION cudaMallocFromPoolAsync(void** made, size_t bytes, void*, Stream stream) {
    return NOTE("cudaMallocFromPoolAsync", stream, bytes), stand_in_alloc(made, bytes);
}
FUNCTION cudaFree(void* memory) { return NOTE("cudaFree", nullptr, 0), free(memory), 0; }
FUNCTION cudaFreeHost(void* memory) { return NOTE("cudaFreeHost", nullptr, 0), free(memory), 0; }
FUNCTION cudaFreeAsync(void* memory, Stream stream) { return NOTE("cudaFreeAsync", stream, 0), free(memory), 0; }
FUNCTION cudaMemGetInfo(size_t* unused, size_t* all) { return *unused = kMemory - taken, *all = kMemory, 0; }
FUNCTION cudaPointerGetAttributes(PointerAttributes* made, const void* pointer) {
    memset(made, 0, sizeof *made);
    made->type = kOnDevice;
    made->device_pointer = pointer;
    return 0;
}

FUNCTION cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
    return note_copy("copy and wait, ", kind, nullptr, bytes), memcpy(to, from, bytes), 0;
}
FUNCTION cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, Stream stream) {
    note_copy("copy, ", kind, stream, bytes);
    if (!is_left_out(kind)) memcpy(to, from, bytes);
    return 0;
}
FUNCTION cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                           int kind, Stream stream) {
    note_copy("copy, ", kind, stream, width * height);
    if (is_left_out(kind)) return 0;
    for (size_t row = 0; row < height; ++row) memcpy((char*)to + row * to_pitch, (char*)from + row * from_pitch, width);
    return 0;
}
FUNCTION cudaMemset(void* to, int value, size_t bytes) { return NOTE("cudaMemset", nullptr, bytes), memset(to, value, bytes), 0; }
FUNCTION cudaMemsetAsync(void* to, int value, size_t bytes, Stream stream) {
    NOTE("set memory", stream, bytes);
    if (!stand_in_is_idle()) memset(to, value, bytes);
    return 0;
}

FUNCTION cudaStreamCreate(void** made) { return handle("cudaStreamCreate", made); }
FUNCTION cudaStreamCreateWithFlags(void** made, unsigned) { return handle("cudaStreamCreateWithFlags", made); }
FUNCTION cudaStreamIsCapturing(Stream, int* state) { return *state = 0, 0; }
FUNCTION cudaStreamSynchronize(Stream stream) { return NOTE("cudaStreamSynchronize", stream, 0), 0; }
FUNCTION cudaStreamWaitEvent(Stream stream, const void*, unsigned) { return NOTE("wait for an event", stream, 0), 0; }
FUNCTION cudaEventCreate(void** made) { return handle("cudaEventCreate", made); }
FUNCTION cudaEventCreateWithFlags(void** made, unsigned) { return handle("cudaEventCreateWithFlags", made); }
FUNCTION cudaEventRecord(const void*, Stream stream) { return NOTE("record an event", stream, 0), 0; }
FUNCTION cudaEventElapsedTime(float* milliseconds, const void*, const void*) { return *milliseconds = 1, 0; }
extern "C" const char* cudaGetErrorName(int) { return "cudaErrorOfTheStandIn"; }
extern "C" const char* cudaGetErrorString(int) { return "an error of the stand-in"; }

FUNCTION cudaFuncGetAttributes(FunctionAttributes* made, const void*) {
    memset(made, 0, sizeof *made);
    made->max_threads_per_block = kThreads;
    made->registers = 32;
    return 0;
}
FUNCTION cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
    return *blocks = 2, 0;
}
FUNCTION cudaGetDriverEntryPointByVersion(const char*, void** found, unsigned, unsigned long long, int* how) {
    *found = nullptr;
    if (how) *how = 1;  // cudaDriverEntryPointSymbolNotFound
    return 0;
}

FUNCTION cudaLaunchKernel(const void* function, Dim3, Dim3, void**, size_t, Stream stream) { return launch(function, stream); }
FUNCTION cudaLaunchCooperativeKernel(const void* function, Dim3, Dim3, void**, size_t, Stream stream) {
    return launch(function, stream);
}
FUNCTION cudaLaunchKernelExC(const LaunchConfiguration* how, const void* function, void**) { return launch(function, how->stream); }
FUNCTION cudaLaunchHostFunc(Stream stream, void (*function)(void*), void* argument) {
    return NOTE("cudaLaunchHostFunc", stream, 0), function(argument), 0;
}
FUNCTION __cudaGetKernel(const void** kernel, const void* function) { return *kernel = function, 0; }
FUNCTION __cudaLaunchKernel(const void* kernel, Dim3, Dim3, void**, size_t, Stream stream) { return launch(kernel, stream); }
extern "C" unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared_bytes, Stream stream) {
    pushed = {grid, block, shared_bytes, stream, nullptr, 0};
    return 0;
}
FUNCTION __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared_bytes, Stream* stream) {
    *grid = pushed.grid, *block = pushed.block, *shared_bytes = pushed.shared_bytes, *stream = pushed.stream;
    return 0;
}
extern "C" void** __cudaRegisterFatBinary(void*) {
    static void* binary[4];
    return binary;
}
extern "C" void __cudaRegisterFatBinaryEnd(void**) {}
extern "C" void __cudaUnregisterFatBinary(void**) {}
extern "C" void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
extern "C" void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
    std::lock_guard<std::mutex> held(guard());
    kernels()[host] = name;
}
