"""Settings that cannot be changed once their owner is made."""

from __future__ import annotations

from typing import Any

from impresslearn.errors import FixedSettingError


class ReadOnlySettings:
    """Public attributes are set once, by the constructor, and refused afterwards.

    What was learned depends on them, so changing one later would do nothing, or do half.
    """

    _changeable = frozenset({"progress"})

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name in self.__dict__ and name not in self._changeable:
            kind = type(self).__name__
            raise FixedSettingError(
                f"{name} of a {kind} is fixed once it is made; make another {kind} with "
                f"{name}={str(value)[:40]}"
            )
        super().__setattr__(name, value)
