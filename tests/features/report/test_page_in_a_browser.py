"""The page in headless Chromium: it says nothing, asks for nothing, folds, finds and draws."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Page, browsing, chromium
from hostile_names import COMMENT, ESCAPE, IMAGE, hostile_model
from planner import api
from planner.algebra.tiling import Tiling
from planner.artifacts.plan import Plan
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="Chromium is not installed (Debian's package: chromium)"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of a network of equal layers, and its page beside it."""
    where = tmp_path_factory.mktemp("browser")
    write_model(build("mlp-5x300"), where / "m.onnx")
    api.plan(where / "m.onnx", topology="p2.8xlarge", out=where / "plan")
    api.report(where / "plan", output=where / "p.html")
    return where / "plan"


@pytest.fixture
def page(folder: Path, tmp_path: Path) -> Iterator[Page]:
    """The page, open; at the end it must have said nothing and asked nobody."""
    with browsing(tmp_path) as browser_page:
        file = folder.parent / "p.html"
        browser_page.open(file)
        yield browser_page
        assert browser_page.said == []
        assert browser_page.requests == [file.resolve().as_uri()]


def text(page: Page, selector: str) -> str:
    inner_text = page.value(f"document.querySelector({json.dumps(selector)}).innerText")
    assert isinstance(inner_text, str)
    return inner_text


def count(page: Page, selector: str) -> int:
    number = page.value(f"document.querySelectorAll({json.dumps(selector)}).length")
    assert isinstance(number, int)
    return number


def test_what_a_page_says_and_asks_for_is_noticed(tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><title>x</title><img src='other.png'><script>console.error('no'); nothing()</script>"
    )
    with browsing(tmp_path) as page:
        page.open(bad)
        assert page.value("1 + 1") == 2
        assert (tmp_path / "other.png").resolve().as_uri() in page.requests
        assert any("no" in message for message in page.said)
        assert any("nothing is not defined" in message for message in page.said)


def test_blocks_fold_by_mouse_and_by_keyboard(page: Page) -> None:
    folded = count(page, ".block")
    times = int(text(page, "button.fold b").removeprefix("×"))
    assert times > 1
    page.click("button.fold")
    assert count(page, ".block") == folded + times - 1
    assert page.value("document.querySelector('button.fold').getAttribute('aria-expanded')") == "true"
    shown = page.value("[...document.querySelectorAll('.block[data-of] .tensor')].map((one) => one.dataset.tensor)")
    assert shown
    assert len(set(shown)) == len(shown), "each copy has tensors of its own"
    page.value("document.querySelector('button.fold').focus()")
    page.press("Enter")
    assert count(page, ".block") == folded
    page.click("#unfold")
    assert count(page, ".block") > folded
    page.click("#unfold")
    assert count(page, ".block") == folded


def test_a_tensor_is_found_and_its_tiles_are_those_of_the_plan(page: Page, folder: Path) -> None:
    plan = Plan.from_json((folder / "plan.json").read_bytes())
    page.click("#search")
    page.write("W3 next")
    assert text(page, "#count").strip() == f"1 of {len(plan.tilings)}"
    page.press("Enter")
    assert text(page, "#tensor h3") == "w3.next"
    boxes = plan.tilings["w3.next"].boxes((300, 300))
    wanted = [
        ", ".join(f"{start}:{end}" for start, end in zip(lo, hi, strict=True))
        for lo, hi in zip(boxes.lo.tolist(), boxes.hi.tolist(), strict=True)
    ]
    assert page.value("[...document.querySelectorAll('#tensor td:nth-child(2)')].map((one) => one.innerText)") == wanted
    shown = text(page, "#tensor")
    assert str(plan.tilings["w3.next"]) in shown
    assert f"{plan.tensor_bytes['w3.next']:,} bytes" in shown
    assert count(page, "#tensor svg rect") >= len(set(wanted))
    page.value("document.getElementById('search').value = ''")
    page.click("#search")
    page.write("no such tensor")
    assert text(page, "#count").strip() == f"0 of {len(plan.tilings)}"


def test_a_link_leads_to_a_tensor_whose_command_can_be_copied(page: Page) -> None:
    page.value("location.hash = '#tensor=w3.next'; new Promise((done) => setTimeout(done, 100))")
    assert text(page, "#tensor h3") == "w3.next"
    assert count(page, "#tensor .copy") == count(page, "#tensor code.command") == 1
    assert count(page, "footer .copy") == 3
    page.click("#tensor .copy")
    page.value("new Promise((done) => setTimeout(done, 100))")
    assert text(page, "#tensor .copy") in ("Copied", "Selected")


def test_a_chart_grows_and_shrinks(page: Page) -> None:
    width = "document.querySelector('#memory .zoom svg').getBoundingClientRect().width"
    before = page.value(width)
    page.click("#memory .copy")
    assert page.value(width) == 2 * before
    page.click("#memory .copy + .copy")
    assert page.value(width) == before


