"""A file mapped for reading, whose every view is bounded by the file's length."""

import mmap
import os
import stat
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.gguf_native import guard

_REMEDY = (
    "write a new file beside it and move it into place, and start again when all of it is there"
)


class MappedFile:
    """A regular file mapped read-only.

    As with every mapping, another process that shortens the file while it is open takes this one
    down, which then names the file; what only rewrites it is found by ``check_unchanged``.

    Args:
        path: the file; a symbolic link is followed, as hub caches consist of them.

    Raises:
        ModelFileError: the file is missing, unreadable, empty, or not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Without O_NONBLOCK a fifo in place of the file would hang the open.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as err:
            raise ModelFileError(path, f"expected a readable file, got: {err}") from err
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelFileError(path, "expected a regular file, got another kind")
            self.size = status.st_size
            if self.size == 0:
                raise ModelFileError(path, "expected a model file, got 0 bytes")
            self._opened = status
            self._map: mmap.mmap | None = mmap.mmap(
                descriptor, self.size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ
            )
        finally:
            os.close(descriptor)
        words = (
            f"{path}: expected its {self.size} bytes to stay while they are read, got fewer, or a "
            f"disk that fails; {_REMEDY}\n"
        )
        weakref.finalize(self._map, guard(self._map, words)).atexit = False
        self._bytes: npt.NDArray[np.uint8] | None = np.frombuffer(self._map, np.uint8)

    @property
    def raw(self) -> mmap.mmap:
        """Return the mapping, for parsers that read values out of it."""
        if self._map is None:
            raise ModelFileError(self.path, "expected an open checkpoint, got a closed one")
        return self._map

    def view(self, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return bytes ``offset .. offset + nbytes`` without copying them.

        Raises:
            ModelFileError: the range leaves the file, or the file is closed.
        """
        if self._bytes is None:
            raise ModelFileError(self.path, "expected an open checkpoint, got a closed one")
        if offset < 0 or nbytes < 0 or offset + nbytes > self.size:
            raise ModelFileError(
                self.path, f"expected a range within {self.size} bytes, got {offset} + {nbytes}"
            )
        return self._bytes[offset : offset + nbytes]

    def check_unchanged(self) -> None:
        """Require that nobody has written to the file since it was opened.

        Another file that was moved to its name meanwhile is no fault: this one stays what it was.

        Raises:
            ModelFileError: somebody has; what was read may be of either content, or zeros.
        """
        try:
            now = self.path.stat()
        except OSError:
            return
        was = self._opened
        if (now.st_dev, now.st_ino) != (was.st_dev, was.st_ino):
            return
        if (now.st_size, now.st_mtime_ns) != (was.st_size, was.st_mtime_ns):
            raise ModelFileError(
                self.path,
                f"expected the {self.size} bytes that were there when it was opened, got "
                f"{now.st_size}, written to while they were read; {_REMEDY}",
            )

    def release(self, offset: int, nbytes: int) -> None:
        """Drop the whole pages inside a range from resident memory."""
        page = mmap.PAGESIZE
        first = -(-offset // page) * page
        last = (offset + nbytes) // page * page
        if first < last:
            self.raw.madvise(mmap.MADV_DONTNEED, first, last - first)

    def close(self) -> None:
        """Drop the mapping; it goes away once the last view of it does."""
        self._bytes = None
        self._map = None
