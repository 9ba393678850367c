"""Builds the sdist and the wheel, installs each where nothing is tofu's own, and plans and runs a model there.

    python tests/tools/installs.py [--keep]

The folder in which they are tried is another project's: it has a ``cli.py``, a ``configs/`` and an ``opdefs/`` of its
own, which fail when they are imported, and Python searches it first (``PYTHONPATH=.``). A distribution with the same
names is installed and removed. Last, the unpacked sdist, which has no links to ``opdefs`` and ``configs``, is installed
as editable. `make test-wheel` runs this; pip's cache makes it a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[2]
DISTRIBUTION = "tofu-planner"
STRANGERS = ("cli.py", "configs/__init__.py", "opdefs/__init__.py")
FAILS = "raise ImportError(f'{__file__} is not tofu')\n"
MY_OPS = """from planner.tdl.builder import op


@op("MyRelu", domain="mine")
def my_relu(node, X):
    return lambda i, j: X[i, j]
"""
Lines: TypeAlias = tuple[tuple[str, ...], ...]
LINES: Lines = (
    ("tofu", "--version"),
    ("tofu", "zoo", "mlp-2x24", "-o", "train.onnx"),
    ("tofu", "plan", "train.onnx", "--topology", "p2.8xlarge", "--opdefs", "my_ops.py", "-o", "eight"),
    ("tofu", "plan", "train.onnx", "--gpus", "2", "-o", "two"),
    ("tofu", "run", "two", "--steps", "2", "--verify"),
    ("tofu", "report", "two", "-o", "two.html"),
    ("tofu", "schema", "plan"),
    ("tofu", "ops", "--verify", "Relu"),
    ("python", "-m", "planner", "explain", "two"),
)
"""One for each kind of what is installed: commands, descriptions, topologies, kernels' table, page, schemas."""
SHORT = LINES[1:5]


class InstallError(Exception):
    """Something is not installed as it should be."""


def main() -> int:
    """Builds and tries; the exit code."""
    parser = argparse.ArgumentParser(description="Builds sdist and wheel, and tries each where it is installed.")
    parser.add_argument("--keep", action="store_true", help="leave the folder, and say where it is")
    keeps = parser.parse_args().keep
    folder = Path(tempfile.mkdtemp(prefix="tofu-installs-"))
    try:
        tested_archives(folder)
    except InstallError as error:
        print(f"test-wheel: failed: {error}", file=sys.stderr)
        return 1
    finally:
        if keeps:
            print(f"kept in {folder}")
        else:
            shutil.rmtree(folder)
    print("test-wheel: all passed")
    return 0


def tested_archives(folder: Path) -> tuple[Path, Path]:
    """The sdist and the wheel of this checkout, below ``folder``, after all that this file tries with them.

    Raises:
        InstallError: something is not built, or not installed, as it should be.
    """
    sdist, wheel = built(folder)
    check_content(sdist, wheel)
    try_installed(folder / "in-whl", wheel, LINES)
    try_installed(folder / "in-gz", sdist, SHORT)
    try_beside(folder)
    try_editable(folder, sdist)
    return sdist, wheel


def built(folder: Path) -> tuple[Path, Path]:
    """The sdist and the wheel of this checkout, in which an earlier build has left a module that is gone."""
    with told("build sdist and wheel"):
        source = folder / "source"
        for name in files_of_checkout():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
        left = source / "build" / "lib" / "planner" / "opdefs" / "gone.py"
        left.parent.mkdir(parents=True)
        left.write_text(FAILS, encoding="utf-8")
        env = environment(folder / "builder")
        install(env, "build", "setuptools>=77")
        build = [str(env / "python"), "-m", "build", "--no-isolation", "--sdist", "--wheel"]
        run([*build, "--outdir", str(folder / "dist"), str(source)], folder)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return sdist, wheel


