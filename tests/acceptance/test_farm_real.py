"""Real MPI programs under the profiler: what is counted is what they sent, and what is predicted is what they take.

Needs Open MPI; the links between network namespaces also root and /dev/net/tun. No time is asserted but that of links
whose latency is far above what a loaded machine adds (see tests/mpi/patient.c).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.farm_overhead import measure

from dfrs.model.hardware_files import read_hardware, read_profile
from dfrs.profiling.build import profiler, toolchain
from dfrs.profiling.calibrate import address_in, over_tcp
from dfrs.profiling.predict import predict
from tests.driver_hosts import measuring
from tests.mpi_links import compiled, link, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "complete")
DFRS = (sys.executable, "-m", "dfrs.cli.main", "farm")
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe")
LIMIT_S = 300
WITHIN = 0.2
"""Predictions are to be within this of what the program takes."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("mpi")


@pytest.fixture(scope="module")
def environment(place):
    """Of all programs here: ranks that wait leave the CPU to others."""
    patient = place / "patient.so"
    source = Path(__file__).parents[1] / "mpi" / "patient.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(patient), str(source)], check=True)
    return os.environ | {
        "LD_PRELOAD": str(patient),
        "OMPI_MCA_mca_base_env_list": "LD_PRELOAD",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "XDG_CACHE_HOME": str(place / "cache"),
    }


@pytest.fixture(autouse=True)
def nothing_left():
    """Of what these tests make, nothing remains. Others of the kind may be running beside them."""
    before = _left()
    yield
    assert _left() <= before


def _left():
    """Directories of profilers that have ended, and namespaces that this process has made."""
    found = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=False).stdout
    spaces = {line.split()[0] for line in found.splitlines() if line.startswith(f"dfrs-{os.getpid()}-")}
    places = Path("/dev/shm").glob("dfrs-profile-*")
    return spaces | {place.name for place in places if not Path(f"/proc/{place.name.split('-')[2]}").exists()}


def run(*command, env):
    words = [str(word) for word in command]
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S)


@pytest.mark.parametrize(("processes", "seed"), [(1, 1), (2, 2), (3, 3), (4, 4)])
def test_the_histogram_is_what_the_program_sent(place, environment, processes, seed):
    program = compiled("mix", place)
    written = place / "mix.json"
    answer = run(
        *DFRS,
        "profile",
        "--json",
        "--tau",
        "0.2",
        "-o",
        written,
        "--",
        *MPIRUN,
        "-n",
        processes,
        program,
        seed,
        300,
        place / "own",
        env=environment,
    )
    assert answer.returncode == 0, answer.stderr
    own = _own_counts(place / "own", processes)
    document = json.loads(answer.stdout)
    assert document["untracked"] == 0
    assert len(document["ranks"]) == processes
    found = Counter()
    for entry in document["messages"]:
        for name in ("sent", "received", "isent", "ireceived"):
            found[entry["rank"], name, entry["bytes"]] += entry[name]
    for entry in document["calls"]:
        found[entry["rank"], entry["kind"], entry["bytes"]] += entry["count"]
    assert +found == own
    assert len(own) > 50
    # The profile: the mean over ranks, collectives as the messages that they are made of.
    each = {"sent": 1, "received": 1, "alltoall": 2 * processes if processes > 1 else 0}
    depth = (processes - 1).bit_length()
    each |= {"bcast": depth, "allreduce": depth}
    blocking = Counter()
    for (_, name, size), count in own.items():
        blocking[max(size, 1)] += each.get(name, 0) * count
    assert dict(read_profile(written).blocking) == pytest.approx({k: v / processes for k, v in blocking.items() if v})


def _own_counts(prefix, processes):
    """What the ranks say they sent."""
    own = Counter()
    for number in range(processes):
        for line in Path(f"{prefix}.{number}").read_text().splitlines():
            rank, name, size, count = line.split()
            own[int(rank), name, int(size)] += int(count)
    return own


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="no gfortran")
def test_a_program_in_fortran_is_seen_and_not_changed(place, environment):
    program = place / "every"
    source = Path(__file__).parents[1] / "mpi" / "every.f90"
    subprocess.run(["mpif90", "-fallow-argument-mismatch", "-o", str(program), str(source)], check=True)
    answer = run(*MPIRUN, "-n", 2, program, env=environment)
    assert answer.stdout == "right\n", answer.stderr
    answer = run(*DFRS, "profile", "--json", "--", *MPIRUN, "-n", 2, program, env=environment)
    assert answer.returncode == 0, answer.stderr
    right, _, text = answer.stdout.partition("\n")
    assert right == "right"
    document = json.loads(text)
    found = Counter()
    for entry in document["messages"]:
        for name in ("sent", "received", "isent", "ireceived"):
            found[name, entry["bytes"]] += entry[name]
    for entry in document["calls"]:
        found[entry["kind"], entry["bytes"]] += entry["count"]
    both = {
        "sent": {48: 2, 52: 2, 64: 2, 40: 1, 44: 1},
        "received": {48: 2, 40: 1, 44: 1},
        "isent": {4: 100, 56: 2, 60: 2},
        "ireceived": {4: 100, 52: 2, 56: 2, 60: 2, 64: 2},
        "bcast": {68: 2},
        "allreduce": {72: 2},
        "reduce": {76: 2, 4: 2},
        "alltoall": {4: 4},
        "allgather": {4: 2},
        "barrier": {0: 2},
    }
    assert +found == {(name, size): count for name, sizes in both.items() for size, count in sizes.items()}
    assert document["untracked"] == 0


