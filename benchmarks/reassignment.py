"""Machine reassignment of the ROADEF/EURO challenge 2012: cost before, ours, best known, and the gap.

python -m benchmarks.reassignment FOLDER                                # 5 minutes each on two threads
python -m benchmarks.reassignment FOLDER --seconds 20 --threads 1 --only a2_2,a2_3

FOLDER has model_X.txt and assignment_X.txt (and, to check the reader, original_cost_X.txt) of each instance X; set B of
the challenge works too. `--best-known` names a CSV file with the columns instance and best_known. Each solution is
checked by code that is independent of the search. For a2_1, whose best known cost is next to nothing, the gap says
little: the column "of before" is the difference from the best known over the cost before.
"""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.common import machine
from dfrs.placement.reassign import search
from dfrs.runs.validator.reassignment import validate_reassignment
from dfrs.workloads.reassignment import read_best_known, read_reassignment, write_assignment


def solve(folder: Path, name: str, given: argparse.Namespace) -> tuple[int, int, int, float]:
    """(cost before, cost, broken constraints, seconds), the first three by the independent checker."""
    model, assignment = folder / f"model_{name}.txt", folder / f"assignment_{name}.txt"
    started = time.perf_counter()
    instance = read_reassignment(model, assignment)
    result = search(instance, time_limit_s=given.seconds, threads=given.threads, seed=given.seed)
    seconds = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as scratch:
        solution = Path(scratch) / "solution.txt"
        write_assignment(solution, result.place)
        after = validate_reassignment(model, assignment, solution)
    before = validate_reassignment(model, assignment, assignment)
    assert after.cost == result.after.total
    original = folder / f"original_cost_{name}.txt"
    assert not original.exists() or before.cost == int(original.read_text())
    return before.cost, after.cost, len(after.problems), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the instances")
    parser.add_argument("--best-known", type=Path, help="CSV file of the best known costs")
    parser.add_argument("--only", help="instances, separated by commas")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each instance")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    known = read_best_known(given.best_known) if given.best_known else {}
    names = sorted(file.stem.removeprefix("model_") for file in given.folder.glob("model_*.txt"))
    print(f"{machine()}; {given.threads} threads, {given.seconds:g} s each, seed {given.seed}\n")
    print("| instance | before | after | best known | gap | of before | broken | seconds |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in given.only.split(",") if given.only else names:
        before, after, broken, seconds = solve(given.folder, name, given)
        best = known.get(name)
        far = (
            ("", "", "")
            if best is None
            else (f"{best:,}", f"{after / best - 1:+.2%}", f"{(after - best) / before:+.4%}")
        )
        print(f"| {name} | {before:,} | {after:,} | {' | '.join(far)} | {broken} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
