"""The collector of cyclic garbage is off inside, and afterwards as it was."""

import gc

import pytest

from planner.collection import without_collection


def test_it_is_off_inside_and_on_again_afterwards() -> None:
    assert gc.isenabled()
    with without_collection():
        assert not gc.isenabled()
        with without_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_leaves_it_on() -> None:
    @without_collection()
    def fails() -> None:
        assert not gc.isenabled()
        raise ValueError

    with pytest.raises(ValueError):
        fails()
    assert gc.isenabled()


def test_what_was_off_stays_off() -> None:
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
