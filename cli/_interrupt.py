"""Ctrl-C while C++ runs: Python's handler waits for it to return, and XLA may compile for minutes."""
from __future__ import annotations

import os
import signal
import threading
from types import FrameType

GRACE = 1.0     # seconds until the main thread is taken to be in C++


def end_when_stuck(code: int) -> None:
    """From now on the first SIGINT ends this process with `code` where KeyboardInterrupt cannot be raised.

    Called by the main thread, once.  Nothing changes where SIGINT is ignored, as in the background of a shell."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    raised = threading.Event()

    def handler(number: int, frame: FrameType | None) -> None:
        raised.set()
        signal.default_int_handler(number, frame)

    def watch() -> None:
        while signal.SIGINT not in os.read(arrived, 64):
            pass
        if not raised.wait(GRACE) and signal.getsignal(signal.SIGINT) is handler:
            os.write(2, b"interrupted\n")
            os._exit(code)
    arrived, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGINT, handler)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)      # the only thing that happens at once
    threading.Thread(target=watch, daemon=True).start()
