"""Ctrl-C, SIGTERM and a hang-up while a job runs on Spark: never lost, and nothing of Spark is left behind.

Theory. KeyboardInterrupt comes up wherever the main thread just is. Most of the time that is in py4j, which has
callbacks of the garbage collector: an exception in one of those is printed and forgotten, and the job runs on. So the
handler raises nothing while py4j or pyspark is on the stack: it only notes. The same where a job is being cleared away
(a function with a local variable `_interrupts_wait`): that must come to its end. A watcher, which hears of the signal
by itself (`signal.set_wakeup_fd`: also while the main thread waits for Spark), ends the JVM: whatever the main thread
has asked of Spark fails at once. And it sends the signal to the main thread again and again until the handler has
found a place where it can raise, or `Signals` is left, which raises it then. Should the exception be lost in a
callback of something else, `sys.unraisablehook` hears of it, and it is due again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from types import FrameType, TracebackType

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_S = 0.05
_NOT_IN = ("py4j", "pyspark")
_WAITS = "_interrupts_wait"


class Signals:
    """A context manager; leaves by KeyboardInterrupt where a signal came. Nothing outside of the main thread."""

    def __init__(self) -> None:
        self._active = threading.current_thread() is threading.main_thread()
        self._noted = False
        self._raised = False
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """The JVM, which is ended when a signal comes."""
        self._process = process
        if self._noted:
            self._cancel()

    def __enter__(self) -> Signals:
        if self._active:
            self._main = threading.get_ident()
            self._hear, self._tell = os.pipe()
            os.set_blocking(self._tell, False)
            self._ended = threading.Event()
            self._watcher = threading.Thread(target=self._watch, name="signals", daemon=True)
            self._watcher.start()
            self._hook = sys.unraisablehook
            sys.unraisablehook = self._unraisable
            heard = [number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
            self._before = {number: signal.signal(number, self._handle) for number in heard}
            self._wakeup = signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._active:
            return
        self._raised = True  # from here on the handler raises nothing any more
        self._ended.set()
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._tell)
        self._watcher.join()
        os.close(self._hear)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook
        if self._noted and self._process is not None:
            from engine.pipeline.java import await_end

            await_end(self._process)
        if self._noted and kind is not KeyboardInterrupt:
            raise KeyboardInterrupt from None  # what failed, failed because Spark was ended

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, between any two instructions."""
        del number
        self._noted = True
        if self._raised or _must_end(frame):
            return
        self._raised = True
        raise KeyboardInterrupt

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                heard = os.read(self._hear, 64)
                if not heard:
                    return
                if not set(heard) & set(NUMBERS):
                    continue
                self._noted = True
                self._cancel()
                while not (self._raised or self._ended.wait(AGAIN_S)):
                    self._cancel()
                    signal.pthread_kill(self._main, signal.SIGTERM)

    def _cancel(self) -> None:
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.terminate()

    def _unraisable(self, lost: Any) -> None:
        """What Python could raise nowhere: an interrupt is due again, anything else is as ever."""
        if lost.exc_type is KeyboardInterrupt and self._noted:
            self._raised = False
            with contextlib.suppress(OSError):
                os.write(self._tell, bytes([signal.SIGTERM]))
        else:
            self._hook(lost)


def _must_end(frame: FrameType | None) -> bool:
    """Whether py4j or pyspark is on the stack, or something that clears away."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_IN or _WAITS in frame.f_code.co_varnames:
            return True
        frame = frame.f_back
    return False
