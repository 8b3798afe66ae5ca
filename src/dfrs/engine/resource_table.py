"""What the core knows of named resources: how many nodes have, what jobs want, and which want nodes to themselves."""

from collections.abc import Iterable, Mapping

import numpy as np

from dfrs.model.decisions import Jobs
from dfrs.model.instance import Bools, Ints
from dfrs.model.named_resources import Counts, NamedResources, on_nodes


class ResourceTable:
    """Counts by node; jobs present by their number in the order of submission."""

    def __init__(self) -> None:
        self._counts: dict[int, Counts] = {}
        """Of nodes that have any."""
        self._claims: dict[int, Counts] = {}
        """Of each task of a job that wants any."""
        self._alone: dict[int, None] = {}

    def __bool__(self) -> bool:
        """Whether any job present wants what only some can have."""
        return bool(self._claims or self._alone)

    def set_node(self, node: int, counts: Counts) -> None:
        """The node has these from now on."""
        self._counts.pop(node, None)
        if counts:
            self._counts[node] = counts

    def node(self, node: int) -> Counts:
        """What a node has."""
        return self._counts.get(node, ())

    def add(self, serial: int, claims: Counts, *, alone: bool) -> None:
        """A job was submitted, each task of which wants that."""
        if claims:
            self._claims[serial] = claims
        if alone:
            self._alone[serial] = None

    def forget(self, serial: int) -> None:
        """The job is done."""
        self._claims.pop(serial, None)
        self._alone.pop(serial, None)

    def claims(self, serial: int) -> bool:
        """Whether a job has or wants any."""
        return serial in self._claims

    def is_alone(self, serial: int) -> bool:
        """Whether a job has nodes to itself."""
        return serial in self._alone

    def claimed(self, jobs: Jobs) -> Bools:
        """(R,) which jobs have or want any."""
        return np.isin(jobs["serial"], np.array(list(self._claims), np.int64))

    def alone(self, jobs: Jobs) -> Bools:
        """(R,) which jobs have nodes to themselves."""
        return np.isin(jobs["serial"], np.array(list(self._alone), np.int64))

    def view(self, jobs: Jobs, residents: Iterable[tuple[np.void, Ints]], nodes: int) -> NamedResources:
        """What a decision sees; `residents`: held jobs that keep nodes, and which."""
        names = sorted({name for claims in self._claims.values() for name, _ in claims})
        held, inhabited, shut = np.zeros((nodes, len(names)), np.int64), np.zeros(nodes, bool), np.zeros(nodes, bool)
        for job, where in residents:
            serial = int(job["serial"])
            held += on_nodes(where, np.tile(_row(self._claims.get(serial, ()), names), (len(where), 1)), nodes)
            inhabited[where] = True
            shut[where] |= serial in self._alone
        claims = _rows((self._claims.get(serial, ()) for serial in jobs["serial"].tolist()), names)
        counts = _rows((self.node(node) for node in range(nodes)), names)
        arrays = counts, held, claims, self.alone(jobs), inhabited, shut
        for array in arrays:
            array.setflags(write=False)
        return NamedResources(tuple(names), *arrays)

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        all_counts = (*self._counts.values(), *self._claims.values())
        names = sorted({name for counts in all_counts for name, _ in counts})
        return {
            "names": np.array(names, "U64"),
            "nodes": np.array(list(self._counts), np.int64),
            "counts": _rows(self._counts.values(), names),
            "serials": np.array(list(self._claims), np.int64),
            "claims": _rows(self._claims.values(), names),
            "alone": np.array(list(self._alone), np.int64),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken; earlier versions knew of no named resources."""
        if not state:
            self._counts, self._claims, self._alone = {}, {}, {}
            return
        names = state["names"].tolist()
        self._counts = _by_key(state["nodes"], state["counts"], names)
        self._claims = _by_key(state["serials"], state["claims"], names)
        self._alone = dict.fromkeys(state["alone"].tolist())


def _row(counts: Counts, names: list[str]) -> list[int]:
    known = dict(counts)
    return [known.get(name, 0) for name in names]


def _rows(all_counts: Iterable[Counts], names: list[str]) -> Ints:
    rows = [_row(counts, names) for counts in all_counts]
    return np.array(rows, np.int64).reshape(len(rows), len(names))


def _by_key(keys: Ints, rows: Ints, names: list[str]) -> dict[int, Counts]:
    return {
        key: tuple((name, count) for name, count in zip(names, row, strict=True) if count)
        for key, row in zip(keys.tolist(), rows.tolist(), strict=True)
    }
