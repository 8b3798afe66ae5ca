"""Check-points: the processes of a task in an image on the disk instead of in memory.

An image is made while the task is frozen, and counts once the link `image` in the task's directory leads to it. The
supervisor, which is not part of it, then ends the processes and stores what they said last (see package `supervisor`);
later it lets CRIU restore them as its own children. So whatever is killed at any instant, the task either goes on as
it was, or is in a complete image.

Pages are compressed on their way to the disk, count against a budget as they come, and can go to another host at the
same time.
"""

import contextlib
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from dfrs.live.drivers.base import ImageFormat, TaskId
from dfrs.live.drivers.processes import supervisor
from dfrs.live.drivers.processes.criu import (
    FOLDER,
    Criu,
    CriuKilledError,
    inner_number,
    reason_of,
    served,
    why,
)
from dfrs.live.drivers.processes.directory import TaskDirectory
from dfrs.live.drivers.processes.dumping import (
    FREEZE_S,
    at_work,
    dumpable,
    freeze_between_programs,
    numbers_of,
    stays_frozen,
    threads_of,
    unharmed,
)
from dfrs.live.drivers.processes.image_files import (
    CHUNK_BYTES,
    IMAGE_FILE,
    OUTPUT_FILE,
    Both,
    Compressed,
    Counted,
    Frames,
    History,
    ImageError,
    Manifest,
    StoredImage,
    TryAgainError,
    Writer,
    read_stored,
    receive,
    remove_unlocked,
    sync_directory,
)
from dfrs.live.drivers.processes.restoring import free_numbers, room, taken
from dfrs.live.drivers.processes.supervisor import (
    Place,
    living,
    pack,
    read_link,
    read_text,
    replace_file,
)

IMAGES = "images"
"""The directory of images, below the root."""
RESTORED = Path(__file__).with_name("restored.sh")
KILL_S = 30.0
"""What was killed needs some of its share of the CPU to end."""
DUMP_S = 600.0
RESTORE_S = 600.0
PARK_S = 30.0


