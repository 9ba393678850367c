"""The kernel's code: what each block of threads does with its item of a fetch's work list (``multifetch.py``).

An item is a box of at most three dims, ``units`` being contiguous in the target and in all sources. A unit is what a
thread moves at once: 16 bytes where addresses allow, else an element (in copies: the widest power of two bytes that
addresses allow). A line, an item of one row, is a loop without any index arithmetic. In a box a thread's place moves on
by ``THREADS`` units, whose digits the item holds, with a carry from units to rows to planes: nothing is divided but
where the thread begins. In both, ``UNROLL`` loads of a thread are under way before the first is used.

Contributors are joined in registers in the order given, with the bits of ``NumpyTransport``: half precision in float32,
rounded once; integers wrap; where NumPy's maximum and minimum keep a NaN, so do these. What sums and products make of a
NaN is a NaN, whose own bits are the GPU's. CuPy compiles with ``-ftz=true``, which takes subnormal float32 as zero:
what is done with float32 is therefore written as PTX instructions, which that option does not touch.

Source: Parallel Thread Execution ISA, "Floating Point Instructions" and "cvt".
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.algebra.tiling import Reducer
from planner.graph.core.model import DType

NAME: Final = "multifetch"
THREADS: Final = 256
"""Of a block."""
UNROLL: Final = 4
"""Loads of a thread that are under way together."""
WIDEST_BYTES: Final = 16
"""What one instruction loads or stores at most."""

ARRAY_WORDS: Final = 3
"""Of each array in an item: where it begins, and how many units its rows and planes are apart."""


class Word(enum.IntEnum):
    """The words of an item; the kernel's code has the same names."""

    KIND = 0
    """Counted among the kinds that the kernel is made for."""
    UNITS = 1
    ROWS = 2
    PLANES = 3
    SOURCES = 4
    UNIT_STEP = 5
    """``THREADS`` units are so many planes, rows and units."""
    ROW_STEP = 6
    PLANE_STEP = 7
    ARRAYS = 8
    """The target's first word; the sources' follow."""


_ELEMENTS: Final = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.FLOAT16: "Half",
    DType.BFLOAT16: "BFloat",
    DType.INT64: "long long",
    DType.INT32: "int",
    DType.INT16: "short",
    DType.INT8: "signed char",
    DType.UINT64: "unsigned long long",
    DType.UINT32: "unsigned int",
    DType.UINT16: "unsigned short",
    DType.UINT8: "unsigned char",
    DType.BOOL: "Bool",
}
_UNITS: Final = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long", 16: "uint4"}
_REDUCERS: Final = {Reducer.SUM: "Sum", Reducer.PROD: "Product", Reducer.MAX: "Maximum", Reducer.MIN: "Minimum"}


@dataclass(frozen=True, slots=True)
class Kind:
    """The treatment of a unit: copied, or joined as elements of a dtype."""

    unit_bytes: int
    dtype: DType | None = None
    """None: copied."""
    reducer: Reducer | None = None

    def __str__(self) -> str:
        """As the kernel's code names it."""
        unit = _UNITS[self.unit_bytes]
        if self.dtype is None or self.reducer is None:
            return f"Copy<{unit}>"
        return f"Join<{unit}, {_REDUCERS[self.reducer]}<{_ELEMENTS[self.dtype]}>>"


def joinable() -> tuple[DType, ...]:
    """The dtypes whose partial results a GPU can join; others are only copied."""
    return tuple(_ELEMENTS)


def kernel_source(kinds: Sequence[Kind], instructions: str | None = None) -> str:
    """The code of a kernel for items of these kinds; an item's first word is the place of its kind among them.

    Args:
        kinds: of a launch's items.
        instructions: the float32 and float16 instructions in another language than PTX, to run the code elsewhere.
    """
    cases = "".join(f"    case {number}: run<{kind}>(item); break;\n" for number, kind in enumerate(kinds))
    constants = {word.name: word.value for word in Word}
    constants |= {"ARRAY_WORDS": ARRAY_WORDS, "THREADS": THREADS, "UNROLL": UNROLL}
    names = ", ".join(f"{name} = {value}" for name, value in constants.items())
    return f"enum {{ {names} }};\n{instructions or _INSTRUCTIONS}{_CODE}{_KERNEL % cases}"


