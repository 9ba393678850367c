"""The path of a plan's folder, found before anything heavy is imported: commands ask here first."""

from __future__ import annotations

from pathlib import Path

from planner.errors import UsageError, near_file

PLAN = "plan.json"
MANIFEST = "manifest.json"


def is_plan(path: Path) -> bool:
    """Whether a path is the folder of a plan, whatever its manifest says."""
    return (path / MANIFEST).is_file()


def require_plan(directory: Path | None) -> Path:
    """The folder of the plan that is meant: one with a manifest, whatever that says.

    Args:
        directory: the folder; None: the newest in the working directory.

    Raises:
        UsageError: it holds no plan, or there is none.
    """
    where = newest_folder(Path()) if directory is None else directory
    if not is_plan(where):
        is_model = where.is_file()
        hint = f"if it is a model: tofu plan {where} --gpus 2" if is_model else "write one with `tofu plan`"
        raise UsageError(f"{where} holds no plan", hint=hint if where.exists() else f"{near_file(where)}; {hint}")
    return where


def newest_note(folder: Path) -> str:
    """The note to the user about a folder that ``newest_folder`` found."""
    return f"note: no plan is named; {folder} is the newest here"


def newest_folder(where: Path) -> Path:
    """The plan folder in a directory that was written last.

    Raises:
        UsageError: there is none.
    """
    folders = [manifest.parent for manifest in where.glob(f"*/{MANIFEST}") if (manifest.parent / PLAN).is_file()]
    if not folders:
        raise UsageError("there is no plan in this directory", hint="name the plan's folder, or run `tofu plan` first")
    return max(folders, key=lambda folder: ((folder / MANIFEST).stat().st_mtime, folder.name))
