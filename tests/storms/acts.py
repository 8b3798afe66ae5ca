"""What happens in a storm: acts, drawn from a seed before anything happens, so that any of them can be left out."""

import random
from dataclasses import dataclass
from typing import Any

GIB = 1 << 30
ACTS = 120
NODES = 4
ENDLESS_S = 1e6
"""Programs that sleep for so long end only when their job is cancelled."""

FAULTS = {
    "losses": "messages are lost, and connections cut one way",
    "disk": "the disk is slow, full, or commits and says that it did not",
    "power": "power is cut in the middle of a commit, and what was not flushed is gone",
    "clocks": "wall clocks are set forward and back",
    "away": "nodes are away until their jobs are given up, and come back",
    "replace": "another controller starts on the same database",
    "agents": "nodes run the agent itself, on connections and a driver in memory; it is killed now and then",
    "images": "tasks go from host to host",
    "sick": "nodes say that they cannot do their work, or start nothing, for a while",
    "forks": "the database is put back to an older copy",
}
"""Beside kills of the controller, repeated and late messages, cut connections, reboots and drains, which all have."""

_CHANCES = {"agents": 0.5, "images": 0.3, "sick": 0.2, "forks": 0.1}
_APART = {
    "agents": {"images", "forks"},
    "forks": {"images", "power", "replace", "losses", "disk", "away", "clocks"},
}
"""Which exclude each other."""


def faults_of(seed: int) -> frozenset[str]:
    """The faults of that seed's storm."""
    rng = random.Random(f"faults {seed}")
    drawn = [name for name in FAULTS if rng.random() < _CHANCES.get(name, 0.4)]
    for name in ("forks", "agents"):
        if name in drawn:
            drawn = [each for each in drawn if each not in _APART[name]]
    return frozenset(drawn)


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that happens. What it does to whom is drawn already; which job that is depends on those there are."""

    number: int
    verb: str
    data: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, name: str) -> Any:
        return dict(self.data)[name]

    def __str__(self) -> str:
        said = " ".join(
            f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in self.data
        )
        return f"{self.number:3d} {self.verb} {said}".rstrip()


def acts_of(seed: int, faults: frozenset[str], count: int = ACTS) -> list[Act]:
    """The acts of that seed."""
    rng = random.Random(f"acts {seed}")
    kinds = dict(_KINDS)
    for name in sorted(faults):
        kinds |= _MORE.get(name, {})
    verbs, weights = list(kinds), [weight for weight, _ in kinds.values()]
    acts: list[Act] = []
    for number in range(count):
        (verb,) = rng.choices(verbs, weights)
        data = kinds[verb][1](random.Random(f"act {seed} {number}"))
        acts.append(Act(number, verb, tuple(data.items())))
    return acts


def has_resources(seed: int) -> bool:
    """Whether its nodes have GPUs, and jobs want some, or nodes to themselves."""
    return seed % 5 == 3


def wants_of(seed: int, act: Act) -> dict[str, Any]:
    """What of these a submission wants: drawn apart, so that all else of a storm is as without.

    No more than the nodes have on which it may run.
    """
    rng = random.Random(f"resources {seed} {act.number}")
    gpus, exclusive = rng.choice([0, 0, 1, 1, 2]), rng.random() < 0.15
    gpus = min(gpus, 1) if act["tasks"] > NODES - act["exclude"] else gpus
    return {"resources": {"gpu": gpus} if gpus else {}, "exclusive": exclusive} if has_resources(seed) else {}


def _job(rng: random.Random) -> dict[str, Any]:
    return {
        "seconds": rng.choice([*[0.2, 1, 3, 10] * 3, ENDLESS_S]),
        "cores": rng.choice([0.5, 1.0, 3.0]),
        "tasks": rng.choice([1, 1, 1, 2, 3]),
        "memory": rng.choice([GIB // 4, GIB, 4 * GIB]),
        "restart": rng.choice(["never", "on-node-loss"]),
        "minimum": rng.choice([0.0, 0.0, 0.0, 0.25]),
        "array": rng.choice([1, 1, 1, 1, 3]),
        "wait": rng.random() < 0.7,
        "exclude": rng.choice([0, 0, 0, 1, 2]),
    }


def _ask(rng: random.Random) -> dict[str, Any]:
    return {"what": rng.choice(["cancel", "hold", "release"]), "job": rng.random(), "wait": rng.random() < 0.7}


def _node(rng: random.Random) -> dict[str, Any]:
    return {"node": rng.randrange(NODES)}


def _kill(rng: random.Random) -> dict[str, Any]:
    return {"steps": rng.choice([0, 1, 3, 10, 30, 100]) + rng.randrange(10), "again": rng.choice([0, 0, 0, 5, 30])}


_KINDS: dict[str, Any] = {
    "submit": (35, _job),
    "ask": (12, _ask),
    "attach": (10, _node),
    "cut": (5, _node),
    "reboot": (4, _node),
    "kill": (5, _kill),
    "drain": (3, lambda rng: {**_node(rng), "what": rng.choice(["drain", "undrain"]), "wait": rng.random() < 0.7}),
    "tick": (28, lambda rng: {"seconds": rng.random()}),
}
_MORE: dict[str, dict[str, Any]] = {
    "losses": {
        "lose": (6, lambda rng: {"chance": rng.choice([0.0, 0.05, 0.3])}),
        "one_way": (4, lambda rng: {**_node(rng), "way": rng.choice(["in", "out"])}),
    },
    "disk": {
        "slow": (4, lambda rng: {"times": rng.choice([1, 1, 10, 100])}),
        "full": (3, lambda rng: {"full": rng.random() < 0.5}),
        "unsure": (3, lambda rng: {"chance": rng.choice([0.0, 0.3])}),
    },
    "power": {"power": (5, lambda rng: {"commits": rng.choice([0, 0, 1, 2, 5]), "again": rng.choice([0, 0, 0, 10])})},
    "clocks": {
        "clock": (5, lambda rng: {"by": rng.choice([-3600.0, -5.0, -0.5, 0.5, 5.0, 86400.0])}),
        "node_clock": (5, lambda rng: {"by": rng.choice([-100.0, -1.0, -0.01, 1.0, 100.0])}),
    },
    "away": {"away": (3, lambda rng: {**_node(rng), "down": rng.random() < 0.5, "seconds": rng.choice([10, 25, 25])})},
    "replace": {"replace": (3, lambda rng: {"chosen": rng.randrange(1 << NODES), "seconds": rng.random()})},
    "agents": {"agent_killed": (4, _node)},
    "sick": {
        "unable": (3, lambda rng: {**_node(rng), "why": rng.choice(["", "start: it cannot be"])}),
        "problem": (3, lambda rng: {**_node(rng), "why": rng.choice(["", "", "self-test failed: it cannot be"])}),
    },
    "forks": {
        "save": (2, lambda _: {}),
        "restore": (3, lambda rng: {"away": rng.randrange(1 << NODES), "jobs": rng.randint(0, 5)}),
    },
}
"""Verb, how often, and what is drawn for it, by fault."""
