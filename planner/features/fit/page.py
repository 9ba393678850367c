"""The page of `tofu fit`: of each machine a chart, memory against GPUs, and the table."""

from __future__ import annotations

from planner.features.fit.capacity_chart import CapacityPoint, capacity_chart
from planner.features.fit.result import FitAnswer, FitResult, FitRow
from planner.features.fit.table import columns_and_rows, notes, verdict, why_not
from planner.features.report.page.markup import Markup, element, joined
from planner.features.report.page.page import whole_page
from planner.units import format_seconds


def fit_page(result: FitResult) -> str:
    """The page, as HTML."""
    sections = [_section(answer, result) for answer in result.answers]
    return whole_page(f"GPUs that hold {result.model}", joined(*sections))


def _section(answer: FitAnswer, result: FitResult) -> Markup:
    points = [
        CapacityPoint(row.workers, row.least_bytes, row.at_least_bytes, row.fits, _remark(row)) for row in answer.rows
    ]
    heads, rows, _ = columns_and_rows(answer, result)
    table = element(
        "table",
        element("thead", element("tr", *(element("th", head) for head in heads))),
        element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in rows)),
    )
    why = () if answer.why_not is None else (element("p", why_not(answer.why_not, answer, result)),)
    return element(
        "section",
        element("h2", verdict(answer, result)),
        element("div", capacity_chart(points, answer.memory_bytes), class_="zoom"),
        table,
        *why,
        *(element("p", note) for note in notes(result)),
    )


def _remark(row: FitRow) -> str:
    texts = [] if row.largest_batch is None else [f"largest batch {row.largest_batch:,}"]
    texts += [] if row.estimated_seconds is None else [f"{format_seconds(row.estimated_seconds)} an iteration"]
    return "; ".join(texts)
