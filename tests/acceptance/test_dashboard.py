"""The dashboard in a real browser, on the real API: what it shows, what it lets one do, and who can use it."""

import json
import re
import shutil
import subprocess
import time
from dataclasses import replace

import numpy as np
import pytest

from dfrs.live.protocol.resources import JobState, NodeState, Reservation, shown_yield
from tests.dashboard_server import NASTY, PAGE, Told, serving
from tests.dashboard_stories import large_cluster, node_of, small_cluster
from tests.dashboard_visits import PHONE, WIDE, probe, see, text, toast, unfit, visit
from tests.live_processes import LiveCluster

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)")
MODULES = sorted(PAGE.glob("*.js"))
READ = (
    "h1",
    "h2",
    ".quiet",
    ".hint",
    ".tile span",
    ".tile small",
    ".hero b",
    ".node .state",
    ".figures span",
    ".free",
    ".block:not(.paused) span",
    "#chart text",
    "td",
    "th",
    ".state",
    "a",
    "button",
    "select",
    "label",
    "dt",
    "dd",
    "pre",
    "li time",
    "li b",
    ".time-axis text",
)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only the tests in a browser need it

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def calm():
    """A cluster that no test changes."""
    with serving(small_cluster()) as address:
        yield address


def test_the_modules_are_small_and_never_parse_text_as_html():
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(.style"
    )
    for path in (*MODULES, PAGE / "index.html", *PAGE.glob("*.css")):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 260, path.name
        assert not [line for line in lines if forbidden.search(line)], path.name
        assert not [
            line for line in lines if "//" in line and re.search(r"https?://(?!www\.w3\.org/2000/svg)", line)
        ], path.name
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", page)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js is installed")
def test_every_module_parses(tmp_path):
    for path in MODULES:
        copy = tmp_path / f"{path.stem}.mjs"
        copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(["node", "--check", *map(str, tmp_path.glob("*.mjs"))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_browser
def test_it_shows_the_cluster(browser, calm):
    with visit(browser, calm) as page:
        see(page, "document.querySelector('#chart path.least').getAttribute('d')?.length > 50")
        assert page.url == f"{calm}/"
        assert re.fullmatch(r"0\.\d\d", text(page, ".hero b"))
        assert re.fullmatch(r"best possible 0\.\d\d · \d+ % of it", text(page, ".beside"))
        tiles = text(page, "#headline")
        for words in (
            "Median yield",
            "Jain’s index",
            "3 of 6",
            "1 draining, 1 silent, 1 lost",
            "OBSERVE",
            "otherwise: EASY",
        ):
            assert words in tiles
        assert page.locator("#node-list > .node").count() == 6
        states = [text(page, f"#node-list > .node:nth-child({k}) .state") for k in (1, 4, 5, 6)]
        assert states[0] == "●up"
        assert states[1] == "◐draining"
        assert re.fullmatch(r"\?silent for \d+ (s|min)", states[2])
        assert re.fullmatch(r"✕lost for \d+ min", states[3])
        assert page.locator("#node-list .block.paused").count() >= 1
        rows = page.locator("#job-table tbody tr")
        assert rows.count() > 5
        first = rows.filter(has=page.locator(".state[data-state=running]")).first.inner_text()
        assert "fullest of its nodes" in first
        assert page.locator("#queue-list tbody tr").count() == 3
        assert "memory: no node has 2.5 GiB free" in text(page, "#queue-list tbody tr:first-child")
        assert "there was room" in text(page, "#event-list")
        colours = probe(page, "paintedColours", "#gantt canvas")
        assert colours >= 8
        page.click("#shadow summary")
        page.wait_for_selector("#shadow-list li")
        assert "would: wait for 3 free nodes" in text(page, "#shadow-list")
        page.click("#chart-table summary")
        page.wait_for_selector("#chart-table tbody tr")


@needs_browser
def test_what_users_wrote_stays_text(browser, calm):
    with visit(browser, calm, rest="job=61") as page:
        page.wait_for_selector("#drawer pre:has-text('residual')")
        page.select_option("#job-states", "live")
        page.wait_for_selector("#job-table tr:has-text('onerror')")
        assert NASTY in page.inner_text("#job-table")
        assert NASTY in page.inner_text("#queue-list")
        assert NASTY in page.inner_text("#drawer-title")
        assert page.inner_text("#drawer pre[aria-label=Output]").startswith(NASTY)
        page.click("#drawer button.danger")
        assert NASTY in page.inner_text("#confirm-text")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0


@needs_browser
def test_characters_that_turn_text_round_are_shown_as_escapes(browser, calm):
    with visit(browser, calm) as page:
        shown = page.evaluate(
            """async (words) => {
                const { attribute, h, text } = await import("/static/dom.js");
                const made = h("p", { title: words }, words, h("b"));
                text(made.lastChild, words);
                attribute(made.lastChild, "title", words);
                return [made.title, made.firstChild.data, made.lastChild.title, made.lastChild.textContent];
            }""",
            "a\u202eb\x1b[2J\n\x9b\u2066",
        )
        assert shown == ["a\\u202eb\\x1b[2J\n\\x9b\\u2066"] * 4


@needs_browser
def test_it_asks_who_one_is(browser, calm):
    with visit(browser, calm, token="", silent=False) as page:
        page.wait_for_selector("#sign-in:not([hidden])")
        assert not page.is_visible("#main")
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("#sign-in-why:has-text('does not work')")
        page.fill("#token", "eye-secret")
        page.click("#sign-in button")
        page.wait_for_selector("#main:not([hidden])")
        assert (
            page.evaluate("[location.hash, document.cookie, JSON.stringify(localStorage)].join()").count("secret") == 0
        )
        page.click("#sign-out")
        page.wait_for_selector("#sign-in:not([hidden])")


@needs_browser
@pytest.mark.parametrize(("token", "own", "other"), [("eye-secret", 0, 0), ("alice-secret", 2, 0)])
def test_buttons_are_only_for_those_who_may(browser, calm, token, own, other):
    with visit(browser, calm, token=token, silent=False) as page:
        assert page.locator("#node-list button:not(.block):visible").count() == 0
        for job, buttons in ((61, own), (62, other)):
            page.evaluate("(job) => { location.hash = `job=${job}`; }", job)
            see(page, "(job) => document.querySelector('#drawer-title')?.textContent.startsWith(`Job ${job} `)", job)
            assert page.locator("#drawer .answers button").count() == buttons
            assert ("for its owner" in page.inner_text("#drawer")) == (buttons == 0)


@needs_browser
def test_actions_ask_first_and_say_what_came_of_it(browser):
    told = small_cluster()
    with serving(told) as address, visit(browser, address, silent=False) as page:
        page.click("#job-table a.job >> text=render")
        job = int(re.search(r"job=(\d+)", page.url)[1])
        page.click("#drawer >> text=Cancel the job")
        assert text(page, "#confirm-title") == f"Cancel job {job}?"
        for _ in range(4):
            page.keyboard.press("Tab")
            assert probe(page, "focusIsIn", "#confirm")
        page.keyboard.press("Escape")
        see(page, "!document.querySelector('#confirm').open")
        assert page.is_visible("#drawer")
        assert told.asked == []
        page.click("#drawer >> text=Hold")
        page.keyboard.press("Enter")
        toast(page, f"Job {job} is held.")
        page.click("#drawer >> text=Release")
        page.keyboard.press("Enter")
        toast(page, f"Job {job} is released.")
        page.wait_for_selector("#drawer .state[data-state=waiting]")
        page.click("#drawer >> text=Cancel the job")
        page.click("#confirm button >> text=Cancel the job")
        toast(page, f"Job {job} is being cancelled.")
        page.wait_for_selector("#drawer .state[data-state=cancelled]")
        see(page, "(job) => !document.querySelector(`#job-table a[href='#job=${job}']`)", job)
        assert page.locator("#drawer .answers button").count() == 0
        page.keyboard.press("Escape")
        page.click("[aria-label='Drain node2']")
        page.click("#confirm button >> text=Drain")
        page.wait_for_selector("[aria-label='Undrain node2']")
        page.click("[aria-label='Undrain node2']")
        page.keyboard.press("Enter")
        page.wait_for_selector("[aria-label='Drain node2']")
        verbs = [("hold", job), ("release", job), ("cancel", job), ("drain", "node2"), ("undrain", "node2")]
        assert told.asked == [(verb, what, "ada") for verb, what in verbs]
        page.evaluate("() => { location.hash = 'job=62'; }")
        page.click("#drawer >> text=Cancel the job")
        told.jobs_[62] = told.jobs_[62].model_copy(update={"state": JobState.DONE})
        page.keyboard.press("Enter")
        toast(page, "Not done: job 62: it has ended.")


@needs_browser
def test_a_silent_node_can_be_undrained_and_a_reserved_one_drained(browser):
    told, now = small_cluster(), time.time()
    silent = {"state": NodeState.SILENT, "drained": True, "drain_reason": "new fans"}
    fields = {"nodes": ("node2",), "by": "ada", "reason": "", "evacuate": False, "cancelled": False}
    planned = Reservation(id=1, start_at=now - 60, end_at=now + 3600, **fields)
    for name, changes in (("node1", silent), ("node2", {"state": NodeState.DRAINING, "reservations": (planned,)})):
        told.nodes_[name] = told.nodes_[name].model_copy(update=changes)
    with serving(told) as address, visit(browser, address) as page:
        page.wait_for_selector("[aria-label='Undrain node1']")
        page.wait_for_selector("[aria-label='Drain node2']")
        for name, verb, other in (("node1", "Undrain", "Drain"), ("node2", "Drain", "Undrain")):
            page.evaluate("(name) => { location.hash = `node=${name}`; }", name)
            page.click(f"#drawer .answers button >> text=/^{verb}$/")
            page.keyboard.press("Enter")
            page.wait_for_selector(f"#drawer .answers button >> text=/^{other}$/")
            page.wait_for_selector(f"[aria-label='{other} {name}']")
        assert told.asked == [("undrain", "node1", "ada"), ("drain", "node2", "ada")]


@needs_browser
def test_it_follows_and_says_when_it_cannot(browser):
    told = small_cluster()
    with serving(told) as address, visit(browser, address, silent=False) as page:
        page.wait_for_selector("#queue-list tbody tr")
        told.change(61, state=JobState.RUNNING, yield_granted=0.31, nodes=("node2",), why="a place came free")
        told.nodes_["node5"] = told.nodes_["node5"].model_copy(update={"state": NodeState.UP})
        told.tell("start", "a place came free", job=61, nodes=("node2",), yield_=0.31)
        page.wait_for_selector("#job-table tr:has-text('a place came free')")
        page.wait_for_selector("#event-list li:first-child:has-text('start job 61 on node2, yield 0.31')")
        page.wait_for_selector("#node-list .node:nth-child(5)[data-state=up]")
        told.broken = True
        told.tell("share", job=60)
        page.wait_for_selector("#banner:not([hidden])")
        assert re.search(r"No connection: .*The figures are of \d\d:\d\d:\d\d\. Trying again\.", text(page, "#banner"))
        assert page.locator("#job-table tbody tr").count() > 5
        told.broken = False
        page.wait_for_selector("#banner", state="hidden")


@needs_browser
def test_what_changes_while_it_asks_is_shown_soon(browser):
    told, changed_s = small_cluster(), []

    def late(route):
        """It has its snapshot, and asks for the rest: now something happens."""
        if not changed_s:
            told.change(61, state=JobState.RUNNING, yield_granted=0.31, nodes=("node2",), why="a place came free")
            told.tell("start", "a place came free", job=61, nodes=("node2",), yield_=0.31)
            time.sleep(0.4)
            changed_s.append(time.monotonic())
        route.continue_()

    with serving(told) as address, visit(browser, address) as page:
        page.wait_for_selector("#queue-list tbody tr")
        # Beyond the refreshes of the beginning.
        page.wait_for_timeout(1500)
        page.route("**/api/v1/activity*", late)
        told.tell("share", job=60)
        page.wait_for_selector("#job-table tr:has-text('a place came free')")
        assert time.monotonic() - changed_s[0] < 3.0


@needs_browser
def test_output_goes_on_after_a_failed_read_and_begins_anew_with_an_attempt(browser):
    told, refused, asked = small_cluster(), [0, 429, 503], []

    def refuse(route):
        asked.append(re.search(r"offset=(\d+)", route.request.url)[1])
        if not refused:
            route.continue_()
        elif (status := refused.pop()) == 0:
            route.abort()
        else:
            route.fulfill(status=status, json={"detail": "not now"})

    with serving(told) as address, visit(browser, address, silent=False) as page:
        page.route("**/api/v1/jobs/60/output*", refuse)
        page.evaluate("() => { location.hash = 'job=60'; }")
        page.wait_for_selector("#drawer p:has-text('No output: not now. Trying again.')")
        page.wait_for_selector("#drawer pre:has-text('step 59 of 400')")
        assert refused == []
        page.wait_for_selector("#drawer p:has-text('Follows as more is written.')")
        asked.clear()
        told.change(60, attempt=1)
        told.tell("start", job=60)
        page.wait_for_selector("#drawer dd:has-text('1 ×')")
        page.wait_for_selector("#drawer p:has-text('Follows as more is written.')")
        assert "0" in asked
        assert page.inner_text("#drawer pre[aria-label=Output]").count("step 59 of 400") == 1


@needs_browser
def test_the_focus_stays_when_rows_go_or_change_places(browser):
    def there(ids):
        see(page, "(ids) => ids.every((id) => !document.querySelector(`#job-table a[href='#job=${id}']`))", ids)

    told = small_cluster()
    with serving(told) as address, visit(browser, address) as page:
        page.wait_for_selector("#job-table tbody tr")
        hashes = page.evaluate("[...document.querySelectorAll('#job-table a.job')].map((link) => link.hash)")
        page.focus(f"#job-table a[href='{hashes[3]}']")
        page.evaluate("addEventListener('focusout', () => { window.blurred = true; })")
        gone = [int(hashes[k].removeprefix("#job=")) for k in (0, 1)]
        for job in gone:
            told.change(job, state=JobState.DONE, ended_at=time.time(), nodes=())
        told.tell("finish", job=gone[0])
        there(gone)
        assert probe(page, "focused") == hashes[3]
        assert not page.evaluate("window.blurred")
        page.click("#job-table th.c-job button")
        page.focus(f"#job-table a[href='{hashes[3]}']")
        page.evaluate("document.querySelector('#job-table th.c-job button').click()")
        see(page, "document.querySelector('#job-table th.c-job').getAttribute('aria-sort') === 'descending'")
        see(page, "(hash) => document.querySelector('#job-table a.job').hash === hash", hashes[2])
        assert probe(page, "focused") == hashes[3]


@needs_browser
def test_what_no_job_and_no_user_can_be_called_is_not_asked_for(browser, calm):
    with visit(browser, calm, rest="job=0") as page:
        page.wait_for_selector("#job-table tbody tr")
        assert not page.is_visible("#drawer")
        page.fill("#job-number", "0")
        page.keyboard.press("Enter")
        page.fill("#job-user", "")
        page.focus("#job-user")
        page.keyboard.type("u" * 140)
        page.keyboard.press("Enter")
        see(page, "document.querySelector('#job-table .empty').textContent.startsWith('No jobs like these')")
        assert not page.is_visible("#banner")
        assert not page.is_visible("#drawer")


@needs_browser
def test_what_waits_now_is_counted_as_in_the_history(browser):
    told = small_cluster()
    counts = told.cluster().jobs
    with serving(told) as address, visit(browser, address) as page:
        page.click("#chart-table summary")
        page.wait_for_selector("#chart-table tbody tr")
        shown = page.locator("#chart-table tbody tr:first-child td").all_inner_texts()[-2:]
        waiting = sum(counts[state] for state in (JobState.PENDING, JobState.HELD, JobState.WAITING))
        assert counts[JobState.PAUSED] > 0
        assert shown == [str(counts[JobState.RUNNING]), str(waiting)]


@needs_browser
def test_all_that_wait_are_in_the_table_that_the_queue_points_at(browser):
    told = small_cluster()
    held = range(101, 116)
    for k in held:
        told.jobs_[k] = told.jobs_[63].model_copy(update={"id": k, "state": JobState.HELD})
    with serving(told) as address, visit(browser, address) as page:
        page.wait_for_selector("#queue-list p:has-text('more jobs; the table above shows them all')")
        state = re.search(r"State “(.+)”", text(page, "#queue-list"))[1]
        page.select_option("#job-states", label=state)
        page.wait_for_selector("#job-table a[href='#job=115']")
        shown = page.evaluate("[...document.querySelectorAll('#job-table a.job')].map((link) => link.hash)")
        assert {f"#job={k}" for k in (61, 62, 63, *held)} <= set(shown)
        # A browser that filled in what was chosen before a reload would name other jobs than those that are listed.
        assert page.get_attribute("#job-states", "autocomplete") == "off"


@needs_browser
def test_a_node_whose_name_begins_those_of_others_can_be_chosen(browser):
    told = Told(now0=time.time())
    for k in range(1, 121):
        told.nodes_[f"node-{k}"] = node_of(f"node-{k}", told.now0)
    with serving(told) as address, visit(browser, address) as page:
        page.wait_for_selector("#node-grid .cell")
        page.focus("#node-grid svg.grid")
        page.keyboard.press("Enter")
        assert page.locator("#node-list .name").all_inner_texts() == ["node-1"]
        page.fill("#node-filter", "node-11")
        assert page.locator("#node-list .name").all_inner_texts() == ["node-11"]
        page.fill("#node-filter", "ode-11")
        assert page.locator("#node-list .node").count() == 11


@needs_browser
def test_a_node_that_comes_back_is_shown_in_full(browser):
    told = small_cluster()
    with serving(told) as address, visit(browser, address, rest="node=node2") as page:
        page.wait_for_selector("#drawer dl dd")
        node = told.nodes_.pop("node2")
        told.tell("lost", node="node2")
        see(page, "document.querySelector('#drawer-title').textContent === 'There is no node node2.'")
        assert text(page, "#drawer .details") == "There is no node node2."
        told.nodes_["node2"] = node
        told.tell("join", node="node2")
        page.wait_for_selector("#drawer dl dd")
        assert text(page, "#drawer-title") == "node2"
        assert page.is_visible("#drawer >> text=Who had which part of it")


@needs_browser
def test_the_first_event_takes_the_place_of_the_words_for_none(browser):
    told = Told(now0=0.0, shadow_policy=None)
    with serving(told) as address, visit(browser, address) as page:
        page.wait_for_selector("#event-list:has-text('Nothing yet.')")
        told.tell("join", node="node1")
        page.wait_for_selector("#event-list:has-text('join')")
        assert "Nothing yet." not in text(page, "#event-list")


@needs_browser
def test_the_form_to_sign_in_stands_without_a_connection_problem(browser):
    told = small_cluster()
    with serving(told) as address, visit(browser, address, silent=False) as page:
        page.wait_for_selector("#job-table tbody tr")
        told.broken = True
        told.tell("share", job=60)
        page.wait_for_selector("#banner:not([hidden])")
        page.route("**/api/v1/*", lambda route: route.fulfill(status=401, json={"detail": "token: revoked"}))
        page.wait_for_selector("#sign-in:not([hidden])")
        page.wait_for_selector("#banner", state="hidden")


@needs_browser
def test_a_range_chosen_while_the_history_is_asked_for_is_shown_soon(browser):
    sinces = []

    def choose(route):
        """The history of the first range is under way: now the reader chooses another."""
        sinces.append(float(re.search(r"since=([\d.]+)", route.request.url)[1]))
        if len(sinces) == 1:
            page.evaluate("document.querySelector('#history-range input[value=\"21600\"]').click()")
        route.continue_()

    with serving(small_cluster()) as address, visit(browser, address) as page:
        page.wait_for_timeout(5000)
        page.route("**/api/v1/timeseries*", choose)
        page.evaluate("document.querySelector('#history-range input[value=\"900\"]').click()")
        begun = time.monotonic()
        while len(sinces) < 2:
            assert time.monotonic() - begun < 2.5
            page.wait_for_timeout(30)
        assert sinces[0] - sinces[1] > 20_000


@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["1280", "390"])
def test_it_fits_and_can_be_read(browser, calm, viewport, theme):
    with visit(browser, calm, viewport=viewport, color_scheme=theme) as page:
        page.wait_for_selector("#job-table tbody tr")
        for _ in range(2):
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert probe(page, "overflowing") == []
            contrast = probe(page, "contrast", READ)
            assert {selector: ratio for selector, ratio in contrast.items() if ratio < 4.5} == {}
            assert len(contrast) > 18
            page.evaluate("() => { location.hash = 'job=61'; }")
            page.wait_for_selector("#drawer pre:has-text('residual')")
        page.click("#drawer button.danger")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert probe(page, "contrast", ["dialog button", "dialog p"])["dialog button"] >= 4.5
        dark = (
            sum(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]))
            < 200
        )
        assert dark == (theme == "dark")


