"""Pages whose blocks are executed from top to bottom, the Python blocks as one session, beside PyTorch.

    python tests/tools/pytorch_page.py FOLDER PAGE ...

``sh`` and ``python`` are executed in a folder for each page, which is made anew; each line of a ``text`` block must be
in what the block before printed. tofu's commands are on the path.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "export-from-pytorch.md"


class Block(NamedTuple):
    """A fenced block of a page."""

    kind: str
    text: str
    line: int
    """Of the page, on which the text begins."""


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page that have a kind."""
    text = page.read_text()
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(block[1], block[2], text[: block.start(2)].count("\n") + 1) for block in found]


def execute(page: Path, folder: Path) -> int:
    """Executes a page; returns how many of its blocks were.

    Raises:
        AssertionError: a line is not printed.
        Exception: whatever a block raises.
    """
    os.chdir(folder)
    session = ModuleType("page")  # a module, since torch.export looks up in which one a network was defined
    sys.modules[session.__name__] = session
    printed, count = "", 0
    for block in blocks(page):
        if block.kind == "text":
            for line in block.text.splitlines():
                assert " ".join(line.split()) in printed, f"{page.name}:{block.line}: {line!r} is not printed"
            continue
        print(f"{page.name}:{block.line}: {block.kind}", flush=True)
        if block.kind == "sh":
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], check=False, capture_output=True,
                                  text=True)  # fmt: skip
            assert done.returncode == 0, f"{page.name}:{block.line}: {done.stderr}"
            written = done.stdout
        else:
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                # Padded, so that a traceback names the page's own lines.
                exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), vars(session))
            written = stream.getvalue()
        printed, count = " ".join(written.split()), count + 1
    return count


def main() -> int:
    """See the top of this file."""
    folder, *pages = (Path(word).resolve() for word in sys.argv[1:])
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages:
        own = folder / page.stem
        own.mkdir(parents=True)
        count = execute(page, own)
        assert count, f"{page} has no block to execute"
        print(f"{page.name}: {count} blocks executed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
