#!/usr/bin/env python3
"""Sends mail for each notification of `dfrs serve --notify-command`, by the machine's sendmail or by SMTP.

To the address of `dfrs submit --notify-to`, or else to the job's user on this machine. Needs Python alone.
"""

import getpass
import json
import shutil
import smtplib
import socket
import subprocess
import sys
import time
from email.message import EmailMessage
from typing import Any

SERVER = ""
"""It takes the mail by SMTP, such as "localhost"; empty: sendmail does, where the controller may call that."""
WORDS = {"begin": "has begun", "end": "has ended", "fail": "has failed"}


def message(told: dict[str, Any]) -> EmailMessage:
    """The mail of a notification."""
    mail = EmailMessage()
    mail["To"] = told["to"] or told["user"]
    mail["Subject"] = f"{told['cluster']}: job {told['job']} {told['name']} {WORDS[told['event']]}"
    # Sent twice, it is the same mail: that happens where the controller is killed just then.
    mail["Message-ID"] = f"<{told['id']}.{told['submitted_at']:.0f}@{told['cluster']}.dfrs>"
    lines = [f"Job {told['job']} ({told['name']}) of {told['user']}: {told['exit'] or told['state']}"]
    lines += [
        f"{name}: {clock(told[f'{name}_at'])}" for name in ("submitted", "started", "ended") if told[f"{name}_at"]
    ]
    lines += [f"nodes: {', '.join(told['nodes']) or 'none'}", f"output: dfrs logs {told['job']}"]
    mail.set_content("\n".join(lines) + "\n")
    return mail


def clock(seconds: float) -> str:
    """A time in words."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def send(mail: EmailMessage) -> int:
    """The status of sendmail, or 0. Raises OSError where the server does not take it."""
    if not SERVER:
        program = shutil.which("sendmail") or "/usr/sbin/sendmail"
        return subprocess.run([program, "-i", "-t"], input=mail.as_bytes(), check=False).returncode
    mail["From"] = f"{getpass.getuser()}@{socket.getfqdn()}"
    with smtplib.SMTP(SERVER) as server:
        server.send_message(mail)
    return 0


if __name__ == "__main__":
    sys.exit(send(message(json.load(sys.stdin))))
