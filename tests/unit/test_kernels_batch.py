"""The batch kernels against twins written from the definitions, and proof that the comparison can fail."""

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.kernels import batch as kernels
from dfrs.kernels import equipartition as sharing
from dfrs.kernels import whole_nodes
from dfrs.kernels.jit import Bools, Floats, Ints
from dfrs.model import tolerances
from dfrs.model.decisions import JOB, RUNNING, WAITING, Cause, Reason, Snapshot
from tests import cases
from tests.frozen import frozen
from tests.naive import batch as naive
from tests.strategies import Drawn

NOW_S = 100.0
CASES = 2_000
RULES = {"FCFS": naive.fcfs, "EASY": naive.easy, "EASY_SPARE": naive.easy_spare}


def snapshot_case(source: cases.Source) -> Snapshot:
    """A cluster of up to 9 nodes and up to 16 jobs; some on nodes, mostly their own, sometimes of another policy."""
    nodes = source.integer(1, 9)
    shapes = [(1.0, 1.0), (0.6, 1.0), (2.0, 0.5)][: source.pick([1, 1, 2, 3])]
    capacity = np.array([source.pick(shapes) for _ in range(nodes)])
    is_open = np.array([source.integer(0, 9) > 0 for _ in range(nodes)])
    exclusive = source.integer(0, 4) > 0
    left = capacity.copy()
    rows, slots = [], []
    for _ in range(source.integer(1, 16)):
        tasks = source.pick([1, 1, 2, 3, 4, 6])
        need, memory = source.pick([1.0, 1.0, 0.5, 0.3, 0.2]), source.pick([0.0, 0.2, 0.5, 1 / 3, 1.0])
        estimate_s = float(source.integer(1, 9))
        where = _nodes_for(source, tasks, need, memory, left, exclusive) if source.integer(0, 1) else None
        virtual_s = float(source.integer(0, 7)) if where else 0.0
        rows.append(
            (
                len(rows),
                len(rows),
                -1,
                RUNNING if where else WAITING,
                tasks,
                need,
                memory,
                1.0,
                estimate_s,
                NOW_S - 50.0,
                virtual_s,
                float(bool(where)),
                NOW_S - 50.0 if where else np.nan,
                NOW_S - 50.0,
                0.0,
                0,
                0,
                np.nan,
                0,
                0,
                0,
                0.0,
                1.0,
            )
        )
        slots.append(where or [-1] * tasks)
    first = np.cumsum([0, *map(len, slots)])
    subject = len(rows) - 1 if source.integer(0, 1) and slots[-1][0] < 0 else -1
    return frozen(
        Snapshot(
            NOW_S,
            Cause.SUBMISSION if subject >= 0 else Cause.COMPLETION,
            subject,
            capacity,
            is_open,
            np.array(rows, JOB),
            first,
            np.concatenate(slots).astype(np.int64),
            0.0,
        )
    )


def _nodes_for(source, tasks, need, memory, left, exclusive):
    """Nodes with room at full need, whose room is taken from `left`; with `exclusive`, all of it."""
    where = []
    for _ in range(tasks):
        able = [n for n in range(len(left)) if need <= left[n, 0] + 1e-9 and memory <= left[n, 1] + 1e-9]
        if not able:
            break
        where.append(source.pick(able))
        left[where[-1]] -= need, memory
    if len(where) < tasks:
        for n in where:
            left[n] += need, memory
        return None
    if exclusive:
        left[where] = -1.0
    return sorted(where)


@st.composite
def snapshots(draw):
    return snapshot_case(Drawn(draw))


def records(kernel, snapshot):
    """The jobs so that `jobs[r].need` means something to a compiled kernel, or to one in plain Python."""
    return snapshot.jobs if hasattr(kernel, "py_func") else snapshot.jobs.view(np.recarray)


