"""What surrounds a profiled program: counters, the compiler, environment, leftovers, and bad input."""

import errno
import os
import signal
import struct
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from dfrs.cli.heterogeneous.calibrate import calibrate
from dfrs.cli.heterogeneous.profile import profile
from dfrs.model.errors import InputError
from dfrs.model.hardware import Profile
from dfrs.profiling import build, session
from dfrs.profiling import calibrate as calibrating
from dfrs.profiling.build import NoMpiError, Toolchain, toolchain
from dfrs.profiling.calibrate import between_namespaces, to_host
from dfrs.profiling.counters import SOFTWARE, CpuCounters, Event, flop_events, model_events, open_counters
from dfrs.profiling.reader import Moment

FAULTS = Event(name="faults", kind=SOFTWARE, config=2)
CLOCK = Event(name="ns", kind=SOFTWARE, config=1)
TOUCH = "import mmap; m = mmap.mmap(-1, 40 << 20); [m.__setitem__(k, 1) for k in range(0, 40 << 20, 4096)]"


def called(verb, *arguments):
    return invoked(verb, *arguments).exception


def invoked(verb, *arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(verb)
    return CliRunner().invoke(app, [str(word) for word in arguments])


def test_counters_count_the_program_and_what_it_starts():
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {TOUCH!r}])"
    child = subprocess.Popen(["/bin/sh", "-c", session._STUB, "sh", sys.executable, "-c", starts])
    os.waitpid(child.pid, os.WUNTRACED)
    counters, missing = open_counters(child.pid, (FAULTS, CLOCK))
    os.kill(child.pid, signal.SIGCONT)
    if counters is None:
        child.wait()
        pytest.skip(f"no counters at all: {missing}")
    assert child.wait() == 0
    found = counters.read()
    counters.close()
    assert counters.names == ()
    assert found["faults"] > 10_000, "the grandchild's pages were not counted"
    assert 1e6 < found["ns"] < 1e11


def test_an_event_that_is_not_there_is_left_out_and_named():
    def opened(event, pid):
        if event.name == "flop":
            raise OSError(errno.ENOENT, "")
        return os.open(os.devnull, os.O_RDONLY)

    flop = [Event(name="flop", kind=4, config=k) for k in (1, 2)]
    counters, missing = open_counters(1, (FAULTS, *flop), opened)
    assert counters.names == ("faults",)
    assert missing.startswith("flop: ")
    counters.close()

    def refused(event, pid):
        raise OSError(errno.EACCES, "")

    assert open_counters(1, (FAULTS,), refused) == (None, "not permitted: kernel.perf_event_paranoid must be at most 2")


def test_counts_are_scaled_and_weighted(monkeypatch):
    values = iter([(10, 4, 2), (5, 4, 4), (7, 0, 0)])
    monkeypatch.setattr(os, "read", lambda file, size: struct.pack("<QQQ", *next(values)))
    flop = [Event(name="flop", kind=4, config=k, weight=w) for k, w in ((1, 1), (2, 4))]
    assert CpuCounters([(flop[0], 0), (flop[1], 0), (FAULTS, 0)]).read() == {"flop": 10 * 2 + 5 * 4, "faults": 0}


def test_flop_events_are_those_of_the_cpu():
    intel = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: fpu avx2 adx\n\nvendor_id: x"
    assert sum(event.weight for event in flop_events(intel)) == 1 + 1 + 2 + 4 + 4 + 8 + 8 + 16
    # Haswell: its event of that number is another.
    assert flop_events(intel.replace(" adx", "")) == ()
    assert len(flop_events("vendor_id: AuthenticAMD\ncpu family: 25\nflags: avx2")) == 1
    assert flop_events("vendor_id: AuthenticAMD\ncpu family: 21") == ()
    assert flop_events("") == ()
    assert model_events({"cycles": 2.0, "l2_miss": 3.0}, {"flop": 2.5, "l2_miss": 1.0}) == {}
    assert model_events({"flop": 1.0, "cycles": 2.0, "new": 3.0}, {"flop": 2.5, "cycles": 1.0}) == {"flop": 1.0}


def test_what_stands_for_the_work_of_the_cpu_is_told():
    counters = CpuCounters([(FAULTS, 0)])
    told = [session._counted(counters, "flop: no", profiled({name: 1.0})) for name in ("flop", "second")]
    assert told == [
        "hardware counters: faults (not: flop: no)",
        "CPU seconds outside MPI (no floating-point operations counted: flop: no)",
    ]
    assert session._counted(None, "why", None) == "CPU seconds outside MPI (no hardware counters: why)"


