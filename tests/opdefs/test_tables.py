"""Every table of operators says why its operators are these: a described operator is silently missing in none."""

from __future__ import annotations

import pytest

from operator_tables import STATEMENTS, described, is_moving, missing, tables
from planner.graph.core import traits

BY_PROPERTY = {table: statement for table, statement in STATEMENTS.items() if statement.has is not None}


def test_each_table_has_a_statement_and_each_statement_a_table() -> None:
    assert tables().keys() == STATEMENTS.keys()


@pytest.mark.parametrize("table", BY_PROPERTY)
def test_a_table_is_complete_by_its_property(table: str) -> None:
    statement, operators = BY_PROPERTY[table], tables()[table]
    assert statement.has is not None
    having = {name for name, op in described().items() if statement.has(op)}
    assert having - operators == set(statement.missing.split())
    assert operators - having == set(statement.beside.split())


def test_each_table_in_which_an_operator_is_missing_says_why() -> None:
    lines = {operator: list(missing(operator)) for operator in described()}
    assert not [line for of_operator in lines.values() for line in of_operator if not line.rpartition(": ")[2]]
    assert any(line.startswith("graph.folding.evaluate.FOLDABLE") for line in lines["Conv"])
    assert not any(line.startswith("graph.core.traits.ELEMENT_WISE") for line in lines["Conv"])
    assert any(line.startswith("graph.core.traits.ELEMENT_WISE") for line in lines["Dropout"])


def test_operators_that_move_elements_carry_them() -> None:
    by_size = {"CenterCropPad", "Dropout", "Resize", "Upsample"}
    moving = {name for name, op in described().items() if is_moving(op)}
    assert all(traits.carried(name, 1) for name in moving - by_size)
