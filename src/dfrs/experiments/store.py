"""Where results live: Parquet files in one directory, one row for each run; no end of a process can spoil them.

    store.json                     what this directory is
    <kind>-<code>/*.parquet        results of one kind of run by one version of the code; each opens by itself
    <kind>-<code>/runs/<key>/      the runs themselves, if a campaign saves them
    lock                           see `claim`

Files are written whole or not at all, and never changed. Several processes may use one store: each claims a run
before it executes it. A claim is a lock of the operating system, which ends with the process that has it, however
that ends.
"""

import errno
import fcntl
import hashlib
import io
import json
import os
from pathlib import Path

import polars as pl

from dfrs.experiments.planned_runs import FAILED, PlannedRun, Row, RunKind, code_digest
from dfrs.model.errors import InputError
from dfrs.model.writing import write_bytes, write_text

FORMAT = "dfrs-store/1"
_MARK, _LOCK, _RUNS = "store.json", "lock", "runs"
_MANY = 32
"""Files from which on merging them is worth while."""
FRONTS = ("page.html", "allocation.png", "summary.json", "instance.json")
"""What to open first of a saved run: the first of these that is there."""


class Store:
    """Results under `directory`, made with the first claim or result. Raises InputError where it is no store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._read: dict[Path, pl.DataFrame] = {}
        self._failed: dict[str, dict[str, bool]] = {}
        self._new: dict[str, list[Row]] = {}
        self._claims: dict[str, int] = {}
        self._locks: int | None = None
        try:
            if (directory / _MARK).exists():
                self._check(directory / _MARK)
            elif directory.exists() and self._foreign() and not (directory / _MARK).exists():
                raise InputError(f"{directory}: is no store of results: choose a new or an empty directory")
        except OSError as error:
            raise InputError(f"{directory}: cannot read: {error.strerror}") from None

    def _foreign(self) -> bool:
        """Whether anything but an unfinished mark is there; another process may be making a store of it meanwhile."""
        return any(not path.name.startswith(f".{_MARK}.") for path in self.directory.iterdir())

    def _check(self, mark: Path) -> None:
        try:
            document = json.loads(mark.read_text(encoding="utf-8"))
        except ValueError:
            document = None
        found = document.get("format") if isinstance(document, dict) else None
        if found != FORMAT:
            raise InputError(
                f"{mark}: format = {json.dumps(found)}: must be {FORMAT}, which this version reads and writes: "
                "choose another directory; nothing was changed"
            )

    def _made(self) -> int:
        """The file of locks, with the directory that it is in."""
        if self._locks is None:
            mark = self.directory / _MARK
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                if not mark.exists():
                    write_text(mark, json.dumps({"format": FORMAT}) + "\n")
                self._locks = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            except OSError as error:
                raise InputError(f"{self.directory}: cannot keep results there: {error.strerror}") from None
        return self._locks

    def close(self) -> None:
        """Give up all claims. What was not flushed is lost."""
        if self._locks is not None:
            os.close(self._locks)
            self._locks = None

    def folder(self, kind: RunKind) -> Path:
        """Where results of this kind by this code are."""
        return self.directory / f"{kind.name}-{code_digest(kind.code)}"

    def saved_runs(self, kind: RunKind) -> Path:
        """Where runs of this kind by this code are saved, each under its key: absolute, as workers may be elsewhere."""
        return (self.folder(kind) / _RUNS).absolute()

    def others(self, kind: RunKind) -> list[Path]:
        """Where results of this kind by other code are."""
        return sorted(path for path in self.directory.glob(f"{kind.name}-*") if path != self.folder(kind))

    def claim(self, run: PlannedRun) -> bool:
        """Whether this process now has the run; no other gets it before `flush`, `release`, or the end of this one.

        On a file system without locks always: a run may then be executed twice, which costs only time.
        """
        place = int(hashlib.sha256(f"{code_digest(run.kind.code)} {run.key}".encode()).hexdigest()[:15], 16)
        try:
            fcntl.lockf(self._made(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError as error:
            return error.errno not in {errno.EACCES, errno.EAGAIN}
        self._claims[run.key] = place
        return True

    def release(self, key: str) -> None:
        """Let others have the run with this key."""
        place = self._claims.pop(key, None)
        if place is not None:
            fcntl.lockf(self._made(), fcntl.LOCK_UN, 1, place)

    def known(self, kind: RunKind) -> dict[str, bool]:
        """For the key of each run with a result, whether it failed; results of other processes are included."""
        self._refresh(kind)
        return self._failed.setdefault(kind.name, {})

    def results(self, kind: RunKind) -> pl.DataFrame:
        """One row for each key: a success where there is one, else a failure."""
        self._refresh(kind)
        folder = self.folder(kind)
        frames = [frame for path, frame in self._read.items() if path.parent == folder]
        whole = pl.concat([*frames, _frame(kind, self._new.get(kind.name, []))])
        ranked = whole.sort(pl.col("status") == FAILED, maintain_order=True)
        return ranked.unique("key", keep="first", maintain_order=True)

    def _refresh(self, kind: RunKind) -> None:
        """Read the files that are new. Where one vanishes meanwhile, another process merges: look again."""
        folder = self.folder(kind)
        for _ in range(5):
            paths = set(folder.glob("*.parquet"))
            gone = [path for path in self._read if path.parent == folder and path not in paths]
            try:
                for path in sorted(paths - self._read.keys()):
                    self._take(kind, path, _parquet(path, kind))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise InputError(f"{folder}: cannot read: {error.strerror}") from None
            for path in gone:
                del self._read[path]
            return
        raise InputError(f"{folder}: files vanish while they are read: is something else removing them?")

    def _take(self, kind: RunKind, path: Path, frame: pl.DataFrame) -> None:
        self._read[path] = frame
        self._note(kind, frame["key"].to_list(), (frame["status"] == FAILED).to_list())

    def _note(self, kind: RunKind, keys: list[str], failed: list[bool]) -> None:
        states = self._failed.setdefault(kind.name, {})
        for key, bad in zip(keys, failed, strict=True):
            states[key] = bad and states.get(key, True)

    def add(self, kind: RunKind, rows: list[Row]) -> None:
        """Take results; they are on disk after `flush`."""
        self._new.setdefault(kind.name, []).extend(rows)
        self._note(kind, [str(row["key"]) for row in rows], [row["status"] == FAILED for row in rows])

    def flush(self, kind: RunKind) -> None:
        """Write what was taken, and end its claims. Raises InputError where that cannot be written."""
        rows = self._new.get(kind.name, [])
        if not rows:
            return
        frame = _frame(kind, rows)
        folder = self.folder(kind)
        self._made()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = self._write(folder, frame)
        except (OSError, InputError) as error:
            cause = error.strerror if isinstance(error, OSError) else str(error).rpartition(": ")[2]
            raise InputError(
                f"{folder}: cannot write {len(rows)} results: {cause}; those before are kept: make room and run again"
            ) from None
        self._read[path] = frame
        del self._new[kind.name]
        for row in rows:
            self.release(str(row["key"]))

    def _write(self, folder: Path, frame: pl.DataFrame) -> Path:
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        path = folder / _part(buffer.getvalue())
        write_bytes(path, buffer.getvalue())
        return path

    def merge(self, kind: RunKind) -> None:
        """Make one file of many. What ends halfway leaves rows twice, which does no harm."""
        folder = self.folder(kind)
        self._refresh(kind)
        paths = [path for path in self._read if path.parent == folder]
        if len(paths) < _MANY:
            return
        whole = pl.concat([self._read[path] for path in paths])
        try:
            merged = self._write(folder, whole)
        except InputError:
            # All is there already; there is only no room for it twice.
            return
        for path in paths:
            del self._read[path]
            path.unlink(missing_ok=True)
        self._read[merged] = whole


def front(saved: Path) -> Path | None:
    """What to open first of a saved run, by its directory; None where nothing is saved."""
    return next((path for name in FRONTS if (path := saved / name).is_file()), None)


def _frame(kind: RunKind, rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict(kind.columns))


def _part(data: bytes) -> str:
    """The name of a file that holds `data`: what happens to the one does not agree with the other."""
    return f"part-{hashlib.sha256(data).hexdigest()[:16]}.parquet"


def _parquet(path: Path, kind: RunKind) -> pl.DataFrame:
    data = path.read_bytes()
    if path.name != _part(data):
        raise InputError(f"{path}: is damaged: remove it, and what it held is run again")
    frame = pl.read_parquet(io.BytesIO(data))
    return frame.select(pl.col(name).cast(dtype) for name, dtype in kind.columns.items())
