"""Tell each row of logits how its token is drawn, and read what was drawn."""

from typing import NamedTuple

from radiance_core.constrain.errors import ConstraintError
from radiance_core.engine.row_plan import RowPlan
from radiance_core.engine.sampling import Constraint, TokenLogprob
from radiance_core.engine.sampling_row import (
    DRY,
    FLAGS_AND_LIMIT,
    FLAGS_AT,
    HISTORY,
    HISTORY_AT,
    LOGPROBS,
    MASK_ROW,
    MASK_ROW_AT,
    POSITION,
    POSITION_AT,
    ROW,
)
from radiance_core.engine.sequence import Sequence
from radiance_core.engine.token_history import TokenHistory
from radiance_core.runtime import StepModel


class _Brought(NamedTuple):
    """The history written last: tokens [first, at) of a text, from ``place`` in the plane on."""

    history: TokenHistory | None
    first: int
    at: int
    place: int


class Drawing:
    """Writes a step's sampling rows into a model's inputs, which it looks up once.

    A step calls ``begin``, then ``write`` once for each row of logits in ascending order; after the
    model ran, ``read`` gives what the rows drew.

    Args:
        model: whose inputs these are.
    """

    def __init__(self, model: StepModel) -> None:
        inputs = model.inputs
        self._model = model
        self._rows = inputs["sampling"].data.cast("B")
        self._history, self._breakers = inputs["history"], inputs["dry_breakers"]
        self._bias_ids, self._bias_values = inputs["bias_ids"], inputs["bias_values"]
        self._bitmask = inputs["bitmask"]
        self._given = inputs["logprob_ids"]
        self._biased: list[RowPlan | None] = [None] * len(self._bias_ids)
        self._brought = _Brought(None, 0, 0, 0)
        self._told: list[tuple[Sequence, int, int]] = []

    def begin(self) -> None:
        """Forget the rows of the step before."""
        self._brought = _Brought(None, 0, 0, 0)
        self._told.clear()

    def write(self, seq: Sequence, out: int, at: int) -> None:
        """Write row ``out``: it draws the token that follows the first ``at`` tokens of ``seq``.

        ``at`` is ``len(seq.tokens)`` unless drafted tokens are being verified, which follow the
        sequence's own; it is then at most ``len(seq.tokens) + len(seq.drafted)``. Where ``at`` is
        less, the token that follows is known, and the row only tells what the model thought of it.
        """
        plan, start = seq.plan, out * ROW.size
        if at < len(seq.text.ids):
            self._rows[start : start + ROW.size] = plan.given
            self._given[out] = seq.text.ids[at]
            self._told.append((seq, out, at))
            return
        drawn = at - seq.prompt_tokens
        constraint = seq.request.constraint
        masked = constraint is not None or drawn < plan.min_tokens
        self._rows[start : start + ROW.size] = plan.masked if masked else plan.plain
        POSITION.pack_into(self._rows, start + POSITION_AT, drawn)
        if masked:
            self._mask(seq, constraint, out, at)
        if not plan.is_plain:
            self._bring(seq, plan, out, at, masked=masked)

    def _mask(self, seq: Sequence, constraint: Constraint | None, out: int, at: int) -> None:
        """Write which tokens may be drawn."""
        MASK_ROW.pack_into(self._rows, out * ROW.size + MASK_ROW_AT, out)
        words, no_end = self._bitmask[out], None
        if at - seq.prompt_tokens < seq.plan.min_tokens:
            no_end = seq.plan.no_end
        if constraint is None:
            assert no_end is not None, "a row has a mask for one reason or the other"
            words[:] = no_end
            return
        drafted = seq.drafted[: at - len(seq.tokens)]
        count = _walk(constraint, drafted)
        constraint.fill(words)
        if no_end is not None and (words & no_end).any():
            # A text that is whole ends, even if it is shorter than was asked.
            words &= no_end
        if count:
            constraint.rewind(count)
        if not words.any():
            raise ConstraintError(
                f"constraint: expected a token that may come after {at - seq.prompt_tokens} "
                "generated ones, got none; loosen it"
            )

    def _bring(self, seq: Sequence, plan: RowPlan, out: int, at: int, *, masked: bool) -> None:
        """Write what the row looks back at and adds, and note that it is told."""
        if plan.history is not None:
            self._look_back(seq, plan, out, at, masked=masked)
        if plan.bias is not None and self._biased[out] is not plan:
            ids, values = plan.bias
            self._bias_ids[out, : len(ids)], self._bias_values[out, : len(ids)] = ids, values
            self._biased[out] = plan
        if plan.flags[0] & LOGPROBS:
            self._given[out] = -1
            if at == len(seq.text.ids):
                seq.told.clear()  # of drafted tokens that were not accepted
            self._told.append((seq, out, at))

    def _look_back(self, seq: Sequence, plan: RowPlan, out: int, at: int, *, masked: bool) -> None:
        history = plan.history
        assert history is not None, "callers ask first"
        history.follow(seq.text.ids, seq.drafted[: at - len(seq.text.ids)])
        first = 0 if plan.look_back < 0 else max(0, at - plan.look_back)
        was = self._brought
        if was.history is not history:
            was = _Brought(history, first, first, was.place + was.at - was.first)
        # The rows of one text look back at the same tokens and each at one more.
        low, high = was.place + was.at - was.first, was.place + at - was.first
        history.copy(was.at, at, self._history[low:high], self._breakers[low:high])
        self._brought = was._replace(at=at)
        offset = was.place + first - was.first
        HISTORY.pack_into(self._rows, out * ROW.size + HISTORY_AT, offset, at - first)
        if plan.dry_allowed:
            flags, limit = plan.flags[masked], history.since_breaker(at)
            if limit < plan.dry_allowed:
                flags, limit = flags & ~DRY, 0
            FLAGS_AND_LIMIT.pack_into(self._rows, out * ROW.size + FLAGS_AT, flags, limit)

    def read(self, out_rows: int) -> list[int | None]:
        """Return the tokens drawn by the first rows; -1 where the logits were not finite.

        Rows whose token was known drew nothing: None. What is told of tokens goes to their
        sequences.
        """
        tokens: list[int | None] = self._model.tokens[:out_rows].tolist()
        for seq, out, place in self._told:
            s, known = seq.request.sampling, place < len(seq.text.ids)
            told = self._logprob(out, (s.prompt_logprobs if known else s.logprobs) or 0)
            if known:
                tokens[out] = None if told.rank else -1
                seq.tell_prompt(told, place)
            else:
                seq.told.append(told)
        return tokens

    def _logprob(self, out: int, count: int) -> TokenLogprob:
        told = self._model.told
        token = int(self._given[out, 0])
        if token < 0:
            token = int(self._model.tokens[out])
        ids, values = told.top_idx[out, :count].tolist(), told.top_val[out, :count].tolist()
        top = tuple((i, v) for i, v in zip(ids, values, strict=True) if i >= 0)
        return TokenLogprob(token, float(told.logprob[out, 0]), int(told.rank[out, 0]), top)


def _walk(constraint: Constraint, drafted: list[int]) -> int:
    """Go on by drafted tokens as far as they are allowed; what comes after is not drawn anyway."""
    for count, token in enumerate(drafted):
        if not constraint.accept(token):
            return count
    return len(drafted)
