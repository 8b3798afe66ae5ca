"""Run the fault matrix on real processes, and print it as a table; exit status 1 if a cell is not clean.

`python -m tests.matrix` needs root, and PostgreSQL for the rows of a leader and a standby.
"""

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from tests.live_postgres import PROGRAMS, new_database, postgres_server
from tests.matrix.cells import Cell
from tests.matrix.faults import FAULTS
from tests.matrix.verdict import Verdict

HEAD = ("of", "fault", "idle", "well after", "{jobs} jobs", "well after", "begun anew")


class Runner:
    """Runs cells, several at a time, each on a cluster of its own."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numbers = count()
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._server = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def database(self):
        """The URL of a new one on a PostgreSQL that ends with the matrix."""
        with self._lock:
            if self._server is None:
                self._server, _, _ = self._stack.enter_context(postgres_server())
            return new_database(self._server, f"cell{next(self._numbers)}")

    def run(self, cell: Cell) -> Verdict | str:
        """What came out, or why nothing did. The directory of a cell that is not clean stays."""
        directory = Path(tempfile.mkdtemp(prefix="dfrs-matrix-"))
        began = time.monotonic()
        try:
            found = cell.run(directory, self.database, self._seed)
        except Exception as error:
            (directory / "trace").write_text(traceback.format_exc())
            found = " ".join(str(error).split())[:300] or type(error).__name__
        clean = isinstance(found, Verdict) and found.clean
        print(f"{cell.name}: {counts(found)} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if clean:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            lines = found.notes if isinstance(found, Verdict) else (found,)
            print(*lines, f"its files: {directory}", sep="\n  ", file=sys.stderr, flush=True)
        return found


def counts(found: Verdict | str) -> str:
    """Lost, twice, again, stuck."""
    return "failed" if isinstance(found, str) else f"{found.lost} / {found.twice} / {found.again} / {found.stuck}"


def rows(results: dict[Any, Verdict | str], jobs: int) -> list[tuple[str, ...]]:
    """One for each part and fault of cells, each of which has a part, a fault and so many jobs."""
    found, by_name = [], {(cell.part, cell.fault, cell.jobs): result for cell, result in results.items()}
    for part, fault in dict.fromkeys((cell.part, cell.fault) for cell in results):
        row, anew = [part, fault], "0"
        for each in (0, jobs):
            result = by_name.get((part, fault, each))
            known = isinstance(result, Verdict)
            row += [counts(result) if result is not None else "", f"{result.well_s:.1f} s" if known else ""]
            anew = str(result.anew) if known else anew
        found.append((*row, anew))
    return found


def table(results: dict[Any, Verdict | str], senseless: list[Any], jobs: int) -> str:
    """As Markdown, with notes on the cells that are not there."""
    lines = [HEAD, ("---", "---", *["--:"] * 5), *rows(results, jobs)]
    missing = {(cell.part, cell.fault): cell.senseless for cell in senseless}
    lines += [(*cell, *"-----") for cell in missing]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines).format(jobs=jobs)
    reasons = [
        f"- {'; '.join(', '.join(cell) for cell in missing if missing[cell] == why)}: {why}."
        for why in dict.fromkeys(missing.values())
    ]
    return "\n".join([text, "", *reasons])


def main() -> None:
    """Run all cells, or those that were chosen."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="cells whose name contains it")
    parser.add_argument("--jobs", type=int, default=100, metavar="N", help="of a cell that is not idle")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=3, metavar="N", help="cells that run at the same time")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root: control groups and mounts")
    # As for the tests: what others start is not to use swap space, and these directories are open to root alone.
    os.environ |= {"DFRS_SWAP": "0", "DFRS_IMAGES": "0", "DFRS_RUN_AS": "root"}
    cells = [
        cell
        for name, fault in FAULTS.items()
        for part in fault.parts
        for jobs in (0, options.jobs)
        if options.only in (cell := Cell(part, name, jobs)).name
    ]
    senseless = [cell for cell in cells if cell.senseless]
    cells = [cell for cell in cells if not cell.senseless]
    if not PROGRAMS and any(cell.part in {"leader", "standby"} for cell in cells):
        parser.error("PostgreSQL is not installed; without it: --only controller, --only agent, --only both")
    with Runner(options.seed) as runner, ThreadPoolExecutor(options.at_once) as pool:
        results = dict(zip(cells, pool.map(runner.run, cells), strict=True))
    print(table(results, senseless, options.jobs))
    sys.exit(not all(isinstance(found, Verdict) and found.clean for found in results.values()))


if __name__ == "__main__":
    main()
