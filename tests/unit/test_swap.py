"""What the kernel is asked to push out to swap space and to read back from it, without any kernel."""

from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.drivers.control_groups import driver, swap

MAPS = """\
55d0c0000000-55d0c0001000 r--p 00000000 fe:00 100 /usr/bin/python3
55d0c0001000-55d0c0003000 rw-p 00001000 fe:00 100 /usr/bin/python3
55d0d0000000-55d0d0200000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f00c0000000 rw-p 00000000 00:00 0
7f10c0000000-7f10c0001000 r--p 00000000 00:00 0
7f20c0000000-7f20c0002000 rw-s 00000000 00:01 9 /dev/shm/shared
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0 [vdso]
"""


def test_what_a_process_can_write_and_no_file_holds_is_read_back():
    whole = [(0x55D0D0000000, 2 << 20), (0x7F0000000000, 3 << 30), (0x7F20C0000000, 8192), (0x7FFC00000000, 0x21000)]
    found = swap._spans(MAPS)
    assert sum(size for _, size in found) == sum(size for _, size in whole)
    assert {start for start, _ in whole} <= {start for start, _ in found}
    assert all(size <= swap.SPAN_BYTES for _, size in found)


@given(st.lists(st.integers(1, swap.SPAN_BYTES // swap.PAGE_BYTES), max_size=1200))
def test_no_call_has_more_than_the_kernel_takes(pages):
    spans = [(k, pages[k] * swap.PAGE_BYTES) for k in range(len(pages))]
    calls = list(swap._calls(spans))
    assert [span for call in calls for span in call] == spans
    assert all(0 < len(call) <= swap.MOST_SPANS for call in calls)
    assert all(sum(size for _, size in call) < 2 << 30 for call in calls)


class Group:
    """Of its memory some goes at every third attempt, down to what is locked."""

    def __init__(self, memory, locked):
        self.memory, self.locked, self.attempts = memory, locked, 0

    def resident_bytes(self):
        return self.memory

    def push_out(self):
        self.attempts += 1
        if self.attempts % 3 == 0:
            self.memory = max(self.locked, self.memory - 25)


def test_what_is_still_being_written_is_waited_for_and_what_stays_is_told(monkeypatch):
    monkeypatch.setattr(driver, "WRITING_S", 0.1)
    assert driver._push_out(Group(100, 0), 10) == 0
    assert driver._push_out(Group(100, 60), 10) == 60
    small = Group(5, 0)
    assert driver._push_out(small, 10) == 5
    assert small.attempts == 1