@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["1280", "390"])
def test_axe_finds_nothing(browser, calm, viewport, theme):
    with visit(browser, calm, viewport=viewport, color_scheme=theme) as page:
        page.wait_for_selector("#job-table tbody tr")
        assert unfit(page) == {}
        page.click("#help")
        assert unfit(page) == {}
        page.keyboard.press("Escape")
        page.evaluate("() => { location.hash = 'job=61'; }")
        page.wait_for_selector("#drawer pre:has-text('residual')")
        assert unfit(page) == {}
        page.evaluate("() => { location.hash = 'node=node2'; }")
        page.wait_for_selector("#drawer .lane rect")
        assert unfit(page) == {}
        page.evaluate("document.querySelector('#drawer dl').before(document.createElement('dd'))")
        assert "dlitem" in unfit(page)  # it does look


@needs_browser
def test_a_node_opens_with_its_tasks_and_its_past(browser, calm):
    with visit(browser, calm) as page:
        page.click("#node-list .node:nth-child(2) .name")
        page.wait_for_selector("#drawer .lane rect")
        assert text(page, "#drawer-title") == "node2"
        assert page.evaluate("location.hash") == "#node=node2"
        told = text(page, "#drawer")
        assert "up: it takes jobs" in told
        assert "Granted to jobs 1.77 cores" in told
        assert page.locator("#drawer tbody tr").count() == page.locator("#node-list .node:nth-child(2) .block").count()
        page.click("#drawer tbody a >> nth=0")
        see(page, "document.querySelector('#drawer-title')?.textContent.startsWith('Job ')")
        page.keyboard.press("Escape")
        assert not page.is_visible("#drawer")
        page.evaluate("() => { location.hash = 'node=nowhere'; }")
        see(page, "document.querySelector('#drawer-title')?.textContent === 'There is no node nowhere.'")


