"""SWF files: what is written reads back, each broken line is told with its number, and junk is refused in one line."""

import gzip
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.workloads import swf as module
from dfrs.workloads.swf import COLUMNS, Swf, read_swf, write_swf
from tests.read_once import pipe_of
from tests.traces import TRACES, needs_traces

GOOD = "1 0 3 100 4 -1 1024 4 200 2048 1 7 1 -1 0 -1 -1 -1"


def line(**changed):
    """A valid job's line with some fields replaced by other text."""
    fields = dict(zip(COLUMNS, GOOD.split(), strict=True))
    assert set(changed) <= set(fields)
    return " ".join(str(v) for v in (fields | changed).values())


def written(folder, *lines, name="x.swf"):
    path = folder / name
    path.write_bytes("\n".join(lines).encode())
    return path


def rules(swf):
    return {o.rule: (o.count, [(e.line, e.value) for e in o.examples]) for o in swf.report.warnings}


WHOLE = st.integers(-1, 2**53) | st.integers(-1, 300)
REAL = st.floats(0, 1e300) | st.integers(-1, 2**40).map(float) | st.just(-0.0)


@st.composite
def swfs(draw):
    jobs = draw(st.integers(1, 8))
    columns = {}
    for label in COLUMNS:
        values = WHOLE if label in module._WHOLE else REAL
        if label == "submit_s":
            values = st.floats(0, 1e12)
        columns[label] = draw(st.lists(values, min_size=jobs, max_size=jobs, unique=label == "job_id"))
    comments = draw(st.lists(st.text("abcÅß:; 7", max_size=12).map(str.rstrip), max_size=4))
    return Swf(**{label: np.array(c) for label, c in columns.items()}, comments=tuple(comments))


@given(swfs(), st.sampled_from(["x.swf", "x.swf.gz"]))
def test_what_is_written_reads_back_and_bytes_repeat(tmp_path_factory, swf, name):
    path = tmp_path_factory.mktemp("swf") / name
    write_swf(path, swf)
    first = path.read_bytes()
    assert first.startswith(b"\x1f\x8b") == name.endswith(".gz")
    again = read_swf(path)
    assert again == swf
    assert again.report.warnings == ()
    write_swf(path, again)
    assert path.read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == [name]


