"""The documentation runs: commands succeed, Python does not raise, links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dfrs.allocate.registry import ALGORITHMS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def runnable(page):
    return [
        (kind, name, body)
        for kind, name, body in BLOCK.findall(page.read_text())
        if kind in {"console", "python"} or name
    ]


@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_everything_on_the_page_runs(page, tmp_path):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for kind, name, body in runnable(page):
        if name:
            (tmp_path / name).write_text(body)
        elif kind == "python":
            subprocess.run([sys.executable, "-c", body], cwd=tmp_path, check=True, capture_output=True, timeout=120)
        else:
            for line in filter(lambda text: text.startswith("$ "), body.splitlines()):
                done = subprocess.run(
                    line[2:], shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
                )
                assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_algorithm_is_in_the_reference():
    text = (ROOT / "docs/reference/algorithms.md").read_text()
    for name, algorithm in ALGORITHMS.items():
        assert f"| `{name}` | {algorithm.family} | {algorithm.summary} |" in text
