"""Known vulnerabilities of what requirements.lock installs, as pip-audit finds them; `make lint` runs it.

Lint works without a network: where the advisory service does not answer in time, it says so and passes. Where a mirror
has no advisories, pip-audit says that nothing is known, although nothing was audited; here it counts as no answer.
"""

import json
import subprocess
import sys
from pathlib import Path

WITHIN_S = 20.0
COMMAND = (
    str(Path(sys.executable).with_name("pip-audit")),
    *("--requirement", "requirements.lock", "--disable-pip", "--progress-spinner", "off"),
    *("--format", "json", "--desc", "off", "--timeout", "5"),
)


def report(within_s=WITHIN_S, command=COMMAND):
    """What pip-audit found, in JSON, or why it could not; a lock that it cannot read was not installed either."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)
    except subprocess.TimeoutExpired:
        return None, f"the advisory service took more than {within_s:g} s"
    try:
        return json.loads(done.stdout), ""
    except json.JSONDecodeError:
        said = done.stderr.strip().splitlines()
        return None, said[-1][:200] if said else f"pip-audit ended with {done.returncode}"


def verdict(found, problem):
    """Exit status, and lines to print."""
    if found is None:
        return 0, [f"Dependencies not audited: {problem}"]
    packages = found["dependencies"]
    audited = [each for each in packages if "skip_reason" not in each]
    if not audited:
        return 0, [f"Dependencies not audited: the advisory service knows none of {len(packages)} packages"]
    bad = [
        f"{each['name']} {each['version']}: {one['id']}: fixed in {', '.join(one['fix_versions']) or 'no version yet'}"
        for each in audited
        for one in each["vulns"]
    ]
    count = f"{len(audited)} of {len(packages)} packages audited"
    return (1, [*bad, f"{count}: renew requirements.lock by make lock"]) if bad else (0, [f"{count}: nothing is known"])


if __name__ == "__main__":
    status, lines = verdict(*report())
    print("\n".join(lines))
    sys.exit(status)
