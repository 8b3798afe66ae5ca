"""Needs from usage alone: what each second says about a task's need, and the weights that follow (method OBSERVE).

Where the host says how long a task was held up, that tells its need whatever else the host does: one that stood in line
nearly whenever it did not run needs what it used and waited for, if that is less than the most that it can need. Any
other one needs at least what it used, which is all if its work comes by itself, and at most what it used in the time in
which it was not held up, which it would have used if its next work begins when the last is done; of one that is offered
nearly all of its node it is what it used. Elsewhere a task that uses less than it could have shows its need. One that
uses all it could have shows only that it needs no less; what is believed of it is then a mixture: with probability
`trust` its need still is where it was last seen, between `low` and `high`, else it has changed and may be anything
between its usage and `most`. `trust` decays with time as needs change once in `change_s` seconds on average. The
estimate is the mean of the mixture, the error bar its standard deviation. Columns are those of `dfrs.model.needs`;
`usage` is the smoothed usage while it shows the need, `noise` the variance of what was measured around it.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false

from typing import Any

import numpy as np

from dfrs.kernels import likely_yields
from dfrs.kernels.jit import Bools, Floats, Ints, kernel

RELATIVE, ABSOLUTE = 0.02, 0.02
"""Usage within this of what a task could have is all of it. Over a second or two shares are kept, and usage measured,
to some thousandths of a node; errors beyond this would take limited tasks for satisfied ones."""
SMOOTHING = 0.3
"""Weight of the newest measurement of a need that seems to stay."""
DEVIATIONS = 4.0
"""A measurement farther off than this many standard deviations, and than ABSOLUTE, is another need."""
WAITED, IDLE = 0.05, 0.02
"""Who was held up for more than the first part of the time, and idle for less than the second, wanted more: a task that
drops late work, and so uses little of a little share, does not look satisfied by that. One that has a little more than
it needs (`_offer`) is idle for little more than that."""
PENDING_S = 0.05
"""A wait is counted when it is over: so much idle time of a task may be the end of a wait."""
LEAST_PROGRESS = 0.05
"""A task that was held up for more than all but this part of the time says too little of what it needs."""
OFFERED = 0.9
"""Who has this part of all that it can have here shows its need by what it uses: though it is held up even so, as where
others than tasks use the CPUs, it would not get more."""
UNSURE = 0.15
"""Who may need more than is known, and whose error bar is longer than this, gets at least as much as all others."""
OUTCOMES = 4
"""Of a probe, so many are thought of, all equally probable."""
HALVINGS = 50
"""Of an interval of mean yields, until it is a point."""
LEAST_WEIGHT = 0.01
"""Of an estimate, when weights are made of it: nobody is left without any CPU, however little it used."""


@kernel
def limited(table: Any, usage: Any, capacity: Floats, is_limited: Bools) -> None:
    """Which tasks may need more than they used, into `is_limited` (T,).

    Those that stood in line nearly whenever they did not run, where the host says that. Where it does not: on a node
    that was idle for part of the time nobody; elsewhere those that used what they could have. A task that a quota
    stopped is, whatever the node did.
    """
    load = np.zeros(capacity.size)
    for t in range(table.size):
        if usage[t].seconds > 0.0:
            load[table[t].node] += usage[t].used_s / usage[t].seconds
    for t in range(table.size):
        here = capacity[table[t].node]
        is_limited[t] = False
        if usage[t].seconds > 0.0:
            used = usage[t].used_s / usage[t].seconds
            could = usage[t].share * (1.0 - RELATIVE) - ABSOLUTE
            full = load[table[t].node] >= here * (1.0 - RELATIVE) - ABSOLUTE
            # Comparisons with NaN, where the host does not say, are false.
            seconds = usage[t].seconds
            throttled = usage[t].throttled_s > RELATIVE * seconds
            if np.isnan(usage[t].delayed_s):
                is_limited[t] = throttled or (full and used >= could)
            else:
                spare_s = IDLE * seconds + PENDING_S
                idle = usage[t].idle_s >= spare_s and usage[t].delayed_s < (1.0 - LEAST_PROGRESS) * seconds
                is_limited[t] = throttled or (usage[t].delayed_s > WAITED * seconds and not idle)


@kernel
def _shown(row: Any, used: float) -> None:
    """The need is what is used: near the last one it is smoothed, else it is taken as it is."""
    known = row.trust == 1.0 and row.low == row.high
    off = used - row.usage
    if known and abs(off) <= max(DEVIATIONS * np.sqrt(row.noise), ABSOLUTE):
        row.usage += SMOOTHING * off
        row.noise = (1.0 - SMOOTHING) * (row.noise + SMOOTHING * off * off)
    else:
        if not row.low * (1.0 - RELATIVE) - ABSOLUTE <= used <= row.high * (1.0 + RELATIVE) + ABSOLUTE:
            row.changes += 1.0
        row.usage = used
        row.noise = 0.0
    row.low = row.high = min(row.usage, row.most)
    row.trust = 1.0


@kernel
def _between(row: Any, least: float, most: float) -> None:
    """The need is between these two: of what is known that much stays which agrees."""
    least, most = min(least, row.most), min(most, row.most)
    low, high = max(row.low, least), min(row.high, most)
    if row.trust < 1.0 or low > high * (1.0 + RELATIVE) + ABSOLUTE:
        row.changes += row.trust == 1.0
        row.noise = 0.0
        low, high = least, most
    elif low > high:
        low = high = 0.5 * (low + high)
    row.low, row.high = low, high
    row.usage = 0.5 * (low + high)
    row.trust = 1.0


@kernel
def _hidden(row: Any, used: float, seconds: float, change_s: float) -> None:
    """The need is at least what is used. Changes to less would have shown, so only others count against trust."""
    above = 1.0 - min(used / row.most, 1.0)
    row.trust *= np.exp(-seconds * above * (1.0 + row.changes) / (change_s + row.age_s))
    if used > row.high * (1.0 + RELATIVE) + ABSOLUTE:
        row.trust = 1.0
        row.low, row.high = used, row.most
        row.noise = 0.0
        row.changes += 1.0
    elif used > row.low:
        row.low = min(used, row.high)


@kernel
def _believe(row: Any, used: float) -> None:
    """Estimate and error bar from the mixture.

    That the need is between `used` and `most` is always true of a task that may need more: where this says more than
    the mixture does, it is what is kept.
    """
    used = min(used, row.most)
    beyond = row.most - used
    old, new = 0.5 * (row.low + row.high), 0.5 * (used + row.most)
    within = row.high - row.low
    p = row.trust
    spread = p * (within * within / 12.0 + row.noise) + (1.0 - p) * beyond * beyond / 12.0
    spread += p * (1.0 - p) * (old - new) ** 2
    row.estimate = p * old + (1.0 - p) * new
    if p < 1.0 and beyond * beyond / 12.0 <= spread:
        row.low, row.high, row.trust = used, row.most, 1.0
        row.estimate, spread = new, beyond * beyond / 12.0
    row.error = np.sqrt(spread)


@kernel
def observe(now_s: float, table: Any, usage: Any, capacity: Floats, change_s: float, memory_s: float) -> None:
    """What was used since the last step changes what is believed: `table` (T,) in place."""
    is_limited = np.empty(table.size, dtype=np.bool_)
    limited(table, usage, capacity, is_limited)
    for t in range(table.size):
        row = table[t]
        seconds = usage[t].seconds
        if row.declared == 1 or seconds <= 0.0:
            continue
        used = usage[t].used_s / seconds
        # NaN where the host does not say.
        wanted = used + usage[t].waiting_s / seconds
        if is_limited[t] and wanted < row.most * (1.0 - RELATIVE):
            used = wanted
        alone = used
        if not is_limited[t] and usage[t].delayed_s > 0.0:
            alone = min(used / (1.0 - usage[t].delayed_s / seconds), wanted)
        kept = np.exp(-seconds / memory_s)
        row.changes *= kept
        row.age_s = kept * row.age_s + seconds
        if is_limited[t] and not wanted < row.most * (1.0 - RELATIVE):
            _hidden(row, used, seconds, change_s)
        else:
            if usage[t].share >= OFFERED * min(row.most, capacity[row.node]):
                _shown(row, used)
            elif alone - used > RELATIVE * alone + ABSOLUTE:
                _between(row, used, alone)
            else:
                _shown(row, 0.5 * (used + alone))
            if row.discovered_s < 0.0:
                # What was its yield so far is of a need that was a guess.
                row.used_s = row.seen_s = 0.0
            row.discovered_s = now_s
        _believe(row, used)


@kernel
def choose(table: Any, capacity: Floats, least_error: float, keep: float, likely: float) -> None:
    """On each node that cannot give all of what is estimated, `chosen` becomes 1 for the task least known, else 0.

    Of those only whose need is at most what can be offered with the probability `likely`, the others keeping the share
    `keep`: elsewhere an offer costs as much, and shows little.
    """
    load = np.zeros(capacity.size)
    best = np.full(capacity.size, -1)
    for t in range(table.size):
        load[table[t].node] += table[t].estimate
    for t in range(table.size):
        n = table[t].node
        table[t].chosen = 0
        unsure = table[t].declared == 0 and load[n] > capacity[n] and table[t].error >= least_error
        if unsure and likely_yields.chance(table[t], (1.0 - keep) * capacity[n]) < likely:
            continue
        if unsure and (best[n] < 0 or table[t].error > table[best[n]].error):
            best[n] = t
    for n in range(capacity.size):
        if best[n] >= 0:
            table[best[n]].chosen = 1


@kernel
def remember(table: Any, usage: Any, memory_s: float) -> None:
    """The mean yield of each task by what is believed now, older seconds counting less: `used_s` of `seen_s`."""
    for t in range(table.size):
        seconds = usage[t].seconds
        if seconds > 0.0:
            kept = np.exp(-seconds / memory_s)
            need = max(table[t].estimate, LEAST_WEIGHT)
            table[t].seen_s = kept * table[t].seen_s + seconds
            table[t].used_s = kept * table[t].used_s + min(usage[t].used_s / need, seconds)


@kernel
def _satisfying(need: float) -> float:
    """A share that is not all used by a task with this need."""
    return need * (1.0 + 2.0 * RELATIVE) + 2.0 * ABSOLUTE


@kernel
def _offer(table: Any, own: Ints, capacity: float, least: float, ahead_s: float, share: Floats) -> None:
    """Share out one node among its tasks `own`, into `share`.

    All have the yield `least`, which all can have. What is left makes the least of their mean yields as large as it can
    be in `ahead_s`: who had less so far has more now, and those that had the same have the same.
    """
    total = 0.0
    for t in own:
        total += max(table[t].estimate, LEAST_WEIGHT)
    level = capacity / total
    if level >= 1.0:
        for t in own:
            share[t] = level * max(table[t].estimate, LEAST_WEIGHT)
        return
    low, high = np.inf, 0.0
    for t in own:
        seconds = table[t].seen_s + ahead_s
        need = max(table[t].estimate, LEAST_WEIGHT)
        low = min(low, (table[t].used_s + least * ahead_s) / seconds)
        high = max(high, (table[t].used_s + ahead_s * _satisfying(need) / need) / seconds)
    for _ in range(HALVINGS):
        mean = 0.5 * (low + high)
        given = 0.0
        for t in own:
            need = max(table[t].estimate, LEAST_WEIGHT)
            now = (mean * (table[t].seen_s + ahead_s) - table[t].used_s) / ahead_s
            share[t] = min(max(now, least) * need, _satisfying(need))
            given += share[t]
        if given > capacity:
            high = mean
        else:
            low = mean


@kernel
def _protect(table: Any, own: Ints, capacity: Floats, share: Floats) -> None:
    """Give who may need more than is known an equal share, of what all others have above theirs, into `share`."""
    equal = capacity / own.size
    lacking = spare = 0.0
    for t in own:
        if table[t].declared == 0 and table[t].error > UNSURE:
            lacking += max(0.0, min(equal, table[t].high) - share[t])
        else:
            spare += max(0.0, share[t] - equal)
    if lacking <= 0.0 or spare <= 0.0:
        return
    part = min(1.0, spare / lacking)
    for t in own:
        if table[t].declared == 0 and table[t].error > UNSURE:
            share[t] += part * max(0.0, min(equal, table[t].high) - share[t])
        else:
            share[t] -= part * lacking / spare * max(0.0, share[t] - equal)


@kernel
def _lay_out(
    table: Any, own: Ints, capacity: float, load: float, rates: Floats, common: float, share: Floats, fair: Floats
) -> None:
    """Shares of the tasks `own` by the estimates, of which the node has `load`, into `share`, equal ones into `fair`.

    `rates` are `even`, `least_even` and `ahead_s` of `weigh`; `common` is the yield that all nodes can give.
    """
    _offer(table, own, capacity, max(rates[0] * common, rates[1] * capacity / load), rates[2], share)
    likely_yields.fair_shares(table, own, capacity, UNSURE, 2.0 * RELATIVE, 2.0 * ABSOLUTE, fair)


@kernel
def _share_out(table: Any, capacity: Floats, rates: Floats, load: Floats, share: Floats) -> tuple[float, Floats]:
    """Shares as `weigh` gives them where nothing is probed, into `share` (T,), what is estimated into `load` (N,).

    Returns the largest yield that all nodes can give, and the logarithms of `likely_yields.even_out`.
    """
    fair = np.zeros(table.size)
    load[:] = 0.0
    for t in range(table.size):
        load[table[t].node] += max(table[t].estimate, LEAST_WEIGHT)
    common = 1.0
    for n in range(capacity.size):
        if load[n] > 0.0:
            common = min(common, capacity[n] / load[n])
    for n in range(capacity.size):
        own = np.flatnonzero(table["node"] == n)
        if own.size > 0:
            _lay_out(table, own, capacity[n], load[n], rates, common, share, fair)
    return common, likely_yields.even_out(table, capacity, load > capacity, fair, share)


@kernel
def pays(
    table: Any,
    capacity: Floats,
    even: float,
    least_even: float,
    ahead_s: float,
    keep: float,
    probe_s: float,
    change_s: float,
) -> bool:
    """Whether to probe the chosen tasks for `probe_s` is expected to gain more of the least yield than it costs.

    What is found out is worth what the shares that follow from it gain, the mean over what it may be, for as long as
    no need on that node changes. It costs what the others do without: all but `keep` of their yields.
    """
    rates = np.array([even, least_even, ahead_s])
    share, fair, load = np.zeros(table.size), np.zeros(table.size), np.zeros(capacity.size)
    common, logs = _share_out(table, capacity, rates, load, share)
    total = logs.sum(axis=0)
    # In large clusters all is unlikely: what counts is by how much.
    scale = total.max()
    now = np.exp(total - scale).sum()
    found = np.empty(likely_yields.LEVELS)
    gain = 0.0
    for c in range(table.size):
        row = table[c]
        if row.chosen != 1:
            continue
        n = row.node
        own = np.flatnonzero(table["node"] == n)
        others = total - logs[n]
        low, high, trust, estimate, error = row.low, row.high, row.trust, row.estimate, row.error
        needs = np.array([likely_yields.quantile(row, (k + 0.5) / OUTCOMES) for k in range(OUTCOMES)])
        known = 0.0
        for need in needs:
            row.low = need
            row.high = need
            row.estimate = need
            row.trust = 1.0
            row.error = 0.0
            here = load[n] - max(estimate, LEAST_WEIGHT) + max(need, LEAST_WEIGHT)
            _lay_out(table, own, capacity[n], here, rates, min(common, capacity[n] / here), share, fair)
            likely_yields.best_part(table, own, share, fair, others - others.max(), found)
            known += np.exp(others + found - scale).sum() / OUTCOMES
        row.low = low
        row.high = high
        row.trust = trust
        row.estimate = estimate
        row.error = error
        changes = 0.0
        for t in own:
            changes += (1.0 + table[t].changes) / (change_s + table[t].age_s)
        gain += (known - now) / changes
    return gain > probe_s * (1.0 - keep) * now


@kernel
def weigh(
    table: Any, capacity: Floats, even: float, least_even: float, ahead_s: float, keep: float, total: float
) -> None:
    """Weights by the estimates, `total` on each node, into `table`.

    All have the part `even` of the largest yield that is common to all nodes, and at least the part `least_even` of
    that of their own node, as far as this is likely to be better than equal shares. A chosen task is offered all it may
    need, as far as the others keep the share `keep` of what they would have.
    """
    share = np.zeros(table.size)
    _share_out(table, capacity, np.array([even, least_even, ahead_s]), np.zeros(capacity.size), share)
    for n in range(capacity.size):
        own = np.flatnonzero(table["node"] == n)
        if own.size == 0:
            continue
        for c in own:
            if table[c].chosen == 1:
                others = capacity[n] - share[c]
                offer = min(table[c].most * (1.0 + 2.0 * RELATIVE), capacity[n] - keep * others)
                if offer > share[c] and others > 0.0:
                    for t in own:
                        share[t] *= (capacity[n] - offer) / others
                    share[c] = offer
        _protect(table, own, capacity[n], share)
        given = 0.0
        for t in own:
            share[t] = max(share[t], LEAST_WEIGHT * capacity[n] / own.size)
            given += share[t]
        for t in own:
            table[t].weight = total * share[t] / given
