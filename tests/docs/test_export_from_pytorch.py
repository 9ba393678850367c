"""What pages and hints say of PyTorch's exporter; the blocks of the page itself are run by `make test-pytorch`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from planner.errors import ModelError
from planner.graph.reading.load import load_model
from pytorch_page import PAGE, blocks

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "bench" / "results" / "pytorch.md"
_EXPORT = re.compile(r"torch\.onnx\.export\((?:[^()]|\([^()]*\))*\)", re.DOTALL)


def test_every_export_on_a_page_states_whether_it_optimizes() -> None:
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    calls = [(page.name, call) for page in pages for call in _EXPORT.findall(page.read_text())]
    told = [call for call in calls if "dynamo=True" in call[1]]
    assert "export-from-pytorch.md" in {name for name, _ in told}
    assert [call for call in told if "optimize=False" not in call[1]] == []


def test_the_hint_of_a_file_of_pytorchs_says_how_to_export(tmp_path: Path) -> None:
    saved = tmp_path / "model.pt"
    saved.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(ModelError) as caught:
        load_model(saved)
    assert "dynamo=True, optimize=False)" in caught.value.hint
    assert "docs/export-from-pytorch.md" in caught.value.hint


def test_the_page_can_be_run_from_top_to_bottom() -> None:
    found = blocks(PAGE)
    assert {block.kind for block in found} == {"python", "sh", "text"}
    assert len([ast.parse(block.text) for block in found if block.kind == "python"]) >= 5
    assert found[0].kind == "python"


def test_the_table_has_four_networks_all_of_whose_parameters_are_trained() -> None:
    rows = re.findall(r"^\| (.*) \| `\w+` \| (\d+) of (\d+) \| (\S+) \| loaded \|", TABLE.read_text(), re.MULTILINE)
    assert {row[0] for row in rows} == {"CNN with BatchNorm", "GPT-2", "Llama", "ViT"}
    assert [row for row in rows if row[1] != row[2] or float(row[3]) > 1e-4] == []
