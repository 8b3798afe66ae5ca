"""What is said about rules once an algorithm ended: which of them conflict, and which failures are not survived."""

from dataclasses import replace

from dfrs.model.allocation import Outcome, Status
from dfrs.model.instance import Instance
from dfrs.placement.conflicts import diagnose
from dfrs.placement.headroom import headroom_lines

DIAGNOSIS_S = 5.0
"""For finding out which rules conflict where no placement was found."""


def under_rules(instance: Instance, outcome: Outcome) -> Outcome:
    """The outcome with what is to be said about the instance's rules in its details.

    Without a placement: `conflicts`, and they are the reason. With one, and where the instance asks for headroom:
    `headroom`, a line for each failure that it does not survive.
    """
    rules = instance.rules
    if rules is None:
        return outcome
    if outcome.allocation is None:
        return _explained(instance, outcome) if rules.binding else outcome
    place = outcome.allocation.place
    problems = rules.problems(place)
    if problems:
        raise AssertionError(f"an algorithm returned a placement that breaks a hard rule: {problems[0]}")
    if rules.headroom is None:
        return outcome
    return replace(outcome, details={**outcome.details, "headroom": headroom_lines(instance, place)})


def _explained(instance: Instance, outcome: Outcome) -> Outcome:
    diagnosis = diagnose(instance, DIAGNOSIS_S)
    if not diagnosis.conflicts:
        return outcome
    texts = [conflict.text for conflict in diagnosis.conflicts]
    details = {**outcome.details, "conflicts": texts, "reason": "; ".join(texts)}
    return replace(outcome, status=Status.INFEASIBLE, bound=0.0, details=details)