@needs_browser
def test_a_job_opens_with_how_it_fared(browser, calm):
    with visit(browser, calm) as page:
        row = page.locator("#job-table tbody tr").filter(has=page.locator(".state[data-state=running]")).first
        row.locator("a.job").click()
        page.wait_for_selector("#drawer .fared .least")
        drawn = page.locator("#drawer .fared").evaluate_all("(all) => all.map((one) => one.getAttribute('aria-label'))")
        assert len(drawn) == 3
        assert re.fullmatch(r"Yield: granted 0\.\d\d to 0\.\d\d, received 0\.\d\d to 0\.\d\d", drawn[0])
        assert re.fullmatch(r"CPU, cores: need \d\.\d\d to \d\.\d\d, used \d\.\d\d to \d\.\d\d", drawn[1])
        assert drawn[2].startswith("Memory: asked ")
        facts = text(page, "#drawer dl")
        (granted,) = re.findall(r"Yield granted\s+(\d\.\d\d)", facts)
        assert f"granted {granted}" in " ".join(text(page, "#drawer figcaption >> nth=0").split())
        assert page.locator("#drawer .fared-axis text").count() >= 2
        page.keyboard.press("Escape")
        page.click("#queue-list a.job >> nth=0")
        see(page, "document.querySelector('#drawer-title')?.textContent.startsWith('Job ')")
        assert not page.is_visible("text=How it fared")


