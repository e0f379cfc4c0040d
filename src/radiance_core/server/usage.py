"""Token counts of an answer."""

import msgspec


class PromptDetails(msgspec.Struct):
    """Where the prompt's tokens came from."""

    cached_tokens: int = 0


class CompletionDetails(msgspec.Struct):
    """What the generated tokens were for."""

    reasoning_tokens: int = 0


class Usage(msgspec.Struct):
    """Token counts in the form that clients read."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Usage:
    """Return the counts with their sum."""
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptDetails(cached_tokens),
        completion_tokens_details=CompletionDetails(),
    )
