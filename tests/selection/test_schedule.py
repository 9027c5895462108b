"""Which steps select, and which train every tensor. No TensorFlow."""

import numpy as np

from elastictrainer.selection.schedule import Schedule


def test_selections_come_early_then_after_half_an_interval_then_at_every_interval_but_not_at_the_end():
    schedule = Schedule(12, 1000, interval=4)
    assert schedule.selection_steps == [48, 2000, 6000]
    assert [schedule.selections_left(step) for step in (0, 48, 49, 6000, 6001)] == [3, 3, 2, 1, 0]


def test_full_steps_open_the_run_precede_every_selection_and_recur():
    schedule = Schedule(12, 1000, interval=4)
    due = np.array([schedule.full_step_due(step) for step in range(12_000)])
    for selection, before in zip(schedule.selection_steps, (48, 20, 20)):
        assert due[selection - before : selection].all()
    recurring = due.copy()
    for selection, before in zip(schedule.selection_steps, (48, 20, 20)):
        recurring[selection - before : selection] = False
    assert np.flatnonzero(recurring)[:4].tolist() == [295, 296, 297, 298]


def test_a_short_epoch_opens_with_fewer_full_steps():
    assert Schedule(3, 20, 1).selection_steps == [5, 20, 40]


def test_the_plan_counts_what_is_left():
    schedule = Schedule(12, 1000, interval=4)
    assert [schedule.epochs_begun(step) for step in (0, 999, 1000, 11_999, 12_000)] == [1, 1, 2, 12, 12]
    assert [schedule.burst_left(step) for step in (0, 40, 47, 48, 295, 299, 1980, 1999)] == [
        48,
        8,
        1,
        0,
        5,
        1,
        20,
        1,
    ]
    assert schedule.full_left(48) == schedule.full_left(0) - 48
    assert schedule.selected_left(6000) == 6000 - schedule.full_left(6000)
    assert schedule.selected_left(1990) == 0


def test_with_reuse_full_steps_open_the_run_and_never_come_again():
    schedule = Schedule(12, 1000, interval=4, reuse=True)
    due = np.array([schedule.full_step_due(step) for step in range(12_000)])
    assert due[:48].all() and due.sum() == 48


def test_over_how_many_epochs_an_interval_records_and_replays():
    schedule = Schedule(12, 1000, interval=4, reuse=True)
    assert schedule.epochs_from(48) == (2000 - 48) / 952
    assert schedule.epochs_from(2000) == 4
    assert schedule.epochs_from(6000) == 6
    assert schedule.longest() == 6
    assert Schedule(12, 1000, interval=4).epochs_from(2000) == 1


def test_with_reuse_full_steps_are_timed_at_selections_and_about_each_so_many_steps_where_an_epoch_begins():
    long, short = Schedule(12, 750, 4, reuse=True), Schedule(10, 87, 5, reuse=True)
    assert due(long) == [*range(750, 9000, 750)]  # before the selection at 48 the opening tells it
    assert due(short) == [174, 348, 609]  # every epoch has fewer than `EVERY` steps
    assert due(Schedule(6, 20, 6, reuse=True))[0] == 5  # an opening that short says little
    assert due(Schedule(12, 750, 4)) == due(Schedule(12, 750, None, reuse=True)) == []


def due(schedule):
    return [step for step in range(schedule.steps) if schedule.timing_due(step)]
