"""The registry of what stands for operators: by purpose, no operator twice."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from planner.graph.core.model import Op
from planner.graph.decompositions import registry
from planner.graph.decompositions.registry import Purpose, decompositions, stands_for


def test_every_purpose_has_its_operators_and_says_what_they_become() -> None:
    for purpose in Purpose:
        found = decompositions(purpose)
        assert list(found) == sorted(found)
        assert found
        assert all(one.text for one in found.values())
    batch = "BatchNormalization"
    assert decompositions(Purpose.PARTS)[batch].function is decompositions(Purpose.CUDA)[batch].function


def test_an_operator_has_one_form_for_a_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    @stands_for("Celu", purpose=Purpose.CUDA)
    def first(writer: object, op: Op) -> None:
        """One form."""

    @stands_for("Elu", "Celu", purpose=Purpose.CUDA)
    def second(writer: object, op: Op) -> None:
        """Another."""

    monkeypatch.setattr(registry, "import_module", lambda name: SimpleNamespace(first=first, second=second))
    with pytest.raises(AssertionError, match="Celu has two decompositions for cuda"):
        decompositions.__wrapped__(Purpose.CUDA)
