r"""Which tokens a message of ``/v1/responses`` is made of, with what the model thought of them.

tokens   <think> hm </think> │ I   look .│ <tool_call> …
told                           └─ message ─┘
"""

from collections import deque

from radiance_core.engine.interface import Delta, TextTokenizer
from radiance_core.server.chat_logprobs import ToldToken, told_tokens


class MessageTokens:
    """Finds the tokens of a message's text, however its pieces were cut.

    Content is one stretch of the generated text, after thoughts and the space behind them.

    Args:
        tokenizer: of the model.
        closing: the mark that closes thoughts; empty for a model that has none.
    """

    def __init__(self, tokenizer: TextTokenizer, closing: str = "") -> None:
        self._tokenizer = tokenizer
        self._closing = closing.strip().encode()
        self._untold: deque[ToldToken] = deque()
        self._tail = b""  # of the last told token, what the pieces so far have not reached
        self._begun = False

    def add(self, delta: Delta) -> None:
        """Take in the tokens that a choice gained."""
        self._untold += told_tokens(delta, self._tokenizer)

    def take(self, text: str, *, after_thoughts: bool) -> list[ToldToken]:
        """Return the tokens that begin in a new piece of the message's text.

        Args:
            text: what follows the pieces before it.
            after_thoughts: thoughts were told before the message.
        """
        raw = self._tail + b"".join(bytes(token.bytes) for token in self._untold)
        start = 0
        if not self._begun and after_thoughts and self._closing:
            start = max(0, raw.find(self._closing) + len(self._closing))
        wanted = text.encode()
        at = raw.find(wanted, start)
        # What is not there as it is, such as a broken character, ends with all tokens so far.
        end = at + len(wanted) if at >= 0 else len(raw)
        told, place = [], len(self._tail)
        while self._untold and place < end:
            token = self._untold.popleft()
            place += len(token.bytes)
            if place > max(at, start):
                told.append(token)
        self._tail, self._begun = raw[end:place], True
        return told
