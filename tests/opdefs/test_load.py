"""A user's file of descriptions: read, refused with the line, verified; the page that teaches it is executed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from planner import opdefs
from planner.commands import main as cli
from planner.errors import DescriptionError, UsageError
from planner.features.ops.verification import QUICK, verify_operators
from typed_lines import try_commands

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
HEAD = "from planner.tdl.builder import call, op\n"
RELU = '@op("MyRelu", domain="my.domain")\ndef my_relu(node, X):\n    return lambda *i: call("Relu", X[i])\n'


def write(folder: Path, text: str) -> Path:
    file = folder / "my_ops.py"
    file.write_text(text)
    return file


def test_descriptions_join_the_standard_ones(tmp_path: Path) -> None:
    mine = opdefs.load_file(write(tmp_path, HEAD + RELU))
    assert [description.op_types for description in mine.descriptions] == [("MyRelu",)]
    assert mine.cases == ()
    described = opdefs.standard(*mine.descriptions).described
    assert ("my.domain", "MyRelu") in described
    assert ("", "Relu") in described


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "def broken(:\n", r"my_ops\.py:2: "),
        (HEAD + "x = 1 / 0\n", r"my_ops\.py:2: ZeroDivisionError: division by zero"),
        ("import no_such_module_at_all\n", r"my_ops\.py:1: ModuleNotFoundError"),
        (HEAD, r"my_ops\.py describes no operator"),
        (
            HEAD + RELU + RELU.replace("my_relu", "again"),
            "describes operators twice\n  my.domain.MyRelu: by my_relu and by again",
        ),
        (HEAD + RELU + "CASES = 7\n", "CASES is a int, not a list of cases"),
    ],
    ids=["syntax", "exception", "import", "nothing", "duplicate", "cases"],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        opdefs.load_file(write(tmp_path, text))


def test_the_former_name_of_descriptions_is_told_the_present_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opdefs", None)  # in a checkout the folder of that name may be found
    with pytest.raises(DescriptionError, match=r"my_ops\.py:1: ModuleNotFoundError") as refused:
        opdefs.load_file(write(tmp_path, "from opdefs.parts import int64\n"))
    assert refused.value.hint == "it is planner.opdefs: only planner is installed"


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file of descriptions"):
        opdefs.load_file(tmp_path / "absent.py")


def test_an_operator_of_the_standard_set_is_not_described_again(tmp_path: Path) -> None:
    mine = opdefs.load_file(write(tmp_path, HEAD + RELU.replace("MyRelu", "Relu").replace("my.domain", "")))
    with pytest.raises(DescriptionError, match="operator Relu is described twice"):
        opdefs.standard(*mine.descriptions)


def test_a_users_description_stands_in_the_place_of_ours_where_the_operator_is_not_onnxs(tmp_path: Path) -> None:
    experts = RELU.replace("MyRelu", "MoE").replace("my.domain", "com.microsoft")
    mine = opdefs.load_file(write(tmp_path, HEAD + experts))
    described = opdefs.standard(*mine.descriptions)
    assert described.description("com.microsoft", "MoE") is mine.descriptions[0]
    assert "QMoE" in described.description("com.microsoft", "QMoE").op_types


def test_an_operator_that_is_read_as_others_is_not_described(tmp_path: Path) -> None:
    gelu = RELU.replace("MyRelu", "Gelu").replace("my.domain", "com.microsoft")
    mine = opdefs.load_file(write(tmp_path, HEAD + gelu))
    with pytest.raises(DescriptionError, match=r"com\.microsoft\.Gelu is read as other operators"):
        opdefs.standard(*mine.descriptions)


def test_a_wrong_line_of_the_file_is_named(tmp_path: Path) -> None:
    wrong = '@op("CDist", domain="com.microsoft")\ndef f(node, X, B):\n    return lambda i, j: X[i * j, 0]\n'
    cases = (
        'from planner.features.ops.cases import make\nCASES = [make("CDist", (4, 6), (5, 6), domain="com.microsoft")]\n'
    )
    mine = opdefs.load_file(write(tmp_path, HEAD + wrong + cases))
    found = verify_operators(opdefs.standard(*mine.descriptions), cases=mine.cases, ways=QUICK)
    assert not found.is_right
    assert "my_ops.py:4: the product of two index variables is not affine" in found.wrong[0]


def test_the_code_of_the_page_does_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    text = PAGE.read_text()
    printed = ""
    for kind, file, code in re.findall(r"```(python|console)(?: file=(\S+))?\n(.*?)```", text, re.DOTALL):
        if kind == "console":
            printed += capsys.readouterr().out
            try_commands(code, capsys)
        elif file:
            Path(file).write_text(code)
        else:
            exec(compile(code, str(PAGE), "exec"), names)
    printed += capsys.readouterr().out
    (said,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert printed.startswith(said)
    assert "CDist" in printed.removeprefix(said)


def test_a_page_that_shows_what_is_not_printed_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try_commands("$ tofu plan absent.onnx --gpus 2\nerror: absent.onnx: no such file\n", capsys)
    with pytest.raises(AssertionError):
        try_commands("$ tofu plan absent.onnx --gpus 2\nerror: absent.onnx: another error\n", capsys)
    with pytest.raises(AssertionError):
        try_commands("$ tofu plan absent.onnx --gpus 2\nworkers 2\n", capsys)


CENTRED = """
from planner.features.ops.cases import make
from planner.tdl.builder import Opaque, Sum, call, op