def test_a_page_is_dark_where_the_reader_has_it_dark(page: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.value(background)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.value(background) != light == "rgb(255, 255, 255)"
    assert page.value("getComputedStyle(document.body).color") == "rgb(230, 230, 230)"
    page.call("Emulation.setEmulatedMedia", features=[])


def test_a_page_is_no_wider_than_a_phone(page: Page) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
    assert page.value("document.documentElement.scrollWidth") == 390


def test_a_square_of_the_strip_opens_by_the_keyboard_alone(page: Page) -> None:
    for _ in range(60):
        page.press("Tab")
        if page.value("document.activeElement.classList.contains('tensor')"):
            break
    label = page.value("document.activeElement.getAttribute('aria-label')")
    page.press("Enter")
    assert str(label).startswith(text(page, "#tensor h3") + ", ")
    assert count(page, ".tensor.chosen") == 1
    page.click("#tensor > button")
    assert count(page, ".tensor.chosen") == 0
    assert page.value("document.activeElement.classList.contains('tensor')"), "the focus is back where it was"


def test_hostile_names_are_shown_and_do_nothing(tmp_path: Path) -> None:
    api.plan(hostile_model(tmp_path), gpus=2, out=tmp_path / "plan")
    api.report(tmp_path / "plan", output=tmp_path / "p.html", svg=tmp_path / "s.svg")
    with browsing(tmp_path) as page:
        page.open(tmp_path / "p.html")
        page.click("#search")
        page.write("x onerror")
        page.press("Enter")
        assert text(page, "#tensor h3") == IMAGE
        shown = page.value("[...document.querySelectorAll('.tensor title')].map((one) => one.textContent).join('|')")
        assert IMAGE in shown
        assert ESCAPE.replace("\x1b", "\\x1b") in shown
        assert count(page, "img") == 0
        assert count(page, "script") == 2
        assert text(page, "h1") == "</title><script>alert(4)</script> on 2 workers"
        page.value("document.getElementById('search').value = ''")
        page.click("#search")
        page.write("alert(2)")
        assert text(page, "#found button") == COMMENT
        assert page.said == []
        assert page.requests == [(tmp_path / "p.html").resolve().as_uri()]
    with browsing(tmp_path / "svg") as picture:
        picture.open(tmp_path / "s.svg")
        assert picture.value("document.querySelectorAll('script, image, foreignObject').length") == 0
        assert picture.said == []
        assert picture.requests == [(tmp_path / "s.svg").resolve().as_uri()]


def test_the_page_of_a_deep_network_is_small_and_folds_as_figure_11_does(tmp_path: Path) -> None:
    write_model(build("wresnet-152-10"), tmp_path / "m.onnx")
    api.plan(tmp_path / "m.onnx", gpus=8, effort="quick", out=tmp_path / "plan")
    result = api.report(tmp_path / "plan", output=tmp_path / "p.html", svg=tmp_path / "s.svg")
    assert 100_000 < result.page_bytes < 400_000
    plan = Plan.from_json((tmp_path / "plan" / "plan.json").read_bytes())
    with browsing(tmp_path) as page:
        page.open(tmp_path / "p.html")
        heads = page.value("[...document.querySelectorAll('.fold')].map((one) => one.textContent)")
        # 3, 8, 36 and 3 blocks, the first of each group apart since it has a shortcut.
        assert heads == [
            *("stem.conv.weight", "group1.block1", "group1.block2 … group1.block3×2", "group2.block1"),
            *("group2.block2 … group2.block8×7", "group3.block1", "group3.block2 … group3.block36×35"),
            *("group4.block1", "group4.block2 … group4.block3×2", "fc.weight"),
        ]
        page.click("#unfold")
        assert count(page, ".block") == 1 + 3 + 8 + 36 + 3 + 1
        page.click("#search")
        page.write("group3 block36 mid conv.weight")
        page.press("Enter")
        assert text(page, "#tensor h3") == "group3.block36.mid.conv.weight"
        assert page.said == []
        assert page.requests == [(tmp_path / "p.html").resolve().as_uri()]
    dims = {name: set(tiling.dims) for name, tiling in plan.tilings.items()}
    activations = [dims[name] for name in dims if name.endswith(("conv.y", "relu.y"))]
    assert any(0 in split_dims for split_dims in activations), "the batch is divided"
    assert any(1 in split_dims for split_dims in activations), "channels are divided"
    wide, narrow = (plan.tilings[f"group{group}.block2.mid.conv.weight"] for group in (1, 3))
    assert held(wide, (640, 640, 3, 3)) > held(narrow, (2560, 2560, 3, 3)), "weights below are held by more workers"


def held(tiling: Tiling, shape: tuple[int, ...]) -> float:
    """By how many workers each element is held."""
    size = 1
    for extent in shape:
        size *= extent
    return float(tiling.boxes(shape).elements.sum()) / size
