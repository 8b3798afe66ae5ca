"""A policy of the tests, as if a package of that kind were installed: for programs that tests start."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
METADATA = "Metadata-Version: 2.1\nName: dfrs-test-policy\nVersion: 1\n"


def installed(folder, name, value):
    """The environment in which a policy of that name is found; `value`: as in an entry point, `module:callable`."""
    info = Path(folder) / "dfrs_test_policy-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(f"[dfrs.policies]\n{name} = {value}\n")
    return {"PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT, ROOT / "src")))}
