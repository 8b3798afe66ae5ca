"""`dfrs run`, `exec` and `attach` as their users meet them: a terminal, keys, signals, the loss of all that; and nodes
that are evacuated."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dfrs.live.client import Client, read_client_file
from dfrs.live.errors import DeniedError
from dfrs.live.protocol.resources import InputRequest, JobState, ProgramRequest, Restart, TokenRequest
from tests.live_processes import DFRS, LiveCluster, wait_until
from tests.live_terminal import AtTerminal, environment

SMALL = ("--cpu", "0.1", "--memory", "64M")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("run"), nodes=2) as live:
        yield live


@pytest.fixture
def client(cluster):
    with Client(read_client_file(cluster.state)) as found:
        yield found


def dfrs(cluster, *arguments, **options):
    """A verb in pipes, to its end."""
    return subprocess.run(
        [*DFRS, *arguments], env=environment(cluster), capture_output=True, text=True, timeout=120, **options
    )


def begun(cluster, *command, stdin=subprocess.DEVNULL):
    """A command in pipes that goes on."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(cluster), stdin=stdin, stdout=pipe, stderr=pipe, text=True)


def state(client, job, *states):
    return wait_until(lambda: client.job(job).state in states, f"job {job}: {states}")


def newest(client):
    return client.jobs(states=JobState, limit=1)[0].id