def files_of_checkout(*below: str) -> list[str]:
    """Files that git knows or would take, and that are there."""
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *below], ROOT)
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def check_content(sdist: Path, wheel: Path) -> None:
    """Everything of ``planner`` is in the wheel, and at its top nothing else.

    Raises:
        InstallError: something lacks, or is too much.
    """
    with told("what is in them"):
        with zipfile.ZipFile(wheel) as archive:
            packed = set(archive.namelist())
        tops = {name.split("/")[0] for name in packed}
        info = next(top for top in tops if top.endswith(".dist-info"))
        if tops != {"planner", info}:
            raise InstallError(f"{wheel.name} installs {', '.join(sorted(tops))}")
        files = files_of_checkout("planner", "opdefs", "configs")
        wanted = {name if name.startswith("planner/") else f"planner/{name}" for name in files}
        wanted -= {"planner/opdefs", "planner/configs"}  # the links
        if lacking := sorted((wanted | {f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"}) - packed):
            raise InstallError(f"{wheel.name} lacks {', '.join(lacking)}")
        if more := sorted(name for name in packed - wanted if name.startswith("planner/")):
            raise InstallError(f"{wheel.name} has {', '.join(more)}")
        with tarfile.open(sdist) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        if lacking := sorted({"LICENSE", "README.md", "setup.py", "configs/dgx-h100.yaml"} - names):
            raise InstallError(f"{sdist.name} lacks {', '.join(lacking)}")
        if parts := sorted(name for name in names if name.startswith("tests")):
            raise InstallError(f"{sdist.name} has a part of the tests: {', '.join(parts)}")


def try_installed(folder: Path, archive: Path, lines: Lines) -> None:
    """Installs an archive, with what it requires, and runs the commands in another project's folder."""
    with told(f"install {archive.name}"):
        env = environment(folder / "env")
        install(env, str(archive))
    with told("plan and run in another project's folder"):
        try_commands(env, folder / "project", lines)


def try_beside(folder: Path) -> None:
    """Installs and removes a distribution that has the names that tofu's modules had once, beside the wheel."""
    with told("after a distribution with the names cli, configs and opdefs is removed"):
        env = scripts(folder / "in-whl" / "env")
        install(env, str(rival(folder)))
        pip(env, "uninstall", "--yes", "rival")
        try_commands(env, folder / "rivals", SHORT)


def try_editable(folder: Path, sdist: Path) -> None:
    """Installs the unpacked sdist as editable, in the environment of the wheel."""
    with told("the unpacked sdist, editable: a checkout without links"):
        env = scripts(folder / "in-whl" / "env")
        pip(env, "uninstall", "--yes", DISTRIBUTION)
        with tarfile.open(sdist) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (source,) = (folder / "unpacked").iterdir()
        if (source / "planner" / "opdefs").exists():
            raise InstallError("the sdist has opdefs twice")
        pip(env, "install", "--no-deps", "--editable", str(source))
        try_commands(env, folder / "edited", SHORT)


def try_commands(env: Path, folder: Path, lines: Lines) -> None:
    """Runs commands in a folder that has modules of the names that tofu's own had once.

    Raises:
        InstallError: one fails.
    """
    for name in STRANGERS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(FAILS, encoding="utf-8")
    (folder / "my_ops.py").write_text(MY_OPS, encoding="utf-8")
    for line in lines:
        run([str(env / line[0]), *line[1:]], folder, PYTHONPATH=".")


def rival(folder: Path) -> Path:
    """A wheel that installs ``cli``, ``configs`` and ``opdefs``."""
    file = folder / "rival-1.0-py3-none-any.whl"
    content = {
        **dict.fromkeys(STRANGERS, FAILS),
        "rival-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: rival\nVersion: 1.0\n",
        "rival-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tofu\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*content, "rival-1.0.dist-info/RECORD"))
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in {**content, "rival-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return file


def environment(folder: Path) -> Path:
    """Makes a virtual environment without pip; the folder of its programs."""
    venv.create(folder, symlinks=os.name != "nt")
    return scripts(folder)


def scripts(folder: Path) -> Path:
    """Where a virtual environment has its programs."""
    return folder / ("Scripts" if os.name == "nt" else "bin")


def install(env: Path, *what: str) -> None:
    """Installs into an environment; what is imported there is compiled then."""
    pip(env, "install", "--no-compile", *what)


def pip(env: Path, *line: str) -> None:
    """Runs the pip of this Python on an environment, which needs none of its own."""
    quiet = ["-q", "--disable-pip-version-check"]
    run([sys.executable, "-m", "pip", "--python", str(env / "python"), *quiet, *line], env)


def run(line: list[str], folder: Path, **variables: str) -> str:
    """What a command prints.

    Raises:
        InstallError: its exit status is not 0; with what it said.
    """
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(line, cwd=folder, env={**kept, **variables}, text=True, capture_output=True, check=False)
    if done.returncode:
        raise InstallError(f"{' '.join(line)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def told(doing: str) -> Iterator[None]:
    """Says what is tried, and how long it took."""
    start = time.perf_counter()
    yield
    print(f"{doing}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
