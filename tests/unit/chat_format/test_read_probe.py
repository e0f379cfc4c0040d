"""Known calls looked for in texts: what is said when they are not there."""

import pytest

from radiance_abi.errors import RadianceError
from radiance_core.chat_format.probes import MAX_PROBE_CHARS, CallStyle, Probe, atoms, user
from radiance_core.chat_format.read_probe import Turns, UnknownFormat, read_call


def refuse(*_: object) -> str:
    raise RadianceError("no")


def test_a_turn_that_is_refused_or_without_its_call_says_so():
    """A template may take one call and refuse, or leave out, another."""
    turns = Turns(Probe(refuse), CallStyle(), None)
    with pytest.raises(UnknownFormat, match="its chat template refuses some answers with calls"):
        turns.text({})
    with pytest.raises(UnknownFormat, match="its chat template leaves calls out"):
        read_call(turns, "nothing to see", 0)


def test_a_template_that_says_too_much_is_one_that_refuses():
    """What a probe comes to is bounded, so that looking at it is too."""
    long = Probe(lambda *_: "x" * (MAX_PROBE_CHARS + 1))
    assert long.text([user()], with_tools=False) is None
    assert Probe(lambda *_: "x").text([user()], with_tools=False) == "x"


def test_atoms_are_marks_words_spaces_and_signs():
    """Joined they are the text; special tokens are never cut."""
    text = "<|im_end|>\n<tool_call>{'a_b': [INST] </x> <open>tag €"
    cut = atoms(text, ("<open>tag",))
    assert "".join(cut) == text
    assert cut[:3] == ["<|im_end|>", "\n", "<tool_call>"]
    assert {"a_b", "[INST]", "</x>", "<open>tag"} <= set(cut)
