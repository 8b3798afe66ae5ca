"""The off-line problem as read-only arrays ([Stillwell2010] section 4.1, [Stillwell2010b] section 3).

Every service has a yield; all its tasks share it. At scaled yield Y a task takes, in dimension d,

    size(Y) = base + Y * slope,    base  = need * (1 if rigid else minimum_yield),
                                   slope = need * (0 if rigid else 1 - minimum_yield),

so each algorithm needs only `base`, `slope` and `capacity`: QoS minimums, several tasks, components with
their own needs ([Stillwell2010] section 4.5) and resources that are fluid for one service and rigid for another are all
in them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dfrs.model.errors import InputError
from dfrs.model.move_limits import MoveLimits
from dfrs.model.resources import Kind, Resource
from dfrs.model.rules import Rule, Rules
from dfrs.model.shown import Shown

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Instance(Shown):
    """N nodes, S services of T tasks in all, D resources. Arrays are frozen on construction.

    Raises InputError, naming index, value and rule, where an array has the wrong shape or a value is not
    finite, negative, or a minimum yield is above 1.
    """

    resources: tuple[Resource, ...]
    nodes: tuple[str, ...]
    capacity: Floats
    """(N, D) fractions of the reference node."""
    services: tuple[str, ...]
    minimum_yield: Floats
    """(S,) the unscaled yield below which a service has failed."""
    service_of: Ints
    """(T,) which service a task belongs to; non-decreasing."""
    need: Floats
    """(T, D) requirement (rigid) or need (fluid) of each task."""
    rigid: Bools
    """(T, D) whether the task's need is a requirement."""
    move_cost: Floats
    """(T,) cost of moving the task to another node, in the user's unit ([Stillwell2010] section 6.2)."""
    components: tuple[str, ...] = ()
    """(T,) the component each task belongs to; empty strings, or nothing at all, where there is only one."""
    name: str = ""
    labels: tuple[Mapping[str, str], ...] = ()
    """(N,) each node's labels, which name its failure domains and features; empty where no node has any."""
    rules: Rules | None = None
    """Where tasks may run; bound to the names here on construction."""
    overcommit: Floats | None = None
    """(N, D) how many times what a node physically has `capacity` is; None where it is just that."""
    move_limits: MoveLimits | None = None
    """How many tasks may move at once."""
    base: Floats = field(init=False)
    slope: Floats = field(init=False)

    def __post_init__(self) -> None:
        tasks, dims = self.need.shape
        shapes = {
            "capacity": (self.capacity, (len(self.nodes), dims)),
            "minimum_yield": (self.minimum_yield, (len(self.services),)),
            "service_of": (self.service_of, (tasks,)),
            "rigid": (self.rigid, (tasks, dims)),
            "move_cost": (self.move_cost, (tasks,)),
        }
        for label, (array, shape) in shapes.items():
            if array.shape != shape:
                raise InputError(f"{label} has shape {array.shape}: must be {shape}")
        if dims != len(self.resources):
            raise InputError(f"need has {dims} columns: must be one for each of {len(self.resources)} resources")
        if not self.nodes or not tasks:
            raise InputError("an instance needs at least one node and one service")
        for label in ("capacity", "need", "minimum_yield", "move_cost"):
            _check_values(label, getattr(self, label))
        steps = np.diff(self.service_of, prepend=0, append=len(self.services) - 1)
        if not np.isin(steps, (0, 1)).all() or steps[-1] != 0:
            raise InputError("service_of: must count up from 0 to the last service, every service with a task")
        if self.minimum_yield.max() > 1.0:
            worst = int(self.minimum_yield.argmax())
            raise InputError(f"minimum_yield[{worst}] = {self.minimum_yield[worst]}: must be at most 1")
        self._bind_rules()
        minimum = self.minimum_yield[self.service_of][:, None]
        object.__setattr__(self, "base", np.where(self.rigid, self.need, self.need * minimum))
        object.__setattr__(self, "slope", np.where(self.rigid, 0.0, self.need * (1.0 - minimum)))
        for label in (
            "capacity",
            "need",
            "minimum_yield",
            "move_cost",
            "service_of",
            "rigid",
            "base",
            "slope",
        ):
            array = np.array(getattr(self, label), order="C", copy=True)
            array.setflags(write=False)
            object.__setattr__(self, label, array)

    def _bind_rules(self) -> None:
        if self.labels and len(self.labels) != len(self.nodes):
            raise InputError(f"labels has {len(self.labels)} entries: must be one for each of {len(self.nodes)} nodes")
        if self.overcommit is not None:
            if self.overcommit.shape != self.capacity.shape:
                raise InputError(f"overcommit has shape {self.overcommit.shape}: must be {self.capacity.shape}")
            _check_values("overcommit", self.overcommit)
        if self.rules is None:
            return
        rules = self.rules.bind(self.nodes, self.services, self.service_of, self.labels)
        _ = rules.parts  # names that do not exist are found here
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "move_cost", rules.move_cost(self.move_cost))

    @cached_property
    def lexicographic(self) -> Ints:
        """(D,) dimensions in the order LEX compares them: rigid ones first, then by index."""
        ranked = sorted(range(len(self.resources)), key=lambda d: self.resources[d].kind != Kind.RIGID)
        return np.array(ranked, dtype=np.int64)

    @cached_property
    def tasks_per_service(self) -> Ints:
        """(S,) number of tasks of each service."""
        return np.bincount(self.service_of, minlength=len(self.services)).astype(np.int64)

    def _figures(self) -> Mapping[str, object]:
        return {
            "name": self.name or None,
            "nodes": len(self.nodes),
            "services": len(self.services),
            "tasks": len(self.need),
            "resources": " ".join(f"{resource.name} ({resource.kind})" for resource in self.resources),
            "rules": None if self.rules is None else "yes",
        }

    @property
    def equal_nodes(self) -> bool:
        """Whether all nodes have the same capacity, as the documents assume."""
        return bool((self.capacity == self.capacity[0]).all())

    @cached_property
    def task_bytes(self) -> Floats | None:
        """(T,) bytes copied when a task moves ([Stillwell2008] 6.1), or None where no resource has a size in bytes."""
        sizes = [(d, r.bytes_per_node) for d, r in enumerate(self.resources) if r.bytes_per_node is not None]
        if not sizes:
            return None
        return sum((self.need[:, d] * size for d, size in sizes), start=np.zeros(len(self.need)))

    @staticmethod
    def from_arrays(
        capacity: Floats,
        need: Floats,
        rigid: "Bools | Sequence[bool]",
        *,
        services: Sequence[str] | None = None,
        nodes: Sequence[str] | None = None,
        resources: "Sequence[str | Resource] | None" = None,
        service_of: "Ints | Sequence[int] | None" = None,
        minimum_yield: "Floats | float | None" = None,
        move_cost: "Floats | float | None" = None,
        labels: Sequence[Mapping[str, str]] | Mapping[str, Mapping[str, str]] | None = None,
        rules: Rules | Iterable[Rule] | None = None,
        move_limits: MoveLimits | None = None,
    ) -> "Instance":
        """An instance from NumPy arrays: `capacity` (N, D), `need` (T, D), `rigid` (D,) or (T, D).

        What is left out: each task is a service of its own; names are s0, n0, r0 and so on; minimum yields are 0 and
        costs of moving 1. `minimum_yield` (S,) and `move_cost` (T,) may be one number for all; `labels` a mapping for
        each node in order, or by name. Raises InputError naming array, value and rule.
        """
        from dfrs.model import frames  # noqa: PLC0415 - it makes instances

        return frames.from_arrays(
            capacity,
            need,
            rigid,
            services=services,
            nodes=nodes,
            resources=resources,
            service_of=service_of,
            minimum_yield=minimum_yield,
            move_cost=move_cost,
            labels=labels,
            rules=rules,
            move_limits=move_limits,
        )

    @staticmethod
    def from_frame(
        machines: object,
        hosts: object,
        *,
        fluid: Sequence[str] = ("cpu",),
        unit_bytes: Mapping[str, float] | None = None,
        rules: Rules | Iterable[Rule] | None = None,
        move_limits: MoveLimits | None = None,
    ) -> "Instance":
        """An instance from two polars or pandas frames, or mappings of columns; each row of `machines` is a task.

        `machines` has `name`, a column for each resource, and optionally `service` (rows of one are adjacent),
        `minimum_yield`, `move_cost` and `host` (see `placement`). `hosts` has `name` and the same resources in the
        same units; other columns are labels. Amounts become fractions of the largest host. Resources in `fluid` are
        fluid, others rigid; `unit_bytes` says how many bytes one unit of a resource has, for budgets in bytes.
        Raises InputError naming column, row and rule.
        """
        from dfrs.model import frames  # noqa: PLC0415 - it makes instances

        return frames.from_frame(
            machines, hosts, fluid=fluid, unit_bytes=unit_bytes, rules=rules, move_limits=move_limits
        )

    def placement(self, hosts: Iterable[object]) -> Ints:
        """(T,) node of each task from its name, in the order of tasks; None and empty ones are nowhere: -1."""
        index: dict[object, int] = {name: n for n, name in enumerate(self.nodes)}
        place: list[int] = []
        for i, host in enumerate(hosts):
            nowhere = host is None or host == "" or host != host  # noqa: PLR0124 - pandas has NaN for nothing
            if not nowhere and host not in index:
                raise InputError(f'host[{i}] = "{host}": no such node')
            place.append(-1 if nowhere else index[host])
        if len(place) != len(self.need):
            raise InputError(f"host has {len(place)} entries: must be one for each of {len(self.need)} tasks")
        return np.array(place, dtype=np.int64)

    def node_names(self, place: Ints) -> list[str | None]:
        """Names of the nodes where tasks are, None for -1: a column for the frame they came from."""
        return [self.nodes[n] if n >= 0 else None for n in place]

    def on_nodes(self, keep: Ints) -> "Instance":
        """The same services on the nodes of index `keep` only."""
        return Instance(
            resources=self.resources,
            nodes=tuple(self.nodes[n] for n in keep),
            capacity=self.capacity[keep],
            services=self.services,
            minimum_yield=self.minimum_yield,
            service_of=self.service_of,
            need=self.need,
            rigid=self.rigid,
            move_cost=self.move_cost,
            components=self.components,
            name=self.name,
            labels=tuple(self.labels[n] for n in keep) if self.labels else (),
            rules=self.rules,
            overcommit=None if self.overcommit is None else self.overcommit[keep],
            move_limits=self.move_limits,
        )


def _check_values(label: str, array: Floats) -> None:
    bad = ~np.isfinite(array) | (array < 0)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(f"{label}{list(index)} = {array[index]}: must be a finite number of at least 0")
