// Stands for cuDNN: handles and descriptors are made, and it says that it is version 9.10. The builder makes the other
// functions that the provider names.
#include "notes.h"

#include <cstdlib>

extern "C" size_t cudnnGetVersion() { return 91000; }
extern "C" size_t cudnnGetCudartVersion() { return 13000; }
extern "C" const char* cudnnGetErrorString(int) { return "an error of the stand-in"; }
extern "C" void cudnnGetLastErrorString(char* text, size_t size) {
    if (size) *text = 0;
}
extern "C" int cudnnCreate(void** made) { return NOTE("cudnnCreate", nullptr, 0), *made = malloc(64), 0; }

// Sizes of memory that it would want: little, but some.
static int some(size_t* bytes) { return *bytes = 1024, 0; }
extern "C" int cudnnDropoutGetStatesSize(void*, size_t* bytes) { return some(bytes); }
extern "C" int cudnnGetRNNTempSpaceSizes(void*, void*, int, void*, size_t* work, size_t* reserve) {
    return some(work), some(reserve);
}
extern "C" int cudnnGetReductionWorkspaceSize(void*, void*, void*, void*, size_t* bytes) { return some(bytes); }
extern "C" int cudnnGetReductionIndicesSize(void*, void*, void*, void*, size_t* bytes) { return some(bytes); }
extern "C" int cudnnGetConvolutionForwardWorkspaceSize(void*, void*, void*, void*, void*, int, size_t* bytes) {
    return some(bytes);
}

// A recurrent layer's weights lie at the beginning of their memory, and are of no size.
extern "C" int cudnnGetRNNWeightParams(void*, void*, int, size_t, void* weights, int, void*, void** matrix, void*, void** bias) {
    return *matrix = *bias = weights, 0;
}
extern "C" int cudnnGetTensorNdDescriptor(void*, int wanted, int* kind, int* rank, int* extents, int* strides) {
    *kind = 0;
    *rank = wanted;
    for (int dim = 0; dim < wanted; ++dim) extents[dim] = strides[dim] = 0;
    return 0;
}