@needs_browser
def test_the_table_of_jobs_is_sorted_by_its_columns(browser):
    def sorted_by(page, name, direction):
        see(page, f"document.querySelector('#job-table th.c-{name}').getAttribute('aria-sort') === {direction!r}")

    told = large_cluster()
    with serving(told) as address, visit(browser, address) as page:
        page.wait_for_selector("#job-table a[href='#job=10000']")
        page.click("#job-table th.c-job button")
        page.wait_for_selector("#job-table a[href='#job=10000']", state="detached")
        hashes = page.evaluate("[...document.querySelectorAll('#job-table a.job')].map((link) => link.hash)")
        placed = {JobState.STARTING, JobState.RUNNING, JobState.PAUSED, JobState.ENDING}
        open_ = sorted(job.id for job in told.jobs_.values() if job.state in placed)
        assert hashes == [f"#job={job}" for job in open_[:25]]
        page.click("text=next ›")
        page.wait_for_selector(f"#job-table a[href='#job={open_[25]}']")
        assert text(page, "#job-pages span") == "26 to 50"
        page.click("#job-table th.c-yield button")
        sorted_by(page, "yield", "ascending")
        least = sorted(shown_yield(told.jobs_[job]) for job in open_ if shown_yield(told.jobs_[job]) is not None)
        see(page, f"document.querySelector('#job-table td.c-yield b').textContent === '{least[0]:.2f}'")
        page.click("#job-table th.c-yield button")
        sorted_by(page, "yield", "descending")
        page.click("#job-table th.c-yield button")
        page.wait_for_selector("#job-table a[href='#job=10000']")
        page.select_option("#job-states", "all")
        see(page, "document.querySelector('#job-table th.c-yield button').disabled")


