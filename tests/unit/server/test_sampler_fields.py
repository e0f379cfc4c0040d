"""Biases, breakers, log probabilities, priorities and whose cached prompts a request may use."""

import random

import pytest

from radiance_core.server import fields

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


async def asked(live, body, route=CHAT, **kwargs):
    """Return what the engine was asked by a request that is served."""
    status, got, _ = await live.post(route, body, **kwargs)
    assert status == 200, got
    return live.engine.requests[-1]


async def refused(live, body, route=CHAT):
    """Return the path and the text of a 400."""
    status, got, _ = await live.post(route, body)
    assert (status, got["error"]["type"]) == (400, "invalid_request_error"), got
    return got["error"]["param"], got["error"]["message"]


async def test_samplers_reach_the_engine(live, hi):
    """Each under its own name; what is not sent keeps the model's default."""
    sent = {"xtc_probability": 0.5, "xtc_threshold": 0.2, "dry_multiplier": 0.8, "dry_base": 2,
            "dry_allowed_length": 3, "dry_penalty_last_n": 0}  # fmt: skip
    s = (await asked(live, hi | sent)).sampling
    assert (s.xtc_probability, s.xtc_threshold, s.dry_multiplier) == (0.5, 0.2, 0.8)
    assert (s.dry_base, s.dry_allowed_length, s.dry_last_n) == (2.0, 3, 0)
    assert (await asked(live, hi)).sampling.dry_last_n == -1


async def test_biases(live, hi):
    """Ids come as texts, as JSON has them, and zeros change nothing."""
    size = live.model.tokenizer.vocab_size
    sent = {"0": -100, str(size - 1): 100, "7": 0, "9": 1.5}
    s = (await asked(live, hi | {"logit_bias": sent})).sampling
    assert s.logit_bias == {0: -100.0, size - 1: 100.0, 9: 1.5}
    assert (await asked(live, hi | {"logit_bias": {}})).sampling.logit_bias == {}
    for key in (str(size), "-1", "x", "", "01", "1e3", " 1", "9" * 40, "٣"):
        param, text = await refused(live, hi | {"logit_bias": {key: 1}})
        assert param == "logit_bias"
        assert f"expected token ids from 0 to {size - 1}, got " in text
    for value in (-100.5, 101, 1e30, -(2**63)):
        param, text = await refused(live, hi | {"logit_bias": {"3": value}})
        assert (param, text.split(":")[0]) == ("logit_bias.3", "logit_bias.3")
        assert "expected a number from -100 to 100" in text
    for value in ("x", None, True, [], {}):
        param, _ = await refused(live, hi | {"logit_bias": {"3": value}})
        assert param.startswith("logit_bias")
    for value in ([], [[3, 1]], "x", 3, True):
        assert (await refused(live, hi | {"logit_bias": value}))[0] == "logit_bias"
    many = {str(i): 1 for i in range(1025)}
    assert (
        "expected at most 1024 tokens, got 1025"
        in (await refused(live, hi | {"logit_bias": many}))[1]
    )


async def test_breakers(live, hi):
    """At most 16 texts of 1 to 40 bytes; none at all lets repetitions reach over everything."""
    assert (await asked(live, hi)).sampling.dry_breakers == ("\n", ":", '"', "*")
    for texts in ([], ["ä" * 20], ["\n"] * 16):
        s = (await asked(live, hi | {"dry_sequence_breakers": texts})).sampling
        assert s.dry_breakers == tuple(texts)
    for texts, place, said in (
        (["a"] * 17, "", "expected at most 16 texts, got 17"),
        (["a", ""], "[1]", "expected 1 to 40 bytes, which spread over at most 20 tokens, got 0"),
        (["ä" * 21], "[0]", "got 42 bytes"),
    ):
        param, text = await refused(live, hi | {"dry_sequence_breakers": texts})
        assert param == f"dry_sequence_breakers{place}"
        assert said in text
    for value in ("x", [1], {}, True):
        param, _ = await refused(live, hi | {"dry_sequence_breakers": value})
        assert param.startswith("dry_sequence_breakers")


