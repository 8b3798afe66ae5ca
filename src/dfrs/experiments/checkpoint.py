"""The state of a simulation in its run directory, so that a run that was ended continues to the same bytes.

All of it is in `checkpoint.npz`, but for the rows of the event log: those are written once, each time the new ones,
into `checkpoint-log-1.npz`, `-2` and so on. So what is written does not grow with what has happened.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.writing import make_directory, write_bytes
from dfrs.simulator.simulation import Simulation

NAME = "checkpoint.npz"
LOG = "core_event_log_"
"""What the log's columns are called in the state of a simulation."""
ROWS = ("time_s", "job", "action", "yield_", "why")
OF_ROWS = (*ROWS, "first", "nodes")


class Checkpoint:
    """Of the simulation with this `key`, in a directory."""

    def __init__(self, directory: Path, key: str) -> None:
        self._directory = directory
        self._key = key
        self._parts = 0
        self._rows = 0
        """How many of the log are in the parts."""

    @property
    def path(self) -> Path:
        """Where the state is."""
        return self._directory / NAME

    @property
    def exists(self) -> bool:
        """Whether a state of this very simulation is there."""
        try:
            with np.load(self.path, allow_pickle=False) as arrays:
                return str(arrays["key"]) == self._key
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return False

    def _part(self, number: int) -> Path:
        return self._directory / f"checkpoint-log-{number}.npz"

    def save(self, simulation: Simulation) -> None:
        """Replace what was saved before. Raises InputError where it cannot be written; that is then still there."""
        state = dict(simulation.state())
        log = {name: state.pop(LOG + name) for name in OF_ROWS}
        make_directory(self._directory)
        # There is a first one also without rows: it says of what kind they are.
        if len(log["time_s"]) > self._rows or not self._parts:
            part = {name: log[name][self._rows :] for name in ROWS}
            part["first"] = log["first"][self._rows + 1 :]
            part["nodes"] = log["nodes"][log["first"][self._rows] :]
            _write(self._part(self._parts + 1), part)
            self._parts, self._rows = self._parts + 1, len(log["time_s"])
        _write(self.path, state | {"key": np.array(self._key), "parts": np.array(self._parts)})

    def restore(self, simulation: Simulation) -> None:
        """Continue where it was saved, if it was. Raises InputError where that cannot be read, or is of another run."""
        if not self.path.exists():
            return
        path = self.path
        try:
            state = _read(path)
            if str(state.get("key")) != self._key:
                raise InputError(f"{path}: was saved with other settings: remove it, or leave out --resume")
            parts = list[Mapping[str, np.ndarray]]()
            # Later ones are of a state that was not written any more: they are written anew.
            for number in range(1, int(state["parts"]) + 1):
                path = self._part(number)
                parts.append(_read(path))
            for name in OF_ROWS:
                state[LOG + name] = np.concatenate([part[name] for part in parts])
            state[LOG + "first"] = np.concatenate([np.zeros(1, np.int64), state[LOG + "first"]])
            path = self.path
            simulation.restore(state)
        except (OSError, ValueError, KeyError, IndexError, EOFError, BadZipFile) as error:
            raise InputError(f"{path}: cannot be read: {error}; remove {self.path} to begin anew") from None
        self._parts, self._rows = len(parts), len(state[LOG + "time_s"])

    def remove(self) -> None:
        """What was saved counts no more."""
        for path in (self.path, *self._directory.glob("checkpoint-log-*.npz")):
            path.unlink(missing_ok=True)


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_bytes(path, buffer.getvalue())


def _read(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)