@needs_browser
def test_no_job_is_shown_twice_and_time_begins_where_the_history_does(browser):
    told = small_cluster()
    young = told.now0 - 240.0
    told.points_ = [point for point in told.points_ if point.time >= young]
    told.bars_ = [bar for bar in told.bars_ if bar.end is None or bar.end >= young]
    told.bars_ = [replace(bar, begin=max(bar.begin, young)) for bar in told.bars_]
    with serving(told) as address, visit(browser, address) as page:
        page.wait_for_selector("#queue-list tbody tr")
        shown = page.evaluate("[...document.querySelectorAll('a.job')].map((link) => link.hash)")
        assert len(shown) == len(set(shown)) > 10
        see(page, "document.querySelector('#chart path.least').getAttribute('d')?.length > 50")
        begins = page.evaluate(
            "Number(/M([\\d.]+)/.exec(document.querySelector('#chart path.least').getAttribute('d'))[1])"
        )
        width = page.evaluate("document.querySelector('#chart').clientWidth")
        assert begins < 0.1 * width


@needs_browser
def test_the_theme_can_be_chosen(browser, calm):
    with visit(browser, calm, color_scheme="light") as page:
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        page.click("#theme")
        assert page.evaluate(ground) == light
        page.click("#theme")
        assert page.evaluate(ground) != light
        page.reload()
        page.wait_for_selector("#main:not([hidden])")
        assert page.evaluate(ground) != light


