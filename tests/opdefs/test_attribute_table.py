"""The table of attributes, optional inputs and omitted outputs: complete by the schemas, and as it comes out again."""

from __future__ import annotations

import json

import pytest

from attribute_table import COLUMNS, FILE, WORST, joined, keys_of_operator, operators, row_of, trials_of, tried

TABLE: dict[str, dict[str, str]] = json.loads(FILE.read_text())


@pytest.mark.parametrize("operator", operators())
def test_every_row_that_a_schema_asks_for_is_tried(operator: str) -> None:
    """So that a new operator, or a new attribute in a newer ONNX, has its cases."""
    rows = {key for _, keys in trials_of(operator) for key in keys}
    assert set(keys_of_operator(operator)) <= set(map(row_of, rows))


def test_the_table_has_rows_of_what_is_tried() -> None:
    assert TABLE.keys() == set(operators())
    for operator, rows in TABLE.items():
        assert rows.keys() <= {key for _, keys in trials_of(operator) for key in keys}, operator
        for letters in rows.values():
            assert len(letters) == len(COLUMNS)
            assert set(letters) <= set(WORST) - set("CWP"), operator


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["Trilu", "DepthToSpace"])
def test_the_rows_come_out_again(operator: str) -> None:
    rows: dict[str, str] = {}
    for case, keys in trials_of(operator):
        joined(rows, keys, tried(case, []))
    assert dict(sorted(rows.items())) == TABLE[operator]
