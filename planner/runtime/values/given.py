"""The arrays that a run was given, in a few words: a digest by which ranks tell their copies apart."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

WHOLE_BYTES: Final = 1 << 28
"""Files up to this size are read for their digest as a whole."""
_PLACES: Final = 64
_PLACE_BYTES: Final = 1 << 20


def digest_of_given(path: Path | None) -> str:
    """A digest of a file's content, or of a folder's names and sizes; or that it was not given, or is not there.

    Of a file above 256 MiB: of its size and of 64 places of 1 MiB, spread evenly, its beginning and end among them.
    """
    if path is None:
        return "not given"
    try:
        if path.is_dir():
            entries = sorted(entry for entry in path.rglob("*") if entry.is_file())
            listing = [f"{entry.relative_to(path)}\0{entry.stat().st_size}" for entry in entries]
            return hashlib.sha256("\n".join(listing).encode(errors="surrogateescape")).hexdigest()
        if not path.is_file():
            return "not there"
        with path.open("rb") as stream:
            size = path.stat().st_size
            if size <= WHOLE_BYTES:
                return hashlib.file_digest(stream, "sha256").hexdigest()
            digest = hashlib.sha256(str(size).encode())
            for place in range(_PLACES):
                stream.seek((size - _PLACE_BYTES) * place // (_PLACES - 1))
                digest.update(stream.read(_PLACE_BYTES))
            return digest.hexdigest()
    except OSError:
        return "not readable"
