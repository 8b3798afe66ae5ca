"""Names of policies: what they stand for, and which are refused with which words."""

from dataclasses import replace

import pytest

from dfrs.model.errors import InputError
from dfrs.policies.fractional.actions import Admit, Mode, Pin, PinKind, Priority, Readmit, Repack
from dfrs.policies.fractional.objective import YIELDS, StretchObjective
from dfrs.policies.fractional.policy import Dfrs
from dfrs.policies.fractional.shares import AverageStretch, AverageYield, MaxMin
from dfrs.policies.fractional.vector_repack import PACKINGS, VectorRepack
from dfrs.policies.names import TABLE_5_1, all_published, complete_policy, find_policy

ACTIONS = {"Greedy": Mode.GREEDY, "GreedyP": Mode.GREEDY_P, "GreedyPM": Mode.GREEDY_PM}

TABLE = {
    "Greedy*": ("Greedy", "Greedy", None),
    "GreedyP*": ("GreedyP", "Greedy", None),
    "GreedyPM*": ("GreedyPM", "Greedy", None),
    "Greedy/per": ("Greedy", None, "MCB"),
    "GreedyP/per": ("GreedyP", None, "MCB"),
    "GreedyPM/per": ("GreedyPM", None, "MCB"),
    "Greedy*/per": ("Greedy", "Greedy", "MCB"),
    "GreedyP*/per": ("GreedyP", "Greedy", "MCB"),
    "GreedyPM*/per": ("GreedyPM", "Greedy", "MCB"),
    "MCB*": ("MCB", "MCB", None),
    "MCB/per": ("MCB", None, "MCB"),
    "MCB*/per": ("MCB", "MCB", "MCB"),
    "/per": (None, None, "MCB"),
    "/stretch-per": (None, None, "MCB-stretch"),
}
"""Table 5.1 of [Stillwell2010]: actions on submission, on completion, periodic."""


def described(action):
    if isinstance(action, Admit):
        return next(name for name, mode in ACTIONS.items() if mode is action.mode)
    if isinstance(action, Readmit):
        return "Greedy"
    if isinstance(action, Repack):
        return "MCB-stretch" if isinstance(action.objective, StretchObjective) else "MCB"
    return action


def test_table_5_1_to_the_letter():
    assert tuple(TABLE) == TABLE_5_1
    for name, row in TABLE.items():
        policy = find_policy(name)
        assert isinstance(policy, Dfrs)
        assert tuple(map(described, (policy.on_submission, policy.on_completion, policy.on_wake))) == row
        assert (policy.period_s is not None) == (row[2] is not None)
        assert policy.shares == MaxMin(objective=StretchObjective(600.0) if name == "/stretch-per" else YIELDS)


def test_116_published_policies():
    """3 without MCB, 11 with, each with two uses of what is left; those with MCB with four ages or none."""
    published = all_published()
    assert len(published) == len(set(published)) == 3 * 2 + 11 * 2 * 5 == 116
    for name in published:
        assert find_policy(name).name == name
    assert {"GreedyPM*/per/OPT=MIN/MVT=600", "/stretch-per/OPT=MAX/MFT=300", "Greedy*/OPT=AVG"} <= set(published)
    assert not {"Greedy*/OPT=MIN/MVT=600", "/stretch-per/OPT=MIN"} & set(published)


@pytest.mark.parametrize("name", ["FCFS", "EASY", "CONSERVATIVE", "EQUIPARTITION"])
def test_batch_policies_are_found_by_name(name):
    assert type(find_policy(name)).__name__.upper() == name


def test_parts_in_any_order_mean_the_same():
    one, other = find_policy("GreedyPM*/per=1200/OPT=AVG/MVT=600"), find_policy("GreedyPM*/MVT=600/OPT=AVG/per=1200")
    assert replace(one, name="") == replace(other, name="")
    policy = find_policy("GreedyPM*/per=1200/OPT=AVG/MVT=600/PRIO=FLOW/VT")
    assert policy.period_s == 1200
    assert policy.shares == AverageYield()
    assert policy.on_wake == Repack(pin=Pin(kind=PinKind.VIRTUAL, seconds=600.0), priority=Priority.FLOW_VIRTUAL)
    assert policy.on_submission.priority is policy.on_completion.priority is Priority.FLOW_VIRTUAL