def test_a_program_is_unchanged_without_the_variable(place, environment):
    library = profiler(toolchain())
    program = compiled("mix", place)
    counts = []
    for name, preload in (("plain", environment["LD_PRELOAD"]), ("preloaded", str(library))):
        answer = run(*MPIRUN, "-n", 2, program, 5, 50, place / name, env=environment | {"LD_PRELOAD": preload})
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
        counts.append(_own_counts(place / name, 2))
    assert counts[0] == counts[1]


def test_exit_status_and_blocks(place, environment):
    program = compiled("ends", place)
    answer = run(*DFRS, "profile", "--", *MPIRUN, "-n", 2, program, "status", 7, env=environment)
    assert answer.returncode == 7
    assert "bcast" in answer.stderr
    assert "CPU seconds outside MPI" in answer.stderr or "hardware counters" in answer.stderr
    answer = run(
        *DFRS,
        "profile",
        "--tau",
        "0.3",
        "--blocks",
        place / "blocks",
        "-o",
        place / "k.json",
        "--picture",
        place / "k.png",
        "--",
        *MPIRUN,
        "-n",
        2,
        program,
        "kill",
        env=environment,
    )
    assert answer.returncode == 128 + signal.SIGKILL
    assert "2 ranks ended without MPI_Finalize" in answer.stderr
    assert read_profile(place / "k.json").processes == 2
    assert (place / "k.png").read_bytes().startswith(b"\x89PNG")
    blocks = [read_profile(path) for path in sorted((place / "blocks").iterdir())]
    assert blocks
    # The rank that is gone counts until it was seen last; blocks are as long as they were asked to be.
    assert all(0.29 < block.tau_s < 5 for block in blocks)


def test_a_directory_that_is_gone_while_it_runs_does_not_end_the_program(place, environment):
    program, gone = compiled("ends", place), place / "gone"
    script = f"rmdir {gone}; exec {' '.join(MPIRUN)} -n 2 {program} kill"
    options = ["--tau", "0.2", "--blocks", gone]
    answer = run(*DFRS, "profile", *options, "--", "sh", "-c", script, env=environment)
    assert answer.returncode == 128 + signal.SIGKILL
    assert answer.stderr.count("cannot write") == 1
    assert "blocks are not written" in answer.stderr
    assert "2 ranks ended without MPI_Finalize" in answer.stderr