@needs_browser
def test_everything_has_a_name_and_a_place(browser, calm):
    with visit(browser, calm, rest="job=60") as page:
        page.wait_for_selector("#drawer pre:has-text('residual')")
        assert probe(page, "nameless") == []
        assert (
            page.evaluate(
                "[...document.querySelectorAll('[id]')].map((n) => n.id).filter((id, k, all) => all.indexOf(id) !== k)"
            )
            == []
        )
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.locator("h1").count() == 1
        assert page.locator("main").count() == 1
        assert page.locator("#toasts[role=status][aria-live=polite]").count() == 1
        headers = page.evaluate("[...document.querySelectorAll('#job-table th')].every((th) => th.scope === 'col')")
        assert headers
        stops = page.locator("#node-list .block[tabindex='0']").count()
        assert stops == 1  # the others are reached by arrow keys


@needs_browser
def test_the_keyboard_does_everything(browser, calm):
    with visit(browser, calm) as page:
        page.wait_for_selector("#node-list .block")
        page.keyboard.press("Tab")
        assert probe(page, "focused") == "#main"
        page.keyboard.press("?")
        assert page.is_visible("#help-dialog")
        page.keyboard.press("Escape")
        assert not page.is_visible("#help-dialog")
        page.keyboard.press("j")
        page.keyboard.press("j")
        row = probe(page, "focused")
        assert row.startswith("#job=")
        page.keyboard.press("Enter")
        page.wait_for_selector("#drawer-title")
        see(page, "document.activeElement.id === 'drawer-title'")
        page.keyboard.press("Escape")
        assert not page.is_visible("#drawer")
        assert probe(page, "focused") == row
        page.focus("#node-list .block[tabindex='0']")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.matches('.block:nth-child(2)')")
        assert "cores" in text(page, "#tip")
        page.focus("#chart svg")
        page.keyboard.press("ArrowLeft")
        assert re.search(r"minimum 0\.\d\d, median \d", text(page, "#said"))
        page.focus("#gantt canvas")
        for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
            page.keyboard.press(key)
        told = re.search(r"job (\d+) · .* on node2", text(page, "#said"))
        assert told
        page.keyboard.press("Enter")
        see(page, "(job) => document.querySelector('#drawer-title')?.textContent.startsWith(`Job ${job} `)", told[1])
        page.keyboard.press("Escape")
        before = page.evaluate("document.querySelector('#history-range input:checked').value")
        page.keyboard.press("r")
        see(page, "(before) => document.querySelector('#gantt-range input:checked').value !== before", before)
        page.keyboard.press("/")
        assert probe(page, "focused") == "job-user"
        page.keyboard.type("bob")
        page.keyboard.press("Enter")
        see(page, "[...document.querySelectorAll('#job-table td.c-user')].every((cell) => cell.textContent === 'bob')")


