"""A long text is encoded as any other, and nobody waits for it but who asked."""

import random
import threading
import time
from typing import Any

import pytest

from radiance_core.text.tokenizer import _LOCKED_CHARS, Tokenizer


@pytest.fixture(scope="module", params=["smollm_metadata", "gemma_metadata"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    metadata: dict[str, Any] = request.getfixturevalue(request.param)
    return Tokenizer.from_gguf(metadata)


@pytest.mark.parametrize("more", [-1, 0, 1, 3000])
def test_length_changes_nothing(tokenizer: Tokenizer, more: int) -> None:
    """On both sides of the bound the ids are those of the extension's plain call."""
    text = "".join(random.choices("ab cd\n12.,äß日🎉", k=_LOCKED_CHARS + more))
    special = next(iter(tokenizer.special_texts().values()))
    for given in (text, text[:-20] + special + text[-20 + len(special) :]):
        plain = tokenizer._backend.encode(given, add_special_tokens=False).ids
        assert tokenizer.encode(given, add_special_tokens=False) == plain
    marked = tokenizer.as_text(special) + text
    assert tokenizer.special.bos_id not in tokenizer.encode_prompt(marked)[1:]
    assert tokenizer.decode(tokenizer.encode_prompt(marked), skip_special_tokens=False).endswith(
        special + text
    )
    halved = text[: len(text) // 2] + "\ud800" + text[len(text) // 2 + 1 :]
    repaired = halved.replace("\ud800", "\ufffd")
    assert tokenizer.encode(halved, add_special_tokens=False) == tokenizer.encode(
        repaired, add_special_tokens=False
    )


def test_other_threads_run_meanwhile(tokenizer: Tokenizer) -> None:
    """While a text of many characters is encoded, no other thread stands still for long."""
    shares: list[float] = []
    # At the best of a few: a busy machine lets the other thread wait as well.
    while len(shares) < 10 and min(shares, default=1.0) >= 0.5:
        shares.append(_longest_gap(tokenizer))
    assert min(shares) < 0.5


def _longest_gap(tokenizer: Tokenizer, times: int = 40_000) -> float:
    """Return the longest time that another thread stood still, in times of a long encoding."""
    text = "the quick brown fox " * times
    gaps, done = [], threading.Event()

    def tick() -> None:
        last = time.perf_counter()
        while not done.is_set():
            time.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticking = threading.Thread(target=tick)
    ticking.start()
    began = time.perf_counter()
    tokenizer.encode(text, add_special_tokens=True)
    took = time.perf_counter() - began
    done.set()
    ticking.join()
    if took < 0.1:  # the text is too short to show anything
        return _longest_gap(tokenizer, 2 * times)
    return max(gaps) / took
