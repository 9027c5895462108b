from elastictrainer.training.stopwatch import Stopwatch


def test_an_inner_lap_pauses_the_outer_one():
    now = iter([0.0, 1.0, 3.0, 10.0, 10.0])
    watch = Stopwatch(clock=lambda: next(now))
    with watch.lap("outer"):  # opens at 0
        with watch.lap("inner"):  # opens at 1, closes at 3
            pass
    # outer closes at 10
    assert dict(watch.seconds) == {"outer": 8.0, "inner": 2.0}
    assert watch.total("inner") == 8.0
