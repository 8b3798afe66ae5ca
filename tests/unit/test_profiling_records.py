"""The file of a rank, read while it is written; nothing here needs MPI, only a C compiler."""

import math
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

from dfrs.profiling.build import source_directory
from dfrs.profiling.reader import ProfileReader
from dfrs.profiling.records import FILE_BYTES, RankFile

HAMMER = Path(__file__).parents[1] / "mpi" / "hammer.c"
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def hammer(tmp_path_factory):
    program = tmp_path_factory.mktemp("hammer") / "hammer"
    command = ["cc", "-O2", "-pthread", f"-I{source_directory()}", str(HAMMER), "-o", str(program), "-lm"]
    subprocess.run(command, check=True)
    return program


def started(program, place, *arguments):
    environment = {**os.environ, "DFRS_PROFILE_DIR": str(place)}
    process = subprocess.Popen([program, *arguments], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "going\n"
    (path,) = place.glob("*.rank")
    return process, RankFile(path)


@pytest.mark.parametrize("threads", [1, 4])
def test_what_is_read_while_it_is_written_belongs_together(hammer, tmp_path, threads):
    process, file = started(hammer, tmp_path, str(threads), "0.6")
    moments = []
    while process.poll() is None:
        moments.append(file.read(time.monotonic_ns()))
    last = file.read(time.monotonic_ns())
    expected = {int(size): int(count) for size, count in (line.split() for line in process.stdout)}
    assert {size: seen.ireceived for size, seen in last.messages.items()} == expected
    assert {size: seen.sent for size, seen in last.messages.items()} == expected
    assert {size: done.count for (_, size, _), done in last.calls.items()} == expected
    tick_s = last.messages[100].waited_s / (7 * last.messages[100].ireceived)
    before = {}
    for moment in moments:
        for size, seen in moment.messages.items():
            if seen.ireceived:
                # The rate of ticks is known better at the end than at the start.
                assert seen.waited_s == pytest.approx(7 * tick_s * seen.ireceived, rel=0.02)
            assert before.get(size, 0) <= seen.ireceived
            before[size] = seen.ireceived
    assert len(moments) > 3
    assert last.finished
    assert 0.5 < last.elapsed_s < 60
    file.close()


def test_more_sizes_than_the_table_holds_are_added_up(hammer, tmp_path):
    process, file = started(hammer, tmp_path, "1", "0.01", "many")
    process.wait()
    found = file.read(time.monotonic_ns()).messages
    assert sum(seen.received for seen in found.values()) == 3000
    total = sum(size * seen.received for size, seen in found.items())
    # Under the mean of their bucket, rounded to a byte.
    assert total == pytest.approx(sum(range(1001, 4001)), abs=3000)
    assert len(found) < 1024 + 64
    file.close()


def test_nothing_is_counted_without_a_directory_or_room(hammer, tmp_path):
    for place in ("", "/nonexistent/place"):
        answer = subprocess.run(
            [hammer, "1", "0.01"], env={**os.environ, "DFRS_PROFILE_DIR": place}, text=True, capture_output=True
        )
        assert answer.returncode == 1
        assert len(answer.stderr.splitlines()) == (1 if place else 0)


def test_what_is_no_file_of_a_rank_is_refused(tmp_path):
    for content in (b"", b"short", bytes(FILE_BYTES)):
        (tmp_path / "x.rank").write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.rank"):
            RankFile(tmp_path / "x.rank")


def test_what_is_no_plain_file_is_refused_at_once(tmp_path):
    """Whoever runs the program has its directory: a pipe must not hold its reader up, nor a link lead it elsewhere."""
    os.mkfifo(tmp_path / "pipe.rank")
    (tmp_path / "link.rank").symlink_to("/etc/passwd")
    (tmp_path / "folder.rank").mkdir()
    for path in tmp_path.iterdir():
        with pytest.raises((ValueError, OSError)):
            RankFile(path)
    assert ProfileReader(tmp_path).look().ranks == ()


def test_a_file_that_is_cut_short_or_damaged_while_it_counts_is_not_seen(hammer, tmp_path):
    process, file = started(hammer, tmp_path, "1", "0.3")
    reader = ProfileReader(tmp_path)
    assert len(reader.look().ranks) == 1
    whole = file.path.read_bytes()
    process.wait()
    for damaged in (whole[:5000], whole[:152] + struct.pack("<d", math.nan) + whole[160:]):
        file.path.write_bytes(damaged)
        assert reader.look().ranks == ()
        with pytest.raises(ValueError, match=r"\.rank"):
            file.read(time.monotonic_ns())
    # A kind of call that there is not, among those counted separately, and among those that found no room there.
    calls = 4096 + 64 * (1024 + 64)
    for at in (calls, calls + 64 * (256 + 9)):
        file.path.write_bytes(whole[:at] + struct.pack("<8Q", 9 << 60, 0, 0, 1, 0, 1, 0, 0) + whole[at + 64 :])
        assert reader.look().ranks == ()
    file.close()
