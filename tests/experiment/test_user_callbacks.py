import pytest

from elastictrainer import UsageError
from elastictrainer.experiment import user_callbacks


def test_a_class_and_a_function_are_called(tf):
    made = user_callbacks.create("usercallbacks:Notes,usercallbacks:stops_after_an_epoch")
    assert [type(callback).__name__ for callback in made] == ["Notes", "LambdaCallback"]
    assert user_callbacks.create(None) == []


@pytest.mark.parametrize(
    "place, message",
    [
        ("usercallbacks:Nots", "usercallbacks has no 'Nots'"),
        ("no.such.module:Notes", "cannot import no.such.module"),
        ("usercallbacks:needs_more", "needs_more failed: TypeError: .*'project' .*without arguments"),
        ("usercallbacks:none_at_all", "gave a int, not a Keras callback"),
    ],
)
def test_what_is_no_callback_is_told(tf, place, message):
    with pytest.raises(UsageError, match=message):
        user_callbacks.create(f"usercallbacks:Notes,{place}")
