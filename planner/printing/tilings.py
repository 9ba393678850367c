"""How all tensors of a plan are tiled, on few lines: by the model's modules, equal modules as one.

Of each module, and each kind of tensor in it, the most frequent tiling stands first, then the others with their
tensors. ``~`` is the module; a name that begins with it stands without it. Names fold where that tells no two tensors
apart: ``dense.weight.*`` is all that begins so, ``view_{2,4-5}`` three names, ``conv2d_*`` one name in each module,
``node__native…`` the first word of one form. Numbers behind ``in`` stand in the place of the module's ``*``, a range in
each: ``2.1-5`` is ``stages.2.layers.1`` to ``stages.2.layers.5``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TypeAlias, get_args

from planner.graph.patterns import numbers, pattern, ranges, replaced, varying, without_numbers
from planner.printing.console import ReportConsole
from planner.printing.facts import counted
from planner.results import StateRow, TensorKind, TensorRow

_WIDEST_WORD = 20
"""Characters of a name's first word that is not shortened."""
_Place: TypeAlias = tuple[int, ...]


def tilings(console: ReportConsole, tensors: Sequence[TensorRow], state: Sequence[StateRow]) -> None:
    """Prints how all tensors are tiled.

    Args:
        console: to print on.
        tensors: of the plan.
        state: pairs, of which the second has the first one's tiling, and is counted with it.
    """
    console.print()
    console.widen()
    console.print_text(f"how all {counted(len(tensors), 'tensor')} are tiled, the usual tiling of a row first")
    console.print_text("(state: optimizer state, weight gradients, updates; an updated tensor counts with the old one)")
    updated = {row.following for row in state}
    sections: dict[str, list[TensorRow]] = {}
    for row in tensors:
        sections.setdefault(without_numbers(row.module), []).append(row)
    for rows in sections.values():
        modules = sorted({row.module for row in rows}, key=numbers)
        own = varying(modules)
        place = {name: tuple(numbers(name)[at] for at in own) for name in modules}
        count = f"  ({len(modules)} modules)" if len(modules) > 1 else ""
        console.print_line((pattern(modules) or "the whole model") + count)
        for kind in get_args(TensorKind):
            if members := [row for row in rows if row.kind == kind]:
                text = _row([row for row in members if row.name not in updated], place)
                console.print_text(f"{kind:<11} {len(members):>5,}  {text}", 2, following=6)


def _row(rows: Sequence[TensorRow], place: dict[str, _Place]) -> str:
    """``S(0)/2 R/2; R/2 R/2: dense.weight``."""
    by_label: dict[str, dict[_Place, str]] = {}
    for label, its in _labelled(rows, is_repeated=len(place) > 1).items():
        times, at = Counter(row.module for row in its), by_label.setdefault(label, {})
        for row in its:
            if times[row.module] == 1:
                at[place[row.module]] = row.tiling
            else:  # such a module's stand by their names, and the places of the others are named
                at[()] = ""
                by_label[row.name] = {(): row.tiling}
    groups: dict[str, dict[tuple[_Place, ...], list[str]]] = {}
    for label, at in by_label.items():
        for tiling in dict.fromkeys(at.values()):
            places = tuple(sorted(where for where, its_own in at.items() if its_own == tiling))
            found = groups.setdefault(tiling, {})
            found.setdefault(places if len(places) < len(at) else (), []).append(label)
    counts = Counter(row.tiling for row in rows)
    usual, *others = sorted(counts, key=lambda tiling: (-counts[tiling], tiling)) or [""]
    texts = [usual]
    for tiling in others:
        parts = [
            ", ".join(_folded(labels, by_label)) + (f" in {' '.join(ranges(places))}" if places else "")
            for places, labels in sorted(groups[tiling].items(), key=lambda item: len(item[0]))
        ]
        texts.append(f"{tiling}: {' and '.join(parts)}")
    return "; ".join(texts)


def _labelled(rows: Sequence[TensorRow], *, is_repeated: bool) -> dict[str, list[TensorRow]]:
    """Rows by names without the module; what has none of a repeated module has * for the first number that differs."""
    found: dict[str, list[TensorRow]] = {}
    flat: dict[str, list[TensorRow]] = {}
    for row in rows:
        module = rf"(?<![^./]){re.escape(row.module)}(?=[./])"
        inner = re.sub(module, "~", row.name, count=1) if row.module else row.name
        by = flat if inner == row.name and is_repeated else found
        by.setdefault(without_numbers(inner) if by is flat else re.sub(r"^~[./]", "", inner), []).append(row)
    for its in flat.values():
        first = varying([row.name for row in its])[:1]
        for row in its:
            found.setdefault(replaced(row.name, dict.fromkeys(first, "*")), []).append(row)
    return found


def _folded(labels: Sequence[str], every: Collection[str]) -> list[str]:
    """Labels, those with one beginning as one.

    Args:
        labels: some.
        every: label that there is in the row.
    """
    forms: dict[str, list[str]] = {}
    for label in labels:
        stems = [label[: dot.end()] for dot in re.finditer(r"\.", label)]
        shared = (stem for stem in stems if sum(one.startswith(stem) for one in every) > 1)
        stem = next((s for s in shared if all(one in labels for one in every if one.startswith(s))), None)
        name = _shortened(label if stem is None else f"{stem}*", every)
        forms.setdefault(name if "*" in name else without_numbers(name), []).append(name)
    found: dict[str, list[str]] = {}
    for its in forms.values():
        its = list(dict.fromkeys(its))
        if len(own := varying(its)) == 1:
            some = ",".join(ranges(sorted((numbers(name)[own[0]],) for name in its)))
            its = [replaced(its[0], {own[0]: f"{{{some}}}"})]
        for name in its:
            stem, dot, last = name.rpartition(".")
            found.setdefault(stem + dot, []).append(last)
    return [
        name
        for stem, ends in found.items()
        for name in ([f"{stem}{{{', '.join(ends)}}}"] if stem and len(ends) > 1 else [stem + end for end in ends])
    ]


def _shortened(label: str, every: Collection[str]) -> str:
    """A label whose first word is long, with what of it tells it from the others."""
    first, dot, rest = label.partition(".")
    words = {one.partition(".")[0] for one in every} - {first}
    begins = [first[: at.start()] for at in re.finditer("_+", first) if at.start() > _WIDEST_WORD // 2]
    # A * in another word is any number, also one in the beginning.
    known = next((own for own in begins if not any(one.startswith((own, without_numbers(own))) for one in words)), "")
    return f"{known}…{dot}{rest}" if known and len(first) > _WIDEST_WORD else label
