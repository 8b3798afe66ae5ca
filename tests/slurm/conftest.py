"""A Slurm for the tests of a file."""

import pytest

from tests.slurm_cluster import SlurmCluster, why_not


def pytest_collection_modifyitems(items):
    """Tests here start daemons: they are long, and need Debian's packages."""
    reason = why_not()
    for item in items:
        if "tests/slurm/" in str(item.path):
            item.add_marker(pytest.mark.long)
            if reason:
                item.add_marker(pytest.mark.skip(reason=f"Slurm: {reason}"))


@pytest.fixture(scope="module")
def slurm():
    """Four nodes of a CPU each, as of a site that shares nothing, without accounting."""
    with SlurmCluster(accounting=False) as cluster:
        yield cluster