@op("Centred", domain="my.own"{options})
def centred(node, X):
    return lambda b, j: {body}

CASES = [make("Centred", (4, 6), domain="my.own")]
"""
SAME = ", results=lambda node: [(node.input_shape(0), node.input_dtype(0))]"
REFERENCE = ", reference=lambda op, x: x - x.mean(0)"
COLUMNS = 'Opaque("Centred")(X[:, j])[b]'


@pytest.mark.parametrize(
    ("options", "body", "said"),
    [
        (SAME, COLUMNS, "j          6        output   concatenated"),
        (REFERENCE, COLUMNS, "j          6        output   concatenated"),
        ("", COLUMNS, "no reference=\nhint: add reference= to its description, or results="),
        ("", "X[b * j, 0]", "my_ops.py:7: the product of two index variables is not affine"),
    ],
)
def test_an_operator_that_nothing_executes_is_shown_from_its_description(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, body: str, said: str
) -> None:
    file = write(tmp_path, CENTRED.format(options=options, body=body))
    is_shown = "concatenated" in said
    assert cli.main(["ops", "Centred", "--opdefs", str(file)]) == (0 if is_shown else 2)
    captured = capsys.readouterr()
    assert said in (captured.out if is_shown else captured.err)


@pytest.mark.parametrize(
    ("options", "body", "code", "said"),
    [
        (REFERENCE, COLUMNS, 0, "strategies executed      6\n"),
        (
            SAME + REFERENCE,
            'call("Centred", X[b, j])',
            1,
            "incorrect: Centred(4x6): b/2: output 0 differs from the whole",
        ),
        (SAME, COLUMNS, 1, "incorrect                0\nmissing                  0\nnot executed             1\n"),
        (SAME + REFERENCE.replace("mean", "mean_of"), COLUMNS, 1, "no kernel, and reference= fails"),
    ],
)
def test_parts_of_an_operator_without_a_kernel_are_checked_against_its_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, body: str, code: int, said: str
) -> None:
    file = write(tmp_path, CENTRED.format(options=options, body=body))
    assert cli.main(["ops", "--verify", "--opdefs", str(file)]) == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("signature", "case"),
    [
        ("X", 'make("Centred", (4, 6), domain="my.own")'),
        ("X, T", 'make("Centred", (4, 6), (4, 6), domain="my.own")'),
        ("X, T, B=None", 'make("Centred", (4, 6), (4, 6), domain="my.own")'),
        ("*X", 'make("Centred", (4, 6), domain="my.own")'),
    ],
)
def test_a_description_without_cases_is_told_one_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], signature: str, case: str
) -> None:
    text = CENTRED.format(options=SAME, body=COLUMNS).partition("CASES")[0].replace("node, X", f"node, {signature}")
    assert cli.main(["ops", "Centred", "--opdefs", str(write(tmp_path, text))]) == 2
    assert f"hint: add CASES = [{case}] there" in capsys.readouterr().err