def test_a_script_that_runs_several_mpi_programs_has_no_profile(place, environment):
    program, written, blocks = compiled("ends", place), place / "two.json", place / "first"
    launch = f"{' '.join(MPIRUN)} -n 2 {program}"
    answer = run(*DFRS, "profile", "--json", "--", "sh", "-c", f"{launch} status && {launch} status", env=environment)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["worlds"] == 2
    assert "more than one MPI program ran" in answer.stderr
    options = ["--tau", "0.2", "--blocks", blocks, "-o", written]
    script = f"{launch} kill; {launch} kill; exit 0"
    answer = run(*DFRS, "profile", *options, "--", "sh", "-c", script, env=environment)
    assert answer.returncode == 2
    assert f"{written}: not written: a profile is of one MPI program" in answer.stderr
    assert not written.exists()
    assert {read_profile(path).processes for path in blocks.iterdir()} == {2}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_program_and_leaves_nothing(place, environment, number):
    program = compiled("ends", place)
    command = [*DFRS, "profile", "--", *MPIRUN, "-n", "2", str(program), "wait"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "going\n"
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode not in {0, None}
    assert "Traceback" not in told
    assert "ranks ended without MPI_Finalize" in told


def test_what_is_no_mpi_program(environment):
    answer = run(*DFRS, "profile", "--", "true", env=environment)
    assert answer.returncode == 1
    assert answer.stderr.startswith("dfrs: true: no MPI rank was seen")
    assert len(answer.stderr.splitlines()) == 1
    answer = run(*DFRS, "profile", "--", "sh", "-c", "exit 3", env=environment)
    assert answer.returncode == 3


def test_no_compiler(environment):
    answer = run(*DFRS, "profile", "--", "mpirun", "true", env=environment | {"DFRS_MPICC": "no-such"})
    assert answer.returncode == 1
    assert answer.stderr.startswith("dfrs: DFRS_MPICC = no-such: not found; install")
    assert len(answer.stderr.splitlines()) == 1


def test_calibrate_this_machine(place, environment):
    written = place / "local.json"
    answer = run(*DFRS, "calibrate", "--local", "--cluster", "L", "--seconds", "0.01", "-o", written, env=environment)
    assert answer.returncode == 0, answer.stderr
    (cluster,) = read_hardware(written).partitions
    assert 1e8 < cluster.frequency_hz < 1e10
    assert 0.05 < cluster.cycles["flop"] < 50
    assert cluster.latency.sizes_bytes == tuple(2**k for k in range(23))
    assert cluster.latency.seconds[22] > cluster.latency.seconds[0]


CASES = {"latency": (100, 1000), "bandwidth": (12, 1000), "nonblocking": (50, 500), "allreduce": (100, 1000)}
"""Program, steps and microseconds of work in a step."""


@pytest.fixture(scope="module")
def two_links(place, environment):
    """Both links calibrated, every program profiled on the first, and run on the second."""
    farm, program = place / "links.json", compiled("steps", place)
    real = {}
    for cluster, delay_s, rate in (("fast", 1e-3, "100mbit"), ("slow", 5e-3, "20mbit")):
        with measuring(), link(place, delay_s, rate) as made:
            names = (made.first, made.second)
            calibrated = run(
                *DFRS,
                "calibrate",
                "--netns",
                *names,
                "--cluster",
                cluster,
                "--no-cpu",
                "--cores",
                1,
                "--seconds",
                "0.1",
                "--largest",
                2**19,
                "-o",
                farm,
                env=environment,
            )
            assert calibrated.returncode == 0, calibrated.stderr
            assert f"cluster {cluster} is new and its CPU was not measured" in calibrated.stderr
            for case, amounts in CASES.items():
                command = [*_over(place, names), str(program), case, *map(str, amounts)]
                options = ["--farm", farm, "--cluster", cluster, "-o", place / f"{case}.json"]
                if cluster == "fast":
                    command = [*DFRS, "profile", *options, "--", *command]
                # What else the machine does only adds: the least of three is the program's own. Profiles are of one.
                answers = [run(*command, env=environment) for _ in range(1 if cluster == "fast" else 3)]
                assert all(answer.returncode == 0 for answer in answers), answers
                real[case, cluster] = min(float(answer.stdout) for answer in answers)
    return read_hardware(farm), real


def test_pairs_that_send_at_the_same_time_share_the_link(place, environment):
    """Four messages of 64 KB at once over 20 Mbit/s: each takes about four times as long as alone."""
    seconds = {}
    with measuring(), link(place, 1e-3, "20mbit") as made:
        for pairs in (1, 4):
            options = ["--no-cpu", "--cores", 1, "--seconds", "0.3", "--largest", 2**16, "--pairs", pairs]
            written = place / f"pairs-{pairs}.json"
            answer = run(
                *DFRS, "calibrate", "--netns", made.first, made.second, *options, "-o", written, env=environment
            )
            assert answer.returncode == 0, answer.stderr
            seconds[pairs] = read_hardware(written).partitions[0].latency.seconds[-1]
    assert seconds[4] > 2.5 * seconds[1]


def _over(place, names):
    """A launcher between two namespaces, as a user would write it."""
    agent = place / "agent"
    agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {names[1]} /bin/sh -c "$*"\n')
    agent.chmod(0o700)
    addresses = [address_in(name) for name in names]
    hosts = ",".join(f"{address}:1" for address, _ in addresses)
    return [
        shutil.which("ip"),
        "netns",
        "exec",
        names[0],
        "mpirun",
        "--allow-run-as-root",
        *over_tcp(addresses),
        "--mca",
        "plm_rsh_agent",
        str(agent),
        "--host",
        hosts,
        "-n",
        "2",
    ]


@pytest.mark.parametrize("case", CASES)
def test_a_program_takes_on_another_link_what_was_predicted(place, two_links, case):
    farm, real = two_links
    profile = read_profile(place / f"{case}.json")
    assert not profile.colocated, "two namespaces are two machines"
    assert profile.tau_s == pytest.approx(real[case, "fast"], rel=0.1, abs=0.1)
    predicted_s = float(predict(profile, farm).time_s[farm.index("slow"), 0])
    actual_s = real[case, "slow"]
    print(f"{case}: {real[case, 'fast']:.3f} s, predicted {predicted_s:.3f} s, took {actual_s:.3f} s")
    assert actual_s > 1.5 * real[case, "fast"], "the links differ too little for a prediction to be tested"
    assert predicted_s == pytest.approx(actual_s, rel=WITHIN)


def test_the_benchmark_of_the_overhead_runs():
    found = measure(pairs=2, messages=2000)
    assert len(found.ratios) == 2
    assert found.low <= found.middle <= found.high