def test_defaults_may_be_written_out():
    plain, written = find_policy("/per"), find_policy("/per=600/OPT=MIN/PRIO=FLOW/VT^2/VP_CPMAX/WINDOW=1")
    assert (plain.on_wake, plain.shares, plain.period_s) == (written.on_wake, written.shares, written.period_s)


def test_stretch_policies_share_for_the_stretch():
    assert find_policy("/stretch-per=300/OPT=AVG").shares == AverageStretch(objective=StretchObjective(300.0))
    assert find_policy("/stretch-per/OPT=NONE").shares == MaxMin(objective=StretchObjective(600.0), even=True)
    policy = find_policy("MCB*/stretch-per")
    assert tuple(map(described, (policy.on_submission, policy.on_wake))) == ("MCB", "MCB-stretch")


@pytest.mark.parametrize("packing", PACKINGS)
def test_any_packing_of_the_off_line_algorithms_can_be_chosen(packing):
    policy = find_policy(f"MCB*/{packing}")
    if packing == "VP_CPMAX":
        assert policy.on_submission == Repack()
    else:
        assert policy.on_submission == VectorRepack(packing=packing)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Gredy*/per", "did you mean Greedy*"),
        ("easy", "did you mean EASY"),
        ("GreedyPN*", "did you mean GreedyP* or GreedyPM*"),
        ("whatever", "policies are FCFS, EASY"),
        ("Greedy", "a job for which there is no room at once would wait for ever: add * or /per"),
        ("MCB/OPT=MIN", "add * or /per"),
        ("*", "* needs an action on submission"),
        ("*/per", "* needs an action on submission"),
        ("", "nothing would ever be placed"),
        ("/OPT=MIN", "nothing would ever be placed"),
        ("/per/OPT=MEAN", '"OPT=MEAN": must be OPT=MIN, AVG or NONE'),
        ("/per/OPT", '"OPT": must be OPT=MIN'),
        ("/per/OPT=MAX", "OPT=MAX is for /stretch-per"),
        ("/stretch-per/OPT=MIN", "stretches are made small: OPT=MAX"),
        ("GreedyP*/MVT=600", "nothing here uses MCB"),
        ("GreedyP*/VP_CPSUM", "a packing is for MCB"),
        ("GreedyP*/WINDOW=2", "a packing is for MCB"),
        ("/per/VP_FFSUM/WINDOW=2", "VP_FFSUM has no window"),
        ("/per/WINDOW=3", "must be WINDOW=1 or 2"),
        ("/per/MVT=600/MFT=300", '"MFT=300": there is another part for the age'),
        ("/per/per=3", '"per=3": there is another part for the period'),
        ("/per/stretch-per", "there is another part for the period"),
        ("/per/OPT=MIN/OPT=AVG", "there is another part for the OPT"),
        ("/per/VP_CPSUM/MCB8", "there is another part for the packing"),
        ("/per=0", "must be given as a number above 0"),
        ("/per=inf", "must be given as a number above 0"),
        ("/per=Auto", "must be given as a number above 0, as in per=600, or as auto"),
        ("/stretch-per=auto", "must be given as a number above 0, as in stretch-per=600"),
        ("/per=auto/due", "there is another part for the period"),
        ("GreedyP/MVT=600", "add * or /per"),
        ("/per/MVT=ten", "must be given as a number above 0"),
        ("/per/MVT", "must be given as a number above 0"),
        ("/per/PRIO=FLOW", "must be PRIO=VT or FLOW/VT or FLOW/VT^2"),
        ("/per/VP_CPSUMM", "did you mean VP_CPSUM"),
        ("/per/", 'part "": there is no such part'),
        ("/pre", "did you mean per"),
    ],
)
def test_other_names_are_refused_with_the_rule(name, words):
    with pytest.raises(InputError) as error:
        find_policy(name)
    assert words in str(error.value)
    assert f'policy "{name}"' in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("begun", "offered"),
    [
        ("GreedyPM", ["GreedyPM", "GreedyPM*"]),
        ("Greedy*/per/PRIO=FLOW/VT", ["Greedy*/per/PRIO=FLOW/VT", "Greedy*/per/PRIO=FLOW/VT^2"]),
        ("Greedy*/per/MV", ["Greedy*/per/MVT="]),
        ("Greedy*/per/MVT=600/MF", []),
        ("LOS/", ["LOS/LOOKAHEAD=", "LOS/UNIT="]),
        ("no such one/", []),
    ],
)
def test_a_shell_offers_what_can_follow(begun, offered):
    assert complete_policy(begun) == offered
