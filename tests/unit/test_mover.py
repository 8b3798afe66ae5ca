"""Carrying out a plan: order, limits, failures, interruption, and doing it again."""

import threading

import pytest

from dfrs.model.errors import InputError
from dfrs.rebalancing.mover import Migration, Stop, carry_out
from dfrs.testing import InMemoryMover


def move(machine, source, target, start=0.0, end=1.0):
    return Migration(machine=machine, source=source, target=target, start_s=start, end_s=end)


CHAIN = [move("a", "h1", "h2", 0, 1), move("b", "h2", "h3", 0, 2), move("c", "h3", "h1", 2, 3)]
START = {"a": "h1", "b": "h2", "c": "h3", "d": "h1"}
END = {"a": "h2", "b": "h3", "c": "h1", "d": "h1"}


def test_moves_are_made_in_their_order_and_side_by_side():
    mover = InMemoryMover(START, lasts_s=0.02)
    told = []
    done = carry_out(CHAIN, mover, told=lambda what, m, why: told.append((what, m.machine)))
    assert done.complete
    assert mover.place == END
    assert mover.most_at_once == 2
    assert told.index(("done", "b")) < told.index(("begins", "c"))
    assert done.where == {"a": "h2", "b": "h3", "c": "h1"}


def test_a_move_that_needs_room_waits_for_it():
    """Two machines change places through a third host: each fits only after the other has left."""
    swap = [move("a", "h1", "h3", 0, 1), move("b", "h2", "h1", 1, 2), move("a", "h3", "h2", 2, 3)]
    full = dict.fromkeys(("h1", "h2", "h3"), 1.0)
    mover = InMemoryMover({"a": "h1", "b": "h2"}, capacity=full, memory={"a": 1.0, "b": 1.0}, lasts_s=0.005)
    assert carry_out(swap, mover).complete
    assert mover.place == {"a": "h2", "b": "h1"}


def test_the_first_failure_ends_it_and_what_runs_is_waited_for():
    mover = InMemoryMover(START, lasts_s=0.02)
    mover.fails["a"] = "no route to host"
    ended = carry_out(CHAIN, mover)
    assert ended.failure == "a: h1 to h2: no route to host"
    assert [m.machine for m in ended.done] == ["b"]
    assert [m.machine for m in ended.remaining] == ["a", "c"]
    assert ended.where == {"a": "h1", "b": "h3", "c": "h3"}
    assert not ended.complete


def test_again_continues_where_it_ended():
    mover = InMemoryMover(START)
    mover.fails["a"] = "no route to host"
    carry_out(CHAIN, mover)
    again = carry_out(CHAIN, mover)
    assert again.complete
    assert [m.machine for m in again.skipped] == ["b"]
    assert mover.place == END
    third = carry_out(CHAIN, mover)
    assert third.complete
    assert not third.done
    assert len(third.skipped) == 3


def test_moves_that_take_no_time_go_in_the_order_of_the_plan_at_the_same_one():
    """Stopped machines without memory, of which the second gets the first one's room."""
    moves = [move("a", "h1", "h2", 1, 1), move("b", "h3", "h1", 1, 1), move("c", "h1", "h3", 1, 2)]
    told, mover = [], InMemoryMover({"a": "h1", "b": "h3", "c": "h1"})
    assert carry_out(moves, mover, told=lambda what, m, why: told.append((what, m.machine))).complete
    assert told == [(what, name) for name in "abc" for what in ("begins", "done")]


def test_a_machine_on_the_way_of_two_moves_goes_on_from_there():
    way = [move("a", "h1", "h3", 0, 1), move("a", "h3", "h2", 1, 2)]
    mover = InMemoryMover({"a": "h3"})
    ended = carry_out(way, mover)
    assert [m.target for m in ended.done] == ["h2"]
    assert mover.place == {"a": "h2"}


ASIDE = [
    move("a", "h1", "h3", 0, 1),
    move("b", "h2", "h1", 1, 2),
    move("c", "h1", "h2", 2, 3),
    move("a", "h3", "h1", 3, 4),
]


def aside():
    """b gets the room of a, which comes back when c has left: each host has room for two."""
    place, capacity = {"a": "h1", "b": "h2", "c": "h1", "d": "h2"}, dict.fromkeys(("h1", "h2", "h3"), 2.0)
    return InMemoryMover(place, capacity=capacity, memory=dict.fromkeys("abcd", 1.0))


def test_a_machine_that_stands_aside_and_comes_back_does_both():
    mover = aside()
    ended = carry_out(ASIDE, mover)
    assert ended.complete
    assert list(ended.done) == ASIDE
    assert not ended.skipped
    assert mover.place == {"a": "h1", "b": "h1", "c": "h2", "d": "h2"}


