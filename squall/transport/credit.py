"""Flow control of one link: how many frames a sender may have in flight to one destination task.

A grant is absolute ("frames up to number n may be sent"), so a lost or repeated grant does no harm. A grant is also a
confirmation: a receiver that grants up to n has executed the frames up to n minus the window, and has passed on their outputs.
Must not know: contents of frames, sockets, tasks.
"""

from __future__ import annotations


class SendWindow:
    """The sender's side: numbers frames from 1, and decides whether the next frame may be sent."""

    __slots__ = ("closed", "granted", "sent", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.sent = 0
        self.granted = window
        #: The receiver accepts no more frames: no grant opens the window again.
        self.closed = False

    @property
    def room(self) -> bool:
        """Whether the next frame may be sent."""
        return self.sent < self.granted

    @property
    def idle(self) -> bool:
        """Whether the receiver has executed all that was sent, and the next frame may be sent."""
        return self.granted >= self.sent + self.window and self.sent < self.granted

    def next_frame(self) -> int:
        """Return the number of the frame that is being sent. Raises `ValueError` if there is no room."""
        if self.sent >= self.granted:
            raise ValueError(f"no credit: {self.sent} frames sent, {self.granted} granted")
        self.sent += 1
        return self.sent

    def grant(self, upto: int) -> bool:
        """Apply a grant; return whether it made room. Older and repeated grants change nothing."""
        if upto <= self.granted or self.closed:
            return False
        self.granted = upto
        return True

    def close(self) -> None:
        """Close the window for good: from now on there is no room."""
        self.closed = True
        self.granted = self.sent


class ReceiveWindow:
    """The receiver's side: counts the frames that it has executed; the grant follows from this number."""

    __slots__ = ("executed", "over", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.executed = 0
        #: The sender's process has ended; its frames are still executed, but grant no credit.
        self.over = False

    def confirm(self, frame: int) -> int:
        """Record that frame `frame` was executed; return the grant that is now due."""
        if frame > self.executed:
            self.executed = frame
        return self.executed + self.window


#: The size in bytes that a frame between workers should not exceed by much, unless a single tuple is larger (measured with
#: values of 100 KB: 0.43 GB/s at 128 KiB, 0.67 at 512 KiB and at 1 MiB).
FRAME_BYTES = 512 * 1024
#: The number of tuples in the first frame to another worker, while the size of the tuples is unknown.
FIRST_TUPLES = 16


class FrameLimit:
    """How many tuples the next frame of an outbox may hold: `most`, or fewer if the tuples are large.

    A window limits only the number of frames in flight; this limit also bounds their bytes. Without it, frames with 512 tuples
    of 1 MB each would make a window of 4 GB.
    """

    __slots__ = ("most", "tuples")

    def __init__(self, most: int, first: int) -> None:
        self.most = most
        self.tuples = min(most, first)

    def packed(self, tuples: int, size: int) -> None:
        """Record that a frame of `tuples` tuples was `size` bytes long. However small the frame is, the limit
        at most doubles."""
        fitting = max(1, FRAME_BYTES * tuples // max(1, size))
        self.tuples = min(self.most, fitting, 2 * self.tuples)


def frame_limits(queue_size: int) -> tuple[int, int]:
    """Return how a queue of `queue_size` tuples is divided: (most tuples in a frame, frames in a window).

    Measured with two workers and 4,096 tuples: frames of 512 tuples are a tenth faster than frames of 256, and frames of 1,024
    are not faster than frames of 512; frames of 4,000 are slower and have a p99 of 195 ms.
    """
    frame = min(512, max(1, queue_size // 4))
    return frame, max(2, queue_size // frame)