@needs_browser
def test_a_thousand_nodes_and_ten_thousand_jobs_are_summed_up(browser):
    with serving(large_cluster()) as address, visit(browser, address) as page:
        page.wait_for_selector("#node-grid .cell")
        assert page.locator("#node-grid svg.grid .cell").count() == 1000
        assert page.locator("#node-list .node").count() == 10
        assert [text(page, f"#node-list .node:nth-child({k}) .name") for k in (1, 2, 3)] == ["n0500", "n0777", "n0003"]
        page.fill("#node-filter", "n012")
        assert page.locator("#node-list .node").count() == 10
        page.focus("#node-grid svg.grid")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        assert [text(page, "#node-list .name"), page.locator("#node-list .node").count()] == ["n0001", 1]
        assert page.locator("#job-table tbody tr").count() == 25
        page.click("text=older ›")
        page.wait_for_selector("#job-table a[href='#job=9975']")
        page.click("text=‹ newer")
        page.wait_for_selector("#job-table a[href='#job=10000']")
        page.wait_for_selector("#gantt-note:has-text('40 of 1000 nodes are drawn')")
        assert page.evaluate("document.querySelectorAll('*').length") < 8000


@needs_browser
def test_an_empty_cluster_says_what_to_do(browser):
    with serving(Told(now0=0.0, shadow_policy=None)) as address, visit(browser, address) as page:
        see(page, "document.querySelector('#job-table .empty').textContent !== ''")
        assert "dfrs agent" in text(page, "#nodes")
        assert "dfrs submit -- ./prog" in text(page, "#jobs")
        assert "Nobody waits." in text(page, "#queue")
        assert "appears here" in text(page, "#history")
        assert text(page, ".hero b") == "–"


