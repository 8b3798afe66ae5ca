"""The page of a cluster with 1,000 jobs that run and 500,000 that have ended, in Chromium, at two widths and themes.

The controller is a real one; the tasks of its agents are in memory. Shown are, over all visits: how long it takes until
anything is painted, and until the jobs are there, from the request on and without anything kept from before; how long
after a job was submitted the page shows it; the longest time without a frame while somebody scrolls from top to bottom
and back; and what axe finds.

    python -m benchmarks.page [--visits 10]
"""

import argparse
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright
from tests.dashboard_visits import PHONE, WIDE, unfit, visit
from tests.live_processes import LiveCluster, wait_until

from benchmarks.common import console, machine
from benchmarks.live_history import ENDED, ended_job, lengthen, stop
from benchmarks.live_hour import SHORT, crowd
from benchmarks.online import table

RUNNING, NODES, MEMORY = 1_000, 100, 4 << 30
"""Memory of a node in bytes: there is room for all jobs."""
LONG = {"command": ["sleep", "100000"], "memory_bytes": 64 << 20, "cpu_cores": 0.1}
PATIENCE_S = 300.0
CONTENT_GOAL_S, EVENT_GOAL_S, FRAME_GOAL_MS = 1.0, 1.0, 200.0
WAITS_MS = (100, 450, 800, 1150, 1500, 1850)
"""Between a change that is shown and the next one: how long that takes depends on when the page has last asked."""
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


@contextmanager
def cluster() -> Iterator[LiveCluster]:
    """A controller with that many jobs; its agents are in another process, and their tasks in its memory."""
    end = multiprocessing.Event()
    with tempfile.TemporaryDirectory() as name, LiveCluster(Path(name), nodes=1) as made:
        final = ended_job(made)
        stop(made)
        lengthen(made.state / "dfrs.db", final)
        made.start_controller()
        token = (made.state / "agent.token").read_text().strip()
        agents = multiprocessing.Process(target=crowd, args=(made.server, token, end, NODES, MEMORY))
        agents.start()
        wait_until(lambda: len(made.up()) == NODES + 1, "all agents are there", PATIENCE_S)
        made.client.post("/api/v1/jobs", json=LONG | {"array": RUNNING}, timeout=60).raise_for_status()
        wait_until(lambda: _running(made) == RUNNING, "all jobs run", PATIENCE_S)
        yield made
        end.set()
        agents.join()


def _running(made: LiveCluster) -> int:
    return made.client.get("/api/v1/cluster").raise_for_status().json()["jobs"]["running"]


def look(browser: Browser, made: LiveCluster, seen: Seen, **options: Any) -> None:
    """One visit."""
    began_s = time.monotonic()
    with visit(browser, made.server, token=made.token, name=made.name, **options) as page:
        page.wait_for_selector("#job-table tbody tr")
        seen.content_s.append(time.monotonic() - began_s)
        seen.painted_s.append(page.evaluate(PAINTED))
        for wait_ms in WAITS_MS:
            page.wait_for_timeout(wait_ms)
            seen.event_s.append(_until_shown(page, made))
        seen.frame_ms.append(_scroll(page))
        seen.findings |= unfit(page).keys()


def _until_shown(page: Page, made: LiveCluster) -> float:
    """Seconds from when a job was submitted until the page has it."""
    began_s = time.monotonic()
    (name,) = made.client.post("/api/v1/jobs", json=SHORT).raise_for_status().json()["jobs"]
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
    met = True
    with sync_playwright() as playwright, cluster() as running:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for viewport in (WIDE, PHONE):
            for theme in ("light", "dark"):
                seen = Seen()
                for _ in range(visits):
                    look(browser, running, seen, viewport=viewport, color_scheme=theme)
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
