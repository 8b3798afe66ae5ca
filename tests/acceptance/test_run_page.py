"""The page of a run in a real browser: its script runs, draws, answers, and asks nobody for anything."""

import html
import json
import re
import shutil
import subprocess

import matplotlib.image
import numpy as np
import pytest

from dfrs.report.gantt import JOB_COLOURS
from dfrs.report.run_page import page
from tests.toy_runs import story_run, toy_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)")


def browse(path, profile, *options, hash_=""):
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
            "--virtual-time-budget=5000",
            "--window-size=1400,1900",
            *options,
            f"file://{path}{hash_}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not complaints
    return done.stdout


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    place = tmp_path_factory.mktemp("pages")
    for name, run in (("story", story_run()), ("large", toy_run(128, 1000))):
        (place / f"{name}.html").write_text(page(run), encoding="utf-8")
    return place


def test_a_page_of_a_thousand_jobs_is_small_and_needs_nothing_from_outside(pages):
    text = (pages / "large.html").read_text()
    assert len(text) < 8_000_000
    addresses = set(re.findall(r"""(?:https?:)?//[\w.-]+\.\w+[^"'\s]*""", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a kind of element, not an address
    assert not re.findall(r"""<(?:script|link|img|iframe)[^>]*\s(?:src|href)=["'](?!data:)""", text)
    assert "@import" not in text
    assert "url(" not in text.replace("url(#hatch)", "")


@needs_browser
def test_the_script_runs_and_fills_the_page(pages, tmp_path):
    dom = browse(pages / "large.html", tmp_path, "--dump-dom")
    assert 'data-ready="yes"' in dom
    assert len(re.findall(r"<tr[^>]*><td><a href=\"#job=", dom)) == 25
    assert dom.count('class="tile"') == 8
    assert re.search(r'id="tail"><svg', dom)
    assert "1,000 jobs on 128 nodes" in dom
    first = re.search(r'<a href="#job=(\d+)"', dom)
    run = toy_run(128, 1000)
    assert int(first[1]) == run.workload.job_id[np.nanargmax(run.stretch)]


@needs_browser
def test_a_job_has_its_story_and_a_wrong_id_its_answer(pages, tmp_path):
    dom = browse(pages / "story.html", tmp_path, "--dump-dom", hash_="#job=10")
    steps = re.search(r'<ol id="steps">(.*?)</ol>', dom, re.DOTALL)[1]
    assert re.findall(r'<li class="(\w+)"', steps) == [
        "submit",
        "start",
        "shares",
        "pause",
        "resume",
        "migrate",
        "finish",
    ]
    assert 'gave way to <a href="#job=30">job 30</a>, submitted at that instant' in steps
    assert re.search(r'id="life"><svg', dom)
    dom = browse(pages / "story.html", tmp_path, "--dump-dom", hash_="#job=11")
    assert "no job 11; the nearest ids are 10, 20, 30" in dom
    assert re.search(r'<aside id="story" hidden', dom)


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_the_diagram_is_drawn_in_the_jobs_colours(pages, tmp_path, dark):
    picture = tmp_path / "page.png"
    browse(
        pages / "story.html",
        tmp_path / "profile",
        f"--screenshot={picture}",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
    )
    pixels = np.rint(matplotlib.image.imread(picture)[..., :3] * 255).astype(int)
    for text in JOB_COLOURS[:3]:
        wanted = [int(text[k : k + 2], 16) for k in (1, 3, 5)]
        assert (pixels == wanted).all(axis=2).sum() > 500, text
    assert (pixels[5, 5].mean() < 60) == dark


HAND = """
<script>
const get = (id) => document.getElementById(id), seen = [];
const canvas = get("gantt"), box = () => canvas.getBoundingClientRect();
const point = (kind, seconds, node, more = {}) => {
  const along = (seconds - view.from) / (view.to - view.from), Kind = kind === "wheel" ? WheelEvent : PointerEvent;
  canvas.dispatchEvent(new Kind(kind, {
    bubbles: true, cancelable: true, pointerId: 1, clientX: box().left + along * box().width,
    clientY: box().top + ((node + 0.75) / run.nodes) * box().height, ...more }));
};
point("pointermove", 1200, 0); seen.push(get("tip").innerText);
point("pointermove", 2150, 1); seen.push(get("tip").innerText);
point("pointermove", 1800, 1); seen.push(get("tip").innerText);
point("wheel", 1000, 0, { deltaY: -500 });
seen.push(`${view.from < 1000 && view.to > 1000} ${view.to - view.from < 2000}`);
canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" })); seen.push(`${view.from > 500}`);
document.querySelector("[data-zoom=all]").click(); seen.push(`${view.from} ${view.to}`);
get("wanted").value = "20"; document.querySelector("#search button").click();
seen.push(get("story-title").textContent);
get("close").click(); seen.push(`${get("story").hidden}`);
const reached = (selector, k) => {
  const all = document.querySelectorAll(selector);
  all[k].focus();
  return document.activeElement === all[k] ? all[k] : null;
};
reached("#jobs th button", 5).click(); seen.push(document.querySelector("#jobs tbody td").textContent);
seen.push(`${document.activeElement.textContent} ${document.activeElement.parentElement.ariaSort}`);
get("wanted").value = "20"; document.querySelector("#search button").click();
setView(0, 100); reached("#steps time button", 1).click(); seen.push(`${view.to > 100}`);
document.documentElement.dataset.seen = JSON.stringify(seen);
</script>
</body>"""


@needs_browser
def test_pointer_wheel_keys_and_search_work(pages, tmp_path):
    path = tmp_path / "hand.html"
    path.write_text((pages / "story.html").read_text().replace("</body>", HAND), encoding="utf-8")
    dom = browse(path, tmp_path / "profile", "--dump-dom")
    seen = json.loads(html.unescape(re.search(r'data-seen="([^"]*)"', dom)[1]))
    assert seen[0].startswith("job 10 · yield 0.500")
    assert "nodes 0-1" in seen[0]
    assert "there was room at submission" in seen[0]
    assert seen[1].startswith("job 10 · yield 0.500")
    assert "nodes 1*2" in seen[1]
    assert "in its penalty until 0+00:40:00" in seen[1]
    assert seen[2].startswith("job 20 · yield 0.667")
    assert seen[3:] == ["true true", "true", "0 3750", "Job 20", "true", "10", "work ↓ descending", "true"]