_INSTRUCTIONS: Final = r"""
// Memory at an address, of which the compiler is told that it is global.
template <class U> __device__ __forceinline__ U* global_memory(long long address) {
  size_t global;
  asm("cvta.to.global.u64 %0, %1;" : "=l"(global) : "l"(address));
  return (U*)__cvta_global_to_generic(global);
}
__device__ __forceinline__ float add(float a, float b) {
  float c;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
__device__ __forceinline__ float multiply(float a, float b) {
  float c;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
__device__ __forceinline__ bool at_least(float a, float b) {
  int is;
  asm("{ .reg .pred p; setp.ge.f32 p, %1, %2; selp.s32 %0, 1, 0, p; }" : "=r"(is) : "f"(a), "f"(b));
  return is;
}
__device__ __forceinline__ float from_half(unsigned short bits) {
  float c;
  asm("cvt.f32.f16 %0, %1;" : "=f"(c) : "h"(bits));
  return c;
}
__device__ __forceinline__ unsigned short to_half(float a) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(a));
  return bits;
}
"""

_CODE: Final = r"""
struct Half { unsigned short bits; };
struct BFloat { unsigned short bits; };
struct Bool { unsigned char byte; };
union Float { unsigned int bits; float value; };

// What an element is worth: what is compared and, of floats and booleans, what is added.
template <class T> __device__ __forceinline__ T value(T a) { return a; }
__device__ __forceinline__ float value(Half a) { return from_half(a.bits); }
__device__ __forceinline__ float value(BFloat a) { Float f; f.bits = (unsigned int)a.bits << 16; return f.value; }
__device__ __forceinline__ bool value(Bool a) { return a.byte != 0; }

// What an element is added as: integers without signs, so that they wrap.
template <class T> struct Wide { typedef unsigned int type; };
template <> struct Wide<double> { typedef double type; };
template <> struct Wide<float> { typedef float type; };
template <> struct Wide<Half> { typedef float type; };
template <> struct Wide<BFloat> { typedef float type; };
template <> struct Wide<Bool> { typedef bool type; };
template <> struct Wide<long long> { typedef unsigned long long type; };
template <> struct Wide<unsigned long long> { typedef unsigned long long type; };

template <class T> __device__ __forceinline__ T rounded(typename Wide<T>::type a) { return (T)a; }
template <> __device__ __forceinline__ Half rounded<Half>(float a) { Half h; h.bits = to_half(a); return h; }
template <> __device__ __forceinline__ Bool rounded<Bool>(bool a) { Bool b; b.byte = a; return b; }
template <> __device__ __forceinline__ BFloat rounded<BFloat>(float a) {
  Float f;
  f.value = a;
  BFloat b;
  b.bits = a != a ? (f.bits >> 16 & 0x8000) | 0x7fc0 : (f.bits + 0x7fff + (f.bits >> 16 & 1)) >> 16;
  return b;
}

template <class A> __device__ __forceinline__ A add(A a, A b) { return a + b; }
template <class A> __device__ __forceinline__ A multiply(A a, A b) { return a * b; }
template <class A> __device__ __forceinline__ bool at_least(A a, A b) { return a >= b; }
__device__ __forceinline__ bool add(bool a, bool b) { return a || b; }
__device__ __forceinline__ bool multiply(bool a, bool b) { return a && b; }

template <class A> __device__ __forceinline__ bool is_nan(A a) { return !at_least(a, a); }

template <class T> struct Sum {
  typedef T Element;
  typedef typename Wide<T>::type Held;
  static __device__ __forceinline__ Held first(T a) { return (Held)value(a); }
  static __device__ __forceinline__ Held join(Held a, T b) { return add(a, (Held)value(b)); }
  static __device__ __forceinline__ T last(Held a) { return rounded<T>(a); }
};
template <class T> struct Product : Sum<T> {
  typedef typename Wide<T>::type Held;
  static __device__ __forceinline__ Held join(Held a, T b) { return multiply(a, (Held)value(b)); }
};
template <class T> struct Maximum {
  typedef T Element;
  typedef T Held;
  static __device__ __forceinline__ T first(T a) { return a; }
  static __device__ __forceinline__ T join(T a, T b) {
    return at_least(value(a), value(b)) || is_nan(value(a)) ? a : b;
  }
  static __device__ __forceinline__ T last(T a) { return a; }
};
template <class T> struct Minimum : Maximum<T> {
  static __device__ __forceinline__ T join(T a, T b) {
    return at_least(value(b), value(a)) || is_nan(value(a)) ? a : b;
  }
};

// What is done with a unit.
template <class U> struct Copy {
  typedef U Unit;
  typedef U Held;
  enum { joins = 0 };
  static __device__ __forceinline__ void first(Held& held, U unit) { held = unit; }
  static __device__ __forceinline__ void join(Held& held, U unit) {}
  static __device__ __forceinline__ U last(const Held& held) { return held; }
};
template <class U, class R> struct Join {
  typedef U Unit;
  typedef typename R::Element T;
  enum { joins = 1, parts = sizeof(U) / sizeof(T) };
  struct Held { typename R::Held part[parts]; };
  union Parts { U unit; T part[parts]; };
  static __device__ __forceinline__ void first(Held& held, U unit) {
    Parts of;
    of.unit = unit;
#pragma unroll
    for (int i = 0; i < parts; ++i) held.part[i] = R::first(of.part[i]);
  }
  static __device__ __forceinline__ void join(Held& held, U unit) {
    Parts of;
    of.unit = unit;
#pragma unroll
    for (int i = 0; i < parts; ++i) held.part[i] = R::join(held.part[i], of.part[i]);
  }
  static __device__ __forceinline__ U last(const Held& held) {
    Parts of;
#pragma unroll
    for (int i = 0; i < parts; ++i) of.part[i] = R::last(held.part[i]);
    return of.unit;
  }
};

// UNROLL units of a line, THREADS apart; behind the end of the line its last one is read again, and not written.
template <bool is_whole> struct Stretch {
  int first, units;
  __device__ __forceinline__ bool is_inside(int k) const { return is_whole || first + k * THREADS < units; }
  __device__ __forceinline__ long long at(int k, const long long* array) const {
    return is_inside(k) ? first + k * THREADS : units - 1;
  }
};

// UNROLL places of a box; behind the end of the box the first one is read again, and not written.
struct Places {
  int left, unit[UNROLL], row[UNROLL], plane[UNROLL];
  __device__ __forceinline__ bool is_inside(int k) const { return k * THREADS < left; }
  __device__ __forceinline__ long long at(int k, const long long* array) const {
    return plane[k] * array[2] + row[k] * array[1] + unit[k];
  }
};

template <class U, class P> __device__ __forceinline__ void load(U* unit, const long long* array, const P& places) {
  const U* source = global_memory<const U>(array[0]);
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) unit[k] = source[places.at(k, array)];
}

// Reads some places of all sources, and writes them.
template <class Op, class P> __device__ __forceinline__ void move(const long long* item, const P& places) {
  typedef typename Op::Unit U;
  typename Op::Held held[UNROLL];
  U unit[UNROLL];
  load(unit, item + ARRAYS + ARRAY_WORDS, places);
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) Op::first(held[k], unit[k]);
  if (Op::joins) {
    const int sources = (int)item[SOURCES];
#pragma unroll 1
    for (int s = 2; s <= sources; ++s) {
      load(unit, item + ARRAYS + s * ARRAY_WORDS, places);
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) Op::join(held[k], unit[k]);
    }
  }
  U* target = global_memory<U>(item[ARRAYS]);
#pragma unroll
  for (int k = 0; k < UNROLL; ++k) {
    if (places.is_inside(k)) target[places.at(k, item + ARRAYS)] = Op::last(held[k]);
  }
}

template <class Op> __device__ __forceinline__ void line(const long long* item) {
  const int units = (int)item[UNITS];
  int i = (int)threadIdx.x;
  for (; i + (UNROLL - 1) * THREADS < units; i += UNROLL * THREADS) move<Op>(item, Stretch<true>{i, units});
  if (i < units) move<Op>(item, Stretch<false>{i, units});
}

template <class Op> __device__ __forceinline__ void box(const long long* item) {
  const int units = (int)item[UNITS], rows = (int)item[ROWS], total = units * rows * (int)item[PLANES];
  const int unit_step = (int)item[UNIT_STEP], row_step = (int)item[ROW_STEP], plane_step = (int)item[PLANE_STEP];
  int row = (int)threadIdx.x / units, unit = (int)threadIdx.x - row * units;
  int plane = row / rows;
  row -= plane * rows;
  for (int i = (int)threadIdx.x; i < total; i += UNROLL * THREADS) {
    Places places;
    places.left = total - i;
#pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
      const bool is_inside = places.is_inside(k);
      places.unit[k] = is_inside ? unit : places.unit[0];
      places.row[k] = is_inside ? row : places.row[0];
      places.plane[k] = is_inside ? plane : places.plane[0];
      unit += unit_step;
      row += row_step;
      plane += plane_step;
      if (unit >= units) { unit -= units; ++row; }
      if (row >= rows) { row -= rows; ++plane; }
    }
    move<Op>(item, places);
  }
}

template <class Op> __device__ __forceinline__ void run(const long long* item) {
  if (item[ROWS] == 1) line<Op>(item); else box<Op>(item);
}
"""

_KERNEL: Final = r"""
extern "C" __global__ void __launch_bounds__(THREADS) multifetch(const long long* items, long long words) {
  const long long* item = items + blockIdx.x * words;
  switch ((int)item[KIND]) {
%s  }
}
"""
