"""Follows the ranks of a program that somebody else runs, as a node's agent does for jobs."""

import json
import threading
from pathlib import Path

from dfrs.model.errors import DfrsError, InputError
from dfrs.profiling.reader import SUBSTITUTE, ProfileReader, profile_of
from dfrs.profiling.summary import summary

LOOK_CPU_S = 0.5
"""CPU seconds that a look may take: hundreds of ranks need less, and the program can have as many as it likes."""


class Follower:
    """Of the ranks that count in `directory`; their profile is of `job`. Usable by several threads."""

    def __init__(self, directory: Path, job: str) -> None:
        self._reader = ProfileReader(directory, cpu_s=LOOK_CPU_S)
        self._job = job
        self._lock = threading.Lock()

    def look(self) -> None:
        """Memory and times of ranks that may soon be gone are those of the last look."""
        with self._lock:
            self._reader.look()

    def document(self) -> bytes:
        """What is known now, as JSON (`profiling.summary`). Raises InputError where what they counted is damaged."""
        with self._lock:
            moment = self._reader.look()
        try:
            seen = summary(moment, profile_of(moment, None, self._job, None), SUBSTITUTE)
            return json.dumps(seen, allow_nan=False).encode()
        except (DfrsError, ValueError, OverflowError) as error:
            raise InputError(f"what the ranks of {self._job} counted is damaged: {error}") from error
