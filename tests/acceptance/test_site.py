"""The documentation as a site: it builds without a warning, needs nothing from elsewhere, and fits a phone."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="no MkDocs is installed (make docs)")

RESOURCE = re.compile(r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=[\"']?([^\"' >]+)")
STYLE = re.compile(r"<link\b[^>]*\brel=[\"']?(?:stylesheet|icon|preconnect|preload|manifest)\b[^>]*>")
SIDEWAYS = "document.scrollingElement.scrollWidth - window.innerWidth"
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(made)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only the tests in a browser need it

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


def pages(site):
    return sorted(site.rglob("*.html"))


def test_no_page_names_a_resource_of_another_host(site):
    assert len(pages(site)) > 50
    for page in pages(site):
        text = page.read_text()
        named = RESOURCE.findall(text) + [
            found for tag in STYLE.findall(text) for found in re.findall(r"href=[\"']?([^\"' >]+)", tag)
        ]
        assert named
        assert not [each for each in named if re.match(r"(https?:)?//", each)], page.name
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\([\"']?(?:https?:)?//", sheet.read_text()), sheet.name


def test_every_page_of_the_documentation_is_there(site):
    for page in (ROOT / "docs").rglob("*.md"):
        name = "index.html" if page.name == "README.md" else f"{page.stem}.html"
        assert (site / page.relative_to(ROOT / "docs").with_name(name)).exists(), page
    assert (site / "project/readme.html").exists()


@needs_browser
def test_no_page_asks_another_host_or_scrolls_sideways_on_a_phone(site, browser):
    context = browser.new_context(viewport=PHONE)
    tab = context.new_page()
    asked = set()
    tab.on("request", lambda request: asked.add(request.url.partition(":")[0]))
    wide = []
    for page in pages(site):
        tab.goto(page.as_uri(), wait_until="load")
        if tab.evaluate(SIDEWAYS) > 0:
            wide.append(page.name)
    context.close()
    assert not wide
    assert asked <= {"file", "data", "blob"}


@needs_browser
def test_the_search_works_without_a_server(site, browser):
    tab = browser.new_page()
    tab.goto((site / "index.html").as_uri())
    tab.get_by_role("textbox", name="Search").click()
    tab.keyboard.type("bounded stretch")
    tab.locator(".md-search-result__item").first.wait_for(timeout=20_000)
    assert "tretch" in tab.locator(".md-search-result__list").inner_text()
    tab.close()
