"""What pyproject.toml cannot say: packages that lie beside ``planner`` in the repository are installed inside of it.

One import name is installed, ``planner``. In a checkout ``planner/opdefs`` and ``planner/configs`` are links to the
folders at the top; a build takes those folders themselves, so that it needs no links (docs/decisions.md).
"""

from __future__ import annotations

from setuptools import find_packages, setup

BESIDE = {"planner.opdefs": "opdefs", "planner.configs": "configs"}

own = {package for package in find_packages(include=["planner", "planner.*"]) if package not in BESIDE}
setup(packages=sorted({*own, *BESIDE, "planner.schemas"}), package_dir=BESIDE)
