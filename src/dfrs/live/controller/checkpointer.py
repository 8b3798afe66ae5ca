"""Stores the state now and then, so that the next start has little to replay, however long the history."""

import asyncio
from collections import deque

from dfrs.live.allocator import give_free_pages_back
from dfrs.live.controller import checkpoint, tables
from dfrs.live.controller.database import Change, Database
from dfrs.live.controller.observing import Observer
from dfrs.live.controller.state import State


class Checkpointer:
    """Keeps the last two: if one is damaged, the other and the events since bring everything back."""

    def __init__(self, state: State, database: Database, observer: Observer) -> None:
        self.made = 0
        self.wanted = False
        """Whether the next one is to come at once: without a second one no event can be pruned."""
        self._state = state
        self._database = database
        self._observer = observer
        self._sequence = 0
        """Of the state that is stored, or from which this start began."""
        self._at_s = 0.0
        self._kept: deque[int] = deque(maxlen=2)
        """Events after which states are stored that this program can read."""

    @property
    def floor(self) -> int | None:
        """Events below this number are needed by no start; None: all may be."""
        return self._kept[0] if len(self._kept) == 2 else None

    def begin(self, restored: int | None) -> None:
        """The state is as the record says: that of the checkpoint after event `restored`, and of the events since."""
        self._sequence, self._at_s = self._state.sequence, self._state.last_s
        if restored is not None:
            self._kept.append(restored)

    async def store(self, *, anyway: bool = False) -> None:
        """Store it if that is due, or `anyway`. Raises UnavailableError, StoppedError."""
        state, settings = self._state, self._state.settings
        events, seconds = state.sequence - self._sequence, state.last_s - self._at_s
        due = anyway or events >= settings.checkpoint_events or seconds >= settings.checkpoint_s
        wanted = self.wanted and state.sequence > (self._kept[-1] if self._kept else 0)
        if not wanted and not (events and due):
            return
        shell = checkpoint.shell(state)
        arrays = await asyncio.to_thread(checkpoint.arrays, state.core, self._observer, shell)
        oldest = self._kept[-1] if self._kept else self._sequence
        changes: list[Change] = [
            (tables.ADD_CHECKPOINT, [{"sequence": state.sequence, "arrays": arrays, "shell": shell}]),
            (tables.DROP_CHECKPOINTS, [{"b_before": oldest}]),
        ]
        await self._database.write(changes)
        self._sequence, self._at_s = state.sequence, state.last_s
        self._kept.append(state.sequence)
        # What a step needs is free again, and a checkpoint needs the most.
        await asyncio.to_thread(give_free_pages_back)
        self.wanted = False
        self.made += 1