@needs_browser
def test_labels_on_colours_and_blocks_of_the_diagram_are_right(browser, calm):
    with visit(browser, calm) as page:
        ratios = probe(page, "labelContrast")
        assert len(ratios) == 15
        assert min(ratios) >= 4.5
        rng = np.random.default_rng(5)
        begin, length, share = rng.uniform(0, 90, 30), rng.uniform(1, 40, 30), rng.uniform(0.01, 0.2, 30)
        bars = [
            {
                "job": k,
                "rank": 0,
                "begin": begin[k],
                "end": begin[k] + length[k] if k % 3 else None,
                "share_cores": share[k],
                "paused": False,
            }
            for k in range(30)
        ]
        blocks = probe(page, "stacked", bars, 4, 10, 100)
        for at in rng.uniform(10, 100, 50):
            here = sorted((b for b in blocks if b["begin"] <= at < b["end"]), key=lambda b: b["low"])
            wanted = [bar for bar in bars if bar["begin"] <= at < (bar["end"] or 100)]
            assert [b["bar"]["job"] for b in here] == [bar["job"] for bar in wanted]
            assert [b["high"] - b["low"] for b in here] == pytest.approx([bar["share_cores"] / 4 for bar in wanted])
            assert [b["low"] for b in here[1:]] == pytest.approx([b["high"] for b in here[:-1]])


@needs_browser
def test_a_real_job_runs_and_another_is_cancelled_through_the_page(browser, tmp_path):
    with LiveCluster(tmp_path) as cluster:
        address = f"http://127.0.0.1:{cluster.port}"
        token = json.loads((cluster.state / "client.json").read_text())["token"]
        with visit(browser, address, token=token, name=cluster.name) as page:
            assert "dfrs submit -- ./prog" in text(page, "#jobs")
            fields = {"cpu_cores": 0.4, "memory_bytes": 64 << 20}
            seen = cluster.submit("sh", "-c", "echo hello; exec sleep 600", name="seen", **fields)
            doomed = cluster.submit("sleep", "600", name="doomed", **fields)
            for job in (seen, doomed):
                page.wait_for_selector(f"#job-table tr:has(a[href='#job={job}']):has(.state[data-state=running])")
                page.wait_for_selector(f"#node-list .block[data-job='{job}']")
            page.click(f"#job-table a[href='#job={seen}']")
            page.wait_for_selector("#drawer pre:has-text('hello')")
            assert "start" in text(page, "#drawer .steps")
            page.keyboard.press("Escape")
            page.click(f"#job-table a[href='#job={doomed}']")
            page.click("#drawer >> text=Cancel the job")
            assert "“doomed”" in text(page, "#confirm-text")
            page.keyboard.press("Enter")
            toast(page, f"Job {doomed} is being cancelled.")
            page.wait_for_selector("#drawer .state[data-state=cancelled]")
            page.keyboard.press("Escape")
            page.wait_for_selector(f"#job-table a[href='#job={doomed}']", state="detached")
            page.wait_for_selector(f"#job-table tr:has(a[href='#job={seen}']):has(.state[data-state=running])")
            page.wait_for_selector(f"#event-list li:has-text('cancel job {doomed}')")
        assert cluster.client.get(f"/api/v1/jobs/{doomed}").json()["state"] == "cancelled"
