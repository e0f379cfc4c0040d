"""Characters that arrive bit by bit, for parsers written as if they were all there.

A parser is a generator that yields when it needs the next character. It therefore cannot tell
how its text was cut into pieces.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from radiance_core.chat_format.format import ID_HOLE

T = TypeVar("T")
Step = Generator[None, str, T]
END = ""
_HALF = "\ufffd"
"""What the bytes of a character become that the end of a text cuts."""
_ID_CHARS = frozenset("_-:.")


class Reader:
    """Takes characters one at a time, and takes some back; ``END`` for ever after the last.

    ``is_cut``: the text ends at a limit, so that its end may be the beginning of a mark.
    """

    __slots__ = ("_back", "_ended", "_taken", "is_cut")

    def __init__(self) -> None:
        self.is_cut = False
        self._back: list[str] = []
        self._ended = False
        self._taken: list[str] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the end has been seen."""
        return self._ended

    @property
    def is_idle(self) -> bool:
        """Whether nothing is put back or recorded, so that text may pass by it."""
        return not self._back and self._taken is None

    def take(self) -> Step[str]:
        """Return the next character."""
        if self._back:
            char = self._back.pop()
        elif self._ended:
            return END
        else:
            char = yield
            if char == END:
                self._ended = True
        if self._taken is not None and char:
            self._taken.append(char)
        return char

    def peek(self) -> Step[str]:
        """Return the next character and leave it there."""
        char = yield from self.take()
        self.put_back(char)
        return char

    def is_cut_within(self, char: str) -> Step[bool]:
        """Say whether ``char``, which was just taken, is one that the limit cut in two."""
        return char == _HALF and (yield from self.peek()) == END and self.is_cut

    def put_back(self, text: str) -> None:
        """Let ``text``, which was just taken, come again."""
        self._back.extend(reversed(text))
        if self._taken is not None and text:
            del self._taken[-len(text) :]

    def record(self) -> None:
        """Keep what is taken from now on."""
        self._taken = []

    def recorded(self) -> str:
        """Stop keeping, and return what was kept."""
        taken, self._taken = self._taken or [], None
        return "".join(taken)

    def skip_space(self) -> Step[str]:
        """Pass over white space and return it."""
        space = []
        while (char := (yield from self.take())) and char.isspace():
            space.append(char)
        self.put_back(char)
        return "".join(space)

    def expect(self, text: str) -> Step[bool]:
        """Pass over ``text``, in which white space does not count; False at what differs.

        What agreed stays taken.
        """
        wanted = "".join(text.split())
        at = 0
        while at < len(wanted):
            char = yield from self.take()
            if char and char.isspace():
                continue
            if at and (yield from self.is_cut_within(char)):
                return False
            at = _go(wanted, at, char)
            if not at:
                self.put_back(char)
                return False
        return True

    def choose(self, texts: Sequence[str], *, closing: bool = False) -> Step[int | None]:
        """Pass over one of ``texts`` and return its index; None, and nothing taken, for none.

        White space counts on neither side. An empty text is there when none of the others is.
        What the end cuts short of a mark is passed over too; without a limit only of a
        ``closing`` one, for which there is no other meaning.
        """
        wanted = ["".join(text.split()) for text in texts]
        places = {n: 0 for n, text in enumerate(wanted) if text}
        taken: list[str] = []
        while places:
            char = yield from self.take()
            if any(places.values()) and (yield from self.is_cut_within(char)):
                char = END
            taken.append(char)
            if char and char.isspace():
                continue
            places = {n: went for n, at in places.items() if (went := _go(wanted[n], at, char))}
            for n, at in places.items():
                if at == len(wanted[n]):
                    return n
        is_partial = taken[-1:] == [END] and "".join(taken).strip()
        if not (is_partial and (closing or self.is_cut)):
            self.put_back("".join(taken))
        return wanted.index("") if "" in wanted else None

    def skip_end_of(self, mark: str) -> Step[None]:
        """Pass over the white space that ends ``mark`` as the template writes it, if it is here."""
        for wanted in mark[len(mark.rstrip()) :]:
            char = yield from self.take()
            if char != wanted:
                self.put_back(char)
                return

    def until(
        self, marks: tuple[str, ...], say: Callable[[str], None] | None = None
    ) -> Step[str | None]:
        """Read up to the first of ``marks`` and pass it; None when the text ends before.

        Returns:
            The text, or "" when ``say`` was given it bit by bit.
        """
        marks = tuple(mark.rstrip() or mark for mark in marks)
        got: list[str] = []
        say = say or got.append
        held = ""
        while (char := (yield from self.take())) != END:
            if held and (yield from self.is_cut_within(char)):
                break
            held += char
            while held and not any(mark.startswith(held) for mark in marks):
                say(held[0])
                held = held[1:]
            if held in marks:
                return "".join(got)
        if held and not self.is_cut:
            say(held)
        return None


def _go(text: str, at: int, char: str) -> int:
    """Return the place in ``text`` after ``char``, 0 where it does not go on like that."""
    if text[at] != ID_HOLE:
        return at + 1 if text[at] == char else 0
    if at + 1 < len(text) and text[at + 1] == char:
        return at + 2
    return at if at and (char.isalnum() or char in _ID_CHARS) else 0
