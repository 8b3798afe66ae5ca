"""The page of a campaign in a real browser: its tables sort, its points lead to their runs, and no name does harm."""

import html
import json
import re
from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest

from dfrs.model.errors import InputError
from dfrs.report.campaign_page import (
    CampaignPage,
    Comparison,
    Curve,
    Metric,
    PagePoint,
    PageRun,
    Summary,
    campaign_page,
    write_campaign_page,
)
from tests.acceptance.test_run_page import browse, needs_browser

MEASURES = (
    Metric(key="degradation", title="degradation from bound"),
    Metric(key="use", title="CPU in use", unit="%", better="high"),
)
ENTRIES = ("FCFS", "EASY", "GreedyPM */per/OPT=MIN/MVT=600")
LEVEL = {"FCFS": 1000.0, "EASY": 90.0, ENTRIES[2]: 9.0}
COLOURS = {False: ("#206dcd", "#d9300f", "#147240"), True: ("#738bfa", "#fa8b4b", "#51c48a")}
MESSAGE = "job 7: memory 1.25 is more than a node has\n  at 3+00:00:00"


def run_of(number, *, group="lublin", configuration="EASY", x=None, values=(1.0, 50.0), **more):
    key = f"{number:016x}"
    return PageRun(
        key=key,
        name=more.get("name", f"{group}-{number} | {configuration} | penalty_s=300"),
        group=group,
        scenario=more.get("scenario", f"{group}-{number}"),
        configuration=configuration,
        x=x,
        values=values,
        failed=more.get("failed"),
        link=more.get("link"),
        command=more.get("command", f"dfrs simulate -p '{configuration}' -o out/{key}"),
    )


def campaign():
    """Three entries; five runs at each of three loads, of which the points rest on the first four, and a set without
    loads, whose last run failed. Every other run has a page of its own."""
    runs, curves, summaries, comparisons = [], [], [], []
    for configuration in ENTRIES:
        points = []
        for x in (0.1, 0.5, 0.9):
            own = [
                run_of(
                    len(runs) + k,
                    configuration=configuration,
                    x=x,
                    values=(LEVEL[configuration] * x * (1 + k / 10), 100 * x - k),
                    link=f"runs/{len(runs) + k} #1?.html" if k % 2 else None,
                )
                for k in range(5)
            ]
            runs += own
            mean = float(np.mean([run.values[0] for run in own[:4]]))
            points.append(
                PagePoint(x=x, mean=mean, low=0.9 * mean, high=1.2 * mean, runs=tuple(r.key for r in own[:4]))
            )
        curves.append(Curve(group="lublin", metric="degradation", configuration=configuration, points=tuple(points)))
        for metric, mean in (("degradation", LEVEL[configuration]), ("use", 50.0)):
            for group, count in (("lublin", 15), ("HPC2N", 3)):
                failed = 1 if group == "HPC2N" else 0
                summaries.append(
                    Summary(
                        group=group,
                        configuration=configuration,
                        metric=metric,
                        mean=mean,
                        low=0.9 * mean,
                        high=1.1 * mean,
                        count=count - failed,
                        failed=failed,
                    )
                )
        runs += [
            run_of(len(runs) + k, group="HPC2N", configuration=configuration, values=(LEVEL[configuration] + k, 50.0))
            for k in range(2)
        ]
        runs.append(run_of(len(runs), group="HPC2N", configuration=configuration, values=(None, None), failed=MESSAGE))
    for configuration, ratio, wins in (("FCFS", 10.0, 3), (ENTRIES[2], 0.1, 12)):
        comparisons.append(
            Comparison(
                group="lublin",
                metric="degradation",
                configuration=configuration,
                baseline="EASY",
                count=15,
                wins=wins,
                ties=1,
                losses=14 - wins,
                ratio=ratio,
                ratio_low=0.9 * ratio,
                ratio_high=1.1 * ratio,
                p_value=0.0004,
            )
        )
    return CampaignPage(
        name="Load and policy",
        description="Three policies.\nPenalty 300 s.",
        facts=(("version", "0.1.0"),),
        x_label="offered load",
        metrics=MEASURES,
        runs=tuple(runs),
        curves=tuple(curves),
        summaries=tuple(summaries),
        comparisons=tuple(comparisons),
        notes=("Failed runs are left out.",),
    )


