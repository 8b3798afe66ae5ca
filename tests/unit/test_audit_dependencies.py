"""Lint names known vulnerabilities, and never passes for audited what was not."""

import sys

from tests.audit_dependencies import report, verdict

CLEAN = {"name": "numpy", "version": "2.1", "vulns": []}
UNKNOWN = {"name": "own", "skip_reason": "Dependency not found on PyPI and could not be audited: own (1.0)"}
BAD = {
    "name": "h11",
    "version": "0.14",
    "vulns": [{"id": "CVE-1", "fix_versions": ["0.16"]}, {"id": "CVE-2", "fix_versions": []}],
}


def test_a_known_vulnerability_fails_and_says_which_version_is_without_it():
    status, lines = verdict({"dependencies": [CLEAN, UNKNOWN, BAD]}, "")
    assert status == 1
    assert lines == [
        "h11 0.14: CVE-1: fixed in 0.16",
        "h11 0.14: CVE-2: fixed in no version yet",
        "2 of 3 packages audited: renew requirements.lock by make lock",
    ]


def test_how_many_were_audited_is_said():
    assert verdict({"dependencies": [CLEAN, UNKNOWN]}, "") == (0, ["1 of 2 packages audited: nothing is known"])


def test_a_service_that_knows_nothing_has_audited_nothing():
    status, lines = verdict({"dependencies": [UNKNOWN, UNKNOWN]}, "")
    assert (status, lines) == (0, ["Dependencies not audited: the advisory service knows none of 2 packages"])


def test_without_an_answer_nothing_is_audited_and_lint_goes_on():
    slow = report(0.05, (sys.executable, "-c", "import time; time.sleep(60)"))
    assert verdict(*slow) == (0, ["Dependencies not audited: the advisory service took more than 0.05 s"])
    broken = report(20, (sys.executable, "-c", "raise ConnectionError('no such host')"))
    assert verdict(*broken) == (0, ["Dependencies not audited: ConnectionError: no such host"])


def test_what_pip_audit_writes_is_read_although_it_exits_with_1():
    program = "import json, sys; print(json.dumps({'dependencies': []})); sys.exit(1)"
    assert report(20, (sys.executable, "-c", program)) == ({"dependencies": []}, "")
