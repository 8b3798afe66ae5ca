"""Visits of the dashboard in a browser: whatever it says on the console or asks of others fails the test."""

import re
import time
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PATIENCE_MS = 60_000
PROBES = (Path(__file__).with_name("dashboard_probes.js")).read_text(encoding="utf-8")
"""A JavaScript object of functions that look at the page as a reader does."""


def probe(page, name, *arguments):
    return page.evaluate(f"(given) => ({PROBES}).{name}(...given)", arguments)


@contextmanager
def visit(browser, address, *, token="root-secret", silent=True, rest="", viewport=WIDE, name="attic", **options):
    context = browser.new_context(viewport=viewport, reduced_motion="reduce", **options)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/#" + "&".join(filter(None, (token and f"token={token}", rest))))
    if token:
        page.wait_for_selector("#main:not([hidden])")
        see(page, "(name) => document.querySelector('#cluster-name').textContent === name", name)
    try:
        yield page
    finally:
        context.close()
    assert all(url.startswith(address) for url in asked)
    assert not token or not any(token in url.partition("#")[0] for url in asked)
    if silent:
        assert not said


@cache
def _axe():
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def unfit(page):
    """What axe finds that keeps somebody from using the page: rules, and the first element that breaks each."""
    page.evaluate(_axe())
    found = page.evaluate("axe.run()")["violations"]
    return {one["id"]: one["nodes"][0]["html"] for one in found}


def text(page, selector):
    return re.sub(r"\s+", " ", page.inner_text(selector)).strip()


def see(page, condition, argument=None):
    """Wait for a condition; not by the library's own way, which evaluates text in the page, as its policy forbids."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not page.evaluate(condition, argument):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(30)


def toast(page, words):
    see(page, "(words) => document.querySelector('#toasts').innerText.includes(words)", words)
