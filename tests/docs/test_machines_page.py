"""The topology files on the page of machines can be read."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from planner.machine.topology_file import DeviceGraph, Topology, parse_topology

TEXT = (Path(__file__).parents[2] / "docs" / "machines.md").read_text()


def test_both_forms_on_the_page_are_topologies() -> None:
    blocks = re.findall(r"^    name: .*\n(?:    .*\n)+", TEXT, re.MULTILINE)
    tree, graph = (parse_topology(textwrap.dedent(block), "docs/machines.md") for block in blocks)
    assert isinstance(tree, Topology)
    assert tree.device_count == 16
    assert isinstance(graph, DeviceGraph)
    assert graph.device_count == 3
