// What the stand-ins note down. All of them share one list: it is in a library of its own, libstandnotes.so.
#pragma once
#include <cstddef>

// A call of a function, on a stream or none, of so many bytes or none.
extern "C" void stand_in_note(const char* name, const void* stream, size_t bytes);
// A kernel that was to be launched.
extern "C" void stand_in_launch(const char* kernel, const void* stream);
// Memory that stands for a device's or for pinned memory of the host: aligned as CUDA's is.
extern "C" int stand_in_alloc(void** pointer, size_t bytes);

// Where the host's time is measured (STAND_IN_IDLE is set): nothing is noted, and what a GPU does within its own memory is
// not done.
extern "C" bool stand_in_is_idle();

#define NOTE(name, stream, bytes) stand_in_note(name, (const void*)(stream), (size_t)(bytes))
