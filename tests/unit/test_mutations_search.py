"""As `test_mutations`, for the kernels that search among placements."""

import pytest

from dfrs.kernels import exact, genetic, local_search
from tests import search_cases as cases
from tests.naive import compare_search as compare
from tests.unit.test_mutations import Subject, agrees, kernels_of, mutations_of

pytestmark = pytest.mark.slow

SUBJECTS = (
    Subject(
        exact, "branch_and_bound", compare.branch_and_bound, cases.exact_case,
        (
            ("fixed[n, d] -= base[i, d]", "fixed[n, d] -= 0.0"),
            ("rate[n, d] -= slope[i, d]", "rate[n, d] -= 0.0"),
            ("count[n] -= 1", "count[n] -= 0"),
            ("depth > 0 and twin[depth]", "depth > 0"),
            ("place[order[depth - 1]] - 1", "place[order[depth - 1]]"),
            ("kind[q] == kind[m]", "True"),
            ("if repeated:", "if False:"),
            ("fee = spent[depth]", "fee = 0.0"),
            ("fee > budget", "fee >= budget"),
            ("origin[i] >= 0 and origin[i] != m", "origin[i] != m"),
            ("fee += cost[i]", "fee += cost[depth]"),
            ("reach = value[depth]", "reach = 1.0"),
            ("free < -tolerance", "free < 0.0"),
            ("max(free, 0.0) / speed", "free / speed"),
            ("speed = rate[m, d] + slope[i, d]", "speed = slope[i, d]"),
            ("reach > incumbent", "reach >= incumbent"),
            ("spent[depth + 1] = fee", "spent[depth + 1] = 0.0"),
            ("trials > most", "trials >= most"),
            ("incumbent = found + tolerance", "incumbent = found"),
            ("best[:] = place", "best[order] = place"),
            ("found >= upper", "found > upper"),
        ),
    ),
    Subject(
        local_search, "_draw", compare.draw, cases.climb_case,
        (
            ("s << np.uint64(13)", "s << np.uint64(12)"),
            ("s >> np.uint64(7)", "s << np.uint64(7)"),
            ("s << np.uint64(17)", "s << np.uint64(16)"),
            ("state[0] = s", "state[0] ^= s"),
            ("np.uint64(33)", "np.uint64(34)"),
        ),
    ),
    Subject(
        local_search, "_overload", compare.overload, cases.climb_case,
        (
            ("range(load.size)", "range(1)"),
            ("- size_out[d]", "+ size_out[d]"),
            ("+ size_in[d]", "- size_in[d]"),
            ("* scale[d] - 1.0", "- 1.0"),
            ("if excess > 0.0:", "if True:"),
        ),
    ),
    Subject(
        local_search, "_aimed_partner", compare.aimed_partner, cases.climb_case,
        (
            ("load[d] * scale[d] - 1.0", "load[d] - 1.0"),
            ("if beyond > excess:", "if beyond < excess:"),
            ("excess = beyond", "excess = 0.0"),
            ("size[worst] - excess", "size[worst] + excess"),
            ("0.5 + 1.5 *", "1.5 *"),
            ("ranked_size[worst]", "ranked_size[0]"),
            ("- NEAR", "- 1"),
            ("ranked[worst, min", "ranked[0, min"),
        ),
    ),
    Subject(
        local_search, "_fill", compare.fill, cases.climb_case,
        (
            ("load[:] = 0.0", "load[:] = 1.0"),
            ("base[i, d] + target * slope[i, d]", "base[i, d] + slope[i, d]"),
            ("load[place[i], d] += size[i, d]", "load[place[i], d] += base[i, d]"),
            ("over[n] > 0.0", "over[n] >= 0.0"),
            ("at[n] = -1", "at[n] = 0"),
            ("hot[hots] = n", "hot[n] = n"),
        ),
    ),
    Subject(
        local_search, "climb", compare.climb, cases.climb_case,
        (
            ("count.max() + 16", "count.max() + 15"),
            ("origin[i] >= 0 and origin[i] != n", "origin[i] != n"),
            ("            spent += cost[i]", "            spent -= cost[i]"),
            ("target = start", "target = 0.0"),
            ("ranked[d] = np.argsort(size[:, d])", "ranked[d] = np.argsort(-size[:, d])"),
            ("temperature = heat[0]", "temperature = heat[1]"),
            ("temperature *= cooling", "temperature *= 0.5"),
            ("swap = kind > 0", "swap = kind > 1"),
            ("if kind > 1:", "if kind > 2:"),
            ("if b == a or", "if"),
            ("count[b] == widest", "count[b] >= 3"),
            ("out = size[j] if swap else nothing", "out = nothing"),
            ("- over[a] - over[b]", "- over[a]"),
            ("if change > 0.0 and", "if change >= 0.0 and"),
            ("int(b != origin[i]) - int(a != origin[i])", "int(b != origin[i])"),
            ("if swap and origin[j] >= 0:", "if False:"),
            ("fee > 0.0 and spent", "spent"),
            ("spent + fee > budget", "spent + fee >= budget"),
            ("spent += fee", "spent += abs(fee)"),
            ("member[b, slot[j]] = i", "member[b, slot[i]] = i"),
            ("slot[i], slot[j] = slot[j], slot[i]", "slot[i], slot[j] = slot[i], slot[j]"),
            ("slot[last] = slot[i]", "slot[last] = slot[last]"),
            ("slot[i] = count[b]", "slot[i] = count[a]"),
            ("load[a, d] += out[d] - size[i, d]", "load[a, d] -= size[i, d]"),
            ("load[b, d] += size[i, d] - out[d]", "load[b, d] += size[i, d]"),
            ("over[b] = over_b", "over[b] = over_a"),
            ("for n in (a, b):", "for n in (b, a):"),
            ("at[hot[hots]] = at[n]", "at[hot[hots]] = at[hot[hots]]"),
        ),
    ),
    Subject(
        genetic, "uniform", compare.uniform, cases.genetic_case,
        (("z >> _30", "z >> _31"), ("* _MIX_2", "* _MIX_1"), (">> _11", ">> _27"), ("+= _WEYL", "+= _MIX_1")),
    ),
    Subject(
        genetic, "below", compare.below, cases.genetic_case,
        (("* count", "* (count + 1)"), ("uniform(state)", "0.5")),
    ),
    Subject(
        genetic, "shuffle", compare.shuffle, cases.genetic_case,
        (("items.size - 1, 0, -1", "items.size - 1, 1, -1"), ("k + 1", "k"), ("items[other], items[k]", "k, other")),
    ),
    Subject(
        genetic, "_overloaded", compare.is_overloaded, cases.genetic_case,
        (("over |=", "over ="), ("< -tolerance", "<= -tolerance"), ("< -tolerance", "< 0.0")),
    ),
    Subject(
        genetic, "_count_fitting", compare.count_fitting, cases.genetic_case,
        (("if not", "if"), ("count += 1", "count = 1"), ("range(capacity.shape[0])", "range(1)")),
    ),
    Subject(
        genetic, "_sum_by_node", compare.sum_by_node, cases.genetic_case,
        (("total[:] = 0.0", "pass"), ("+= amount[i, d]", "= amount[i, d]"), ("n = place[i]", "n = place[0]")),
    ),
    Subject(
        genetic, "_load", compare.load, cases.genetic_case,
        (("max(load,", "min(load,"), ("> 0.0", "> 1.0"), ("fixed[n, d] / capacity[n, d]", "fixed[n, d]")),
    ),
    Subject(
        genetic, "_least_loaded", compare.least_loaded, cases.genetic_case,
        (
            ("load[n] < least", "load[n] <= least"),
            (" and n != home", ""),
            ("> capacity[n, d] + tolerance", "> capacity[n, d]"),
            ("> capacity[n, d]", ">= capacity[n, d]"),
            ("least = load[n]", "least = 0.0"),
        ),
    ),
    Subject(
        genetic, "repair", compare.repair, cases.genetic_case,
        (
            ("shuffle(state, order)", "pass"),
            ("range(place.size - 1, -1, -1)", "range(place.size)"),
            ("while i >= 0 and _overloaded", "while i >= 0 or _overloaded"),
            ("fixed[n, d] -= base[i, d]", "fixed[n, d] -= 0.0"),
            ("fixed[target, d] += base[i, d]", "fixed[target, d] += 0.0"),
            ("load[target] = _load(fixed, capacity, target)", "pass"),
            ("target >= 0", "target > 0"),
        ),
    ),
    Subject(
        genetic, "settle", compare.settle, cases.genetic_case,
        (
            ("repair(base, capacity,", "repair(slope, capacity,"),
            ("return np.float64(fitting)", "return 0.0"),
            ("least = 1.0", "least = 2.0"),
            ("_sum_by_node(slope, place, rate)", "_sum_by_node(base, place, rate)"),
            ("max(free, 0.0)", "free"),
            ("nodes * (1.0 + least)", "nodes + least"),
        ),
    ),
    Subject(
        genetic, "_select", compare.select, cases.genetic_case,
        (("* wheel[-1]", "* wheel[0]"), ("wheel.size - 1", "0"), ("uniform(state)", "0.5")),
    ),
    Subject(
        genetic, "_mutate", compare.mutate, cases.genetic_case,
        (
            ("range(place.size)", "range(1)"),
            ("place[i] != place[j]", "i != j"),
            ("= place[j], place[i]", "= place[j], place[j]"),
            ("return False", "return True"),
        ),
    ),
    Subject(
        genetic, "_cross", compare.cross, cases.genetic_case,
        (
            ("mother.size + 1", "mother.size"),
            ("one[:cut] = mother[:cut]", "one[:cut] = father[:cut]"),
            ("one[cut:] = father[cut:]", "one[cut:] = mother[cut:]"),
            ("other[cut:] = mother[cut:]", "other[cut:] = father[cut:]"),
        ),
    ),
    Subject(
        genetic, "evolve", compare.evolve, cases.genetic_case,
        (
            ("best = np.argmax(old_score)\n    generation", "best = np.argmin(old_score)\n    generation"),
            ("nodes * (1.0 + upper)", "nodes * upper"),
            ("< nodes * (1.0 + upper)", "< 99.0"),
            ("generation < generations", "generation <= generations"),
            ("wheel = np.cumsum(old_score)", "wheel = np.arange(1.0, population + 1.0)"),
            ("< crossover", "< mutation"),
            ("new_score[p] = old_score[mother]", "new_score[p] = old_score[father]"),
            ("new_score[p + 1] = old_score[father]", "new_score[p + 1] = old_score[mother]"),
            ("for child in (p, p + 1):", "for child in (p + 1, p):"),
            ("if crossed or mutated:", "if crossed:"),
            ("new_score.max() < old_score[best]", "False"),
            ("worst = np.argmin(new_score)", "worst = np.argmax(new_score)"),
            ("new[worst] = old[best]", "pass"),
            ("new_score[worst] = old_score[best]", "pass"),
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_source_as_it_stands_agrees_with_its_twin(subject):
    for got, expected in subject.pairs(subject.compiled_by_python(subject.source)):
        assert got == expected


@pytest.mark.parametrize(("subject", "old", "new"), mutations_of(SUBJECTS))
def test_a_broken_source_is_told_from_its_twin(subject, old, new):
    assert subject.source.count(old) == 1, "the source has changed: choose another mutation"
    assert not agrees(subject, subject.compiled_by_python(subject.source.replace(old, new)))


@pytest.mark.parametrize("module", [exact, local_search, genetic], ids=lambda module: module.__name__)
def test_every_kernel_is_broken_at_least_twice(module):
    assert kernels_of(module) == {s.name for s in SUBJECTS if s.module is module and len(set(s.mutations)) >= 2}
