"""Reading accounting: the file says by its content whether it is text or JSON."""

from pathlib import Path

from dfrs.workloads.files import parse_json, read_text
from dfrs.workloads.slurm.json_output import read_json_accounting
from dfrs.workloads.slurm.records import Accounting
from dfrs.workloads.slurm.text_output import read_text_accounting


def read_accounting(path: Path) -> Accounting:
    """The records of what `sacct` printed. Raises InputError, naming file, line, field, value and rule."""
    text = read_text(path)
    if text.lstrip().startswith("{"):
        return read_json_accounting(path, parse_json(path, text))
    return read_text_accounting(path, text)
