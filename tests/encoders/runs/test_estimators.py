import pytest

from orbithash.encoders.runs.estimators import take_apart
from orbithash.errors import InputError


def test_what_cannot_be_saved_is_named():
    with pytest.raises(InputError, match=r"hasher\.rule is a function"):
        take_apart(lambda: None, "hasher.rule", {})
