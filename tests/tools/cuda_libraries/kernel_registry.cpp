// Stands for ONNX Runtime's TensorRT provider while the registry of kernels is read: `get_all_opkernel_def` asks every
// provider that the wheel was built with, and ends the process where one does not load. This one is the CUDA provider a
// second time: its table of virtual functions, but the factory by device number is the factory by options.
#include <dlfcn.h>

#include <cstring>

using Make = void* (*)(void* made, void* self, const void* options);

static Make make;

static void* by_number(void* made, void* self, int) {
    static char options[512];
    return make(made, self, options);
}

extern "C" void* GetProvider() {
    static void* functions[16];
    static void** object = functions;
    Dl_info here;
    dladdr((void*)&GetProvider, &here);
    char path[4096];
    strcpy(path, here.dli_fname);
    strcpy(strrchr(path, '/'), "/libonnxruntime_providers_cuda.so");
    void* library = dlopen(path, RTLD_NOW);
    if (library == nullptr) return nullptr;
    void** theirs = *(void***)((void* (*)())dlsym(library, "GetProvider"))();
    for (int slot = 0; slot < 12; ++slot) functions[slot] = theirs[slot];
    make = (Make)theirs[0];
    functions[1] = (void*)by_number;
    return &object;
}
