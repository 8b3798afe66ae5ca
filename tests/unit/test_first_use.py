"""What decides is used once before a job waits for it, whatever it is."""

import pytest

from dfrs.cli.live.serve import DISCOVERY, POLICY, decide_once
from dfrs.live.controller import first_use
from dfrs.live.controller.first_use import use_once
from dfrs.policies.discovery.methods import find_discovery
from dfrs.policies.names import find_live_policy
from tests.small_policies import FairShare


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(first_use.log, "exception", lines.append)
    return lines


@pytest.mark.parametrize("discovery", [DISCOVERY, "NONE", "EQUAL", "DYNAMIC"])
@pytest.mark.parametrize("policy", [POLICY, "EASY", "FCFS", "MCB*/per/OPT=AVG"])
def test_every_decider_can_be_used_in_advance(said, policy, discovery):
    decided = []

    class Counting(FairShare):
        def decide(self, snapshot):
            decided.append(snapshot.cause)
            return super().decide(snapshot)

    use_once([find_live_policy(policy), Counting()], find_discovery(discovery))
    assert not said
    assert len(decided) > 5


def test_policies_of_others_are_left_alone(said, monkeypatch):
    used = []
    monkeypatch.setattr(first_use, "use_once", lambda policies, _: used.extend(policies))
    decide_once([POLICY, "tests.small_policies:FairShare"], DISCOVERY)
    assert len(used) == 1


def test_what_fails_then_is_for_real_decisions_to_say(said):
    class Broken(FairShare):
        def decide(self, snapshot):
            raise RuntimeError("not today")

    use_once([Broken()], find_discovery("NONE"))
    assert set(said) == {"what decides cannot be used in advance"}
