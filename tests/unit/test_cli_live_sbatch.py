"""Lines of Slurm in a script: what they are to `dfrs submit`, what is refused, what is named in a note."""

import re
import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.cli.live.sbatch import translate
from dfrs.cli.live.script import read_script
from dfrs.cli.quantities import parse_instant
from dfrs.model.errors import InputError


def meant(*options, text=""):
    """Words and notes of one line for each option."""
    made = translate("job.sh", [(k, option.split()) for k, option in enumerate(options, start=2)], text)
    return [" ".join(words) for _, words in made.options], made.notes


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--job-name=fit", "--name fit"),
        ("--job-name fit", "--name fit"),
        ("-J fit", "--name fit"),
        ("-Jfit", "--name fit"),
        ("-c4", "--cpu 4"),
        ("--mem=4G", f"--memory {4 << 30}B"),
        ("--mem=300", f"--memory {300 << 20}B"),
        ("--mem-per-cpu=2g", f"--memory {2 << 30}B"),
        ("--array=0-9", "--array 10"),
        ("-a 0-9", "--array 10"),
        ("--array=0-9%3", "--array 10%3"),
        ("-a 0", "--array 1"),
        ("--dependency=afterok:3:4,afterany:5", "--after afterok:3:4,afterany:5"),
        ("--chdir=/data", "--directory /data"),
        ("-H", "--hold"),
        ("--no-requeue", "--restart never"),
        ("--requeue", "--restart on-node-loss"),
        ("--signal=B:USR1@120", "--signal USR1@120"),
        ("--signal=TERM", "--signal TERM"),
        ("--export=NONE,A=1,HOME", "--env A=1 --env HOME"),
        ("--begin=now+2hours", "--at +7200s"),
        ("--begin=now+90", "--at +90s"),
        ("--begin=2126-01-20T12:34:00", "--at 2126-01-20 12:34:00"),
        ("-n 1", "--tasks 1"),
        ("--gres=gpu:2", "--resource gpu=2"),
        ("--gres=gpu,shard:3", "--resource gpu=1 --resource shard=3"),
        ("--gpus=2", "--gpus 2"),
        ("-G 1", "--gpus 1"),
        ("--gpus-per-task=1", "--gpus 1"),
        ("--gpus-per-node=4", "--gpus 4"),
        ("--exclusive", "--exclusive"),
        ("-o out-%j.txt", "--output out-%j.txt"),
        ("--error=err.txt", "--error err.txt"),
        ("--open-mode=append", "--open-mode append"),
        ("--mail-type=ALL", "--notify begin,end,fail"),
        ("--mail-type=FAIL,BEGIN,TIME_LIMIT_80", "--notify begin,fail"),
        ("--mail-user=ann@example.org", "--notify-to ann@example.org"),
    ],
)
def test_an_option_is_one_of_submit(option, words):
    assert meant(option) == ([words], [])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("01:30:00", 5400),
        ("2-3", 2 * 86400 + 3 * 3600),
        ("2-03:04", 2 * 86400 + 3 * 3600 + 4 * 60),
        ("1-00:00:01", 86401),
    ],
)
def test_a_time_is_what_it_is_to_slurm_and_limit_and_estimate(text, seconds):
    assert meant(f"--time={text}") == ([f"--limit {seconds}s --time {seconds}s"], [])


@pytest.mark.parametrize("text", ["0", "UNLIMITED"])
def test_no_limit_is_none(text):
    assert meant(f"-t {text}") == ([], [])


def test_a_time_of_the_day_is_the_next_one():
    ((words,), _) = meant("--begin=12:30")
    then = parse_instant(words.removeprefix("--at "))
    assert 0 < then - time.time() <= 86400 + 3600
    assert datetime.fromtimestamp(then).strftime("%H:%M:%S") == "12:30:00"
    assert meant("--begin=now") == ([], [])


