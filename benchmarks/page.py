"""The page of a cluster with 1,000 jobs that run and 10,000 that have ended, in Chromium, at two widths and themes.

The real API with the real page, in front of a service that is told what it is to say; a job begins four times a second.
Shown are, over all visits: how long it takes until anything is painted, and until the jobs are there, from the request
on and without anything kept from before; how long after a change the page shows it; the longest time without a frame
while somebody scrolls from top to bottom and back; and what axe finds.

    python -m benchmarks.page [--visits 10]
"""

import argparse
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright
from tests.dashboard_server import Told, serving
from tests.dashboard_stories import Story, job_of, large_cluster
from tests.dashboard_visits import PHONE, WIDE, unfit, visit

from benchmarks.common import console, machine
from benchmarks.online import table
from dfrs.live.protocol.resources import JobState

RUNNING, ENDED, NODES = 1_000, 10_000, 1_000
CONTENT_GOAL_S, EVENT_GOAL_S, FRAME_GOAL_MS = 1.0, 1.0, 200.0
EVERY_S = 0.25
"""Between two jobs that begin."""
SCROLLS, SCROLL_PX, SCROLL_S = 60, 300, 0.03
"""Turns of the wheel in each direction, how far one goes, and the time between two."""
FRAMES = """() => {
  window.longest = 0;
  let last = performance.now();
  const next = (now) => {
    window.longest = Math.max(window.longest, now - last);
    last = now;
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
}"""
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
NEWEST = "(name) => document.querySelector(`#job-table a[href='#job=${name}']`) !== null"


@dataclass
class Seen:
    """What visits came to, in seconds and milliseconds."""

    painted_s: list[float] = field(default_factory=list[float])
    content_s: list[float] = field(default_factory=list[float])
    event_s: list[float] = field(default_factory=list[float])
    frame_ms: list[float] = field(default_factory=list[float])
    findings: set[str] = field(default_factory=set[str])


def cluster() -> Told:
    """Of that size."""
    told = large_cluster(NODES, RUNNING)
    now = time.time()
    for k in range(RUNNING + 1, RUNNING + ENDED + 1):
        story = Story(k, "fit", "ann", (f"n{k % NODES:04d}",), 0.6, now - 1800, now - 900)
        ended = job_of(story, JobState.DONE, "", now, None, ended_at=now - 900, exit="done", exit_code=0)
        told.jobs_[k] = ended
    return told


@contextmanager
def busy(told: Told, begun: dict[int, float]) -> Iterator[None]:
    """Jobs begin all the time; `begun` gets when each did."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(EVERY_S):
            name, now = max(told.jobs_) + 1, time.time()
            story = Story(name, "fit", "ann", ("n0001",), 0.6, now, now + 9e4)
            told.jobs_[name] = job_of(story, JobState.RUNNING, "there was room", now, 0.6)
            begun[name] = time.monotonic()
            told.tell("start", "there was room", job=name, nodes=("n0001",), yield_=0.6)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def look(browser: Browser, address: str, begun: dict[int, float], seen: Seen, **options: Any) -> None:
    """One visit."""
    began_s = time.monotonic()
    with visit(browser, address, silent=False, **options) as page:
        page.wait_for_selector("#job-table tbody tr")
        seen.content_s.append(time.monotonic() - began_s)
        seen.painted_s.append(page.evaluate(PAINTED))
        for _ in range(3):
            seen.event_s.append(_until_shown(page, begun))
        seen.frame_ms.append(_scroll(page))
        seen.findings |= unfit(page).keys()


def _until_shown(page: Page, begun: dict[int, float]) -> float:
    """Seconds from when the next job begins until the page has it."""
    before = len(begun)
    while len(begun) == before:
        time.sleep(0.002)
    name, began_s = list(begun.items())[-1]
    while not page.evaluate(NEWEST, name):
        page.wait_for_timeout(5)
    return time.monotonic() - began_s


def _scroll(page: Page) -> float:
    """The longest time without a frame meanwhile, in milliseconds."""
    page.evaluate(FRAMES)
    for direction in (1, -1):
        for _ in range(SCROLLS):
            page.mouse.wheel(0, direction * SCROLL_PX)
            page.wait_for_timeout(SCROLL_S * 1000)
    return page.evaluate("window.longest")


def main(visits: int = 10) -> None:
    """Visit it at both widths and in both themes, so many times each."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no Chromium is installed: apt-get install chromium")
    console.print(machine())
    made = table(
        f"{RUNNING:,} jobs run, {ENDED:,} have ended, on {NODES:,} nodes; {visits} visits a row; median and longest",
        "width, theme",
        "painted, s",
        "jobs there, s",
        "change shown, s",
        "no frame for, ms",
        "axe finds",
    )
    told, begun, met = cluster(), dict[int, float](), True
    with sync_playwright() as playwright, serving(told) as address, busy(told, begun):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for viewport in (WIDE, PHONE):
            for theme in ("light", "dark"):
                seen = Seen()
                for _ in range(visits):
                    look(browser, address, begun, seen, viewport=viewport, color_scheme=theme)
                made.add_row(
                    f"{viewport['width']}, {theme}",
                    *(_figures(each, 2) for each in (seen.painted_s, seen.content_s, seen.event_s)),
                    _figures(seen.frame_ms, 0),
                    ", ".join(sorted(seen.findings)) or "nothing",
                )
                met &= np.max(seen.content_s) <= CONTENT_GOAL_S and np.max(seen.event_s) <= EVENT_GOAL_S
                met &= np.max(seen.frame_ms) <= FRAME_GOAL_MS and not seen.findings
        browser.close()
    console.print(made)
    console.print(
        f"At most {CONTENT_GOAL_S:g} s until jobs are there, {EVENT_GOAL_S:g} s until a change is shown, "
        f"{FRAME_GOAL_MS:g} ms without a frame, and nothing found by axe: {'met' if met else 'NOT MET'}"
    )


def _figures(found: list[float], digits: int) -> str:
    return f"{statistics.median(found):.{digits}f}, {max(found):.{digits}f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=10)
    main(**vars(parser.parse_args()))