def only_runs(*runs):
    return replace(campaign(), runs=runs, curves=(), summaries=(), comparisons=())


TOOLS = """
const seen = [], texts = (where) => [...document.querySelectorAll(where)].map((one) => one.textContent);
const column = (table, k) => texts(`#${table} tbody td:nth-child(${k})`);
const head = (table, k) => document.querySelector(`#${table} th:nth-child(${k})`);
const sorted = (table, k) => { head(table, k).querySelector("button").click(); return head(table, k).ariaSort; };
const clickOn = (k) => {
  const box = document.querySelectorAll(".mark")[k].getBoundingClientRect();
  document.querySelector("#plot svg").dispatchEvent(new MouseEvent("click",
    { bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }));
};
const choose = (id, text) => {
  const select = document.getElementById(id);
  select.value = [...select.options].find((option) => option.text === text).value;
  select.dispatchEvent(new Event("change"));
};
"""


def look(page, script, place, *options, hash_=""):
    """What `script` pushes to `seen` when it runs in the page."""
    path = place / "page.html"
    ending = f"<script>{TOOLS}{script}\ndocument.documentElement.dataset.seen = JSON.stringify(seen);</script></body>"
    head, _, tail = campaign_page(page).rpartition("</body>")
    path.write_text(head + ending + tail, encoding="utf-8")
    dom = browse(path, place / "profile", "--dump-dom", *options, hash_=hash_)
    assert 'data-ready="yes"' in dom
    return json.loads(html.unescape(re.search(r'data-seen="([^"]*)"', dom)[1]))


