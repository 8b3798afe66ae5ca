"""A verb of the live cluster in a terminal of its own, at which a test types and looks."""

import os
import pty
import select
import signal
import sys
import time

from tests.live_processes import DFRS


def environment(cluster):
    return os.environ | {"DFRS_STATE": str(cluster.state), "TERM": "xterm"}


class AtTerminal:
    """A verb in a terminal of its own."""

    def __init__(self, cluster, *arguments):
        self.seen = ""
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [*DFRS, *map(str, arguments)], environment(cluster))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.file >= 0:
            os.close(self.file)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def type(self, text):
        os.write(self.file, text.encode())

    def sees(self, words):
        """Wait for words on the screen; what came up to there is not looked at again."""
        end = time.monotonic() + 90
        while words not in self.seen:
            assert time.monotonic() < end, f"not seen: {words!r} in {self.seen!r}"
            if select.select([self.file], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.file, 65536).decode(errors="replace")
                except OSError:
                    assert words in self.seen, f"ended without {words!r}: {self.seen!r}"
        before, _, self.seen = self.seen.partition(words)
        return before

    def asked(self, command):
        """What a shell answers."""
        self.type(f"{command}; echo $((70+7))end\n")
        return self.sees("77end").splitlines()[-1].strip()

    def hang_up(self):
        os.close(self.file)
        self.file = -1
        return self.end()

    def end(self):
        """Its exit status."""
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)
