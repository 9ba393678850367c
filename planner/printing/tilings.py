"""The tilings of all tensors of a plan, on few lines: by the model's modules, equal modules as one.

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

from planner.graph.core.patterns import numbers, pattern, ranges, replaced, varying, without_numbers
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
    console.print_text(f"tilings of all {counted(len(tensors), 'tensor')}, by module; the most common of a row first")
    console.print_text("(S shard, R replicated; state: optimizer state, weight gradients, updates)")
    updated = {row.following for row in state}
    sections: dict[str, list[TensorRow]] = {}
    for row in tensors:
        sections.setdefault(without_numbers(row.module), []).append(row)
    for rows in sections.values():
        modules = sorted({row.module for row in rows}, key=numbers)
        positions = varying(modules)
        place = {name: tuple(numbers(name)[at] for at in positions) for name in modules}
        count = f"  ({len(modules)} modules)" if len(modules) > 1 else ""
        console.print_line((pattern(modules) or "the whole model") + count)
        for kind in get_args(TensorKind):
            if members := [row for row in rows if row.kind == kind]:
                text = _row([row for row in members if row.name not in updated], place)
                console.print_text(f"{kind:<11} {len(members):>5,}  {text}", 2, following=6)


def _row(rows: Sequence[TensorRow], place: dict[str, _Place]) -> str:
    """``S(0)/2 R/2; R/2 R/2: dense.weight``."""
    by_label: dict[str, dict[_Place, str]] = {}
    for label, members in _labelled(rows, is_repeated=len(place) > 1).items():
        times, at = Counter(row.module for row in members), by_label.setdefault(label, {})
        for row in members:
            if times[row.module] == 1:
                at[place[row.module]] = row.tiling
            else:  # such a module's stand by their names, and the places of the others are named
                at[()] = ""
                by_label[row.name] = {(): row.tiling}
    groups: dict[str, dict[tuple[_Place, ...], list[str]]] = {}
    for label, at in by_label.items():
        for tiling in dict.fromkeys(at.values()):
            places = tuple(sorted(where for where, place_tiling in at.items() if place_tiling == tiling))
            labels_of = groups.setdefault(tiling, {})
            labels_of.setdefault(places if len(places) < len(at) else (), []).append(label)
    counts = Counter(row.tiling for row in rows)
    usual, *exceptions = sorted(counts, key=lambda tiling: (-counts[tiling], tiling)) or [""]
    texts = [usual]
    for tiling in exceptions:
        parts = [
            ", ".join(_folded(labels, by_label)) + (f" in {' '.join(ranges(places))}" if places else "")
            for places, labels in sorted(groups[tiling].items(), key=lambda item: len(item[0]))
        ]
        texts.append(f"{tiling}: {' and '.join(parts)}")
    return "; ".join(texts)


def _labelled(rows: Sequence[TensorRow], *, is_repeated: bool) -> dict[str, list[TensorRow]]:
    """Rows by names without the module; what has none of a repeated module has * for the first number that differs."""
    by_label: dict[str, list[TensorRow]] = {}
    flat: dict[str, list[TensorRow]] = {}
    for row in rows:
        module = rf"(?<![^./]){re.escape(row.module)}(?=[./])"
        inner = re.sub(module, "~", row.name, count=1) if row.module else row.name
        by = flat if inner == row.name and is_repeated else by_label
        by.setdefault(without_numbers(inner) if by is flat else re.sub(r"^~[./]", "", inner), []).append(row)
    for members in flat.values():
        first = varying([row.name for row in members])[:1]
        for row in members:
            by_label.setdefault(replaced(row.name, dict.fromkeys(first, "*")), []).append(row)
    return by_label


def _folded(labels: Sequence[str], every: Collection[str]) -> list[str]:
    """Labels, those with one beginning as one.

    Args:
        labels: some.
        every: label that there is in the row.
    """
    forms: dict[str, list[str]] = {}
    for label in labels:
        stems = [label[: dot.end()] for dot in re.finditer(r"\.", label)]
        shared = (stem for stem in stems if sum(peer.startswith(stem) for peer in every) > 1)
        stem = next((s for s in shared if all(peer in labels for peer in every if peer.startswith(s))), None)
        name = _shortened(label if stem is None else f"{stem}*", every)
        forms.setdefault(name if "*" in name else without_numbers(name), []).append(name)
    ends_of: dict[str, list[str]] = {}
    for names in forms.values():
        names = list(dict.fromkeys(names))
        if len(positions := varying(names)) == 1:
            numbers_text = ",".join(ranges(sorted((numbers(name)[positions[0]],) for name in names)))
            names = [replaced(names[0], {positions[0]: f"{{{numbers_text}}}"})]
        for name in names:
            stem, dot, last = name.rpartition(".")
            ends_of.setdefault(stem + dot, []).append(last)
    return [
        name
        for stem, ends in ends_of.items()
        for name in ([f"{stem}{{{', '.join(ends)}}}"] if stem and len(ends) > 1 else [stem + end for end in ends])
    ]


def _shortened(label: str, every: Collection[str]) -> str:
    """A label whose first word is long, with what of it tells it from the others."""
    first, dot, tail = label.partition(".")
    words = {peer.partition(".")[0] for peer in every} - {first}
    begins = [first[: at.start()] for at in re.finditer("_+", first) if at.start() > _WIDEST_WORD // 2]
    # A * in another word is any number, also one in the beginning.
    beginning = next(
        (begin for begin in begins if not any(word.startswith((begin, without_numbers(begin))) for word in words)), ""
    )
    return f"{beginning}…{dot}{tail}" if beginning and len(first) > _WIDEST_WORD else label