class Images:
    """The images of a host's tasks, below the root that its nodes share. At most `max_bytes` of them are kept."""

    def __init__(self, root: Path, max_bytes: int, criu: Criu, *, compress: bool = True) -> None:
        self.directory = root / IMAGES
        self.max_bytes, self.criu, self.compress = max_bytes, criu, compress
        self.format = ImageFormat(
            machine=platform.machine(), cpu=cpu_flags(), kernel=platform.release(), criu=criu.version
        )
        self.files = TaskDirectory(root)
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ImageError(f"{self.directory}: cannot keep images here: {error.strerror}") from error
        self.sweep()

    def used_bytes(self) -> int:
        """What all images take."""
        total = 0
        for image in self.directory.iterdir():
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                total += sum(entry.stat().st_size for entry in os.scandir(image))
        return total

    def sweep(self) -> None:
        """Remove what is nobody's: of callers that were killed, and of tasks that have ended."""
        remove_strays(self.directory, self.files)
        for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
            remove_unlocked(folder)

        for task in self.files.ids():
            mark = f"{self.files.path(task)}/dumping"
            if os.path.exists(mark) and not at_work(mark):
                with contextlib.suppress(ImageError), self._locked(task):
                    self._examine(task)

    def _examine(self, task: TaskId) -> None:
        """After a caller was killed: whether its dump has done harm."""
        mark = f"{self.files.path(task)}/dumping"
        owner = self.files.owner(task)
        threads = [int(word) for word in read_text(mark).split()]
        if owner is None or at_work(mark) or self.files.exit(task) is not None:
            return
        place = self.files.place(task, owner)
        paused = place.frozen()
        if unharmed(place, threads):
            supervisor.remove(mark)
            if paused:
                place.freeze(FREEZE_S)
        else:
            place.kill(KILL_S)

    def manifest(self, task: TaskId) -> Manifest | None:
        """Of the image in which a task is; None if it is in none."""
        path = read_link(f"{self.files.path(task)}/image")
        if not path:
            return None
        try:
            return Manifest.model_validate_json(read_text(f"{path}/manifest.json"))
        except ValidationError as error:
            raise ImageError(f"task {task}: {path}/manifest.json is damaged") from error

    def checkpoint(self, task: TaskId, also: Frames | None = None, timeout_s: float = DUMP_S) -> Manifest:
        """Bring a task from memory into an image, and end its processes; nothing if it is in one.

        The image is kept here, and at the same time goes out through `also`, which may break. Raises ImageError, which
        leaves the task running, or paused if it was.
        """
        with self._locked(task):
            if (known := self.manifest(task)) is None:
                try:
                    stored = self._new(task)
                except OSError as error:
                    raise ImageError(f"task {task}: cannot be check-pointed: {error.strerror}") from error
                keep = False
                try:
                    with self._dumped(task, stored if also is None else Both(stored, also), timeout_s) as known:
                        stored.complete(known)
                        # From here on it is in the image.
                        os.symlink(stored.path, f"{self.files.path(task)}/image")
                        keep = True
                except OSError as error:
                    raise ImageError(f"task {task}: cannot be check-pointed: {error.strerror}") from error
                finally:
                    stored.end(keep=keep)
            self._await_parked(task)
            with contextlib.suppress(OSError):
                sync_directory(self.files.path(task))
            return known

    @contextlib.contextmanager
    def _locked(self, task: TaskId) -> Generator[int]:
        with self.files.locked(task) as lock:
            if lock is None:
                raise ImageError(f"task {task}: not on this host")
            yield lock

    @contextlib.contextmanager
    def _dumped(self, task: TaskId, writer: Writer, timeout_s: float) -> Generator[Manifest]:
        """Freeze a task and write its image to `writer`; it stays frozen while the block links it to the image.

        The caller holds its lock. Where the dump or the block fails, the task goes on as it was.
        """
        place, main = dumpable(self.files, task)
        paused = place.frozen()
        try:
            if not freeze_between_programs(place):
                raise TryAgainError(f"task {task}: not all of it stopped within {FREEZE_S:g} s: try again")
            numbers = numbers_of(place)
            counted, inner = Counted(writer), inner_number(main)
            target = Compressed(counted) if self.compress else counted
            mark = f"{self.files.path(task)}/dumping"
            threads = threads_of(place)
            replace_file(mark, " ".join(map(str, threads)).encode())
            try:
                plain = self.criu.dump(main, os.path.dirname(place.entries["freeze"]), mark, target, timeout_s)
            except CriuKilledError as error:
                if not unharmed(place, threads):
                    place.kill(KILL_S)
                    raise ImageError(f"task {task}: is lost: {error} while it made an image of it") from error
                supervisor.remove(mark)
                raise ImageError(f"task {task}: cannot be check-pointed: {error}") from error
            except ImageError as error:
                supervisor.remove(mark)
                raise ImageError(f"task {task}: cannot be check-pointed: {error}") from error
            if os.path.lexists(f"{self.files.path(task)}/stop") or not stays_frozen(place):
                raise ImageError(f"task {task}: cannot be check-pointed: it was told to go on or to end meanwhile")
            yield Manifest(
                codec="zstd" if self.compress else "none",
                format=self.format,
                main=inner,
                numbers=tuple(numbers),
                plain_bytes=plain,
                stored_bytes=counted.total(),
            )
        except BaseException:
            path = self.files.path(task)
            if not os.path.lexists(f"{path}/image"):
                with contextlib.suppress(OSError):
                    # One that is to end must be able to act on that.
                    place.freeze(FREEZE_S) if paused and not os.path.lexists(f"{path}/stop") else place.thaw()
            raise
        self._wake(task)

    def _wake(self, task: TaskId) -> None:
        pid = living(self.files.supervisor(task))
        if pid is not None:
            supervisor.send([pid], signal.SIGUSR1)

    def _await_parked(self, task: TaskId) -> None:
        """Until its processes are gone, and all that they said is stored. Raises ImageError."""
        path, until = self.files.path(task), time.monotonic() + PARK_S
        while not os.path.lexists(f"{path}/parked"):
            if living(self.files.supervisor(task)) is None:
                raise ImageError(f"task {task}: its supervisor was killed")
            if time.monotonic() > until:
                raise ImageError(f"task {task}: its processes did not end within {PARK_S:g} s: try again")
            time.sleep(0.002)

    def _new(self, task: TaskId) -> StoredImage:
        return StoredImage(self.directory, str(task), self.max_bytes, self.used_bytes)

    def send(self, task: TaskId, frames: Frames, promise: Callable[[], History]) -> None:
        """Send what has not gone out yet of a task that is in an image: that, and what the task has written.

        Who gets the end of it may restore the task, so `promise` is called before: it makes sure, beyond a power cut,
        that this host does not. Raises OSError, DriverError; the image stays here, whatever comes of it.
        """
        with self._locked(task):
            path = self.files.path(task)
            image = read_link(f"{path}/image")
            if not self.files.in_image(task):
                raise ImageError(f"task {task}: is in no image")
            self._await_parked(task)
            history = promise()
            for folder, pattern in ((image, IMAGE_FILE), (path, OUTPUT_FILE)):
                for name in sorted({*filter(pattern.fullmatch, os.listdir(folder))} - frames.sent):
                    with open(f"{folder}/{name}", "rb") as file:
                        while data := file.read(CHUNK_BYTES):
                            frames.write(name, data)
                    frames.close(name)
            frames.write("history.json", history.model_dump_json().encode())
            frames.close("history.json")
            if os.path.lexists(f"{path}/stop"):
                raise ImageError(f"task {task}: is to end")
            frames.write("parked", read_link(f"{path}/parked").encode())
            frames.close("parked")
            frames.finish()

    def receive(self, task: TaskId, stream: BinaryIO, create: Callable[[History], None]) -> None:
        """Take what `send` sends: then the task is here, in its image. Nothing if it is here.

        `create` makes the task's directory, as for one that is to be started. Raises ImageError and OSError, EOFError
        where the stream breaks off; then it is not here, but for the directory.
        """
        stored = self._new(task)
        keep = False
        try:
            receive(stream, stored)
            manifest = Manifest.model_validate_json(read_text(f"{stored.path}/manifest.json"))
            history = History.model_validate_json(read_text(f"{stored.path}/history.json"))
            if problem := self.format.why_not_from(manifest.format):
                raise ImageError(f"task {task}: cannot be restored here: {problem}")
            create(history)
            path = self.files.path(task)
            with self._locked(task):
                if os.path.lexists(f"{path}/image") or self.files.supervisor(task):
                    return
                for name in filter(OUTPUT_FILE.fullmatch, os.listdir(stored.path)):
                    os.rename(f"{stored.path}/{name}", f"{path}/{name}")
                parked = read_text(f"{stored.path}/parked")
                supervisor.remove(f"{stored.path}/parked", f"{stored.path}/history.json", f"{path}/parked")
                os.symlink(parked, f"{path}/parked")
                stored.complete(manifest)
                os.symlink(stored.path, f"{path}/image")
                keep = True
                with contextlib.suppress(OSError):
                    sync_directory(path)
        except ValidationError as error:
            raise ImageError(f"task {task}: what came is not an image") from error
        finally:
            stored.end(keep=keep)

    def restore(
        self,
        task: TaskId,
        enter: list[str],
        launch: Callable[[str, int], object],
        timeout_s: float = RESTORE_S,
    ) -> None:
        """Bring a task from its image back into memory, into the groups of the files `enter`; nothing if it is there.

        `launch` starts a supervisor on a task's directory, with its open lock, where the last one is gone. Raises
        ImageError, which leaves the task in its image.
        """
        with self._locked(task) as lock:
            path = self.files.path(task)
            if not os.path.lexists(f"{path}/image"):
                return
            if not os.path.lexists(f"{path}/parked"):
                self._wake(task)
                self._await_parked(task)
            self._await_restore(task, timeout_s)
            manifest = self.manifest(task)
            image = read_link(f"{path}/image")
            if manifest is None:
                return
            if problem := self.format.why_not_from(manifest.format):
                raise ImageError(f"task {task}: cannot be restored: {problem}")
            owner = self.files.owner(task)
            assert owner is not None
            if owner.handed:
                raise ImageError(f"task {task}: was given up for another node, which may have it: take it back first")
            place = self.files.place(task, owner)
            # Of a restore that was broken off.
            if not place.kill(KILL_S):
                raise ImageError(f"task {task}: cannot be restored: what is left of it does not end")
            if place.supervisor is None:
                supervisor.remove(f"{path}/supervisor.pid")
                launch(path, lock)
            said = ""
            with room(enter, self.files.memory_bytes(task)):
                for own_space in (taken(manifest.numbers), True):
                    said = self._try(task, place, manifest, image, enter, own_space, timeout_s)
                    # A number may have been taken meanwhile.
                    if not os.path.lexists(f"{path}/image") or own_space or "Can't fork" not in said:
                        break
            if os.path.lexists(f"{path}/image"):
                raise ImageError(f"task {task}: cannot be restored: {said}")
        shutil.rmtree(image, ignore_errors=True)

    def _try(
        self,
        task: TaskId,
        place: Place,
        manifest: Manifest,
        image: str,
        enter: list[str],
        own_space: bool,
        timeout_s: float,
    ) -> str:
        """Let the supervisor restore a task once; why it is still in its image, if it is."""
        path = self.files.path(task)
        with served(lambda name: read_stored(f"{image}/{name}", manifest.codec)) as (folder, stream):
            command = [*self.criu.restore_command(folder), "--action-script", str(RESTORED)]
            entries = [("command", word) for word in command]
            entries += [("enter", file) for file in enter] + [("main", str(manifest.main))]
            if own_space:
                entries.append(("first_number", str(free_numbers(manifest.numbers))))
            try:
                replace_file(f"{path}/restore", pack(entries))
            except OSError as error:
                raise ImageError(f"task {task}: cannot be restored: {error.strerror}") from error
            self._wake(task)
            self._await_restore(task, timeout_s)
            killed = living(self.files.supervisor(task)) is None
            if killed:
                # Helpers of CRIU outlive it, and would keep what is served here open.
                place.kill(KILL_S)
        if killed:
            return "its supervisor was killed: try again"
        return reason_of(read_text(f"{path}/restore.log"), 1) if stream.problem is None else why(stream.problem)

    def _await_restore(self, task: TaskId, timeout_s: float) -> None:
        """Until the supervisor has no request to restore. Raises ImageError."""
        path, until = self.files.path(task), time.monotonic() + timeout_s
        while os.path.lexists(f"{path}/restore"):
            name = self.files.supervisor(task)
            if name and living(name) is None:
                # It leaves the task in the image, or has had it run and lost it.
                supervisor.remove(f"{path}/restore")
                return
            if time.monotonic() > until:
                raise ImageError(f"task {task}: was not restored within {timeout_s:g} s")
            time.sleep(0.002)


def remove_strays(directory: Path, files: TaskDirectory) -> None:
    """Remove images that are nobody's, of callers that were killed or of tasks that are gone."""

    def unwanted(path: Path) -> bool:
        task = f"{files.tasks}/{path.name.rpartition('.')[0]}"
        # One becomes the other, and sometimes the first again.
        return str(path) not in [read_link(f"{task}/{link}") for link in ("image", "spent", "image")]

    for image in directory.iterdir():
        remove_unlocked(image, unwanted)


def cpu_flags() -> tuple[str, ...]:
    """What this host's CPU can do, by the names that the kernel has for it."""
    for line in read_text("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return tuple(sorted(value.split()))
    return ()