@pytest.mark.parametrize(
    ("options", "tasks", "memory"),
    [
        (["--ntasks=4", "--mem=1G"], 4, 256 << 20),
        (["--nodes=2", "--ntasks=4", "--mem=1G"], 4, 512 << 20),
        (["--nodes=2", "--ntasks-per-node=2", "--mem=1G"], 4, 512 << 20),
        (["--ntasks=4", "--ntasks-per-node=1", "--mem=1G"], 4, 1 << 30),
        (["--nodes=4", "--mem=1G"], 4, 1 << 30),
        (["--ntasks=4", "--cpus-per-task=2", "--mem-per-cpu=256M"], 4, 512 << 20),
    ],
)
def test_memory_of_a_node_is_divided_between_its_tasks(options, tasks, memory):
    words, notes = meant(*options)
    assert f"--tasks {tasks}" in words
    assert f"--memory {memory}B" in words
    assert f"each of {tasks} tasks runs the whole script" in notes
    divided = any(note.startswith("--mem is that of a node") for note in notes)
    assert divided == (memory < 1 << 30 and "--mem=1G" in options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ntasks=4", "--ntasks-per-node=2", "--gres=gpu:4"], "--resource gpu=2"),
        (["--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2"], "--gpus 1"),
        (["--ntasks=4", "--gpus=4"], "--gpus 1"),
    ],
)
def test_gpus_of_a_node_or_a_job_are_divided_between_its_tasks(options, words):
    assert words in meant(*options)[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gres=gpu:a100:2"], "must be NAME:COUNT, as gpu:1"),
        (["--ntasks=2", "--gpus=3"], "3 for 2 tasks: must be a multiple of them"),
        (["--gpus=some"], "must be a number"),
    ],
)
def test_gpus_that_cannot_be_divided_are_refused(options, words):
    with pytest.raises(InputError, match=re.escape(words)):
        meant(*options)


def test_the_last_of_several_counts():
    assert meant("--cpus-per-task=2", "-c 3") == (["--cpu 3"], [])


def test_no_mail_is_none():
    assert meant("--mail-type=NONE") == ([], [])


def test_what_says_nothing_here_is_named_with_its_line():
    words, notes = meant(
        "--partition=fast -A lab", "--mail-type TIME_LIMIT", "--exclusive=user --hold", "--licenses=x:1"
    )
    assert words == ["--account lab", "--hold"]
    assert notes == [
        "says nothing to dfrs: --partition (line 2), --mail-type (line 3), --exclusive (line 4), --licenses (line 5)"
    ]


def test_what_is_otherwise_is_said():
    text = "srun ./prog $SLURM_ARRAY_TASK_ID ${SLURM_JOB_ID} $SLURM_MEM\n"
    _, notes = meant(text=text)
    assert notes == [
        "calls a command of Slurm, which is not there: leave out srun before a program",
        "not set here: SLURM_ARRAY_TASK_ID (there is DFRS_ARRAY_INDEX), SLURM_JOB_ID (there is DFRS_JOB_ID), SLURM_MEM",
    ]
    assert meant("--job-name=x", text="echo srun\n")[1] == []


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--array=1-10", "must be 0-LAST"),
        ("--array=0-9:2", "must be 0-LAST"),
        ("--time=soon", "must be minutes, M:SS"),
        ("--time=00:00", "must be above 0"),
        ("--mem=lots", "must be a size"),
        ("--mem=4G --ntasks=many", "must be a number"),
        ("--begin=teatime", "must be now+COUNTUNIT"),
        ("--begin=25:00", "must be a time of the day"),
        ("--dependency=afterok:3?afterok:4", "must have commas"),
        ("--signal=@", "must be a signal"),
        ("./prog", "must be an option"),
    ],
)
def test_what_would_run_otherwise_is_refused_by_file_and_line(option, words):
    with pytest.raises(InputError, match=rf"^job\.sh:2: .*{re.escape(words)}"):
        meant(option)


@given(st.text(max_size=20), st.sampled_from(["", "--time=", "--mem=", "--array=", "--begin=", "--signal=", "-n"]))
def test_no_text_makes_it_stumble(text, before):
    try:
        translate("job.sh", [(1, [before + text])], text)
    except InputError as error:
        assert str(error).startswith("job.sh:1: ")  # noqa: PT017


def test_lines_of_slurm_come_before_those_of_dfrs(tmp_path):
    (tmp_path / "job.sh").write_text(
        "#!/bin/bash\n#DFRS --cpu 0.5\n#SBATCH -c 4 # all of them\n#SBATCHX\n\necho $SLURM_JOB_ID\n#SBATCH -H\n"
    )
    found = read_script("job.sh", tmp_path)
    assert [(line.number, line.words) for line in found.lines] == [(3, ("--cpu", "4")), (2, ("--cpu", "0.5"))]
    assert found.notes == ("not set here: SLURM_JOB_ID (there is DFRS_JOB_ID)",)
    assert found.command([]) == ("/bin/bash", str(tmp_path / "job.sh"))
