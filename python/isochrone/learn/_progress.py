"""A progress bar: tqdm's where it is installed, else one line on the standard error."""

from __future__ import annotations

import sys
import time
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
        # Programs without a console have no standard error.
        self.verbose = verbose if sys.stderr is not None else 0
        self.total, self.title = total, title
        self.done, self.began, self._bar = 0, time.monotonic(), None
        if self.verbose:
            try:
                from tqdm.auto import tqdm

                self._bar = tqdm(total=total, desc=title, unit="epoch")
            except ImportError:
                self._draw("")

    def step(self, note: str) -> None:
        """An epoch is over; `note` says what came of it."""
        if not self.verbose:
            return
        self.done += 1
        if self._bar is not None:
            bar: Any = self._bar
            bar.set_postfix_str(note, refresh=False)
            bar.update()
        else:
            self._draw(note)

    def close(self) -> None:
        """Ends the line."""
        if self._bar is not None:
            self._bar.close()
        elif self.verbose:
            sys.stderr.write("\n")

    def _draw(self, note: str) -> None:
        filled = 24 * self.done // max(self.total, 1)
        elapsed = time.monotonic() - self.began
        line = f"{self.title} [{'█' * filled}{'·' * (24 - filled)}] {self.done}/{self.total} {elapsed:.1f} s {note}"
        sys.stderr.write("\r\033[K" + line if sys.stderr.isatty() else line + "\n")
        sys.stderr.flush()
