"""A missing real part is skipped in plain words, and fails where real parts are demanded."""

import pytest

from tests.real_parts import REQUIRED, require


def test_a_missing_part_is_skipped_or_fails_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    require(True, "never said")
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install it"):
        require(False, "apt-get install it")
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install it"):
        require(False, "apt-get install it")
