"""Which version is installed, for those who need nothing else."""

from importlib.metadata import PackageNotFoundError, version

LIGHT = "dfrs-agent"
"""The same sources with fewer packages, installed in place of dfrs: see packaging/agent."""


def installed() -> str:
    """The name of the distribution."""
    try:
        version("dfrs")
    except PackageNotFoundError:
        return LIGHT
    return "dfrs"


__version__ = version(installed())
