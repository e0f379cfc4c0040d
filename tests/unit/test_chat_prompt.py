"""What a conversation in the terminal gives to the model."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from radiance_abi.errors import ConfigurationError
from radiance_core.cli.chat import _ids


async def test_a_model_without_template_cannot_chat() -> None:
    """It is named, and the text says how to let it continue text instead."""
    loaded = SimpleNamespace(model=SimpleNamespace(model_id="tiny", template_variables=None))
    with pytest.raises(ConfigurationError) as caught:
        await _ids(cast("Any", loaded), [])
    assert str(caught.value) == (
        "tiny: the model has no chat template; use radiance run --raw to continue text"
    )
