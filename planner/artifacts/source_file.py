"""The model file that was planned, as a plan's folder records it: where it lay, and its digest.

The folder holds the model as it was ingested, and a run needs no more. To hold what was ingested against the file
itself, a run with verification looks for the file: it is taken only where its digest is the recorded one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planner.errors import ModelError
from planner.regular_file import digest_of, read_regular

MOST_BYTES: Final = 2**29
"""A larger file is not held against what was ingested."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was read."""

    paths: tuple[Path, ...]
    """Where it may lie, the likeliest first."""
    sha256: str

    @classmethod
    def of(cls, file: Path) -> SourceFile | None:
        """A file as it is now; None of a folder of artifacts, and of what cannot be read."""
        try:
            return cls((file,), digest_of(file))
        except OSError:
            return None

    def recorded(self, base: Path) -> tuple[str, str, str]:
        """The record of a file, in a file in the folder ``base``: the way there, the absolute path, and the digest."""
        absolute = self.paths[0].resolve()
        return os.path.relpath(absolute, base.resolve()), str(absolute), self.sha256

    @classmethod
    def stated(cls, record: Sequence[str], base: Path) -> SourceFile:
        """The record that ``recorded`` returned.

        Raises:
            ModelError: no file can have such a name.
        """
        *paths, sha256 = record
        for name in paths:
            try:
                os.fsencode(name)
            except UnicodeEncodeError:
                raise ModelError(f"no model file can be named {name!r}") from None
            if "\0" in name:
                raise ModelError(f"no model file can be named {name!r}")
        return cls(tuple(base / name for name in paths), sha256)

    def content(self) -> tuple[bytes, str]:
        """The file's bytes; and why there are none, or ""."""
        return self._read()[1:]

    def file(self) -> tuple[Path | None, str]:
        """The path of the file; None and the reason, if it is not there as it was."""
        file, _, why = self._read()
        return file, why

    def _read(self) -> tuple[Path | None, bytes, str]:
        why = f"{self.paths[-1]} is not there"
        for path in self.paths:
            try:
                content = read_regular(path, most_bytes=MOST_BYTES)
            except FileNotFoundError:
                continue
            except OSError as error:
                why = f"{path} cannot be read: {error.strerror}"
                continue
            if hashlib.sha256(content).hexdigest() == self.sha256:
                return path, content, ""
            why = f"{path} is another file by now"
        return None, b"", why