WORDS = "0 1 -1 7 40 1e3 2.5 .5 5. +4 1-2 1.2.3 -- e5 5e 1e999 nan inf 0x10 1_0 9007199254740994 - . 1,5 ; abc"
TOKENS = st.sampled_from(WORDS.split())


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["1", "2.0", "30"]), min_size=18, max_size=18),
            st.lists(st.tuples(st.integers(0, 17), TOKENS), max_size=2),
            st.integers(-1, 1),
            st.sampled_from(["\n", "\r\n", " \n", "\n\n", "\t\n"]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_block_is_read_at_once_only_if_line_by_line_gives_the_same(rows):
    text = ""
    for plain, odd, more, end in rows:
        tokens = [*plain, "1"]
        for k, token in odd:
            tokens[k] = token
        text += "  ".join(tokens[: 18 + more]) + end
    block = text.encode()
    reader = module.SwfReader()
    numbers, table = reader._line_by_line(block)
    at_once = module._table(block, 1)
    if reader.wrong or reader.comments:
        assert at_once is None
    elif at_once is not None:
        assert at_once[0].tolist() == numbers.tolist()
        assert at_once[1].tolist() == table.tolist()


def test_plain_blocks_are_read_at_once():
    block = "\n".join(line(job_id=k, cpu_s="1.25") for k in range(50)).encode()
    numbers, table = module._table(block, 7)
    assert numbers.tolist() == list(range(7, 57))
    assert table[:, 5].tolist() == [1.25] * 50


BAD_FIELDS = {
    "text": ({"run_s": "abc"}, "field 4 (run_s)", "abc"),
    "not a number": ({"wait_s": "nan"}, "field 3 (wait_s)", "nan"),
    "infinite": ({"run_s": "1e999"}, "field 4 (run_s)", "1e999"),
    "two numbers in one": ({"submit_s": "1-2"}, "field 2 (submit_s)", "1-2"),
    "digit groups": ({"run_s": "1_000"}, "field 4 (run_s)", "1_000"),
    "hexadecimal": ({"status": "0x1"}, "field 11 (status)", "0x1"),
    "part of a processor": ({"processors": "2.5"}, "field 5 (processors)", "2.5"),
    "huge": ({"user": "1e17"}, "field 12 (user)", "1e17"),
    "markup": ({"queue": "[/red]"}, "field 15 (queue)", "[/red]"),
    "control": ({"queue": "\x1b[2J"}, "field 15 (queue)", "\\x1b[2J"),
}


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_a_bad_field_is_dropped_with_its_line_or_refused(tmp_path, case):
    changed, where, value = BAD_FIELDS[case]
    path = written(tmp_path, "; Version: 2.2", line(), line(job_id=2, **changed), line(job_id=3))
    swf = read_swf(path)
    assert swf.job_id.tolist() == [1, 3]
    assert swf.line.tolist() == [2, 4]
    assert swf.report.lines == 3
    (odd,) = swf.report.warnings
    assert odd.count == 1
    assert odd.handled == "dropped"
    assert (odd.examples[0].line, odd.examples[0].field, odd.examples[0].value) == (3, where, value)
    with pytest.raises(InputError) as error:
        read_swf(path, strict=True)
    assert str(error.value) == f"{path}:3: {where} = {value}: {odd.rule}"


def test_only_ten_lines_are_kept_and_all_are_counted(tmp_path):
    path = written(tmp_path, line(), *["1 2 3"] * 25)
    (odd,) = read_swf(path).report.warnings
    assert odd.count == 25
    assert [e.line for e in odd.examples] == list(range(2, 12))
    with pytest.raises(InputError, match=r":2: number of fields = 3: .*18.*\(and 24 more\)$"):
        read_swf(path, strict=True)


@pytest.mark.parametrize(("block", "small"), [(100, 2_048), (2_048, 60), (2_048, 1), (2_048, 2_048)])
def test_lines_are_counted_across_blocks_comments_and_empty_lines(tmp_path, monkeypatch, block, small):
    monkeypatch.setattr(module, "BLOCK_BYTES", block)
    monkeypatch.setattr(module, "SMALL_BLOCK_BYTES", small)
    lines = ["; a: b", "", *[line(job_id=k) for k in range(9)], "; in between", "", "x", line(job_id=9), "y"]
    swf = read_swf(written(tmp_path, *lines))
    assert swf.line.tolist() == [*range(3, 12), 15]
    assert [e.line for e in swf.report.warnings[0].examples] == [14, 16]
    assert swf.comments == (" a: b", " in between")


def test_jobs_out_of_order_are_sorted_and_ties_keep_their_order(tmp_path):
    lines = [line(job_id=k, submit_s=s) for k, s in ((1, 5), (2, 3), (3, 5), (4, 4), (5, 3))]
    swf = read_swf(written(tmp_path, *lines))
    assert swf.job_id.tolist() == [2, 5, 4, 1, 3]
    assert swf.line.tolist() == [2, 5, 4, 1, 3]
    assert rules(swf) == {"jobs must be in order of submission": (3, [(2, "3"), (4, "4"), (5, "3")])}
    many = read_swf(written(tmp_path, *[line(job_id=k, submit_s=-k % 3) for k in range(600)]))
    assert many.job_id.tolist() == sorted(range(600), key=lambda k: -k % 3)


def test_of_a_repeated_number_the_whole_jobs_line_is_kept(tmp_path):
    lines = [
        line(job_id=1, run_s=10, status=2),
        line(job_id=1, run_s=20, status=3),
        line(job_id=1, run_s=30),
        line(job_id=2, run_s=40),
        line(job_id=2, run_s=50),
        line(job_id=3, run_s=60, status=4),
        line(job_id=4, submit_s=-1),
        line(job_id=4, run_s=70),
        line(job_id=5, run_s=80, status=4),
        line(job_id=5, run_s=90),
    ]
    swf = read_swf(written(tmp_path, *lines))
    assert swf.run_s.tolist() == [30, 40, 60, 70, 90]
    assert rules(swf) == {
        "submission time must be at least 0": (1, [(7, "-1")]),
        "job number must be unique": (4, [(1, "1"), (2, "1"), (5, "2"), (9, "5")]),
    }


def test_header_fields_are_found_and_other_comments_kept(tmp_path):
    head = [
        "; MaxProcs: 240 (really)",
        ";MaxNodes:120",
        "; Queue: 1 a",
        "; Queue: 2 b",
        ";   see http://x.org",
        ";Empty:",
        "; Installation: Luleå",
    ]
    swf = read_swf(written(tmp_path, *head, line()))
    assert swf.header == {"MaxProcs": "240 (really)", "Queue": "1 a\n2 b", "Empty": "", "Installation": "Luleå"}
    assert swf.header_number("MaxProcs") == 240
    assert swf.header_number("Empty") is None
    assert swf.machine_processors == 240
    assert swf.comments == tuple(h[1:] for h in head)
    changed = swf.with_header(MaxProcs=7, Queue=None, New=1)
    assert changed.header == {"MaxProcs": "7", "Empty": "", "Installation": "Luleå", "New": "1"}
    assert changed.with_header(MaxProcs=None).machine_processors is None


def test_latin_1_and_a_byte_order_mark_are_read(tmp_path):
    path = tmp_path / "x.swf"
    path.write_bytes(b"\xef\xbb\xbf; Computer: \xc5ke\n" + line().encode())
    swf = read_swf(path)
    assert swf.header == {"Computer": "Åke"}


PACKED = gzip.compress("\n".join(line(job_id=k, wait_s=k * k % 97) for k in range(2_000)).encode(), mtime=0)
JUNK = random.Random(1).randbytes(5_000)
REFUSED = {
    "empty": ("x.swf", b"", "no valid job in 0 lines"),
    "empty, called gzip": ("x.swf.gz", b"", "no valid job in 0 lines"),
    "empty gzip": ("x.swf.gz", gzip.compress(b""), "no valid job in 0 lines"),
    "only comments": ("x.swf", b"; MaxProcs: 4\n", "no valid job in 0 lines"),
    "no valid line": ("x.swf", b"a b c\n1 2\n", "no valid job in 2 lines; .*x.swf:1: number of fields = 3"),
    "gzip cut short": ("x.swf.gz", PACKED[:-200], "cut short"),
    "gzip cut in its header": ("x.swf.gz", PACKED[:5], "cut short"),
    "gzip damaged": ("x.swf.gz", PACKED[:100] + b"\xff\xff\xff\xff" + PACKED[104:], "damaged"),
    "gzip with another sum": ("x.swf.gz", PACKED[:-8] + b"1234" + PACKED[-4:], "damaged"),
    "gzip, then something else": ("x.swf.gz", PACKED + b"more", "damaged"),
    "not gzip": ("x.swf.gz", line().encode(), "must be gzip, and is not"),
    "binary": ("x.swf", JUNK, "must be text"),
    "binary in gzip": ("x.swf", gzip.compress(JUNK), "must be text"),
    "one endless line": ("x.swf", line().encode() + b"\n" + b"1 " * 50_000, ":2: a line must have at most 65536 bytes"),
    "all dropped": ("x.swf", line(submit_s=-3).encode(), "no valid job in 1 lines; .*:1: field 2 "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_trace_is_refused_in_one_line_that_names_the_file(tmp_path, case):
    name, data, words = REFUSED[case]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError, match=words) as error:
        read_swf(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_missing_files_and_directories_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read: No such file"):
        read_swf(tmp_path / "absent.swf")
    with pytest.raises(InputError, match="cannot read: Is a directory"):
        read_swf(tmp_path)
    with pytest.raises(InputError, match="cannot write"):
        write_swf(tmp_path / "absent" / "x.swf", read_swf(written(tmp_path, line())))


def test_gzip_is_known_by_its_first_bytes_and_may_have_several_members(tmp_path):
    path = tmp_path / "x.swf"
    path.write_bytes(gzip.compress(line().encode() + b"\n") + gzip.compress(line(job_id=2).encode()))
    assert read_swf(path).job_id.tolist() == [1, 2]


def test_a_trace_may_come_out_of_a_pipe():
    for data in (line().encode(), gzip.compress(line().encode())):
        with pipe_of(data) as path:
            assert read_swf(path).job_id.tolist() == [1]


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = written(tmp_path, line())
    swf = read_swf(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(InputError, match="No space left"):
        write_swf(path, swf)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_columns_are_checked_and_frozen():
    columns = {label: np.array([1.0, 2.0]) for label in COLUMNS}
    swf = Swf(**columns)
    assert swf.job_id.dtype == np.int64
    columns["submit_s"][0] = 9.0
    assert swf.submit_s.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        swf.run_s[0] = 1
    for label, value, words in (
        ("job_id", [1, 1], "job 1: job_id = 1: must be unique"),
        ("submit_s", [1, -2], "job 2: submit_s = -2.0: must be at least 0"),
        ("run_s", [1, np.inf], "job 2: run_s = inf: must be finite"),
        ("run_s", [1], "run_s: 1 values for 2 jobs"),
    ):
        with pytest.raises(InputError, match=words):
            swf.with_columns(**{label: np.array(value)})
    assert swf != swf.with_columns(think_s=np.zeros(2))
    assert swf != swf.with_columns(comments=("x",))


@needs_traces
@pytest.mark.parametrize(
    ("name", "jobs"),
    [("HPC2N-2002-2.2-cln", 202_871), ("SDSC-BLUE-2000-4.2-cln", 243_306), ("KTH-SP2-1996-2.1-cln-REBUILT", 28_475)],
)
def test_archives_are_read_whole_and_without_a_complaint(name, jobs):
    path = TRACES / f"{name}.swf.gz"
    swf = read_swf(path, strict=True)
    assert len(swf) == jobs
    with gzip.open(path, "rt") as file:
        numbers = [text.split() for text in file if not text.startswith(";")]
    for k in (0, jobs // 3, jobs - 1):
        assert [float(getattr(swf, label)[k]) for label in COLUMNS] == [float(x) for x in numbers[k]]
    sums = np.array([[float(x) for x in row] for row in numbers[::50]]).sum(axis=0)
    assert np.allclose([getattr(swf, label)[::50].sum() for label in COLUMNS], sums)
