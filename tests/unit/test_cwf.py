"""CWF files: what is written reads back, lines in order of time, and every line that breaks a rule is told."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.elastic import CommandKind, ElasticCommands
from dfrs.model.errors import InputError
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.cwf import Cwf, cwf_text, read_cwf, write_cwf
from dfrs.workloads.load import is_cwf, load_workload, read_trace
from dfrs.workloads.swf import COLUMNS, Swf, read_swf
from tests.unit.test_swf import line, rules, swfs, written

ET, RT, EP, RP = CommandKind
NUMBER, KIND, AMOUNT = "field 1 (job_id)", "field 20 (request)", "field 21 (amount)"
POSITIVE = "a command's amount must be above 0"
REQUEST = "the request must be one of S, ET, RT, EP, RP"
UNKNOWN = "kept: will be answered as on an unknown job"


def job(start=-1, request="S", amount=-1, **changed):
    return f"{line(**changed)} {start} {request} {amount}"


def command(job_id, time_s, request="ET", amount=60):
    return f"{job_id} {time_s} {'-1 ' * 17}{request} {amount}"


def read(folder, *lines, **options):
    return read_cwf(written(folder, *lines, name="x.cwf"), **options)


def odd(cwf):
    return [(o.rule, o.handled, [(e.line, e.field, e.value) for e in o.examples]) for o in cwf.jobs.report.warnings]


def columns(commands):
    return [getattr(commands, label).tolist() for label in ("time_s", "job_id", "kind", "amount")]


@st.composite
def cwfs(draw):
    jobs = draw(swfs())
    real = st.floats(0, 1e12) | st.integers(0, 9).map(float)
    starts = draw(st.lists(st.just(np.nan) | real, min_size=len(jobs), max_size=len(jobs)))
    rows = draw(
        st.lists(
            st.tuples(
                real, st.integers(-1, 2**53) | st.sampled_from(jobs.job_id.tolist()), st.sampled_from(CommandKind)
            ),
            max_size=6,
        )
    )
    amounts = [
        draw(st.floats(1e-3, 1e9)) if kind in (ET, RT) else float(draw(st.integers(1, 10**9))) for *_, kind in rows
    ]
    commands = ElasticCommands(
        time_s=np.array([r[0] for r in rows]),
        job_id=np.array([r[1] for r in rows], np.int64),
        kind=np.array([int(r[2]) for r in rows], np.int64),
        amount=np.array(amounts),
    )
    return Cwf(jobs=jobs, requested_start_s=np.array(starts), commands=commands)


@given(cwfs(), st.sampled_from(["x.cwf", "x.cwf.gz"]))
def test_what_is_written_reads_back_and_bytes_repeat(tmp_path_factory, cwf, name):
    path = tmp_path_factory.mktemp("cwf") / name
    write_cwf(path, cwf)
    first = path.read_bytes()
    assert first.startswith(b"\x1f\x8b") == name.endswith(".gz")
    again = read_cwf(path)
    assert again == cwf
    assert again.jobs.name == "x"
    # Only what is kept as it is may be odd in what was written.
    assert all(o.handled.startswith("kept") for o in again.jobs.report.warnings)
    write_cwf(path, again)
    assert path.read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == [name]
    text = gzip.decompress(first) if name.endswith(".gz") else first
    rows = [row.split() for row in text.decode().split("\n")[len(cwf.jobs.comments) : -1]]
    keys = [(float(row[1]), row[19] != "S") for row in rows]
    assert keys == sorted(keys)
    assert len(rows) == len(cwf) + len(cwf.commands)


def test_jobs_and_commands_stand_in_one_file_by_time(tmp_path):
    cwf = read(
        tmp_path,
        "; MaxProcs: 8",
        job(submit_s=5),
        command(1, 5, "EP", 2),
        job(90.5, job_id=2, submit_s=6),
        command(2, 7.25, "RT", 0.5),
    )
    assert cwf.jobs.report.warnings == ()
    assert cwf.jobs.report.lines == 2
    assert (len(cwf), cwf.dedicated) == (2, 1)
    assert np.array_equal(cwf.requested_start_s, [np.nan, 90.5], equal_nan=True)
    assert columns(cwf.commands) == [[5, 7.25], [1, 2], [EP, RT], [2, 0.5]]
    rows = cwf_text(cwf).splitlines()
    assert rows[0] == "; MaxProcs: 8"
    assert rows[2] == "1 5 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 EP 2"
    assert rows[3].endswith(" 90.5 S -1")
    assert all(len(row.split()) == 21 for row in rows[1:])


LINES = {
    "no job's fields but 18": (line(job_id=2), "a line must have 21 fields", "dropped", "number of fields", "18"),
    "unknown request": (job(request="XT", job_id=2), REQUEST, "dropped", KIND, "XT"),
    "a number for a request": (job(request="0", job_id=2), REQUEST, "dropped", KIND, "0"),
    "not a number": (job(amount="x", job_id=2), "fields must be finite numbers", "dropped", AMOUNT, "x"),
    "not a number in a command": (command("2.5", 1), "this field must be a whole number", "dropped", NUMBER, "2.5"),
    "number twice": (job(), "job number must be unique", "dropped, one line of each kept", NUMBER, "1"),
    "amount of nothing": (command(1, 1, amount=0), POSITIVE, "dropped", AMOUNT, "0"),
    "amount unknown": (command(1, 1, amount=-1), POSITIVE, "dropped", AMOUNT, "-1"),
    "part of a processor": (command(1, 1, "EP", 1.5), "processors must be a whole number", "dropped", AMOUNT, "1.5"),
    "early command": (command(1, -3), "a command's time must be at least 0", "dropped", "field 2 (submit_s)", "-3"),
    "unknown job": (command(7, 3), "a command must be on a job of the trace", UNKNOWN, NUMBER, "7"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_bad_line_is_told_with_its_number_or_refused(tmp_path, case):
    text, rule, handled, where, value = LINES[case]
    cwf = read(tmp_path, "; MaxProcs: 8", job(), text, job(job_id=3))
    assert odd(cwf) == [(rule, handled, [(3, where, value)])]
    assert cwf.jobs.job_id.tolist() == [1, 3]
    assert len(cwf.commands) == (handled == UNKNOWN)
    with pytest.raises(InputError) as error:
        read_cwf(tmp_path / "x.cwf", strict=True)
    assert str(error.value) == f"{tmp_path / 'x.cwf'}:3: {where} = {value}: {rule}"


def test_odd_starts_and_amounts_of_jobs_are_told_and_the_jobs_kept(tmp_path):
    cwf = read(
        tmp_path,
        job(4, submit_s=5),
        job(-7, job_id=2, submit_s=5),
        job(9, job_id=3, submit_s=5, amount=60),
        job(5, job_id=4, submit_s=5),
    )
    assert np.array_equal(cwf.requested_start_s, [4, np.nan, 9, 5], equal_nan=True)
    start = "field 19 (requested_start_s)"
    assert odd(cwf) == [
        ("a requested start must be at least 0, or -1", "-1 taken", [(2, start, "-7")]),
        (
            "a requested start must not be before the submission",
            "kept: the job may start at once",
            [(1, start, "4")],
        ),
        ("a job's amount must be -1", "ignored", [(3, "field 21 (amount)", "60")]),
    ]


def test_lines_out_of_order_are_sorted_each_with_what_belongs_to_it(tmp_path):
    cwf = read(
        tmp_path,
        job(30, job_id=1, submit_s=9),
        command(1, 20, amount=1),
        command(2, 4, amount=2),
        job(10, job_id=2, submit_s=5),
        job(job_id=3, submit_s=-1),
        job(40, job_id=4, submit_s=7),
        command(4, 20, amount=3),
    )
    assert cwf.jobs.job_id.tolist() == [2, 4, 1]
    assert cwf.requested_start_s.tolist() == [10, 40, 30]
    assert columns(cwf.commands)[1:4:2] == [[2, 1, 4], [2, 1, 3]]
    assert rules(cwf.jobs) == {
        "submission time must be at least 0": (1, [(5, "-1")]),
        "jobs must be in order of submission": (2, [(4, "5"), (6, "7")]),
        "commands must be in order of time": (1, [(3, "4")]),
        "a command must not come before its job": (1, [(3, "4")]),
    }
    assert cwf.jobs.report.lines == 4


def test_a_command_on_no_job_of_the_trace_is_told_once_whenever_it_comes(tmp_path):
    cwf = read(tmp_path, *(command(i, 1) for i in (0, 4, 9)), job(job_id=3, submit_s=5), job(job_id=7, submit_s=5))
    assert [(rule, len(examples)) for rule, _, examples in odd(cwf)] == [("a command must be on a job of the trace", 3)]


def test_lines_are_counted_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("dfrs.workloads.swf.BLOCK_BYTES", 100)
    monkeypatch.setattr("dfrs.workloads.swf.SMALL_BLOCK_BYTES", 60)
    lines = [job(k + 50, job_id=k, submit_s=k) for k in range(9)] + [command(3, 9)]
    cwf = read(tmp_path, *lines, "; late", "x", job(job_id=9, submit_s=9))
    assert cwf.jobs.line.tolist() == [*range(1, 10), 13]
    assert cwf.requested_start_s[:9].tolist() == list(range(50, 59))
    assert [e.line for e in cwf.jobs.report.warnings[0].examples] == [12]
    assert len(cwf.commands) == 1


@pytest.mark.parametrize("text", ["", "; MaxProcs: 4", "a b", command(1, 1)])
def test_a_file_without_a_job_is_refused(tmp_path, text):
    with pytest.raises(InputError, match=r"x\.cwf: no valid job in"):
        read(tmp_path, text)


def test_values_are_checked_and_frozen(tmp_path):
    jobs = read_swf(written(tmp_path, line(), line(job_id=2)))
    assert np.isnan(Cwf(jobs=jobs).requested_start_s).all()
    cwf = Cwf(jobs=jobs, requested_start_s=np.array([3.0, np.nan]))
    assert cwf != Cwf(jobs=jobs)
    with pytest.raises(ValueError, match="read-only"):
        cwf.requested_start_s[0] = 1
    early = ElasticCommands(time_s=np.array([-1.0]), job_id=np.array([2]), kind=np.array([0]), amount=np.ones(1))
    for options, words in (
        ({"requested_start_s": np.array([1.0])}, "requested_start_s: 1 values for 2 jobs"),
        ({"requested_start_s": np.array([1.0, -1.0])}, "job 2: requested_start_s = -1.0: must be at least 0"),
        ({"requested_start_s": np.array([np.inf, 1.0])}, "job 1: requested_start_s = inf: must be"),
        ({"commands": early}, "command on job 2: time_s = -1.0: must be at least 0"),
    ):
        with pytest.raises(InputError, match=words):
            Cwf(jobs=jobs, **options)


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = written(tmp_path, job(), name="x.cwf")
    cwf, before = read_cwf(path), path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(InputError, match="No space left"):
        write_cwf(path, cwf)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_ending_tells_the_format(tmp_path):
    for name, expected in (("x.cwf", True), ("X.CWF.gz", True), ("x.swf", False), ("cwf", False), ("x.cwf.swf", False)):
        assert is_cwf(tmp_path / name) == expected
    assert isinstance(read_trace(written(tmp_path, job(), name="x.cwf")), Cwf)
    assert isinstance(read_trace(written(tmp_path, line())), Swf)


AMOUNTS = [(1, 33, ET, 33), (1, 1, EP, 1), (1, 32, EP, 1), (1, 33, RP, 2), (9, 65, EP, 3)]
COMMANDS = [command(i, 5, kind.name, amount) for i, amount, kind, _ in AMOUNTS]


def test_a_workload_has_starts_and_commands_in_groups_of_processors(tmp_path):
    path = written(
        tmp_path,
        "; MaxProcs: 320",
        job(submit_s=1, run_s=-1),
        job(70, job_id=1, submit_s=2, processors=320),
        job(job_id=2, submit_s=3, processors=33),
        job(80, job_id=3, submit_s=4, processors=32),
        *COMMANDS,
        name="x.cwf",
    )
    path.write_text(path.read_text().replace("1 1 3 -1", "9 1 3 -1"))
    workload, report = load_workload(path, annotate="unit:32")
    assert (workload.nodes, workload.name) == (10, "x")
    assert workload.job_id.tolist() == [1, 2, 3]
    assert workload.tasks.tolist() == [10, 2, 1]
    assert (workload.need.tolist(), workload.memory.tolist()) == ([1] * 3, [0] * 3)
    assert np.array_equal(workload.requested_start_s, [70, np.nan, 80], equal_nan=True)
    # A command on a job that was dropped stays, and will be answered.
    assert columns(workload.commands)[1:] == [[1, 1, 1, 1, 9], [ET, EP, EP, RP, EP], [33, 1, 1, 2, 3]]
    assert [o.rule for o in report.warnings] == ["run time unknown"]
    assert to_workload(read_cwf(path), annotate="none")[0].commands.amount.tolist() == [33, 1, 32, 33, 65]
    same = load_workload(written(tmp_path, "; MaxProcs: 330", job(submit_s=1), name="y.cwf"))[0]
    assert not len(same.commands)
    assert not same.dedicated.any()


def test_tasks_with_threads_stand_for_their_cores_and_others_for_one_processor(tmp_path):
    path = written(
        tmp_path,
        "; MaxProcs: 32",
        job(processors=4),
        job(job_id=2, processors=3),
        *(command(i, 5, "EP", n) for i in (1, 2) for n in (1, 4, 5)),
        name="x.cwf",
    )
    workload = load_workload(path, annotate="smp:4:8")[0]
    assert workload.tasks.tolist() == [1, 3]
    assert workload.commands.amount.tolist() == [1, 1, 2, 1, 4, 5]
    assert load_workload(path, annotate="dfrs")[0].commands.amount.tolist() == [1, 4, 5, 1, 4, 5]


@pytest.mark.parametrize("text", ["unit", "unit:", "unit:x", "unit:2:3", "unit:1.5"])
def test_what_is_no_group_is_refused(tmp_path, text):
    with pytest.raises(InputError, match=f'annotate = "{text}": must be dfrs, .* or unit:N'):
        load_workload(written(tmp_path, line()), nodes=1, annotate=text)


def test_a_group_has_at_least_one_processor(tmp_path):
    with pytest.raises(InputError, match="annotate = unit:0: N must be above 0"):
        load_workload(written(tmp_path, line()), nodes=1, annotate="unit:0")
    # A machine smaller than a group is one node.
    assert load_workload(written(tmp_path, "; MaxProcs: 4", line()), annotate="unit:32")[0].nodes == 1


def test_the_18_fields_are_those_of_swf():
    swf = Swf(**{label: np.array([k + 1.0]) for k, label in enumerate(COLUMNS)})
    assert cwf_text(Cwf(jobs=swf)).split() == [*map(str, range(1, 19)), "-1", "S", "-1"]


def test_groups_must_divide_the_machine(tmp_path):
    path = written(tmp_path, "; MaxProcs: 330", job(), name="x.cwf")
    with pytest.raises(InputError, match="annotate = unit:32: must divide the 330 processors of the header"):
        load_workload(path, annotate="unit:32")
    assert load_workload(path, annotate="unit:32", nodes=10)[0].nodes == 10


def test_amounts_and_starts_beyond_all_reason_are_reported(tmp_path):
    path = written(
        tmp_path,
        "; MaxProcs: 32",
        job(start=1e13),
        command(1, 5, "ET", 1e10),
        command(1, 6, "ET", 1e9),
        name="x.cwf",
    )
    cwf = read_cwf(path)
    assert (cwf.dedicated, cwf.commands.amount.tolist()) == (0, [1e9])
    assert [o.rule for o in cwf.jobs.report.warnings] == [
        "a requested start must be at most 1e+12",
        "a command's amount must be at most 1e+09",
    ]
