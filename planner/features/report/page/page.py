"""The page: one file of HTML that asks nobody for anything.

Nothing of a model is markup there (``markup.py``), and the browser is told to refuse all else: the content security
policy lets run and show only the script and the style that stand in the file, by their digests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from typing import Any

from planner.features.report.page import sections
from planner.features.report.page.facts import PlanFacts
from planner.features.report.page.folding import Block
from planner.features.report.page.glyphs import PALETTE, worker_key
from planner.features.report.page.markup import Markup, element, joined
from planner.features.report.page.strip import HEIGHT, WIDTH, Picture, Strip
from planner.features.report.page.tensors import Packed, packed
from planner.printable import printable
from planner.units import format_bytes, format_ratio

_FOLDER = resources.files("planner.features.report.page")


def page(facts: PlanFacts) -> str:
    """The page of a plan, as HTML."""
    strip = Strip.of(facts.graph, facts.plan, facts.columns, facts.axes)
    tensors = packed(facts.graph, facts.plan, strip.tensors(), facts.readers)
    picture = Picture(strip, tensors.number_of)
    script, style = _file("script.js"), _file("style.css")
    drawn = _strip(strip, picture)  # before its squares are asked for
    title = f"{facts.plan.model} on {facts.plan.workers} workers"
    body = element(
        "body",
        element("header", element("h1", title), element("nav", *_links())),
        element("svg", picture.glyphs.symbols(), width=0, height=0, class_="symbols", aria_hidden="true"),
        element(
            "main",
            sections.verdict(facts),
            sections.beside(facts),
            element("section", element("h2", "The network"), drawn, _search(facts, tensors), id="network"),
            sections.layers(facts),
            sections.why(facts),
            sections.memory(facts),
            sections.traffic(facts),
            sections.schedule(facts),
            sections.certainty(facts),
        ),
        sections.provenance(facts),
        element("script", _json(_content(facts, strip, tensors)), type="application/json", id="data"),
        element("script", script),
    )
    return f"<!doctype html>\n{element('html', _head(title, script, style), body, lang='en')}\n"


def whole_page(title: str, main: Markup) -> str:
    """A page without a plan's network: a title, and what stands below it.

    Args:
        title: of any origin.
        main: sections.
    """
    body = element("body", element("header", element("h1", title)), element("main", main))
    return f"<!doctype html>\n{element('html', _head(title, '', _file('style.css')), body, lang='en')}\n"


def _head(title: str, script: str, style: Markup) -> Markup:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script, style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"tofu: {title}"),
        element("style", style),
    )


def _links() -> list[Markup]:
    titles = {
        "verdict": "Plan",
        "beside": "Beside",
        "network": "Network",
        "layers": "Layers",
        "why": "Why",
        "memory": "Memory",
        "traffic": "Traffic",
        "schedule": "Schedule",
        "certainty": "Exact or not",
    }
    return [element("a", title, href=f"#{name}") for name, title in titles.items()]


def _strip(strip: Strip, picture: Picture) -> Markup:
    moved = sum(column.upper_bytes + column.lower_bytes for column in strip.columns)
    total = strip.plan.moved_bytes
    share = f", {format_ratio(moved / total)} of all that moves" if total else ""
    remark = "; other ops move the rest" if moved < total else ""
    # A picture without ribbons has no scale to state.
    ribbons = (
        "Ribbons: dark, what moves of weights, gradients and updates; light, what moves of activations; "
        f"{picture.scale()}. Together they are {format_bytes(moved)}{share}{remark}."
        if moved
        else f"There are no ribbons, for nothing moves here{remark}."
    )
    blocks = [_block(strip, picture, block, number) for number, block in enumerate(strip.blocks)]
    if not blocks:
        return element("p", "No op of the forward pass sums products: there is nothing to draw. Search for a tensor.")
    return joined(
        element(
            "p",
            "Products of the forward pass: above each its weights, below the activation that it reads. A square has a "
            "tensor's first dim from top to bottom and another from left to right (of an image, batch and channels); "
            "its tiles are coloured and numbered by worker. Upright stripes are shards along other dims. A stack of "
            "sheets is a tile with replicas: ×4 on four workers (Σ4: four partial sums). Squares grow with the "
            "logarithm of a tensor's elements. Press a square to see its tiles.",
            class_="note",
        ),
        element("p", ribbons, class_="note"),
        _key(strip.plan.workers),
        element("button", "Unfold all", type="button", id="unfold", aria_pressed="false"),
        element("div", *blocks, class_="strip", tabindex=0, role="group", aria_label="The network, block by block"),
    )


def _key(workers: int) -> Markup:
    """Which colour is which worker's."""
    note = "; further workers have these colours again" if workers > len(PALETTE) else ""
    width = 18 * min(workers, len(PALETTE))
    return element(
        "p",
        element("svg", worker_key(workers), width=width, height=16, viewBox=f"0 0 {width} 16", aria_hidden="true"),
        f" workers 0 to {min(workers, len(PALETTE)) - 1}{note}",
        class_="key",
    )


def _block(strip: Strip, picture: Picture, block: Block, number: int) -> Markup:
    name, width = strip.name(block), WIDTH * block.length
    head: Markup
    if block.times > 1:
        head = element(
            "button",
            element("span", name, class_="name"),
            element("b", f"×{block.times}"),
            type="button",
            class_="fold",
            data_block=number,
            aria_expanded="false",
            title=f"{block.times} equal blocks, {name}: show all",
        )
    else:
        head = element("div", element("span", name, class_="name"), class_="fold", title=name)
    drawing = element(
        "svg", picture.block(block), viewBox=f"0 0 {width:g} {HEIGHT:g}", width=width, height=HEIGHT, class_="columns"
    )
    return element("figure", head, drawing, class_="block")


def _search(facts: PlanFacts, tensors: Packed) -> Markup:
    note = f" {tensors.left_out:,} tensors that move least are not on this page." if tensors.left_out else ""
    field = element("input", type="search", id="search", autocomplete="off", spellcheck="false")
    return element(
        "div",
        element(
            "p", element("label", "Find a tensor: ", for_="search"), field, element("span", id="count", role="status")
        ),
        element("ul", id="found"),
        element("div", element("p", f"No tensor is chosen.{note}"), id="tensor", tabindex=-1, aria_live="polite"),
        class_="search",
    )


def _content(facts: PlanFacts, strip: Strip, tensors: Packed) -> dict[str, Any]:
    """What the script reads."""
    number_of = tensors.number_of
    blocks = [
        [
            [
                printable(name),
                [number_of[drawn.name] for column in row for drawn in (column.upper, column.lower) if drawn],
            ]
            for name, row in strip.members(block)
        ]
        if block.times > 1
        else []
        for block in strip.blocks
    ]
    return {
        **tensors.content,
        "folder": printable(str(facts.directory)),
        "palette": list(PALETTE),
        "blocks": blocks,
    }


def _json(content: dict[str, Any]) -> Markup:
    """JSON that ends no script element, whatever texts are in it."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _file(name: str) -> Markup:
    """A script or style of ours."""
    return Markup(_FOLDER.joinpath(name).read_text("utf-8"))


def _policy(script: str, style: str) -> str:
    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    allowed = f"script-src {digest(script)}; style-src {digest(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
