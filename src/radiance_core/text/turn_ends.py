"""Special tokens that end a turn by what they are called.

Files often declare only one end token, though a chat model ends its turns with another; going on
past it gives a model talking to itself.
"""

from collections.abc import Iterable

_TURN_ENDS = frozenset({
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>",
    "<end_of_turn>", "<turn|>", "<|endoftext|>", "<|end_of_text|>", "<|end_of_turn|>",
    "<|END_OF_TURN_TOKEN|>", "<EOT>", "_<EOT>", "<|EOT|>", "<|eot|>",
    "<｜end▁of▁sentence｜>", "<end_of_utterance>",
})  # fmt: skip


def named_turn_ends(special: Iterable[tuple[int, str]]) -> frozenset[int]:
    """Return those of the special tokens (id, text) whose name says that a turn ends."""
    found = {text: id_ for id_, text in special if text in _TURN_ENDS}
    if found.keys() >= {"<|return|>", "<|call|>"}:
        # In the harmony format <|end|> only parts one channel's message from the next.
        found.pop("<|end|>", None)
    return frozenset(found.values())
