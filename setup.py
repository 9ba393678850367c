"""What pyproject.toml cannot say: packages that lie beside ``planner`` in the repository are installed inside of it.

One import name is installed, ``planner``. In a checkout ``planner/opdefs`` and ``planner/configs`` are links to the
folders at the top; a build takes those folders themselves, so that it needs no links (docs/architecture.md).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

BESIDE = {"planner.opdefs": "opdefs", "planner.configs": "configs"}


class BuildAnew(build_py):
    """Leaves out what an earlier build from this folder has left: a module that is gone would be installed again."""

    def run(self) -> None:
        """Copies the modules and data."""
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib) / "planner", ignore_errors=True)
        super().run()


own = {package for package in find_packages(include=["planner", "planner.*"]) if package not in BESIDE}
setup(
    packages=sorted({*own, *BESIDE, "planner.schemas"}),
    package_dir=BESIDE,
    cmdclass={"build_py": BuildAnew},
)