def test_the_same_campaign_makes_the_same_page_and_it_needs_nothing_from_outside():
    text = campaign_page(campaign())
    assert text == campaign_page(campaign())
    assert set(re.findall(r"""(?:https?:)?//[\w.-]+\.\w+[^"'\s]*""", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"""<(?:script|link|img|iframe)[^>]*\s(?:src|href)=["'](?!data:)""", text)
    assert "@import" not in text
    assert "url(" not in text


@needs_browser
def test_the_page_shows_facts_means_comparisons_failures_runs_and_notes(tmp_path):
    seen = look(
        campaign(),
        """
        seen.push(texts("h1, #description, .tile, #notes li"), texts("#means-table tbody tr:first-child td"));
        seen.push(texts("#paired-table tbody tr:first-child td"), texts("#failures-table .message"));
        seen.push(texts("#failures-title, #all-title"), texts("#all-table tbody tr").length, texts("#picture-foot"));
        """,
        tmp_path,
    )
    assert seen[0] == [
        "Load and policy",
        "Three policies.\nPenalty 300 s.",
        "version0.1.0",
        "Failed runs are left out.",
    ]
    assert seen[1] == [ENTRIES[2], "n 15" + "9.00" + "[8.10, 9.90]", "n 15" + "50.00" + "[45.00, 55.00]", "0"]
    assert seen[2] == [ENTRIES[2], "EASY", "15", "12 won · 1 tied · 2 lost", "0.100[0.0900, 0.110]", "< 0.001"]
    assert seen[3] == [MESSAGE] * 3
    assert seen[4:] == [
        ["3 runs failed", "All 54 runs"],
        50,
        ["A point is the mean over 4 runs: click it, or press Enter on it, for the list."],
    ]


@needs_browser
def test_a_column_is_sorted_as_numbers_both_ways_and_says_so(tmp_path):
    values = (9.5, 100.0, None, 10.25, 10.5, float("inf"))  # as words, 10.25 would come after 10.5
    runs = [run_of(k, values=(value, float(k)), name=f"lublin-{12 - k}") for k, value in enumerate(values)]
    seen = look(
        only_runs(*runs),
        """
        for (const k of [3, 3, 4, 1]) seen.push([sorted("all-table", k), column("all-table", k)]);
        seen.push([1, 2, 3, 4].map((k) => head("all-table", k).ariaSort));
        head("all-table", 1).querySelector("button").focus();
        seen.push(document.activeElement.tagName);
        """,
        tmp_path,
    )
    names = [f"lublin-{k}" for k in range(7, 13)]
    assert seen[0] == ["ascending", ["9.50", "10.25", "10.50", "100.0", "∞", "–"]]
    assert seen[1] == ["descending", ["∞", "100.0", "10.50", "10.25", "9.50", "–"]]
    assert seen[2] == ["descending", ["5", "4", "3", "2", "1", "0"]]  # the best first, and of this the highest is
    assert seen[3][0] == "ascending"
    assert [name.split("copy")[0] for name in seen[3][1]] == names
    assert seen[4:] == [["ascending", "none", "none", "none"], "BUTTON"]


@needs_browser
def test_a_point_leads_to_exactly_its_runs_and_they_to_their_pages(tmp_path):
    page = campaign()
    seen = look(
        page,
        """
        const links = () => [...document.querySelectorAll("#behind a")].map((link) => link.href);
        const list = () => [document.getElementById("behind").hidden, texts("#behind-title"), texts("#behind .run"),
          column("behind-table", 1), links(), texts("#behind code")];
        const mark = document.querySelectorAll(".mark")[4];
        const stroke = (key) => new KeyboardEvent("keydown", { key, bubbles: true });
        const press = (key) => document.activeElement.dispatchEvent(stroke(key));
        seen.push(list()[0]);
        clickOn(4);
        seen.push(list());
        press("Escape");
        seen.push([list()[0], document.activeElement === mark]);
        press("ArrowRight");
        seen.push(document.getElementById("tip").innerText);
        press("Enter");
        seen.push([...texts("#behind-title"), document.activeElement.id]);
        choose("group", "HPC2N");
        seen.push(list()[0]);
        clickOn(0);
        seen.push(list());
        """,
        tmp_path,
    )
    point = page.curves[1].points[1]
    own = [run for run in page.runs if run.key in point.runs][::-1]  # the worst first
    assert seen[0] is True
    assert seen[1] == [
        False,
        ["4 runs of EASY at offered load 0.5 · lublin"],
        [run.name for run in own],
        ["58.50", "54.00", "49.50", "45.00"],
        [f"file://{tmp_path}/runs/{int(run.key, 16)}%20%231%3F.html" for run in own if run.link],
        [run.command for run in own if not run.link],
    ]
    assert len(seen[1][4]) == len(seen[1][5]) == 2
    assert seen[2] == [True, True]
    assert seen[3].split("\n")[:5] == [
        "EASY",
        "offered load 0.9",
        "mean 93.15",
        "95 % interval [83.84, 111.8]",
        "n = 4 runs",
    ]
    assert seen[4] == ["4 runs of EASY at offered load 0.9 · lublin", "behind-title"]
    assert seen[5] is True
    whole = [run for run in page.runs if run.group == "HPC2N" and run.configuration == ENTRIES[2]]
    assert seen[6][1] == [f"3 runs of {ENTRIES[2]} · HPC2N"]
    assert seen[6][2] == [whole[1].name, whole[0].name, whole[2].name]
    assert seen[6][3] == ["10.00", "9.00", "–"]


@needs_browser
def test_the_scale_is_logarithmic_where_means_are_far_apart_and_can_be_changed(tmp_path):
    seen = look(
        campaign(),
        """
        const log = document.getElementById("log");
        const numbers = () => texts("#plot svg > text[text-anchor=end]").filter((text) => /^[\\d.,-]+$/.test(text));
        const scale = () => [log.checked, log.disabled, numbers()];
        seen.push(scale());
        log.click();
        seen.push(scale());
        choose("measure", "CPU in use, %");
        seen.push(scale().slice(0, 2), texts("#picture-title"), location.hash);
        """,
        tmp_path,
    )
    assert seen[0] == [True, False, ["1", "2", "5", "10", "20", "50", "100", "200", "500", "1,000"]]
    assert seen[1] == [False, False, ["0", "200", "400", "600", "800", "1,000", "1,200"]]
    assert seen[2:] == [[False, False], ["CPU in use · lublin"], "#measure=use&group=lublin"]


@needs_browser
def test_curves_are_hidden_and_shown_by_their_names(tmp_path):
    seen = look(
        campaign(),
        """
        const name = (k) => document.querySelectorAll("#legend button")[k];
        const state = () => [texts(".curve").length, name(0).getAttribute("aria-pressed"), name(0).textContent];
        seen.push(state());
        name(0).click();
        seen.push(state());
        for (const k of [1, 2]) name(k).click();
        seen.push(state());
        name(0).click();
        seen.push(state());
        """,
        tmp_path,
    )
    assert [state[:2] for state in seen] == [[3, "true"], [2, "false"], [0, "false"], [1, "true"]]
    assert {state[2] for state in seen} == {"FCFS"}


HOSTILE = (
    "</script><script>document.documentElement.dataset.hurt = 1</script>",
    "<!--<script>",
    "@@data@@ @@style@@",
    "</title><script>document.documentElement.dataset.hurt = 1</script>",
    "<img src=x onerror='document.documentElement.dataset.hurt = 1'>",
    "a*/ /*b & &lt; ' \" \\ \u2028 é\0",
)


@needs_browser
def test_names_do_no_harm(tmp_path):
    bad = " ".join(HOSTILE)
    link = "javascript:document.documentElement.dataset.hurt=1"
    runs = [
        run_of(1, name=bad, group=bad, scenario=bad, configuration=bad, link=link),
        run_of(
            2,
            name="",
            group=bad,
            scenario=bad,
            configuration=bad,
            link="//elsewhere.example/a",
            failed=bad,
            command=bad,
        ),
        run_of(3, name=bad, group=bad, scenario=bad, configuration=bad, command=f"{3:016x} {bad} {3:016x}"),
    ]
    summary = Summary(group=bad, configuration=bad, metric=bad, mean=1.0, low=None, high=None, count=3, failed=1)
    page = CampaignPage(
        name=bad,
        description=bad,
        facts=((bad, bad),),
        x_label=bad,
        metrics=(Metric(key=bad, title=bad, unit=bad),),
        runs=tuple(replace(run, values=(1.0,)) for run in runs),
        curves=(),
        summaries=(summary,),
        comparisons=(),
        notes=(bad,),
    )
    seen = look(
        page,
        """
        clickOn(0);
        seen.push(document.documentElement.dataset.hurt || "unhurt");
        seen.push(document.querySelectorAll("script").length, document.images.length);
        seen.push(texts("h1, #notes li, #failures-table .message, #all-table .run, #behind code"));
        seen.push([...document.querySelectorAll("#all-table a")].map((link) => link.href));
        """,
        tmp_path,
    )
    assert seen[:3] == ["unhurt", 3, 0]  # data, the page's, and the test's
    # The order is: name, runs behind the dot, failure, all runs, note.
    assert seen[3] == [bad, f"{3:016x} {bad} {3:016x}", bad, bad, "", bad, bad]
    assert seen[4] == [
        f"file://{tmp_path}/javascript%3Adocument.documentElement.dataset.hurt%3D1",
        f"file://{tmp_path}///elsewhere.example/a",
    ]


@needs_browser
def test_a_campaign_of_25000_runs_is_a_small_page_that_pages_and_filters(tmp_path):
    rng = np.random.default_rng(5)
    figures = rng.lognormal(0, 2, (25_000, 12)).tolist()
    page = replace(
        only_runs(),
        metrics=tuple(Metric(key=f"m{k}", title=f"measure {k}") for k in range(12)),
        runs=tuple(
            run_of(
                7**19 * (k + 1) % 16**16,
                configuration=f"policy {k % 20}",
                x=(k % 9 + 1) / 10,
                values=tuple(figures[k]),
                name=f"lublin-{k} nodes=128 jobs=1000 load={(k % 9 + 1) / 10} | policy {k % 20} | penalty_s=300",
                scenario=f"lublin-{k // 20}",
                command=f"dfrs simulate --lublin {k} --nodes 128 --jobs 1000 --load {(k % 9 + 1) / 10} "
                f"--policy 'policy {k % 20}' --penalty 300 --seed {k} --page runs/{7**19 * (k + 1) % 16**16:016x}.html",
            )
            for k in range(25_000)
        ),
    )
    assert len(campaign_page(page)) < 6_000_000
    seen = look(
        page,
        """
        seen.push(texts("#all-table tbody tr").length, texts("#all-table .run")[49]);
        seen.push(texts("#all-table .pager .hint")[0]);
        document.querySelectorAll("#all-table .pager button")[1].click();
        seen.push(texts("#all-table .run")[0], sorted("all-table", 4), column("all-table", 4)[0]);
        document.getElementById("wanted").value = "LUBLIN-24999 penalty";
        document.getElementById("wanted").dispatchEvent(new Event("input"));
        seen.push(texts("#all-table .run"), texts("#all-table code"));
        """,
        tmp_path,
    )
    assert seen[0] == 50
    assert seen[1] == page.runs[49].name
    assert seen[2] == "1–50 of 25,000"
    assert seen[3] == page.runs[50].name
    least = min(row[0] for row in figures)
    assert seen[4] == "ascending"
    assert float(seen[5]) == pytest.approx(least, rel=0.01)
    assert seen[6:] == [[page.runs[-1].name], [page.runs[-1].command]]


@needs_browser
def test_a_run_that_can_have_no_page_has_no_command(tmp_path):
    page = only_runs(run_of(0), run_of(1, command=None))
    seen = look(page, 'seen.push(texts("#all-table .run"), texts("#all-table code, #all-table .copy"));', tmp_path)
    assert seen == [[run.name for run in page.runs], ["copy", page.runs[0].command]]


FRAME = """<body><iframe src="page.html{hash}" style="width: 390px; height: 800px; border: 0"></iframe><script>
addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentDocument, root = page.documentElement;
  const leaves = (one) => one.getBoundingClientRect().right > 390 && !one.closest(".scroll");
  const names = [...page.querySelectorAll("body *")].filter(leaves).map((one) => one.tagName + one.textContent);
  document.documentElement.dataset.seen = JSON.stringify([root.clientWidth, root.scrollWidth, names]);
}});</script></body>"""


@needs_browser
@pytest.mark.parametrize("group", ["lublin", "HPC2N"])
def test_nothing_leaves_a_narrow_page(tmp_path, group):
    long = "GreedyPM_with_a_name_of_one_very_long_word_that_no_line_of_a_telephone_holds */per/OPT=MIN/MVT=600"
    page = campaign()
    runs = tuple(
        replace(run, name=f"{run.scenario} | {long}", configuration=run.configuration.replace(ENTRIES[2], long))
        for run in page.runs
    )
    page = replace(
        page,
        name=long,
        metrics=tuple(replace(metric, title=f"{metric.title}: {long}") for metric in MEASURES),
        facts=(("code", "4c6e75f" * 12),),
        runs=runs,
        curves=tuple(replace(c, configuration=c.configuration.replace(ENTRIES[2], long)) for c in page.curves),
        summaries=tuple(replace(s, configuration=s.configuration.replace(ENTRIES[2], long)) for s in page.summaries),
    )
    look(page, "clickOn(2);", tmp_path)
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(hash=f"#group={group}"))
    dom = browse(frame, tmp_path / "profile", "--dump-dom", "--allow-file-access-from-files")
    assert json.loads(html.unescape(re.search(r'data-seen="([^"]*)"', dom)[1])) == [390, 390, []]


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_curves_are_drawn_in_colours_for_light_and_dark(tmp_path, dark):
    write_campaign_page(campaign(), tmp_path / "page.html")
    picture = tmp_path / "page.png"
    browse(
        tmp_path / "page.html",
        tmp_path / "profile",
        f"--screenshot={picture}",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
    )
    pixels = np.rint(matplotlib.image.imread(picture)[..., :3] * 255).astype(int)
    for text in COLOURS[dark]:
        wanted = [int(text[k : k + 2], 16) for k in (1, 3, 5)]
        assert (pixels == wanted).all(axis=2).sum() > 400, text
    assert (pixels[5, 5].mean() < 60) == dark


def wrong_campaigns():
    page = campaign()
    first, *others = page.runs
    curve = page.curves[0]
    point = replace(curve.points[0], runs=("f" * 16,))
    return [
        ("needs a metric", replace(page, metrics=())),
        ("must be unique", replace(page, runs=(*page.runs, first))),
        ("must be 16 hexadecimal digits", replace(page, runs=(replace(first, key="0" * 15 + "G"), *others))),
        ("1 values for 2 metrics", replace(page, runs=(replace(first, values=(1.0,)), *others))),
        ("must be one of degradation, use", replace(page, curves=(replace(curve, metric="stretch"),))),
        ("no such run", replace(page, curves=(replace(curve, points=(point,)),))),
    ]


@pytest.mark.parametrize(("message", "page"), wrong_campaigns())
def test_a_page_that_contradicts_itself_is_refused(message, page):
    with pytest.raises(InputError, match=message):
        campaign_page(page)


def test_a_page_that_cannot_be_written_is_an_error_with_its_path(tmp_path):
    with pytest.raises(InputError, match=r"nowhere/page\.html: cannot write: No such file"):
        write_campaign_page(campaign(), tmp_path / "nowhere" / "page.html")
