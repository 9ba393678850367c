"""How README and the pages in docs/ read: words, lengths of sentences, "what" as a subject or an object, source paths.

    python tests/tools/prose.py                    a row for each page, and one for all
    python tests/tools/prose.py docs/plan.md -v    of these pages, and the places to mend

``tests/tools/budget.py`` holds the numbers of all pages. Words of a page are those of ``wc -w``. Sentences are those of
paragraphs and list items: without code blocks, headings and tables; a code span and a link's text count as read, a span
as one word. A cell of a table counts among the sentences only if it is long.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LONG: Final = 30
"""A sentence of more words is long."""
README_WORDS: Final = 700
"""So many the README may have: fewer words are no smaller number of the budget."""
INTERNALS: Final = frozenset({"architecture.md", "search.md", "contributing.md", "papers.md"})
"""Pages that may name source files and tests."""
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?:(?: {4}|\t).*\n|\n)+")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^()]*(?:\([^()]*\)[^()]*)*\)")
_SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_ITEM = re.compile(r"^ *(?:[-*+]|\d+\.) +", re.MULTILINE)
_END = re.compile(r"(?<=[.!?])[)\"*_]* +(?=[\"(*_]*(?:[A-Z`\d]|tofu\b))")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|et al|vs|cf|approx|Fig|Sec)|\b[A-Z])\.$")
_WHAT = re.compile(r"\b(?:what|whatever|that which)\b", re.IGNORECASE)
_SOURCE = re.compile(r"\b(?:planner|opdefs|tests|bench)/[\w./]*\w|\btest_\w+")


@dataclass(frozen=True, slots=True)
class Prose:
    """The counts of some pages."""

    words: int
    sentences: tuple[str, ...]
    """Of paragraphs and list items, each with its code spans as written."""
    long: tuple[str, ...]
    """Sentences, and cells of tables, of more than ``LONG`` words."""
    whats: tuple[str, ...]
    """Sentences, headings and cells with "what", "whatever" or "that which", once for each; questions may have them."""
    sources: tuple[str, ...]
    """Paths of source files and names of tests, of users' pages."""

    @property
    def mean_tenths(self) -> int:
        """Mean words of a sentence, in tenths, rounded up."""
        return -(-10 * sum(map(length, self.sentences)) // max(1, len(self.sentences)))

    @property
    def long_permille(self) -> int:
        """Long sentences of 1,000, rounded up."""
        return -(-1000 * len(self.long) // max(1, len(self.sentences)))


def length(sentence: str) -> int:
    """The words of a sentence, of which a code span is one.

    >>> length("Type `tofu plan x.onnx --gpus 8` - or 4.")
    4
    """
    return sum(any(map(str.isalnum, word)) for word in _SPAN.sub("code", sentence).split())


def sentences_of(paragraph: str) -> Iterator[str]:
    """The sentences of one line of text; code spans do not end them.

    >>> list(sentences_of("It has `a. B`. Then e.g. Adam (see there.) 8 do."))
    ['It has `a. B`.', 'Then e.g. Adam (see there.)', '8 do.']
    """
    spans = [match[0] for match in _SPAN.finditer(paragraph)]
    masked = _SPAN.sub("`\0`", paragraph)
    start = 0
    pieces = []
    for end in _END.finditer(masked):
        if not _ABBREVIATION.search(masked[: end.start()]):
            pieces.append(masked[start : end.end()].strip())
            start = end.end()
    pieces.append(masked[start:].strip())
    for piece in filter(None, pieces):
        yield re.sub("`\0`", lambda _: spans.pop(0), piece)


def read(page: Path) -> Prose:
    """The counts of one page."""
    text = page.read_text(encoding="utf-8")
    words = len(text.split())
    for block in (_FENCE, _COMMENT, _INDENTED):
        text = block.sub("\n", text)
    text = _LINK.sub(r"\1", text)
    headings, cells, lines = [], [], []
    for line in text.splitlines():
        if line.lstrip().startswith("|"):
            cells += [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            lines.append("")
        elif line.startswith("#"):
            headings.append(line.lstrip("# "))
            lines.append("")
        else:
            # An item is a paragraph of its own.
            lines.append(_ITEM.sub("\n\n", line))
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", "\n".join(lines))]
    sentences = tuple(sentence for part in paragraphs for sentence in sentences_of(part) if length(sentence))
    in_cells = [sentence for cell in cells for sentence in sentences_of(cell)]
    statements = (*sentences, *headings, *in_cells)
    return Prose(
        words,
        sentences,
        tuple(one for one in (*sentences, *in_cells) if length(one) > LONG),
        tuple(
            one for one in statements if not one.rstrip('*_)"').endswith("?") for _ in _WHAT.findall(_SPAN.sub("", one))
        ),
        () if page.name in INTERNALS else tuple(_SOURCE.findall("\n".join((*statements,)))),
    )


def together(pages: Iterable[Prose]) -> Prose:
    """The counts of several pages."""
    out = Prose(0, (), (), (), ())
    for page in pages:
        out = Prose(
            out.words + page.words,
            out.sentences + page.sentences,
            out.long + page.long,
            out.whats + page.whats,
            out.sources + page.sources,
        )
    return out


def numbers() -> dict[str, int]:
    """What the budget holds."""
    readme, pages = read(ROOT / "README.md"), [read(page) for page in sorted((ROOT / "docs").glob("*.md"))]
    prose = together([readme, *pages])
    return {
        "words of README": max(README_WORDS, readme.words),
        "words of pages": sum(page.words for page in pages),
        "mean sentence, tenths of a word": prose.mean_tenths,
        "long sentences of 1,000": prose.long_permille,
        "what as a subject or an object": len(prose.whats),
        "source paths in users' pages": len(prose.sources),
    }


def row(name: str, prose: Prose) -> str:
    return (
        f"{name:28} {prose.words:6,} words {len(prose.sentences):5,} sentences, mean {prose.mean_tenths / 10:4.1f}, "
        f"long {prose.long_permille / 10:4.1f}%, what {len(prose.whats):3}, source paths {len(prose.sources):3}"
    )


def main() -> None:
    verbose = "-v" in sys.argv[1:]
    named = [Path(word) for word in sys.argv[1:] if word != "-v"]
    pages = [(page, read(page)) for page in named or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]]
    for page, prose in pages:
        print(row(page.name, prose))
        if verbose:
            for kind in ("long", "whats", "sources"):
                for place in getattr(prose, kind):
                    print(f"    {kind.removesuffix('s')}: {place}")
    print(row("all", together(prose for _, prose in pages)))


if __name__ == "__main__":
    main()
