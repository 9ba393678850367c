// Stands for cuDNN: handles and descriptors are made, and it says that it is version 9.10. What would be computed is noted
// as one launch on its handle's stream. The builder makes the other functions that the provider names.
#include "notes.h"

#include <cstdint>
#include <cstdlib>

#define FUNCTION extern "C" int

namespace {
struct Handle {
    const void* stream = nullptr;
    char rest[64];
};

int launched(const char* name, void* handle) { return stand_in_launch(name, ((Handle*)handle)->stream), 0; }
}  // namespace

extern "C" size_t cudnnGetVersion() { return 91000; }
extern "C" size_t cudnnGetCudartVersion() { return 13000; }
extern "C" const char* cudnnGetErrorString(int) { return "an error of the stand-in"; }
extern "C" void cudnnGetLastErrorString(char* text, size_t size) {
    if (size) *text = 0;
}
FUNCTION cudnnCreate(void** made) { return NOTE("cudnnCreate", nullptr, 0), *made = new Handle, 0; }
FUNCTION cudnnDestroy(void* handle) { return delete (Handle*)handle, 0; }
FUNCTION cudnnSetStream(void* handle, const void* stream) { return ((Handle*)handle)->stream = stream, 0; }
FUNCTION cudnnGetStream(void* handle, const void** stream) { return *stream = ((Handle*)handle)->stream, 0; }

FUNCTION cudnnActivationForward(void* handle) { return launched("cudnnActivationForward", handle); }
FUNCTION cudnnAddTensor(void* handle) { return launched("cudnnAddTensor", handle); }
FUNCTION cudnnBackendExecute(void* handle) { return launched("cudnnBackendExecute", handle); }
FUNCTION cudnnBatchNormalizationForwardInference(void* handle) {
    return launched("cudnnBatchNormalizationForwardInference", handle);
}
FUNCTION cudnnBatchNormalizationForwardTraining(void* handle) {
    return launched("cudnnBatchNormalizationForwardTraining", handle);
}
FUNCTION cudnnConvolutionBiasActivationForward(void* handle) {
    return launched("cudnnConvolutionBiasActivationForward", handle);
}
FUNCTION cudnnConvolutionForward(void* handle) { return launched("cudnnConvolutionForward", handle); }
FUNCTION cudnnLRNCrossChannelForward(void* handle) { return launched("cudnnLRNCrossChannelForward", handle); }
FUNCTION cudnnPoolingForward(void* handle) { return launched("cudnnPoolingForward", handle); }
FUNCTION cudnnReduceTensor(void* handle) { return launched("cudnnReduceTensor", handle); }
FUNCTION cudnnRNNForward(void* handle) { return launched("cudnnRNNForward", handle); }
FUNCTION cudnnSoftmaxForward(void* handle) { return launched("cudnnSoftmaxForward", handle); }

// A graph of operations has one engine, and that has one configuration: without notes on its numbers, without knobs, and
// of no workspace. Numbers are those of cuDNN's binary interface.
FUNCTION cudnnBackendCreateDescriptor(int, void** made) { return *made = malloc(64), 0; }
FUNCTION cudnnBackendDestroyDescriptor(void* descriptor) { return free(descriptor), 0; }
FUNCTION cudnnBackendSetAttribute(void*, int, int, int64_t, const void*) { return 0; }
FUNCTION cudnnBackendFinalize(void*) { return 0; }
FUNCTION cudnnBackendGetAttribute(void*, int name, int type, int64_t wanted, int64_t* count, void* values) {
    constexpr int kResultsOfHeuristics = 202, kEngineOfConfiguration = 300;  // descriptors that the caller has made
    constexpr int kInt64 = 3, kInt32 = 23;                                   // CUDNN_TYPE_...
    const bool is_number = (type == kInt64 || type == kInt32) && wanted == 1 && values;
    if (is_number && type == kInt64) *(int64_t*)values = 0;
    if (is_number && type == kInt32) *(int32_t*)values = 0;
    if (count) *count = is_number || name == kResultsOfHeuristics || name == kEngineOfConfiguration;
    return 0;
}

// Sizes of memory that it would want: little, but some.
static int some(size_t* bytes) { return *bytes = 1024, 0; }
FUNCTION cudnnDropoutGetStatesSize(void*, size_t* bytes) { return some(bytes); }
FUNCTION cudnnGetRNNTempSpaceSizes(void*, void*, int, void*, size_t* work, size_t* reserve) {
    return some(work), some(reserve);
}
FUNCTION cudnnGetReductionWorkspaceSize(void*, void*, void*, void*, size_t* bytes) { return some(bytes); }
FUNCTION cudnnGetReductionIndicesSize(void*, void*, void*, void*, size_t* bytes) { return some(bytes); }
FUNCTION cudnnGetConvolutionForwardWorkspaceSize(void*, void*, void*, void*, void*, int, size_t* bytes) {
    return some(bytes);
}

// A recurrent layer's weights lie at the beginning of their memory, and are of no size.
FUNCTION cudnnGetRNNWeightParams(void*, void*, int, size_t, void* weights, int, void*, void** matrix, void*, void** bias) {
    return *matrix = *bias = weights, 0;
}
FUNCTION cudnnGetTensorNdDescriptor(void*, int wanted, int* kind, int* rank, int* extents, int* strides) {
    *kind = 0;
    *rank = wanted;
    for (int dim = 0; dim < wanted; ++dim) extents[dim] = strides[dim] = 0;
    return 0;
}
