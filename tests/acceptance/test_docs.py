"""The documentation runs: commands succeed, Python does not raise, links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

import dfrs
from dfrs.cli.main import app
from dfrs.cli.simulate.policies import table_lines
from dfrs.experiments.kinds.discovery import DISCOVERY
from dfrs.experiments.kinds.farm import FARM
from dfrs.experiments.kinds.farm_random import FARM_RANDOM
from dfrs.experiments.kinds.offline import OFFLINE
from dfrs.experiments.kinds.online import ONLINE
from dfrs.experiments.planned_runs import COMMON_COLUMNS
from dfrs.experiments.results import NAMES
from dfrs.experiments.spec import models
from dfrs.live.drivers.base import KEPT_OUTPUT_BYTES, TaskSpec
from dfrs.placement.registry import ALGORITHMS
from dfrs.policies.names import FAMILIES
from dfrs.runs.validator.files import COMMANDS, EVENTS, JOBS, MORE

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "reproduction").rglob("*.md")])
LONG = {
    "first-campaign.md",
    "big-campaigns.md",
    "campaigns.md",
    "resume-and-compare.md",
    "command-line.md",
    "elastic-workloads.md",
    "node-failures-and-unequal-nodes.md",
}
"""Pages that take long: `make test-slow`."""
LIVE = "<!-- run on a live cluster -->"
"""On a page whose commands need one; the test starts it. A page that says `dfrs up` starts its own."""
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def runnable(page):
    return [
        (kind, name, body)
        for kind, name, body in BLOCK.findall(page.read_text())
        if kind in {"console", "python"} or name
    ]


def marked(page):
    return pytest.param(page, marks=[pytest.mark.slow] if page.name in LONG else [], id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("page", [marked(p) for p in PAGES if runnable(p)])
def test_everything_on_the_page_runs(page, tmp_path):
    state = tmp_path / "state"
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DFRS_STATE": str(state),
        "DFRS_PORT": "0",
    }
    try:
        if LIVE in page.read_text():
            run("dfrs up --detach", tmp_path, environment)
        run_page(page, tmp_path, environment)
    finally:
        if state.exists():
            run("dfrs down", tmp_path, environment)


def run(line, folder, environment):
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{line}\n{done.stderr}"


def run_page(page, tmp_path, environment):
    for kind, name, body in runnable(page):
        if name:
            (tmp_path / name).write_text(body)
        elif kind == "python":
            subprocess.run(
                [sys.executable, "-c", body],
                cwd=tmp_path,
                env=environment,
                check=True,
                capture_output=True,
                timeout=120,
            )
        else:
            for line in filter(lambda text: text.startswith("$ "), body.splitlines()):
                run(line[2:], tmp_path, environment)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


# Generated pages are written to any directory, from where no link would lead to the bibliography.
CITING = [page for page in PAGES if "results/tables" not in str(page)]


@pytest.mark.parametrize("page", CITING, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_document_that_is_cited_leads_to_the_bibliography(page):
    text = page.read_text()
    keys = re.findall(r"^## (.*)$", (ROOT / "docs/reference/bibliography.md").read_text(), re.MULTILINE)
    for key in keys:
        if re.search(rf"\[{key}\](?![:(])", text):
            (target,) = re.findall(rf"^\[{key}\]: (.*)$", text, re.MULTILINE)
            assert (page.parent / target.partition("#")[0]).resolve() == ROOT / "docs/reference/bibliography.md"
            assert target.partition("#")[2] == key.lower()


def test_each_module_on_the_walk_of_one_value_names_it():
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    walk = text.partition("## The walk of one value")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in walk.splitlines() if line.startswith("| `")]
    assert len(rows) <= 15
    assert f"passes {len(rows)} modules" in walk
    assert sum("**border**" in line for line in walk.splitlines()) == 3
    for _, modules, names, *_ in rows:
        for module in re.findall(r"`([^`]+)`", modules):
            code = (ROOT / "src/dfrs" / module).read_text()
            for name in re.findall(r"`([^`]+)`", names):
                assert re.search(rf"\b{re.escape(name)}\b", code), f"{module} does not name {name}"


def verbs(group, before=""):
    """All verbs, those of groups with the group's name before them."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from verbs(command, f"{before}{name} ")
        else:
            yield before + name


