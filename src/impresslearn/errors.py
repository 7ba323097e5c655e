"""The errors that a caller may meet: one line each, saying what was expected and what came.

They derive from the built-in error of the same meaning, so `except ValueError` works too; the
command line prints the line and exits with 2.
"""


class ImpressLearnError(Exception):
    """Base of every error that this library raises on purpose."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would print quotes around it


class InputError(ImpressLearnError, ValueError):
    """A value, shape, label or setting that cannot be used."""


class FixedSettingError(ImpressLearnError, AttributeError):
    """A setting that was changed after its owner was made."""


class UnknownTaskError(ImpressLearnError, KeyError):
    """A task name that was never learned."""


class MissingDependencyError(ImpressLearnError, ImportError):
    """An optional package is needed and is not installed."""


class MissingDataError(ImpressLearnError, FileNotFoundError):
    """A data set is neither at the given place nor downloadable."""


class TrainingError(ImpressLearnError, ArithmeticError):
    """Optimisation left the finite numbers."""


class StoreError(ImpressLearnError, ValueError):
    """A store file that cannot be used: damaged, foreign, busy, or with no room to write."""
