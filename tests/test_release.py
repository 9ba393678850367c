"""What `make release` refuses, and what it writes; `make test-wheel` builds and installs the archives."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import planner
import release
from release import ReleaseError, clean_commit, has_entries, instructions, section, store

CHANGELOG = (release.ROOT / release.CHANGELOG).read_text(encoding="utf-8")
SHORT = """# Changelog

## Unreleased

- A change.

## 0.2.0 - 2027-01-31

Second.

### Plans

- A plan.

## 0.1.10

### Plans

## 0.1.0

First.
"""


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("Unreleased", "- A change.\n"),
        ("0.2.0", "Second.\n\n### Plans\n\n- A plan.\n"),
        ("0.1.0", "First.\n"),
    ],
)
def test_a_section_ends_where_the_next_version_begins(version: str, text: str) -> None:
    assert section(SHORT, version) == text


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.3.0", "has no section of 0.3.0: write one, headed '## 0.3.0 - "),
        ("0.1", "has no section of 0.1:"),
        ("0.1.1", "has no section of 0.1.1:"),
        ("0.1.10", "the section of 0.1.10 in CHANGELOG.md is empty"),
    ],
)
def test_a_version_without_notes_is_refused(version: str, reason: str) -> None:
    with pytest.raises(ReleaseError, match=re.escape(reason)):
        section(SHORT, version)


@pytest.mark.parametrize(("version", "expected"), [("Unreleased", True), ("0.1.10", False), ("0.3.0", False)])
def test_entries_under_a_heading(version: str, expected: bool) -> None:
    assert has_entries(SHORT, version) is expected


def test_the_changelog_has_the_version_in_a_hundred_and_fifty_lines() -> None:
    assert re.search(rf"^## {re.escape(planner.__version__)} - \d{{4}}-\d\d-\d\d$", CHANGELOG, re.MULTILINE)
    lines = section(CHANGELOG, planner.__version__).splitlines()
    assert 5 < len(lines) <= 150
    assert max(map(len, CHANGELOG.splitlines())) <= 120


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of one commit."""
    root = tmp_path / "repository"
    root.mkdir()
    (root / "file").write_text("text\n")
    for line in (["init", "-q"], ["add", "file"]):
        git(root, *line)
    commit(root)
    return root


def git(root: Path, *line: str) -> str:
    """What git prints; neither the machine's nor the user's configuration counts."""
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *author, *line], cwd=root, text=True, capture_output=True, check=True)
    return done.stdout.strip()


def commit(root: Path) -> None:
    """Commits whatever is added, or nothing."""
    git(root, "commit", "-q", "--allow-empty", "-m", "A commit")


def test_a_clean_tree_is_its_commit(repository: Path) -> None:
    assert clean_commit(repository, "0.1.0") == git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["file", "new"])
def test_a_tree_that_is_not_clean_is_refused(name: str, repository: Path) -> None:
    (repository / name).write_text("another\n")
    with pytest.raises(ReleaseError, match=rf"the working tree is not clean: commit or remove\n.. {name}$"):
        clean_commit(repository, "0.1.0")


def test_a_tag_of_another_commit_is_refused(repository: Path) -> None:
    git(repository, "tag", "-a", "v0.1.0", "-m", "tofu 0.1.0")
    assert clean_commit(repository, "0.1.0")
    commit(repository)
    assert clean_commit(repository, "0.1.1")
    with pytest.raises(ReleaseError, match=re.escape("v0.1.0 is the tag of another commit: raise planner.__version__")):
        clean_commit(repository, "0.1.0")


@pytest.mark.parametrize("version", ["0.1.0", "0.3.0"])
def test_a_refusal_builds_nothing(
    version: str, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 0.1.0 the tree is not clean, of 0.3.0 there is no section."""
    (repository / "CHANGELOG.md").write_text(SHORT)
    monkeypatch.setattr(release, "ROOT", repository)
    monkeypatch.setattr(planner, "__version__", version)
    monkeypatch.setattr(release, "tested_archives", lambda folder: pytest.fail("it builds"))
    assert release.main() == 1
    assert capsys.readouterr().err.startswith("release: failed: ")
    assert not (repository / "dist").exists()


def test_dist_has_the_archives_of_one_build_and_the_notes(tmp_path: Path) -> None:
    names = ("tofu_planner-0.2.0.tar.gz", "tofu_planner-0.2.0-py3-none-any.whl")
    archives = (tmp_path / names[0], tmp_path / names[1])
    for archive in archives:
        archive.write_text("new")
    dist = tmp_path / "dist"
    store(dist, archives, "first")
    (dist / "tofu_planner-0.1.0.tar.gz").write_text("old")
    (dist / "mine.txt").write_text("kept")
    store(dist, archives, "Second.\n")
    assert {file.name: file.read_text() for file in dist.iterdir()} == {
        **dict.fromkeys(names, "new"),
        "NOTES.md": "Second.\n",
        "mine.txt": "kept",
    }


def test_the_commands_that_publish_name_the_commit_and_the_files() -> None:
    text = instructions("0.2.0", "0123abc", ["a.tar.gz", "a.whl"], has_unreleased=False)
    assert "\n  git tag -a v0.2.0 -m 'tofu 0.2.0' 0123abc\n  git push origin v0.2.0\n" in text
    assert "\n  python -m twine upload dist/a.tar.gz dist/a.whl\n" in text
    assert "note:" not in text
    assert instructions("0.2.0", "0123abc", [], has_unreleased=True).splitlines()[-1].startswith("note: CHANGELOG.md")