@pytest.mark.parametrize("made", range(5))
def test_a_plan_with_a_machine_that_comes_back_goes_on_after_every_move(made):
    mover = aside()
    for done in ASIDE[:made]:
        mover.move(done)
    ended = carry_out(ASIDE, mover)
    assert ended.complete
    assert list(ended.skipped) == ASIDE[:made]
    assert list(ended.done) == ASIDE[made:]


def test_a_machine_that_is_elsewhere_is_refused_before_anything_moves():
    mover = InMemoryMover(START | {"c": "h9"})
    with pytest.raises(InputError, match='"c" runs on h9: the plan has it on h3'):
        carry_out(CHAIN, mover)
    with pytest.raises(InputError, match='"c" runs on none'):
        carry_out(CHAIN, InMemoryMover({"a": "h1", "b": "h2"}))
    assert not mover.begun


def test_who_says_that_it_moved_and_did_not_is_found_out():
    mover = InMemoryMover(START)
    mover.lies.add("b")
    ended = carry_out(CHAIN, mover)
    assert ended.failure == "b: h2 to h3: said to be moved, but does not run on h3"
    assert [m.machine for m in ended.remaining] == ["b", "c"]


class Losing(InMemoryMover):
    """h4 is gone as soon as one machine has moved."""

    def move(self, move, /):
        super().move(move)
        self.gone.add("h4")


def test_a_host_that_no_move_concerns_does_not_matter():
    mover = Losing(START | {"e": "h4"})
    done = carry_out(CHAIN, mover)
    assert done.complete
    assert done.where == {"a": "h2", "b": "h3", "c": "h1"}


def test_what_was_done_is_told_also_where_a_host_is_gone():
    mover = Losing(START | {"e": "h4"})
    mover.fails["b"] = "h2 went down"
    ended = carry_out(CHAIN, mover)
    assert ended.failure == "b: h2 to h3: h2 went down"
    assert [m.machine for m in ended.done] == ["a"]
    assert [m.machine for m in ended.remaining] == ["b", "c"]
    assert ended.where == {"a": "h2", "c": "h3"}


def test_a_fault_of_a_mover_is_a_failure_and_no_crash(monkeypatch):
    mover = InMemoryMover(START)
    monkeypatch.setattr(mover, "move", lambda m: 1 / 0)
    assert "ZeroDivisionError" in carry_out(CHAIN, mover).failure


def interrupted(times):
    mover, stop = InMemoryMover(START, lasts_s=0.3 if times == 1 else 60.0), Stop()
    ended = []
    thread = threading.Thread(target=lambda: ended.append(carry_out(CHAIN, mover, stop=stop, tick_s=0.01)))
    thread.start()
    mover.wait_until_moving(2)
    for _ in range(times):
        stop.ask()
    thread.join(20)
    return ended[0], mover


def test_asked_once_to_stop_running_moves_end():
    ended, mover = interrupted(1)
    assert ended.failure == "interrupted"
    assert {m.machine for m in ended.done} == {"a", "b"}
    assert [m.machine for m in ended.remaining] == ["c"]
    assert len(mover.begun) == 2


def test_asked_twice_running_moves_are_aborted():
    ended, mover = interrupted(2)
    assert not ended.done
    assert ended.failure == "interrupted"
    assert mover.place == START
    assert ended.where == {"a": "h1", "b": "h2", "c": "h3"}


class Early(InMemoryMover):
    """Has nothing to abort when it is first asked to: the move has only just begun."""

    def __init__(self, place):
        super().__init__(place, lasts_s=60.0)
        self.asked = threading.Semaphore(0)
        self.too_early = True

    def abort(self, move, /):
        if not self.too_early:
            super().abort(move)
        self.asked.release()


def test_asked_again_what_could_not_be_aborted_is_aborted():
    mover, stop, ended = Early({"a": "h1"}), Stop(), []

    def run():
        ended.append(carry_out([move("a", "h1", "h2")], mover, stop=stop, tick_s=0.01))

    thread = threading.Thread(target=run)
    thread.start()
    mover.wait_until_moving(1)
    stop.ask()
    stop.ask()
    assert mover.asked.acquire(timeout=10)
    mover.too_early = False
    stop.ask()
    thread.join(20)
    assert ended[0].failure == "interrupted"
    assert mover.place == {"a": "h1"}


def test_nothing_to_do_is_done():
    assert carry_out([], InMemoryMover(START)).complete
