"""Model files that are cut short or changed; each starts the server anew, on a copy of the file."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from probes.table import Probe, Seen
from probes.target import Launch, Target

CUTS = (0, 3, 1000, 0.3, 0.999)
FLIPS = 12
_EARLY_BYTES = 1 << 20
_START_LIMIT_S = 60.0


def model_of(target: Target) -> tuple[int, Path] | None:
    """Return which part of the command names a GGUF file, and the file."""
    for index, part in enumerate(target.command):
        path = Path(part.rpartition("=")[2])
        if path.suffix == ".gguf" and path.is_file():
            return index, path
    return None


@contextmanager
def copied(target: Target) -> Iterator[tuple[list[str], Path] | None]:
    """Yield the command with a copy of its model file, and the copy."""
    found = model_of(target)
    if found is None:
        yield None
        return
    target.stop()
    index, path = found
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        command = list(target.command)
        command[index] = command[index].replace(str(path), str(copy))
        yield command, copy


def tried(command: list[str]) -> str:
    """Start a server on a damaged file and say how that went, in one word or two."""
    launch = Launch(command)
    try:
        if launch.wait_ready(_START_LIMIT_S):
            return "served"
        status = launch.process.poll()
        if status is None:
            return "hung"
        if status < 0:
            return f"crashed (rc {status})"
        return "traceback" if "Traceback" in launch.output() else "refused"
    finally:
        launch.stop()


def _counted(target: Target, damage: Callable[[Path], Iterator[None]], good: set[str]) -> Seen:
    with copied(target) as made:
        if made is None:
            return Seen(None, "not run: the command names no .gguf file")
        command, copy = made
        if (sound := tried(command)) != "served":
            return Seen(False, f"a copy that is not damaged: {sound}")
        ends = [tried(command) for _ in damage(copy)]
    text = ", ".join(f"{ends.count(end)} {end}" for end in sorted(set(ends)))
    return Seen(set(ends) <= good, f"of {len(ends)}: {text}")


def truncated(target: Target) -> Seen:
    """Cut the file at several points."""

    def damage(copy: Path) -> Iterator[None]:
        size = copy.stat().st_size
        for cut in sorted((int(c if c > 1 else c * size) for c in CUTS), reverse=True):
            with copy.open("r+b") as file:
                file.truncate(cut)
            yield

    return _counted(target, damage, {"refused"})


def flipped(target: Target) -> Seen:
    """Change four random bytes of the first MiB."""
    rng = np.random.default_rng()

    def damage(copy: Path) -> Iterator[None]:
        size = min(copy.stat().st_size, _EARLY_BYTES)
        for _ in range(FLIPS):
            places = sorted(int(p) for p in rng.integers(0, size, 4))
            with copy.open("r+b") as file:
                kept = [(p, file.seek(p), file.read(1)) for p in places]
                for place, _, _ in kept:
                    file.seek(place)
                    file.write(bytes([int(rng.integers(256))]))
            yield
            with copy.open("r+b") as file:
                for place, _, byte in kept:
                    file.seek(place)
                    file.write(byte)

    return _counted(target, damage, {"refused", "served"})


def _without(reason: str) -> Callable[[Target], Seen]:
    return lambda _: Seen(None, f"not applicable: {reason}")


_NO_SESSIONS = "probed on files of saved conversations, for which servers share no API"

PROBES = [
    Probe(f"GGUF cut at {len(CUTS)} points", "refused, no traceback", truncated, needs="command"),
    Probe(
        f"GGUF, 4 random bytes of its first MiB changed, {FLIPS} times",
        "refused or served, never a crash",
        flipped,
        needs="command",
    ),
    Probe(
        "GGUF with 10 KB of weights flipped",
        "refused where the format has checksums",
        _without("a GGUF holds none"),
    ),
    Probe("saved conversation changed, cut or half written", "refused", _without(_NO_SESSIONS)),
]
