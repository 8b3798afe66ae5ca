"""The studies that several tables share."""

from dfrs.experiments.kinds.offline import OfflineConfiguration
from dfrs.experiments.spec import Study
from dfrs.placement.greedy import GREEDIES, LIGHT
from dfrs.placement.packing import MULTI_CAPACITY, VECTOR_PACKINGS
from dfrs.placement.registry import Options
from dfrs_reproduction.sizes import Size, clusters, dissertation, of

PUBLISHED = Options(search="midpoints", pair_order="index")
"""What the published figures of VP_* and MCB* come from."""
TEXT_ORDER = Options(search="midpoints", pair_order="load")
BEST_ROUNDS = 5
"""BEST in rounds repeats to the bit, and may run beside others."""

IN_TEXT_ORDER = {f"{name}, text's order": name for name in VECTOR_PACKINGS if name.startswith("VP_PP")}
BEST = f"BEST, {BEST_ROUNDS} rounds (ours)"
LIGHT_MEMBERS = tuple(f"GREEDY_{name}" for name in LIGHT)
WITH_SECOND_PHASE = "VP_CPSUM and second phase"

PROGRAM_LIMIT_S = 20.0
"""Time limit of the algorithms that solve programs, where a table does not say otherwise."""


def configurations(*names: str, options: Options = PUBLISHED) -> tuple[OfflineConfiguration, ...]:
    """Algorithms under their own names."""
    return tuple(OfflineConfiguration(label=name, algorithm=name, options=options) for name in names)


def with_average(*names: str, options: Options = PUBLISHED) -> tuple[OfflineConfiguration, ...]:
    """The same with the second phase of [Stillwell2008] section 3.5."""
    return tuple(
        OfflineConfiguration(label=name, algorithm=name, options=options, second_phase="average") for name in names
    )


def packing(size: Size) -> Study:
    """[Stillwell2010]'s large set by all vector packings and greedy algorithms, and BEST."""
    return Study(
        name="large",
        sample=of(size.packing, 72_900, "[Stillwell2010]'s large set (64 nodes; 100, 200, 500 services)"),
        sources=(dissertation(size.packing),),
        configurations=(
            *configurations(*VECTOR_PACKINGS),
            *(
                OfflineConfiguration(label=label, algorithm=name, options=TEXT_ORDER)
                for label, name in IN_TEXT_ORDER.items()
            ),
            OfflineConfiguration(
                label=WITH_SECOND_PHASE, algorithm="VP_CPSUM", options=PUBLISHED, second_phase="average"
            ),
            *configurations("GREEDY", "GREEDYLIGHT", *GREEDIES),
            OfflineConfiguration(label=BEST, algorithm="BEST", options=Options(rounds=BEST_ROUNDS)),
        ),
    )


LOAD_GREEDY = ("GR", "SG", "GB", "SGB")
ROUNDING = ("RRND", "RRNZ")


def clusters_small(size: Size) -> Study:
    """[Stillwell2008]'s small set by every heuristic."""
    return Study(
        name="clusters-small",
        sample=of(size.clusters_small, 1_440, "[Stillwell2008]'s small set (4 nodes; 6, 8, 10, 12 tasks)"),
        sources=(clusters(size.clusters_small, large=False),),
        configurations=with_average(*MULTI_CAPACITY, *LOAD_GREEDY, *ROUNDING),
    )


def clusters_large(size: Size) -> Study:
    """[Stillwell2008]'s large set by every heuristic that needs no program."""
    return Study(
        name="clusters-large",
        sample=of(size.clusters_large, 10_800, "[Stillwell2008]'s large set (64 nodes; 100, 250, 500 tasks)"),
        sources=(clusters(size.clusters_large, large=True),),
        configurations=with_average(*MULTI_CAPACITY, *LOAD_GREEDY),
    )