def started(kernel, snapshot, rule):
    """What the kernel starts, as its twin says it; everything that was there must have stayed."""
    rows = len(snapshot.jobs)
    after, yields, reasons = np.full_like(snapshot.task_nodes, -9), np.full(rows, np.nan), np.zeros(rows, np.int64)
    changed = kernel(
        rule,
        records(kernel, snapshot),
        snapshot.first,
        snapshot.task_nodes,
        snapshot.capacity,
        snapshot.open,
        tolerances.CAPACITY,
        snapshot.now_s,
        snapshot.subject,
        after,
        yields,
        reasons,
    )
    if not changed:
        return {}
    found = {}
    for r, job in enumerate(snapshot.jobs):
        begin, end = snapshot.first[r], snapshot.first[r + 1]
        if job["state"] == WAITING and after[begin] >= 0:
            found[r] = after[begin:end].tolist(), Reason(reasons[r]).name
            assert yields[r] == 1.0
        else:
            assert after[begin:end].tolist() == snapshot.task_nodes[begin:end].tolist()
            assert yields[r] == job["yield_"]
            assert reasons[r] == 0
    assert changed == len(found)
    return found


@pytest.mark.parametrize("rule", RULES)
@given(snapshot=snapshots())
def test_whole_nodes_agrees_with_its_twin(rule, snapshot):
    assert started(kernels.whole_nodes, snapshot, getattr(kernels, rule)) == RULES[rule](snapshot)


def shared(kernel, snapshot):
    rows = len(snapshot.jobs)
    after, yields, reasons = np.full_like(snapshot.task_nodes, -9), np.full(rows, np.nan), np.zeros(rows, np.int64)
    changed = kernel(
        records(kernel, snapshot),
        snapshot.first,
        snapshot.task_nodes,
        snapshot.capacity,
        snapshot.open,
        tolerances.CAPACITY,
        snapshot.subject,
        after,
        yields,
        reasons,
    )
    places = [
        after[b:e][after[b:e] >= 0].tolist() for b, e in zip(snapshot.first[:-1], snapshot.first[1:], strict=True)
    ]
    return changed, reasons.tolist(), places, yields.tolist()


def agrees_on_shares(kernel, snapshot):
    changed, reasons, places, yields = shared(kernel, snapshot)
    expected, shares = naive.equipartition(snapshot)
    before = snapshot.jobs["yield_"].tolist()
    new = [bool(place) and state == WAITING for place, state in zip(places, snapshot.jobs["state"], strict=True)]
    return (
        places == expected
        and yields == pytest.approx(shares, abs=1e-12)
        and changed == sum(a or y != b for a, y, b in zip(new, yields, before, strict=True))
        and reasons
        == [
            (Reason.ROOM if r == snapshot.subject else Reason.FREED) if new[r] else Reason.NONE for r in range(len(new))
        ]
    )


@given(snapshot=snapshots())
def test_equipartition_agrees_with_its_twin(snapshot):
    assert agrees_on_shares(sharing.equipartition, snapshot)


def test_the_kernels_speak_of_reasons_as_the_model_does():
    for module in (kernels, sharing):
        for reason in Reason:
            assert getattr(module, reason.name, reason.value) == reason.value
    assert (kernels.QUEUE_HEAD, sharing.ROOM) == (Reason.QUEUE_HEAD, Reason.ROOM)


@cache
def seeded_cases():
    return [snapshot_case(cases.Seeded(np.random.default_rng(seed))) for seed in range(CASES)]


@cache
def twins(rule):
    return [RULES[rule](snapshot) for snapshot in seeded_cases()]


def as_python(*modules, old="", new=""):
    """The modules, each after those it imports, as one in plain Python, with one place of the source changed."""
    source = "".join(Path(module.__file__).read_text() for module in modules)
    assert old in source, old
    source = re.sub(r"from dfrs.kernels.(whole_nodes|profile|subset|batch_queue) import (\([^)]*\)|.*)\n", "", source)
    source, lines = re.subn(r"from dfrs.kernels.jit import .*\n", "kernel = lambda function: function\n", source)
    assert lines == len(modules)
    namespace = {"__name__": "changed", "Bools": Bools, "Floats": Floats, "Ints": Ints}
    exec(source.replace(old, new), namespace)
    return SimpleNamespace(**namespace)


def differs(module):
    """Whether any rule of a version of the kernel says something else than its twin, or breaks."""
    try:
        return any(
            started(module.whole_nodes, snapshot, getattr(module, rule)) != expected
            for rule in RULES
            for snapshot, expected in zip(seeded_cases(), twins(rule), strict=True)
        )
    except (AssertionError, IndexError, UnboundLocalError):
        return True


