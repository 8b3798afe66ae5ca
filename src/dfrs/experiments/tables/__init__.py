"""The published tables and figures that can be reproduced, one module each, under their names."""

import difflib
import fnmatch

from dfrs.experiments.tables import (
    best_quality,
    best_small,
    d000_7_discovery,
    d000_figure_4_1,
    d000_figure_4_2,
    d000_figure_4_3,
    d000_figure_5_1,
    d000_figure_6_1,
    d000_table_4_1,
    d000_table_4_2,
    d000_table_4_3,
    d000_table_4_4,
    d000_table_4_5,
    d000_table_4_6,
    d000_table_4_7,
    d000_table_5_2,
    d000_table_6_1,
    d000_tables_b,
    d001_degradation,
    d001_large,
    d001_multi_capacity,
    d001_parallel,
    d001_small,
    d002_adaptive,
    d002_figure_1,
    d002_fractional,
    d002_loads,
    d002_skips,
    d002_tables,
    d003_experiments,
    d003_moves,
    d003_predictions,
    farm_100,
)
from dfrs.experiments.tables.item import Item
from dfrs.model.errors import InputError

D003 = sorted(
    (*d003_predictions.ITEMS, *d003_moves.ITEMS, *d003_experiments.ITEMS),
    key=lambda item: int(item.name.rpartition("-")[2]),
)
ITEMS: dict[str, Item] = {
    item.name: item
    for item in (
        d000_figure_4_1.ITEM,
        d000_table_4_1.ITEM,
        d000_table_4_2.ITEM,
        d000_table_4_3.ITEM,
        d000_table_4_4.ITEM,
        d000_table_4_5.ITEM,
        d000_figure_4_2.ITEM,
        d000_table_4_6.ITEM,
        d000_figure_4_3.ITEM,
        d000_table_4_7.ITEM,
        d000_figure_5_1.ITEM,
        d000_table_5_2.ITEM,
        d000_table_6_1.ITEM,
        d000_figure_6_1.ITEM,
        *d000_7_discovery.ITEMS,
        *d000_tables_b.ITEMS,
        d001_multi_capacity.SMALL,
        d001_degradation.TABLE_1,
        d001_multi_capacity.LARGE,
        d001_degradation.FIGURE_7,
        d001_small.ITEM,
        d001_large.ITEM,
        d001_parallel.ITEM,
        d002_figure_1.ITEM,
        *d002_skips.ITEMS,
        *d002_loads.ITEMS,
        *d002_tables.ITEMS,
        d002_adaptive.ITEM,
        d002_fractional.ITEM,
        best_quality.ITEM,
        best_small.ITEM,
        *D003,
        farm_100.ITEM,
    )
}
"""In the order of the documents."""


def choose(names: list[str]) -> list[Item]:
    """Items by name or pattern (`000-*`), all if none is given. Raises InputError with the nearest names."""
    chosen: dict[str, Item] = {}
    for name in names or ["*"]:
        matching = fnmatch.filter(ITEMS, name)
        if not matching:
            near = difflib.get_close_matches(name, ITEMS, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "see dfrs reproduce --list"
            raise InputError(f'"{name}": there is no such table or figure; {hint}')
        chosen |= {match: ITEMS[match] for match in matching}
    return list(chosen.values())
