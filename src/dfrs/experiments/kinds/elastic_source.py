"""`model = "cwf"` of a campaign file: traces of the elastic workload model (002 section IV-D)."""

from collections.abc import Sequence
from itertools import islice, product
from typing import Annotated, Literal

from pydantic import Field

from dfrs.experiments.fields import Annotate, Count, Loads, Numbers, Probabilities, Probability, Strict, at_most
from dfrs.experiments.kinds import online

Mean = Annotated[float, Field(ge=1, le=1e9)]
"""As `ElasticModel` has it."""


class CwfSource(Strict):
    """Every seed at every share of small jobs, as it comes or at every load; seed by seed."""

    model: Literal["cwf"] = "cwf"
    name: str = "cwf"
    jobs: Count = 500
    procs: Count = 320
    unit: Count = 32
    """Processors in a group."""
    ps: Probabilities = (0.5,)
    """Probabilities of a small job."""
    seeds: Numbers
    loads: Loads = ()
    pd: Probability = 0.0
    """Of a dedicated job."""
    pe: Probability = 0.0
    pr: Probability = 0.0
    """Of commands for more and for less time ..."""
    pep: Probability = 0.0
    prp: Probability = 0.0
    """... and processors."""
    start_mean_s: Mean = 3_600.0
    amount_mean_s: Mean = 1_800.0
    annotate: Annotate | None = None
    """`unit:UNIT` where none is given."""
    first: Count | None = None
    """Only so many of them."""

    def cases(self) -> tuple[online.ElasticTrace, ...]:
        """Seeds in the slowest loop, loads in the fastest. Raises InputError where the model has no such trace."""
        loads: Sequence[float | None] = self.loads or (None,)
        own = self.model_dump(exclude={"model", "name", "ps", "seeds", "loads", "annotate", "first"})
        annotate = self.annotate or f"unit:{self.unit}"
        every = (
            online.ElasticTrace(seed=seed, ps=ps, load=load, annotate=annotate, **own)
            for seed, ps, load in product(self.seeds, self.ps, loads)
        )
        whole = len(self.seeds) * len(self.ps) * len(loads)
        at_most(whole if self.first is None else self.first, whole, "traces")
        cases = tuple(islice(every, self.first))
        for case in cases[: len(self.ps) * len(loads)]:
            case.elastic_model()
        return cases