def test_the_kernel_as_it_stands_passes_on_the_seeded_cases():
    assert not differs(as_python(whole_nodes, kernels))


MUTATIONS = (
    ("busy = ~is_open", "busy = is_open.copy()"),
    ("busy[task_nodes[s]] = True", "busy[task_nodes[first[r]]] = True"),
    ("head = min(head, r)", "head = r"),
    ("example[k] = n\n                kinds += 1", "example[k] = n\n                kinds = 1"),
    ("if not busy[n]:\n            free_of", "if kind[n] >= 0:\n            free_of"),
    ("(size[k, 0] + tolerance) / job.need", "size[k, 0] / job.need"),
    ("(size[k, 1] + tolerance) / job.memory", "(size[k, 0] + tolerance) / job.memory"),
    ("(left + per[k] - 1) // per[k]", "left // per[k]"),
    ("while busy[n] or kind[n] != k:", "while busy[n]:"),
    ("stop = min(end, s + per[k])", "stop = min(end, s + 1)"),
    ("free_of[k] -= take[k]", "free_of[k] -= 0"),
    ("< jobs[r].tasks:\n            return", "<= jobs[r].tasks:\n            return"),
    ("reasons[r] = QUEUE_HEAD", "reasons[r] = BACKFILLED"),
    ("jobs[r].estimate_s - jobs[r].virtual_s, 0.0", "jobs[r].estimate_s, 0.0"),
    ("ends[running] > ends[last[n]]", "ends[running] < ends[last[n]]"),
    ("rank[order] = np.arange(running)", "rank[:] = np.arange(running)"),
    ("if last[n] >= 0 and kind[n] >= 0:", "if last[n] >= 0:"),
    ("while m < len(ends) and ends[m] == time_s:", "for _ in range(1):"),
    ("return time_s, room - tasks", "return time_s, 0"),
    ("return time_s, room - tasks", "return time_s, 1"),
    ("return np.inf, 0", "return 0.0, 0"),
    ("now_s + jobs[r].estimate_s > shadow_s", "now_s + jobs[r].estimate_s >= shadow_s"),
    ("now_s + jobs[r].estimate_s > shadow_s", "False"),
    ("rule == EASY_SPARE and shadow_s < np.inf", "False"),
    ("rule == EASY_SPARE and shadow_s < np.inf", "rule == EASY_SPARE"),
    ("if lost > spare:", "if lost >= spare:"),
    ("spare -= lost", "spare -= 0"),
    ("lost = holds(take, per_head)", "lost = take.sum()"),
    ("for r in range(head + 1, len(jobs)):", "for r in range(head + 2, len(jobs)):"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), MUTATIONS)
def test_a_changed_kernel_is_noticed(old, new):
    assert differs(as_python(whole_nodes, kernels, old=old, new=new))


SHARING_MUTATIONS = (
    ("is_open[n] and ", ""),
    ("memory <= room[n]", "memory + 1e-6 <= room[n]"),
    ("crowd[n] < crowd[best]", "crowd[n] <= crowd[best]"),
    ("crowd[after[p]] -= 1", "crowd[after[p]] -= 0"),
    ("room[after[p]] += memory", "room[after[p]] += 0"),
    ("after[p] = -1", "after[p] = after[p]"),
    ("crowd[best] += 1", "crowd[best] += 0"),
    ("room[best] -= memory", "room[best] -= 0"),
    ("room[task_nodes[s]] -= jobs[r].memory", "room[task_nodes[s]] -= 0"),
    ("crowd[task_nodes[s]] += 1", "crowd[task_nodes[s]] = 1"),
    ("part = min(part, capacity", "part = max(0, capacity"),
    ("min(1.0, part / jobs[r].need)", "min(1.0, part)"),
    ("ROOM if r == subject else FREED", "FREED"),
    ("yields[r] != jobs[r].yield_ or ", ""),
)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [("", ""), *SHARING_MUTATIONS])
def test_a_changed_sharing_kernel_is_noticed(old, new):
    kernel = as_python(sharing, old=old, new=new).equipartition
    try:
        right = all(agrees_on_shares(kernel, snapshot) for snapshot in seeded_cases())
    except (AssertionError, IndexError):
        right = False
    assert right == (old == new)
