"""The published tables and figures that can be reproduced, one module each, under their names."""

import difflib
import fnmatch

from dfrs.model.errors import InputError
from dfrs_reproduction.atif2011 import experiments, moves, predictions
from dfrs_reproduction.exhibit import Exhibit
from dfrs_reproduction.kumar2011 import adaptive, figure_1, fractional, loads, skips, tables
from dfrs_reproduction.ours import best_quality, best_small, farm_100
from dfrs_reproduction.sizes import parse_size
from dfrs_reproduction.stillwell2008 import degradation, large, multi_capacity, parallel, small
from dfrs_reproduction.stillwell2010 import (
    figure_4_1,
    figure_4_2,
    figure_4_3,
    figure_5_1,
    figure_6_1,
    table_4_1,
    table_4_2,
    table_4_3,
    table_4_4,
    table_4_5,
    table_4_6,
    table_4_7,
    table_5_2,
    table_6_1,
    tables_7,
    tables_b,
)

__all__ = ["EXHIBITS", "choose", "parse_size"]

ATIF2011 = sorted(
    (*predictions.EXHIBITS, *moves.EXHIBITS, *experiments.EXHIBITS),
    key=lambda exhibit: int(exhibit.name.rpartition("-")[2]),
)
EXHIBITS: dict[str, Exhibit] = {
    exhibit.name: exhibit
    for exhibit in (
        figure_4_1.EXHIBIT,
        table_4_1.EXHIBIT,
        table_4_2.EXHIBIT,
        table_4_3.EXHIBIT,
        table_4_4.EXHIBIT,
        table_4_5.EXHIBIT,
        figure_4_2.EXHIBIT,
        table_4_6.EXHIBIT,
        figure_4_3.EXHIBIT,
        table_4_7.EXHIBIT,
        figure_5_1.EXHIBIT,
        table_5_2.EXHIBIT,
        table_6_1.EXHIBIT,
        figure_6_1.EXHIBIT,
        *tables_7.EXHIBITS,
        *tables_b.EXHIBITS,
        multi_capacity.SMALL,
        degradation.TABLE_1,
        multi_capacity.LARGE,
        degradation.FIGURE_7,
        small.EXHIBIT,
        large.EXHIBIT,
        parallel.EXHIBIT,
        figure_1.EXHIBIT,
        *skips.EXHIBITS,
        *loads.EXHIBITS,
        *tables.EXHIBITS,
        adaptive.EXHIBIT,
        fractional.EXHIBIT,
        best_quality.EXHIBIT,
        best_small.EXHIBIT,
        *ATIF2011,
        farm_100.EXHIBIT,
    )
}
"""In the order of the documents."""


def choose(names: list[str]) -> list[Exhibit]:
    """Items by name or pattern (`stillwell2010-*`), all if none is given. Raises InputError with the nearest names."""
    chosen: dict[str, Exhibit] = {}
    for name in names or ["*"]:
        matching = fnmatch.filter(EXHIBITS, name)
        if not matching:
            near = difflib.get_close_matches(name, EXHIBITS, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "see dfrs reproduce --list"
            raise InputError(f'"{name}": there is no such table or figure; {hint}')
        chosen |= {match: EXHIBITS[match] for match in matching}
    return list(chosen.values())