def test_in_pipes_a_program_has_its_input_and_tells_its_outputs_and_status(cluster, client):
    done = dfrs(cluster, "run", *SMALL, "--", "sh", "-c", "cat; echo bad >&2; exit 7", input="one\ntwo\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "one\ntwo\n", "bad\n")
    done = dfrs(cluster, "run", *SMALL, "--tasks", "2", "--", "sh", "-c", "cat; echo rank $DFRS_RANK", input="x\n")
    assert sorted(done.stdout.splitlines()) == ["rank 0", "rank 1", "x"]
    done = dfrs(cluster, "run", *SMALL, "--", "sh", "-c", "kill -KILL $$", stdin=subprocess.DEVNULL)
    assert done.returncode == 128 + signal.SIGKILL
    assert "was ended by signal SIGKILL" in done.stderr
    done = dfrs(cluster, "run", *SMALL, "--array", "2", "--", "true", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--array: many jobs have no one input" in done.stderr
    for option in ("--terminal", "--restartable"):
        done = dfrs(cluster, "run", *SMALL, option, "--", "true", stdin=subprocess.DEVNULL)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert client.job(newest(client)).restart is Restart.NEVER


def test_without_a_terminal_one_interrupt_reaches_the_program_and_two_cancel_it(cluster, client):
    script = "trap 'echo caught' INT; echo begun; while :; do sleep 0.1; done"
    process = begun(cluster, *DFRS, "run", *SMALL, "--", "sh", "-c", script)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "caught\n"
    time.sleep(1.1)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    job = newest(client)
    assert f"job {job}: cancelled" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    state(client, job, JobState.CANCELLED)


def test_under_nohup_all_output_comes_whoever_logs_out(cluster):
    process = begun(cluster, "nohup", *DFRS, "run", *SMALL, "--", "sh", "-c", "echo begun; sleep 2; echo done")
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=60) == ("done\n", "")
    assert process.returncode == 0


def test_a_job_whose_output_is_no_longer_read_here_is_left_running(cluster, client):
    script = "while :; do echo more; sleep 0.1; done"
    process = begun(cluster, *DFRS, "run", *SMALL, "--", "sh", "-c", script)
    assert process.stdout.readline() == "more\n"
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(60) == 1
    job = newest(client)
    assert said == f"job {job}: left running; join it: dfrs attach {job}; end it: dfrs cancel {job}\n"
    assert client.job(job).state is JobState.RUNNING
    client.cancel(job)


def test_a_job_that_has_not_started_is_cancelled_by_one_interrupt(cluster, client):
    with AtTerminal(cluster, "run", *SMALL, "--at", "+1h", "--", "true") as user:
        # If that is tomorrow, its day is said too, and the line is broken after "Ctrl-C".
        user.sees("cancels it)")
        user.type("\x03")
        user.sees("which had not started: cancelled")
        assert user.end() == 130
    state(client, newest(client), JobState.CANCELLED)


def test_in_a_terminal_keys_sizes_and_interrupts_go_to_the_program(cluster, client):
    with AtTerminal(cluster, "run", *SMALL, "--", "sh", "-i") as user:
        user.type("echo $((6*7)) $TERM; tty\n")
        user.sees("42 xterm\r\n/dev/pts/")
        pty_size(user.file, 33, 77)
        # What is typed at once may come before the news of the size.
        wait_until(lambda: user.asked("stty size") == "33 77", "the program's terminal has the size of the user's")
        user.type("sleep 600\n")
        user.sees("sleep 600")
        time.sleep(0.5)
        user.type("\x03")
        user.sees("^C")
        user.type("exit 5\n")
        assert user.end() == 5
    assert client.job(newest(client)).exit_code == 5


def test_a_job_outlives_its_terminal_and_is_joined_again_with_nothing_lost(cluster, client):
    script = "echo begun; k=0; while read line; do k=$((k+1)); echo line $k: $line; done"
    with AtTerminal(cluster, "run", *SMALL, "--", "sh", "-c", script) as user:
        user.sees("begun")
        user.type("one\n")
        user.sees("line 1: one")
        user.hang_up()
    job = newest(client)
    assert client.job(job).state is JobState.RUNNING
    with AtTerminal(cluster, "attach", job) as user:
        user.type("two\n")
        user.sees("line 2: two")
        user.type("\x1d")
        user.sees(f"job {job}: left running")
        assert user.end() == 0
    looking = dfrs(cluster, "logs", str(job))
    assert "line 1: one" in looking.stdout
    assert "line 2: two" in looking.stdout
    with AtTerminal(cluster, "attach", job) as user:
        user.type("three\n")
        user.sees("line 3: three")
        user.type("\x03")
        time.sleep(0.2)
        user.type("\x03")
        user.end()
    state(client, job, JobState.CANCELLED, JobState.FAILED)
    done = dfrs(cluster, "attach", str(job))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_who_looks_on_sees_what_comes_from_now_on_and_ends_nothing_by_leaving(cluster, client):
    script = "seq 2000 >&2; echo begun; while :; do sleep 0.1; echo out; echo err >&2; done"
    (job,) = client.submit(["sh", "-c", script], cpu_cores=0.1, memory_bytes=64 << 20)
    wait_until(lambda: client.output(job).text, "it has begun")
    process = begun(cluster, *DFRS, "attach", str(job))
    assert process.stdout.readline() == "out\n"
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 0
    assert said[-1].startswith(f"job {job}: left running")
    assert set(said[:-1]) <= {"err"}
    assert client.job(job).state is JobState.RUNNING
    client.cancel(job)


def test_a_program_beside_a_job_shares_its_place_and_only_its_owner_may_start_one(cluster, client):
    (job,) = client.submit(["sh", "-c", "echo $$; exec sleep 600"], cpu_cores=0.1, memory_bytes=64 << 20)
    state(client, job, JobState.RUNNING)
    done = dfrs(cluster, "exec", str(job), "--", "sh", "-c", "cat; echo $DFRS_JOB_ID; exit 3", input="in\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, f"in\n{job}\n", "")
    done = dfrs(cluster, "exec", str(job), "--", "no-such-program")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no such program: no-such-program" in done.stderr
    with AtTerminal(cluster, "exec", job, "--", "sh", "-c", "echo $$; cat") as user:
        pid = int(user.sees("\r\n"))
        user.hang_up()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the program beside ends with its terminal")
    with open("/dev/zero", "rb") as zeros:
        process = begun(cluster, *DFRS, "exec", str(job), "--", "sh", "-c", "echo $$; exec sleep 600", stdin=zeros)
        pid = int(process.stdout.readline())
        # Its pipe is full by then, and the way to it.
        time.sleep(1.0)
        process.send_signal(signal.SIGTERM)
        assert "was told to end" in process.communicate(timeout=60)[1]
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the program beside ends though it does not read")
    assert client.job(job).state is JobState.RUNNING

    stranger = client.create_token(TokenRequest(user="mallory", role="user")).token
    with Client(client.url, stranger) as other:
        for attempt in (
            lambda: other.execute(job, ProgramRequest(name="0" * 16, command=("true",))),
            lambda: other.send_input(job, InputRequest(writer="0" * 16, data="eA==")),
            lambda: other.output(job, program="0" * 16),
        ):
            with pytest.raises(DeniedError, match="belongs to another user"):
                attempt()
    client.cancel(job)


def test_no_byte_is_lost_of_what_a_program_writes_into_a_file_here(cluster, client, tmp_path):
    (job,) = client.submit(["sleep", "600"], cpu_cores=0.1, memory_bytes=64 << 20)
    state(client, job, JobState.RUNNING)
    command = ("head", "-c", "10000000", "/dev/zero")
    words = " ".join([*DFRS, "exec", str(job), "--", *command])
    done = subprocess.run(["sh", "-c", f"{words} | wc -c"], env=environment(cluster), capture_output=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == (b"10000000", b"")
    # More than what is kept of a task.
    with (tmp_path / "numbers").open("wb") as file:
        command = [*DFRS, "run", *SMALL, "--", "seq", "6000000"]
        done = subprocess.run(command, env=environment(cluster), stdin=subprocess.DEVNULL, stdout=file, timeout=120)
    assert done.returncode == 0
    assert subprocess.run(["sh", "-c", f"seq 6000000 | cmp - {tmp_path}/numbers"]).returncode == 0
    client.cancel(job)


def test_who_attaches_to_a_job_that_is_too_fast_is_told_that_output_is_lost(cluster, client, tmp_path):
    script = f"until [ -e {tmp_path}/go ]; do echo tick; sleep 0.1; done; head -c 60000000 /dev/zero; exec sleep 600"
    (job,) = client.submit(["sh", "-c", script], cpu_cores=0.1, memory_bytes=64 << 20)
    wait_until(lambda: client.output(job).text, "it has begun")
    process = begun(cluster, *DFRS, "attach", str(job))
    assert process.stdout.readline() == "tick\n"
    tmp_path.joinpath("go").touch()
    wait_until(lambda: client.output(job, limit=1).end_offset > 60_000_000, "it has written all")
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "bytes of output are lost" in said
    client.cancel(job)


def test_a_controller_that_starts_anew_costs_no_byte(cluster, client):
    script = "read a; echo got $a; read b; echo got $b"
    process = subprocess.Popen(
        [*DFRS, "run", *SMALL, "--", "sh", "-c", script],
        env=environment(cluster),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdin.write("one\n")
    process.stdin.flush()
    assert process.stdout.readline() == "got one\n"
    cluster.controller.kill()
    cluster.controller.wait()
    process.stdin.write("two\n")
    process.stdin.flush()
    cluster.start_controller()
    assert process.communicate(timeout=90)[0] == "got two\n"
    assert process.returncode == 0


def pty_size(file, rows, columns):
    import termios  # noqa: PLC0415 - a test of a terminal alone

    termios.tcsetwinsize(file, (rows, columns))


def test_the_request_says_what_it_is(cluster, client):
    (job,) = client.submit(["true"], input=True, memory_bytes=64 << 20)
    assert json.loads(client.job(job).model_dump_json())["input"] is True


def test_a_shell_is_offered_verbs_policies_and_nodes(cluster):
    for words, offered in (("dfrs drain n", "n0"), ("dfrs att", "attach"), ("dfrs up --policy EAS", "EASY")):
        shell = {"_DFRS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        done = subprocess.run(
            [Path(sys.executable).with_name("dfrs")],
            env=environment(cluster) | shell,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert offered in done.stdout.split(), done


def test_an_evacuated_node_has_no_jobs_and_they_begin_anew_elsewhere(cluster, client):
    (job,) = client.submit(["sleep", "600"], cpu_cores=0.1, memory_bytes=64 << 20)
    state(client, job, JobState.RUNNING)
    (node,) = client.job(job).nodes
    done = dfrs(cluster, "drain", "--evacuate", node)
    assert (done.returncode, done.stdout) == (0, f"drained {node}\nqueued again: job {job}\n")
    wait_until(lambda: client.job(job).nodes not in {(), (node,)}, "it is on the other node")
    state(client, job, JobState.RUNNING)
    assert client.job(job).attempt == 1
    client.cancel(job)
    client.undrain(node)