async def test_log_probabilities_of_a_conversation(live, hi):
    """A chat says yes or no by logprobs; top_logprobs says how many alternatives, and needs it."""
    for sent, told in (
        ({}, None), ({"logprobs": False}, None), ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20), ({"top_logprobs": 0}, None),
    ):  # fmt: skip
        assert (await asked(live, hi | sent)).sampling.logprobs == told
    for sent in ({"top_logprobs": 1}, {"top_logprobs": 1, "logprobs": False}):
        param, text = await refused(live, hi | sent)
        assert param == "top_logprobs"
        assert "expected only with logprobs true" in text
    for value in (-(2**63), -1, 21, 1e30, "x", True, 0.5):
        param, _ = await refused(live, hi | {"logprobs": True, "top_logprobs": value})
        assert param == "top_logprobs"
    for value in (1, "x", []):
        assert (await refused(live, hi | {"logprobs": value}))[0] == "logprobs"


async def test_priorities(live, hi):
    """They reach the engine as they are."""
    assert (await asked(live, hi)).priority == 0
    assert (await asked(live, hi | {"priority": -7})).priority == -7
    assert (await asked(live, {"prompt": "x", "priority": 3}, TEXT)).priority == 3


async def test_salts(live, hi):
    """Equal salts share and others do not; what is no salt is refused before it reaches a hash."""
    one = (await asked(live, hi | {"cache_salt": "tenant-1"})).salt
    assert one == (await asked(live, hi | {"cache_salt": "tenant-1"}, CHAT)).salt
    others = [
        (await asked(live, hi | {"cache_salt": salt})).salt for salt in ("tenant-2", "!", "~")
    ]
    assert len({one, *others, (await asked(live, hi)).salt}) == 5
    assert "tenant-1" not in one
    rng = random.Random()
    for _ in range(60):
        salt = "".join(
            chr(rng.choice([1, 9, 10, 32, 65, 126, 127, 200, 0x1F600])) for _ in range(6)
        )
        if salt.isascii() and salt.isprintable() and " " not in salt:
            continue
        param, text = await refused(live, hi | {"cache_salt": salt})
        assert param == "cache_salt"
        assert "expected 1 to 128 printable ASCII characters without blanks, got " in text
    for salt in ("", "x" * 129, "x" * 100_000, 3, [], True):
        assert (await refused(live, hi | {"cache_salt": salt}))[0] == "cache_salt"
    assert (await asked(live, hi | {"cache_salt": "x" * 128})).salt


async def test_keys_share_no_prompts(start, hi):
    """Each API key has cached prompts of its own, also under one salt of the same name."""
    live = await start(api_keys=("one", "two"))
    seen, tenants = set(), set()
    for key in ("one", "two"):
        for salt in (None, "s", "s2"):
            headers = {"authorization": f"Bearer {key}"}
            got = await asked(live, hi | {"cache_salt": salt}, headers=headers)
            again = await asked(live, hi | {"cache_salt": salt}, headers={"x-api-key": key})
            assert got.salt == again.salt
            assert got.tenant == again.tenant
            seen.add(got.salt)
            tenants.add(got.tenant)
    assert len(seen) == 6
    assert len(tenants) == 2, "turns are taken by key, whatever the salt"


async def test_a_request_may_keep_off_the_cache(live, hi):
    """cache_prompt false computes the prompt afresh."""
    assert (await asked(live, hi)).reuse_cache
    assert (await asked(live, hi | {"cache_prompt": True})).reuse_cache
    assert not (await asked(live, hi | {"cache_prompt": False})).reuse_cache


@pytest.mark.parametrize("name", sorted(fields.RANGES))
async def test_numbers_at_the_ends_of_their_types(live, hi, name):
    """What no range holds is a 400 that names the field, on every route that generates."""
    rule = fields.RANGES[name]
    for route, base in ((CHAT, hi), (TEXT, {"prompt": "x"})):
        for value in (-(2**63), -1, 0, rule.high, rule.high + 1, 1e30, "x"):
            if name in ("n", "min_tokens") and value == rule.high:
                continue  # in range, but more than this server has room for
            status, got, _ = await live.post(route, base | {name: value})
            is_in = isinstance(value, (int, float)) and rule.holds(value)
            assert status == (200 if is_in else 400), (route, value, got)
            if not is_in:
                assert got["error"]["param"] == name
        status, _, _ = await live.post(route, base | {name: None})
        assert status == 200
