"""NVIDIA's runtime compiler without a GPU: CUDA to PTX, and what is in the PTX.

The library is that of the package nvidia-cuda-nvrtc.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

PACKAGE: Final = "nvidia-cuda-nvrtc"
CUPY_OPTIONS: Final = ("-ftz=true",)
"""CuPy compiles every kernel so."""


def library() -> str | None:
    """Where the compiler is; None if it is not installed."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [file for file in files if re.fullmatch(r"libnvrtc\.so\.\d+", file.name)]
    return str(found[0].locate()) if found else None


class Nvrtc:
    """The compiler.

    Args:
        path: see ``library``.
    """

    def __init__(self, path: str) -> None:
        self._library: Any = ctypes.CDLL(path)

    def ptx(self, source: str, architecture: str) -> str:
        """The PTX of a program for an architecture, such as compute_80.

        Raises:
            AssertionError: the program is no CUDA, or the compiler warns.
        """
        found, said = self._compiled(source, architecture, CUPY_OPTIONS)
        assert not said, said
        return found

    def machine_code(self, source: str, architecture: str) -> str:
        """Makes machine code for an architecture, such as sm_80; what the assembler says of registers and memory.

        Raises:
            AssertionError: the program is no CUDA, or its PTX none.
        """
        return self._compiled(source, architecture, (*CUPY_OPTIONS, "--ptxas-options=-v"))[1]

    def _compiled(self, source: str, architecture: str, options: Sequence[str]) -> tuple[str, str]:
        """PTX, and what the compiler says."""
        program = ctypes.c_void_p()
        self._call("CreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        flags = [f"--gpu-architecture={architecture}".encode(), *(option.encode() for option in options)]
        status = self._library.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
        said = self._text(program, "ProgramLog").strip()
        assert not status, said
        found = self._text(program, "PTX")
        self._call("DestroyProgram", ctypes.byref(program))
        return found, said

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, text)
        return text.value.decode()

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"nvrtc{name}")(*arguments)
        assert status == 0, f"nvrtc{name}: {status}"


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that are executed one after the other."""

    instructions: tuple[str, ...]
    following: tuple[int, ...]
    """Blocks that may come next."""

    def count(self, pattern: str) -> int:
        """How many of its instructions match from their beginning."""
        return sum(re.match(pattern, one) is not None for one in self.instructions)


def blocks_of(ptx: str) -> list[Block]:
    """The basic blocks of the one kernel in a PTX text."""
    body = ptx[ptx.index("{", ptx.index(".entry")) + 1 : ptx.rindex("}")]
    body = re.sub(r"//.*", "", body)
    labels: dict[str, int] = {}
    parts: list[list[str]] = [[]]
    for line in map(str.strip, body.splitlines()):
        if re.fullmatch(r"\$\w+:", line):
            if parts[-1]:
                parts.append([])
            labels[line[:-1]] = len(parts) - 1
        elif line and not line.startswith("."):
            parts[-1].append(line)
            if re.search(r"\b(bra|ret|brx\.idx)\b", line):
                parts.append([])
    blocks = []
    for number, part in enumerate(parts):
        last = part[-1] if part else ""
        following = [labels[name] for name in re.findall(r"\$L__BB\w+", last) if "bra" in last]
        if not re.match(r"(bra|ret)", last) and number + 1 < len(parts):
            following.append(number + 1)
        blocks.append(Block(tuple(part), tuple(following)))
    return blocks


def loop_of(blocks: Sequence[Block], start: int) -> set[int]:
    """The blocks of the loops that a block is in: all that lie on some way from it back to it."""

    def reached(following: Sequence[Sequence[int]]) -> set[int]:
        found: set[int] = set()
        waiting = [start]
        while waiting:
            new = [one for one in following[waiting.pop()] if one not in found]
            found.update(new)
            waiting += new
        return found

    forward = [block.following for block in blocks]
    backward = [[one for one, block in enumerate(blocks) if number in block.following] for number in range(len(blocks))]
    return reached(forward) & reached(backward)
