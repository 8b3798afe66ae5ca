"""Many commands by one scontrol: each has its own answer, whatever it says and wherever it ends."""

import asyncio
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.backends.slurm import scontrol
from dfrs.live.backends.slurm.port import SlurmCommands
from dfrs.live.backends.slurm.scontrol import LAST, PROMPT, Scontrol, SlurmRefusedError, answers, plain
from dfrs.live.errors import UnavailableError

WORDS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")), min_size=1, max_size=20)
COMMANDS = st.lists(st.lists(WORDS, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=6)
SAID = st.sampled_from(["", "Invalid job id specified for job 7", "scontrol: error: no", "a\nb"])
# What repeats its input as scontrol does, and says something about commands that begin with "bad".
FAKE = """#!{python}
import sys, time
for line in sys.stdin:
    print("scontrol: " + line, end="", flush=True)
    word = line.split()[0]
    if word == "bad":
        print("Invalid job id specified for job 7", flush=True)
    if word == "away":
        print("Unable to contact slurm controller (connect failure)", flush=True)
    if word == "notice":
        print("scontrol: the site says hello", flush=True)
    if word == "die":
        sys.exit(1)
    if word == "hang":
        time.sleep(60)
    with open({log!r}, "a") as log:
        log.write(line)
"""


@given(commands=COMMANDS, data=st.data())
def test_each_command_has_what_was_said_to_it(commands, data):
    said = [data.draw(SAID) for _ in commands]
    printed = "".join(
        f"{PROMPT}{command}\n" + (f"{text}\n" if text else "") for command, text in zip(commands, said, strict=True)
    )
    assert answers(commands, f"{printed}{PROMPT}{LAST}\n") == [" ".join(text.split()) for text in said]


@given(commands=COMMANDS, data=st.data())
def test_what_was_not_finished_has_no_answer(commands, data):
    printed = "".join(f"{PROMPT}{command}\n" for command in (*commands, LAST))
    cut = data.draw(st.integers(0, len(printed) - 1))
    found = answers(commands, printed[:cut])
    done = [each for each in found if each is not None]
    assert found == [*done, *[None] * (len(commands) - len(done))]
    # A command is finished when the next one is repeated, all of it.
    assert len(done) == max(0, printed[:cut].count("\n") - 1)


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "scontrol"
    path.write_text(FAKE.format(python=sys.executable, log=str(tmp_path / "log")))
    path.chmod(0o755)
    return Scontrol((), {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}), tmp_path / "log"


def run(*coroutines):
    async def story():
        return await asyncio.gather(*coroutines, return_exceptions=True)

    return asyncio.run(story())


def test_commands_that_come_together_go_together_and_only_one_is_refused(program):
    asked, log = program
    found = run(asked.do("good 1"), asked.do("bad 2", "good 3"), asked.do("notice 4"), asked.do("good ü'5"))
    assert [type(each) for each in found] == [type(None), SlurmRefusedError, type(None), type(None)]
    assert str(found[1]) == "Slurm: bad 2: Invalid job id specified for job 7"
    assert log.read_text().splitlines() == ["good 1", "bad 2", "good 3", "notice 4", "good ü'5", LAST]


def test_nobody_knows_of_commands_that_were_not_finished(program):
    asked, _ = program
    found = run(asked.do("good 1"), asked.do("die 2"), asked.do("good 3"), asked.do("away 4"))
    assert [type(each) for each in found] == [type(None), *[UnavailableError] * 3]
    # The next ones have a process of their own.
    assert run(asked.do("good 5")) == [None]


def test_commands_that_follow_when_all_processes_have_just_ended_are_done(monkeypatch):
    """A loop that was busy with something else hears of all their ends at once."""

    async def story():
        ends, asked = asyncio.Event(), Scontrol((), {})
        batches = []

        async def together(_, commands):
            batches.append(commands)
            await ends.wait()
            return "".join(f"{PROMPT}{command}\n" for command in (*commands, LAST))

        async def place_and_release():
            await asked.do("place 0")
            await asked.do("release 0")

        monkeypatch.setattr(Scontrol, "_run", together)
        under_way = []
        for k in range(scontrol.AT_ONCE):
            under_way.append(asyncio.create_task(asked.do(f"release {k}") if k else place_and_release()))
            while len(batches) == k:
                await asyncio.sleep(0)
        ends.set()
        async with asyncio.timeout(10):
            await asyncio.gather(*under_way)
        assert batches[-1] == ["release 0"]

    asyncio.run(story())


SQUEUE = """#!/bin/sh
env > {log}.${{0##*/}}
"""


def test_choices_of_who_starts_it_do_not_reach_commands(tmp_path):
    """With SQUEUE_USERS, for one, jobs of all others would be missing, and be taken for ended."""
    for name in ("squeue", "sinfo", "scancel"):
        (tmp_path / name).write_text(SQUEUE.format(log=tmp_path / "log"))
        (tmp_path / name).chmod(0o755)
    choices = ("SQUEUE_USERS", "SQUEUE_SORT", "SINFO_FORMAT", "SCANCEL_INTERACTIVE", "SLURM_CLUSTERS", "SCONTROL_ALL")
    environ = dict.fromkeys(choices, "x") | {"SLURM_CONF": "here", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    commands = SlurmCommands("p", (), environ)
    run(commands.look(), commands.cancel("7"))
    for name in ("squeue", "sinfo", "scancel"):
        found = dict(line.partition("=")[::2] for line in (tmp_path / f"log.{name}").read_text().splitlines())
        assert not found.keys() & set(choices)
        assert found["SLURM_CONF"] == "here"
    assert not plain(environ).keys() & set(choices)


def test_without_slurmctld_none_is_done(program):
    asked, _ = program
    (found,) = run(asked.do("away 1"))
    assert isinstance(found, UnavailableError)
    assert "Unable to contact" in str(found)


def test_a_command_that_takes_too_long_is_not_waited_for(program, monkeypatch):
    monkeypatch.setattr(scontrol, "COMMAND_S", 1.0)
    asked, _ = program
    found = run(asked.do("good 1"), asked.do("hang 2"), asked.do("good 3"))
    assert [type(each) for each in found] == [type(None), UnavailableError, UnavailableError]


def test_without_scontrol_it_is_said(tmp_path):
    asked = Scontrol((str(tmp_path / "none"),), os.environ)
    (found,) = run(asked.do("good 1"))
    assert isinstance(found, UnavailableError)
    assert "No such file" in str(found)
