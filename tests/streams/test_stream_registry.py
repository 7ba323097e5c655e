import pytest

from impresslearn import streams
from impresslearn.errors import InputError
from impresslearn.streams import create_stream, list_streams


def test_every_listed_stream_is_a_public_function() -> None:
    assert "rotated_digits" in list_streams()
    assert all(callable(getattr(streams, name)) for name in list_streams())
    assert set(list_streams()) < set(streams.__all__)


@pytest.mark.parametrize("name", ["rotated_digits", "permuted_digits"])
def test_create_stream_passes_settings_on(name: str) -> None:
    stream = create_stream(name, tasks=3, seed=7)
    assert stream.name == name
    assert stream.names == getattr(streams, name)(tasks=3, seed=7).names


def test_unknown_names_and_settings_get_the_choices() -> None:
    with pytest.raises(InputError, match="unknown stream 'mnist'; choose from rotated_digits, "):
        create_stream("mnist")
    with pytest.raises(InputError, match="rotated_digits has no setting 'task'; it has tasks, "):
        create_stream("rotated_digits", task=3)
    with pytest.raises(InputError, match="split_imagenet needs the setting 'root'"):
        create_stream("split_imagenet")
