"""Records of events: exact, strict, and enough to decide the same again."""

import json
import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.engine.codec import KINDS, decode, digest, encode, replay
from dfrs.engine.core import Core
from dfrs.engine.events import Amend, Change, Complete, Hold, Ready, Revise, Submit, Unhold, Wake, Withdraw
from dfrs.model.decisions import Prices, Target
from dfrs.model.elastic import CommandKind
from dfrs.model.errors import InputError
from dfrs.model.nodes import Capacity, CapacityLeft, Condition, Join, NodeChange
from tests.live_events import Site, drive
from tests.small_policies import FairShare, Mover

whole, real = st.integers(-(2**63), 2**63 - 1), st.floats()
EVENTS = st.one_of(
    st.builds(Submit, whole, whole, real, real, real, real, whole, real, real, st.booleans()),
    st.builds(Change, whole, st.sampled_from(CommandKind), real),
    st.builds(Complete, whole, st.booleans()),
    st.just(Wake()),
    st.builds(Revise, whole, real, st.booleans()),
    st.builds(Hold, whole),
    st.builds(Unhold, whole),
    st.builds(Amend, whole, real, real, real, real, real, real, st.booleans()),
    st.builds(Withdraw, whole, st.booleans()),
    st.builds(Join, real, real, whole, st.booleans()),
    st.builds(Capacity, whole, real, real),
    st.builds(CapacityLeft, whole, real, st.booleans()),
    st.builds(NodeChange, whole, st.sampled_from(Condition), st.booleans()),
    st.builds(Prices, real, real, real),
    st.lists(st.tuples(whole, real)).map(
        lambda pairs: Ready(np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.float64))
    ),
)


def bits(event):
    return [type(event)] + [
        np.asarray(value).tobytes() if isinstance(value, float | np.ndarray) and not _nan(value) else str(value)
        for value in (getattr(event, f.name) for f in fields(event))
    ]


def _nan(value):
    return isinstance(value, float) and math.isnan(value)


@given(event=EVENTS)
def test_every_event_comes_back_to_the_bit(event):
    text = json.dumps(encode(event), allow_nan=False)
    assert repr(bits(decode(json.loads(text)))) == repr(bits(event))


def test_every_event_has_a_name():
    assert {type(event) for event in (decode({"event": "wake"}), Wake())} == {Wake}
    assert len(set(KINDS.values())) == len(KINDS) == 24


def test_fields_with_defaults_may_be_left_out_and_numbers_of_numpy_are_numbers():
    assert decode({"event": "complete", "job_id": 3}) == Complete(3)
    assert encode(Join(np.float64(0.5), 1.0, np.int64(2), np.bool_(False))) == {  # type: ignore[arg-type]
        "event": "join",
        "cpu": 0.5,
        "memory": 1.0,
        "island": 2,
        "pause_frees_memory": False,
        "open": True,
    }


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ([], "event"),
        ({}, "event = None"),
        ({"event": "stop"}, "'stop'"),
        ({"event": ["wake"]}, "event"),
        ({"event": "wake", "when": 1}, "wake: when"),
        ({"event": "hold"}, "hold: job_id: is missing"),
        ({"event": "hold", "job_id": "1"}, "hold: job_id"),
        ({"event": "hold", "job_id": 1.0}, "hold: job_id"),
        ({"event": "hold", "job_id": True}, "hold: job_id"),
        ({"event": "hold", "job_id": 2**63}, "hold: job_id"),
        ({"event": "revise", "job_id": 1, "need": "0.5"}, "revise: need"),
        ({"event": "revise", "job_id": 1, "need": True}, "revise: need"),
        ({"event": "revise", "job_id": 1, "need": None}, "revise: need"),
        ({"event": "revise", "job_id": 1, "need": 10**400}, "revise: need"),
        ({"event": "complete", "job_id": 1, "last": 1}, "complete: last"),
        ({"event": "node", "node": 0, "condition": "gone"}, "node: condition"),
        ({"event": "node", "node": 0, "condition": []}, "node: condition"),
        ({"event": "change", "job_id": 1, "kind": 0, "amount": 1.0}, "change: kind"),
        ({"event": "change", "job_id": 1, "kind": [], "amount": 1.0}, "change: kind"),
        ({"event": "ready", "serials": [0], "ready_s": 1.0}, "ready: ready_s"),
        ({"event": "ready", "serials": [0.5], "ready_s": [1.0]}, "ready: serials"),
        ({"event": "ready", "serials": [0, 1], "ready_s": [1.0]}, "ready: ready_s: 1 values for 2"),
        ({"event": "progressed", "serials": [0], "virtual_s": []}, "progressed: virtual_s: 0 values for 1"),
    ],
)
def test_what_is_no_event_is_an_input_error_naming_the_field(document, named):
    with pytest.raises(InputError, match=r"\A[^\n]*\Z") as caught:
        decode(document)
    assert named in str(caught.value)


def test_a_digest_tells_all_of_what_is_done():
    def made(nodes=(0, 1), yields=(0.5, 1.0), wake_at_s=None):
        return digest(Target(np.array(nodes, np.int64), np.array(yields, float), wake_at_s))

    assert made() == made()
    assert len(made()) == 32
    others = {made((1, 1)), made(yields=(0.5, np.nextafter(1.0, 0))), made(wake_at_s=1.0), made((0, 1, 1)), made()}
    assert len(others) == 5


def test_a_replay_says_where_it_leaves_the_record():
    record, _ = drive(Core(Mover(), np.zeros((0, 2))), 3, Site())
    assert replay(Core(Mover(), np.zeros((0, 2))), record) is None
    decided = [k for k, entry in enumerate(record) if entry[2]]
    k = decided[len(decided) // 2]
    wrong = [*record[:k], (*record[k][:2], "0" * 32), *record[k + 1 :]]
    found = replay(Core(Mover(), np.zeros((0, 2))), wrong)
    assert found is not None
    assert (found.index, found.now_s, found.recorded, found.replayed) == (k, record[k][0], "0" * 32, record[k][2])
    assert replay(Core(FairShare(), np.zeros((0, 2))), record) is not None
    twice = replay(Core(Mover(), np.zeros((0, 2))), [record[0], record[0]])
    assert twice is not None
    assert (twice.index, twice.problem) == (1, "job 1: is in the system already")
