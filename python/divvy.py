"""What a job says to the Divvy pool that runs it, and hears from it.

    import divvy

    state = load() if divvy.restart() else fresh()
    notice = divvy.Notice()
    while state.step < 100_000:
        train_one_step(state)
        if notice or state.step % 1000 == 0:
            save(state)
            divvy.checkpointed()
        if notice:
            divvy.leave()

Outside a job nobody is asked or told anything, so that the same script runs anywhere; the signal is heard there, too. The
standard library is all it needs.
"""

import http.client
import json
import os
import signal
import socket
import sys
import warnings

__version__ = "0.1.0"
__all__ = ["SAVED", "Notice", "Refused", "checkpointed", "job", "leave", "restart", "tasks"]

#: The exit code that means: my work is saved, run me again.
SAVED = 85
#: How long the pool may take to answer, in seconds.
PATIENCE_S = 30.0


class Refused(Exception):
    """The pool does not do what it was asked for. `code` is what programs look at (`no-such-job`, `conflict`, ...)."""

    def __init__(self, code, text):
        super().__init__(f"{text} ({code})")
        self.code = code


def job():
    """The job that this process belongs to, "12" or "12_3"; None outside a job."""
    return os.environ.get("DIVVY_JOB_ID") or None


def restart():
    """How often the job was started before: 0 the first time, and outside a job."""
    try:
        return int(os.environ.get("DIVVY_RESTART", "0"))
    except ValueError:
        return 0


def checkpointed():
    """Says that the work done up to now is saved, so that a stop loses only what comes after.

    True once the pool has it on disk. False outside a job, and, with a warning, where the pool does not answer: it may be
    restarting, and no reason to lose a training run. Raises Refused where the pool refuses it.
    """
    if job() is None:
        return False
    return _ask("POST", f"/v1/jobs/{job()}/checkpointed") is not None


def tasks():
    """The tasks that the job has now, as dictionaries with at least `task` (its rank) and `node`; of a gang that grows and
    shrinks there are sometimes more, sometimes fewer. Empty outside a job and, with a warning, where the pool does not answer.
    """
    now = _ask("GET", f"/v1/jobs/{job()}") if job() is not None else None
    attempts = now.get("attempts", []) if now else []
    return attempts[-1].get("tasks", []) if attempts else []


def leave():
    """Ends this process with the exit code by which the pool knows that the job's work is saved, and runs it again."""
    sys.exit(SAVED)


class Notice:
    """True once the job has heard that it is to give way: it has its grace to save its work and to leave.

    `number` is the signal that the job names (`checkpoint: {notice: USR1, grace: 60s}`). To be made in the main thread, as
    all handlers of signals are in Python. A handler that was there before is called as well.
    """

    def __init__(self, number=signal.SIGUSR1):
        self._heard = False
        self._before = signal.signal(number, self._hear)

    def _hear(self, number, frame):
        self._heard = True
        if callable(self._before):
            self._before(number, frame)

    def __bool__(self):
        return self._heard


class _Connection(http.client.HTTPConnection):
    """HTTP over the pool's unix socket. The kernel tells the pool whose process asks."""

    def __init__(self, path):
        super().__init__("divvy", timeout=PATIENCE_S)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(method, path):
    """What the pool answers; None, with a warning, where it does not."""
    where = os.environ.get("DIVVY_SOCKET", "")
    connection = _Connection(where)
    try:
        connection.request(method, path, body=b"{}" if method == "POST" else None, headers={"content-type": "application/json"})
        answer = connection.getresponse()
        said = answer.read()
    except (OSError, http.client.HTTPException) as error:
        warnings.warn(f"divvy: the pool at {where or 'DIVVY_SOCKET, which is not set,'} does not answer: {error}", stacklevel=3)
        return None
    finally:
        connection.close()
    try:
        object_ = json.loads(said) if said else {}
    except ValueError:
        object_ = {}
    if answer.status >= 400:
        raise Refused(object_.get("code", str(answer.status)), object_.get("detail") or object_.get("title") or answer.reason)
    return object_
