"""The probes in their order, and the Markdown table of what they saw."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from probes.target import GoneError, Target

HEAD = "| probe | expected | what happened | |\n|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a probe saw; ``ok`` is None where there was nothing to judge, ``text`` says why."""

    ok: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Probe:
    """One row: a name, what is right, and the function that looks.

    ``needs``: "" any server, "pid" a known process, "command" one that can be started again.
    ``ends``: the server is gone afterwards, as it should be.
    """

    name: str
    expected: str
    look: Callable[[Target], Seen]
    needs: str = ""
    ends: bool = False

    def possible(self, target: Target) -> bool:
        """Return whether what the probe needs is known of the server."""
        known = {"": True, "pid": target.pid is not None or target.can_start}
        return known.get(self.needs, target.can_start)


def judged(probe: Probe, target: Target) -> Seen:
    """Run one probe and then ask whether the server is well."""
    if not probe.possible(target):
        wanted = {"pid": "--pid or --command", "command": "--command"}[probe.needs]
        return Seen(None, f"not run: needs {wanted}")
    try:
        target.ready()
        seen = probe.look(target)
        if probe.ends or probe.needs == "command":
            return seen
        ill = target.illness()
    except GoneError as gone:
        return Seen(False, f"not run: {gone}")
    return Seen(seen.ok and not ill, f"{seen.text}; {ill}" if ill else seen.text)


def rows(probes: list[Probe], target: Target) -> Iterator[tuple[Probe, Seen]]:
    """Run probes in their order, starting the server again where one killed it."""
    try:
        for probe in probes:
            yield probe, judged(probe, target)
    finally:
        target.stop()


def line(probe: Probe, seen: Seen) -> str:
    """Return a row of the table."""
    mark = {True: "ok", False: "**not ok**", None: "–"}[seen.ok]
    cells = [probe.name, probe.expected, seen.text, mark]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
