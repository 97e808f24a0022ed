"""A progress bar: tqdm's where it is installed, else one line on the standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any


class Progress:
    """Epochs done of those to do; shows nothing when `verbose` is 0.

    Parameters
    ----------
    verbose : int
        0: nothing. Else a bar.
    total : int
        Epochs at most.
    title : str
        What is learnt.
    """

    def __init__(self, verbose: int, total: int, title: str) -> None:
        self.verbose, self.total, self.title = verbose, total, title
        self.done, self.began = 0, time.monotonic()
        self._bar: Any = None
        self._show(self._begin)

    def step(self, note: str) -> None:
        """An epoch is over; `note` says what came of it."""
        self.done += 1
        self._show(lambda: self._told(note))

    def close(self) -> None:
        """Ends the line."""
        self._show(self._end)

    def _show(self, act: Callable[[], None]) -> None:
        """Shows it where there is something to show it on: nobody's model is lost for want of a bar."""
        # Programs without a console have no standard error, others one that is closed, or an object of their own.
        if not self.verbose or sys.stderr is None:
            return
        try:
            act()
        except (AttributeError, OSError, ValueError):
            self.verbose = 0
            if self._bar is not None:
                # Else it would be drawn once more when it goes.
                self._bar.disable = True

    def _begin(self) -> None:
        try:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self.total, desc=self.title, unit="epoch")
        except ImportError:
            self._draw("")

    def _told(self, note: str) -> None:
        if self._bar is None:
            self._draw(note)
            return
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update()

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.close()
        else:
            sys.stderr.write("\n")

    def _draw(self, note: str) -> None:
        filled = 24 * self.done // max(self.total, 1)
        elapsed = time.monotonic() - self.began
        line = f"{self.title} [{'█' * filled}{'·' * (24 - filled)}] {self.done}/{self.total} {elapsed:.1f} s {note}"
        terminal = hasattr(sys.stderr, "isatty") and sys.stderr.isatty()
        sys.stderr.write("\r\033[K" + line if terminal else line + "\n")
        sys.stderr.flush()
