"""Builds a release into ``dist/``: the sdist, the wheel and the notes. Nothing is tagged and nothing is uploaded.

    python tests/tools/release.py            `make release`

The version is ``planner.__version__``. The notes are the section of that version in CHANGELOG.md. The steps:

    refusals    files that are not committed; a tag of the version on another commit; no section, or an empty one
    archives    built, installed and tried, as `make test-wheel` does (installs.py)
    lint        `make lint`
    dist/       sdist, wheel, NOTES.md; archives of earlier builds are removed
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import planner
from installs import ROOT, InstallError, run, tested_archives

CHANGELOG = "CHANGELOG.md"
UNRELEASED = "Unreleased"


class ReleaseError(Exception):
    """A release is refused; the text says why, and what to do."""


def main() -> int:
    """Builds the release of this checkout; the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="tofu-release-"))
    try:
        print(release(planner.__version__, folder))
    except (InstallError, ReleaseError) as error:
        print(f"release: failed: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder)
    return 0


def release(version: str, folder: Path) -> str:
    """Checks, builds and stores; the text of what a person does next.

    Args:
        version: of the release.
        folder: where archives are built and tried.

    Raises:
        InstallError: an archive is not built or installed as it should be.
        ReleaseError: there is nothing that can be released, or lint fails.
    """
    changelog = (ROOT / CHANGELOG).read_text(encoding="utf-8")
    notes = section(changelog, version)
    commit = clean_commit(ROOT, version)
    archives = tested_archives(folder)
    if subprocess.run(["make", "lint"], cwd=ROOT, check=False).returncode:
        raise ReleaseError("lint fails")
    # The archives are of the working tree: an edit during these minutes would be in them, and in no commit.
    if clean_commit(ROOT, version) != commit:
        raise ReleaseError("another commit was checked out meanwhile: run it again")
    store(ROOT / "dist", archives, notes)
    return instructions(version, commit, [archive.name for archive in archives], has_entries(changelog, UNRELEASED))


def section(changelog: str, version: str) -> str:
    """The text below the heading ``## VERSION``, which a date may follow, up to the next heading of that level.

    Raises:
        ReleaseError: there is no such heading, or nothing but headings below it.
    """
    parts = (part.partition("\n") for part in re.split(r"^## +", changelog, flags=re.MULTILINE)[1:])
    texts = {title.split()[0]: text.strip() for title, _, text in parts if title.strip()}
    if version not in texts:
        raise ReleaseError(f"{CHANGELOG} has no section of {version}: write one, headed '## {version} - YYYY-MM-DD'")
    if all(not line.strip() or line.startswith("#") for line in texts[version].splitlines()):
        raise ReleaseError(f"the section of {version} in {CHANGELOG} is empty: write what a user gets")
    return texts[version] + "\n"


def has_entries(changelog: str, version: str) -> bool:
    """Whether a changelog has a section of the version with anything in it."""
    try:
        section(changelog, version)
    except ReleaseError:
        return False
    return True


def clean_commit(root: Path, version: str) -> str:
    """The commit that is checked out.

    Raises:
        ReleaseError: files differ from it or are unknown to git, or the version's tag is on another commit.
    """
    if changes := run(["git", "status", "--porcelain"], root):
        raise ReleaseError(f"the working tree is not clean: commit or remove\n{changes.rstrip()}")
    tag = f"v{version}"
    if run(["git", "tag", "--list", tag], root) and tag not in run(["git", "tag", "--points-at", "HEAD"], root).split():
        raise ReleaseError(f"{tag} is the tag of another commit: raise planner.__version__")
    return run(["git", "rev-parse", "HEAD"], root).strip()


def store(dist: Path, archives: tuple[Path, Path], notes: str) -> None:
    """Writes archives and notes into ``dist``, where no archive of an earlier build stays."""
    dist.mkdir(exist_ok=True)
    for old in dist.glob("tofu_planner-*"):
        old.unlink()
    for archive in archives:
        shutil.copy2(archive, dist)
    (dist / "NOTES.md").write_text(notes, encoding="utf-8")


def instructions(version: str, commit: str, names: list[str], has_unreleased: bool) -> str:
    """The commands that publish ``dist``, in their order."""
    files = " ".join(f"dist/{name}" for name in names)
    lines = [f"release: all passed; dist has {', '.join(names)} and NOTES.md", "Next, by hand:"]
    lines += [f"  git tag -a v{version} -m 'tofu {version}' {commit}", f"  git push origin v{version}"]
    lines += [f"  python -m twine upload {files}", "and dist/NOTES.md is the text of the release's page."]
    if has_unreleased:
        lines.append(f"note: {CHANGELOG} has entries under {UNRELEASED}, which are not in the notes")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
