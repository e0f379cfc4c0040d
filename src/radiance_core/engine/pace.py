"""How many prompt tokens a step may take while others wait for its end: as time allows."""

AIM_S = 0.2
"""Seconds that such a step is to take at most."""
LEAST_TOKENS = 16
"""Fewer would read prompts at the speed of writing answers, whatever the machine."""
FIRST_TOKENS = 64
"""Tokens before anything was measured."""
NEWS = 0.5
"""Weight of the last step in the moving average."""


class Pace:
    """Follows what a prompt token costs.

    The whole time of a step is laid on its prompt tokens, also what the step would have taken
    without them. So the number settles where the whole step takes the time that was aimed at:
    with a fixed part f and c for each token, n becomes aim * n / (f + c * n), whose fixed point is
    (aim - f) / c, and whose slope there is f / aim, which is below one.
    """

    def __init__(self) -> None:
        self._token_s = 0.0

    @property
    def tokens(self) -> int:
        """Prompt tokens of a step that more than one sequence takes part in."""
        if not self._token_s:
            return FIRST_TOKENS
        return max(LEAST_TOKENS, int(AIM_S / self._token_s))

    def measure(self, num_tokens: int, seconds: float) -> None:
        """Learn from a step; one of only a few prompt tokens tells of its fixed part alone."""
        if num_tokens < LEAST_TOKENS:
            return
        now = seconds / num_tokens
        self._token_s += (NEWS if self._token_s else 1.0) * (now - self._token_s)
