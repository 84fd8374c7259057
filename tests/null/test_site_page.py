"""The report in a browser, from a file:// address: needs Debian's chromium, and the package playwright."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import site_tools
from site_tools import cell

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("there is no chromium here: apt install chromium", allow_module_level=True)
sync_api = pytest.importorskip(
    "playwright.sync_api", reason="there is no playwright here: pip install playwright"
)
report = pytest.importorskip("gen.site.report", reason="there is no jinja2 here").report

ROOT = Path(__file__).resolve().parents[2]
ALL = ["emitted", "compiled"]
TEXT = b"// a comment\n#include <x>\nvoid f() { return 0x1f; }\n"
HOSTILE = "<script>x</script>"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    cells = [
        cell(kernel, fmt, "f16", target, ALL if target == "cpu" else [*ALL, "executed:H"], {}, TEXT)
        for kernel in ("dequant", "qgemv", HOSTILE)
        for fmt in ("fp4", "int4", "int8")
        for target in ("cpu", "sm_90a")
    ]
    cells += [cell("copy", None, "f16", target, ALL, {}, TEXT) for target in ("cpu", "sm_90a")]
    art = site_tools.write(folder / "art", cells, {c["source"]: TEXT for c in cells})
    report(art, folder / "site", [ROOT / "benchmarks" / "qgemv-h200.json"])
    return folder / "site"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any, site: Path) -> Iterator[Any]:
    """The page, opened. At the end: no complaint, and no request but for files beside it."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme="light")
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    yield page
    context.close()
    assert not said
    assert all(url.startswith((site.as_uri(), "data:")) for url in asked)


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.getAttribute('aria-label')")).split(":")[0]


def test_arrows_move_enter_opens_escape_closes(page: Any) -> None:
    page.focus("#matrix td a")
    assert page.locator("#matrix a[tabindex='0']").count() == 1
    first = focused(page)
    kernel, fmt = first.split()
    page.keyboard.press("ArrowRight")
    assert focused(page) == f"{kernel} int4"
    page.keyboard.press("ArrowDown")
    assert focused(page).endswith(" int4")
    assert not focused(page).startswith(kernel)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert focused(page) == first
    page.keyboard.press("ArrowLeft")  # there is nothing further
    assert focused(page) == first
    page.keyboard.press("End")
    assert focused(page) == f"{kernel} int8"
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] .source")
    assert page.inner_text("#panel-title") == f"{kernel} × int8"
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    assert focused(page) == f"{kernel} int8"
    assert "#" not in page.url
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    assert fmt == "fp4"


def test_a_cell_opens_to_its_chain_and_its_text(page: Any, site: Path) -> None:
    page.goto((site / "index.html").as_uri() + "#qgemv/int4/sm_90a")
    page.wait_for_selector("dialog[open] .source")
    assert page.inner_text("[role=tab][aria-selected=true]") == "sm_90a"
    assert page.evaluate("document.querySelector('.source pre:last-child').textContent") == TEXT.decode()
    body = page.inner_text("#body")
    assert "wootz explain qgemv int4 sm_90a" in body
    assert "grid (ceildiv(n, 256), 1, 1), block [256, 1, 1]" in body
    assert "emitted, compiled, executed: H" in body
    assert page.evaluate("CSS.highlights.get('comment').size") == 1
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("location.hash.endsWith('/cpu')")
    page.wait_for_function("document.querySelector('#body').textContent.includes('qgemv/int4/f16/cpu')")


def test_a_hostile_name_opens_too(page: Any) -> None:
    page.locator(f"#matrix tr[data-k='{HOSTILE}'] a").first.click()
    page.wait_for_selector("dialog[open] .source")
    assert page.inner_text("#panel-title").startswith(HOSTILE)


def test_a_page_without_its_folder_says_so(browser: Any, site: Path, tmp_path: Path) -> None:
    shutil.copy(site / "index.html", tmp_path)
    page = browser.new_page()
    page.goto((tmp_path / "index.html").as_uri() + "#copy/-/cpu")
    page.wait_for_selector("[role=alert]")
    assert "is not beside this page" in page.inner_text("[role=alert]")
    page.close()


def test_the_filter_and_the_target_leave_what_they_name(page: Any) -> None:
    page.fill("#filter", "gemv int")
    assert page.locator("#matrix tr[data-k]:visible").count() == 1
    assert page.locator("#matrix thead [data-f]:visible").all_inner_texts() == ["int4", "int8"]
    assert page.inner_text("#shown") == "1 kernels, 2 formats shown"
    page.focus("#matrix a[tabindex='0']")
    assert focused(page) == "qgemv int4"
    page.fill("#filter", "nobody")
    assert page.locator(".matrix tr[data-k]:visible").count() == 0
    page.fill("#filter", "")
    assert page.locator(".matrix tr[data-k]:visible").count() == 4
    page.check("#targets input >> nth=2", force=True)
    bar = page.locator("#matrix tr[data-k=qgemv] i:visible").first
    assert bar.evaluate("e => getComputedStyle(e, '::after').content") == '"D"'
    assert page.locator("#plain td:visible").all_inner_texts() == ["compiled"]


def test_light_dark_and_narrow(browser: Any, site: Path) -> None:
    seen = set()
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme, viewport={"width": 360, "height": 700})
        page = context.new_page()
        page.goto((site / "index.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        seen.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.select_option("#theme", "light" if scheme == "dark" else "dark")
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") not in seen or scheme == "dark"
        )
        context.close()
    assert len(seen) == 2
