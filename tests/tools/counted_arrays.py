"""NumPy arrays that count what is computed with them: an element that a function makes, two for each product summed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np


class Counter:
    """How many operations were counted so far."""

    def __init__(self) -> None:
        self.operations = 0

    def array(self, values: np.ndarray) -> CountedArray:
        """An array whose operations, and those of all that is made of it, are counted here."""
        counted = np.asarray(values).view(CountedArray)
        counted.counter = self
        return counted


class CountedArray(np.ndarray):
    """An array that counts. What NumPy gives as a plain array is not counted any more."""

    counter: Counter | None = None

    def __array_finalize__(self, of: object) -> None:
        self.counter = getattr(of, "counter", None)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if out is not None:
            options["out"] = tuple(map(_plain, out))
        given = [_plain(one) for one in inputs]
        made = getattr(ufunc, method)(*given, **options)
        counter = self.counter or next(one.counter for one in inputs if isinstance(one, CountedArray) and one.counter)
        if ufunc is np.matmul:
            counter.operations += 2 * np.asarray(made).size * given[0].shape[-1]
        elif method == "at":
            counter.operations += np.asarray(given[-1]).size
        else:  # a reduction does something with each element that it is given
            first = made[0] if isinstance(made, tuple) else made
            counter.operations += np.asarray(first).size if method == "__call__" else given[0].size
        if out is not None or made is None:
            return out[0] if out is not None else None
        return tuple(map(counter.array, made)) if isinstance(made, tuple) else counter.array(made)

    def __array_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        counted = _FUNCTIONS.get(function.__name__)
        if counted is None or self.counter is None:
            return super().__array_function__(function, types, args, options)  # type: ignore[arg-type]
        given = [_plain(one) for one in args]
        made = function(*given, **options)
        self.counter.operations += counted(given, np.asarray(made))
        return self.counter.array(made)


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.ndarray) else value


def _of_einsum(given: list[Any], made: np.ndarray) -> int:
    """Of letters, and the dims that "..." stands for, a point for each of all: its product and its sum."""
    sizes: dict[object, int] = {}
    for labels, array in zip(given[0].replace(" ", "").split("->")[0].split(","), given[1:], strict=True):
        first, _, last = labels.partition("...")
        between = array.shape[len(first) : array.ndim - len(last)] if "..." in labels else ()
        named = (*first, *(-number for number in range(len(between), 0, -1)), *last)
        for label, size in zip(named, array.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    return (len(given) - 1) * prod(sizes.values())


def _of_dot(given: list[Any], made: np.ndarray) -> int:
    """Terms are what is in both and not in the result."""
    return 2 * made.size * round((given[0].size * given[1].size / max(1, made.size)) ** 0.5)


_FUNCTIONS: Mapping[str, Callable[[list[Any], np.ndarray], int]] = {
    "einsum": _of_einsum,
    "dot": _of_dot,
    "tensordot": _of_dot,
    "det": lambda given, made: 2 * given[0].size * given[0].shape[-1] // 3,
}