def test_every_verb_is_in_the_reference():
    pages = [(ROOT / "docs/reference" / name).read_text() for name in ("command-line.md", "live-cli.md", "farm.md")]
    shown = set(re.findall(r"`dfrs (farm [a-z-]+)`|^## (farm [a-z-]+)", pages[-1], re.MULTILINE))
    shown = {name for pair in shown for name in pair if name}
    for row in re.findall(r"^\| (`[a-z][^|]*) \|", "\n".join(pages[:-1]), re.MULTILINE):
        names = [re.match(r"[a-z -]*[a-z]", name)[0] for name in re.findall(r"`([a-z][^`]*)`", row)]
        group = f"{names[0].partition(' ')[0]} " if " " in names[0] else ""
        shown |= {name if name.startswith(group) else group + name for name in names}
    assert set(verbs(get_command(app))) <= shown


def test_every_algorithm_is_in_the_reference():
    text = (ROOT / "docs/reference/algorithms.md").read_text()
    for name, algorithm in ALGORITHMS.items():
        assert f"| `{name}` | {algorithm.family} | {algorithm.summary} |" in text


def test_every_policy_is_in_the_reference_and_nothing_else():
    text = (ROOT / "docs/reference/policies.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows == table_lines([entry for family in FAMILIES for entry in family.entries()])


def named_in_first_column(text):
    """What stands in backticks in the first column of the tables of a page."""
    rows = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_metric_is_in_the_reference_and_nothing_else():
    one = np.ones(1)
    workload = dfrs.Workload(
        job_id=np.array([1]),
        submit_s=one,
        tasks=np.array([1]),
        need=one,
        memory=one,
        run_s=one,
        estimate_s=one,
        user=np.array([1]),
        weight=one,
        nodes=1,
    )
    metrics = dfrs.summarize(dfrs.simulate(workload, "FCFS"), stretch_bound=1.0, bounded_stretch_bound=1.0)
    text = (ROOT / "docs/reference/metrics.md").read_text()
    assert named_in_first_column(text) == set(metrics)


@pytest.mark.parametrize(
    ("heading", "columns"), [("**jobs.csv**", JOBS + MORE), ("**events.csv**", EVENTS), ("**commands.csv**", COMMANDS)]
)
def test_every_column_of_a_run_is_in_the_reference_and_nothing_else(heading, columns):
    text = (ROOT / "docs/reference/files.md").read_text()
    part = text.partition(heading)[2].partition("\n**")[0]
    assert named_in_first_column(part) == set(columns)


def test_every_column_of_results_and_every_field_of_a_campaign_file_is_in_the_reference():
    text = (ROOT / "docs/reference/campaign-files.md").read_text()
    named = set(re.findall(r"`([^`\n]+)`", text))
    metrics = named_in_first_column((ROOT / "docs/reference/metrics.md").read_text())
    columns = {*NAMES, *COMMON_COLUMNS}.union(
        *(kind.schema for kind in (ONLINE, OFFLINE, DISCOVERY, FARM, FARM_RANDOM))
    )
    assert columns - named <= metrics
    fields = {part.removesuffix("[]") for name in named for part in name.split(".")}
    assert {name for model in models() for name in model.model_fields} - {"path", "paths"} <= fields


def test_the_page_about_jobs_says_how_much_of_their_output_is_kept():
    text = " ".join((ROOT / "docs/how-to/submit-jobs.md").read_text().split())
    least = TaskSpec.model_fields["output_bytes"].default >> 20
    assert f"the last {least} to {2 * least} MiB of each output of a task" in text
    assert f"the latest {KEPT_OUTPUT_BYTES >> 30} GiB on each host" in text
