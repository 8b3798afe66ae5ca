"""Which version is installed, for those who need nothing else."""

from importlib.metadata import version

__version__ = version("dfrs")
