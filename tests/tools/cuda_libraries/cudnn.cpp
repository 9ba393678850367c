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