def profiled(counters):
    return Profile(job="j", cluster="A", tau_s=1.0, processes=1, counters=counters)


def test_no_compiler_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("DFRS_MPICC", "no-such-mpicc")
    with pytest.raises(NoMpiError, match=r"^DFRS_MPICC = no-such-mpicc: not found; install"):
        toolchain()
    monkeypatch.delenv("DFRS_MPICC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoMpiError, match=r"^mpicc: not found"):
        toolchain()


def test_a_compiler_that_fails_is_one_line(monkeypatch, tmp_path):
    fake = tmp_path / "mpicc"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = -show ] && echo gcc -lmpi && exit\necho "x.c:1: error: no mpi.h" >&2\nexit 1\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("DFRS_MPICC", str(fake))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(build.DfrsError, match=r"mpicc: cannot build: x.c:1: error: no mpi.h$"):
        build.profiler(toolchain())
    assert not [path for path in (tmp_path / "dfrs").rglob("*") if path.is_file()]
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    with pytest.raises(InputError, match="XDG_CACHE_HOME"):
        build.profiler(toolchain())


def test_each_kind_of_cpu_has_rates_of_its_own(monkeypatch, tmp_path):
    """A home may be shared by machines: what is built for one of them may not run on the others, or do less there."""
    fake = tmp_path / "cc"
    fake.write_text('#!/bin/sh\nfor last; do :; done\n: > "$last"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("CC", str(fake))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = "processor: {}\nvendor_id: GenuineIntel\ncpu family: 6\nmodel: {}\ncpu MHz: 2{}00.0\nflags: fpu {}\n"
    built = []
    for fields in ((0, 79, 1, "avx2"), (1, 79, 2, "avx2"), (0, 85, 1, "avx2"), (0, 79, 1, "avx2 avx512f")):
        monkeypatch.setattr(build, "cpuinfo", lambda fields=fields: said.format(*fields))
        built.append(build.rates())
    assert len(set(built)) == 3
    assert built[0] == built[1]


def test_the_environment_and_the_launcher(tmp_path, monkeypatch):
    monkeypatch.delenv("OMPI_MCA_mca_base_env_list", raising=False)
    found = session.environment({"LD_PRELOAD": "/a.so /b.so"}, tmp_path / "p.so", tmp_path)
    assert found["LD_PRELOAD"] == f"{tmp_path}/p.so /a.so /b.so"
    assert found["DFRS_PROFILE_DIR"] == str(tmp_path)
    command = ["nice", "-n", "5", "/usr/bin/mpirun", "-n", "2", "./prog"]
    assert session.launcher_at(command) == 3
    assert session.launcher_at(["./prog", "x"]) is None
    open_mpi = Toolchain(mpicc="mpicc", shown="gcc -I/usr/lib/openmpi/include -lmpi")
    passed = ["-x", "LD_PRELOAD", "-x", "DFRS_PROFILE_DIR"]
    assert session._arguments(command, open_mpi, 3) == [*command[1:4], *passed, *command[4:]]
    other = Toolchain(mpicc="mpicc", shown="gcc -lmpich")
    assert session._arguments(command, other, 3) == command[1:]


def test_what_a_killed_run_left_is_removed_at_the_next(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    for number in (gone.pid, os.getpid()):
        (tmp_path / f"{session.PREFIX}{number}-x").mkdir()
    session._forget_old(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{session.PREFIX}{os.getpid()}-x"]


def test_bad_input_is_told_before_anything_runs(tmp_path, monkeypatch):
    marker = tmp_path / "ran"
    program = ["--", "touch", marker]
    for options, part in (
        (["--tau", "0"], "--tau 0"),
        (["--tau", "nan"], "--tau nan"),
        (["--tau", "-1"], "--tau -1"),
        (["-o", tmp_path / "no" / "p.json"], "there is no directory"),
        (["-o", tmp_path], "is a directory"),
        (["--picture", "p.txt"], "the ending must be"),
        (["--cluster", "A"], "must be given together"),
        (["--blocks", "/proc/nowhere"], "/proc/nowhere"),
    ):
        error = called(profile, *options, *program)
        assert isinstance(error, InputError), (options, error)
        assert part in str(error)
        assert "\n" not in str(error)
    assert not marker.exists()
    error = called(profile, "--", "no-such-program-here")
    assert isinstance(error, InputError)
    assert str(error) == "no-such-program-here: no such program"


@pytest.mark.parametrize("status", [0, 7])
@pytest.mark.parametrize(
    ("option", "name", "message"),
    [("--blocks", "", "2 of 2 blocks are not written"), ("-o", "p.json", "p.json: cannot write")],
)
def test_files_that_cannot_be_written_do_not_hide_how_the_program_ended(
    monkeypatch, tmp_path, status, option, name, message
):
    gone = tmp_path / "gone"
    gone.mkdir()
    block = profiled({"second": 1.0})

    def ran(command, *, on_block, **_):
        gone.rmdir()
        for number in (1, 2) if on_block else ():
            on_block(number, block)
        moment = Moment(at_s=1.0, ranks=(), counts={})
        return session.ProfiledRun(
            status=status, wall_s=1.0, moment=moment, profile=block, blocks=(block, block), counted="x"
        )

    monkeypatch.setattr(session, "run", ran)
    found = invoked(profile, option, gone / name, "--", "x")
    if status:
        assert (found.exit_code, found.output.count(message)) == (status, 1)
    else:
        assert isinstance(found.exception, InputError)
        assert message in str(found.exception)
    assert found.output.count("block-0001.json: cannot write") == (option == "--blocks")
    assert "block-0002" not in found.output


def test_a_program_goes_on_with_its_signals_where_its_ranks_cannot_be_looked_at(monkeypatch, tmp_path):
    def failing(_):
        raise InputError("damaged")

    monkeypatch.setattr(session.ProfileReader, "look", failing)
    # Nothing needs to be built for it.
    monkeypatch.setattr(session, "toolchain", lambda _: Toolchain(mpicc="mpicc", shown="gcc -lmpich"))
    monkeypatch.setattr(session, "profiler", lambda _: tmp_path / "p.so")
    monkeypatch.setattr(session, "environment", lambda variables, *_: dict(variables))
    ended = tmp_path / "ended"
    # It signals its parent, which passes that on, long after the first look.
    script = f"""
        sleep 30 & other=$!
        trap 'kill $other; touch {ended}; exit 0' USR1
        sleep 1
        kill -USR1 $PPID
        wait $other
    """
    former = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with pytest.raises(InputError, match="damaged"):
            session.run(["sh", "-c", script], tau_s=1.0, job="j")
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert ended.exists()


def test_bad_input_of_calibrate(tmp_path):
    out = tmp_path / "f.json"
    for options, part in (
        (["--local", "--between", "h", "-o", out], "only one"),
        (["--between", "-oProxyCommand=x", "-o", out], "name of a host"),
        (["--between", "a,b", "-o", out], "name of a host"),
        (["--local", "-o", tmp_path / "no" / "f.json"], "cannot write"),
    ):
        error = called(calibrate, *options)
        assert isinstance(error, InputError), (options, error)
        assert part in str(error)
    assert not out.exists()


def test_the_first_of_each_pair_is_here_and_the_second_there(monkeypatch):
    """Rank k and rank k + pairs exchange messages: the launcher fills one side after the other."""
    other = to_host("mpiexec", "h2", Toolchain(mpicc="mpicc", shown="gcc -lmpich"), 3)
    assert other.options == ("-hosts", "localhost,h2", "-ppn", "3")
    filled = ("--map-by", "slot", "--host")
    open_mpi = Toolchain(mpicc="mpicc", shown="gcc -I/usr/lib/openmpi/include -lmpi")
    assert to_host("mpirun", "h2", open_mpi, 3).options[-4:] == (*filled, "localhost:3,h2:3")
    monkeypatch.setattr(calibrating, "address_in", lambda name: (f"10.0.0.{name}", 24))
    with between_namespaces("mpirun", "1", "2", 3) as wiring:
        assert wiring.options[-4:] == (*filled, "10.0.0.1:3,10.0.0.2:3")


def test_signals_are_not_lost_or_kept():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with session._blocked() as former:
        os.kill(os.getpid(), signal.SIGUSR1)
        child = subprocess.Popen(
            ["sleep", "60"],
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, former),  # noqa: PLW1509
        )
        session._pass_on(child, 1.0)
        # What was sent to us alone went on to the program.
        assert child.wait(timeout=30) == -signal.SIGUSR1
        os.kill(os.getpid(), signal.SIGUSR2)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
