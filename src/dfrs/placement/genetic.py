"""GA: the genetic algorithm of [Stillwell2010] section 4.2.4."""

from dataclasses import dataclass

import numpy as np

from dfrs.kernels import genetic as kernels
from dfrs.model import tolerances
from dfrs.model.allocation import Outcome
from dfrs.model.errors import InputError
from dfrs.model.instance import Instance
from dfrs.placement.bounds import upper_bound
from dfrs.placement.outcome import found


@dataclass(frozen=True, slots=True, kw_only=True)
class Genetic:
    """GA with the document's settings: chromosomes, generations, probabilities of crossover and mutation.

    Raises InputError for a population that is not even, or a probability outside [0, 1].
    """

    population: int = 100
    generations: int = 2_000
    crossover: float = 0.25
    mutation: float = 0.1

    def __post_init__(self) -> None:
        rules = {
            "population": (self.population >= 2 and self.population % 2 == 0, "even and at least 2"),
            "generations": (self.generations >= 0, "at least 0"),
            "crossover": (0.0 <= self.crossover <= 1.0, "in [0, 1]"),
            "mutation": (0.0 <= self.mutation <= 1.0, "in [0, 1]"),
        }
        for name, (holds, rule) in rules.items():
            if not holds:
                raise InputError(f"{name}: {getattr(self, name)}: must be {rule}")

    def __call__(self, instance: Instance, rng: np.random.Generator, /) -> Outcome:
        """Evolve placements; NOT_FOUND where the best of the last generation overloads a node."""
        place = np.full(len(instance.need), -1, dtype=np.int64)
        fitness, generations = kernels.evolve(
            instance.base,
            instance.slope,
            instance.capacity,
            tolerances.CAPACITY,
            (self.population, self.generations, self.crossover, self.mutation),
            upper_bound(instance),
            int(rng.integers(2**62)),
            place,
        )
        nodes = len(instance.nodes)
        details = {"generations": int(generations), "fitness": float(fitness)}
        return found(instance, place if fitness >= nodes else None, details=details)
