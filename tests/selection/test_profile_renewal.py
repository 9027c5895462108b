"""When the policy renews its profile, with simulated times and a fake renewal. No TensorFlow."""

import pytest

from simulation import FakeRenewal, SimulatedRun, chain


def test_a_profile_that_the_clock_contradicts_at_two_reviews_in_a_row_is_renewed():
    right = chain(40, full_ms=200.0)
    renewal = FakeRenewal(right)
    run = SimulatedRun(chain(40), 100.0, 80.0, renewal=renewal).go()
    first, *_ = renewal.finished
    assert first[1:] == (100.0, first[2], f"minibatch {first[2] - 1}", 4)
    assert first[2] in range(300, run.schedule.steps, 300) and run.policy.timings is right
    assert "the profile was renewed: full step 200.0 ms, rho_min 0.3" in "\n".join(run.said)
    assert len(renewal.finished) <= len(run.schedule.selection_steps)  # once an interval


def test_a_profile_that_the_clock_confirms_is_left_alone():
    renewal = FakeRenewal(chain(40))
    SimulatedRun(chain(40), 100.0, renewal=renewal).go()
    assert not renewal.finished


@pytest.mark.parametrize("options", [{"reprofile": "never"}, {"reprofile": "auto", "feedback": False}])
def test_never_and_no_feedback_leave_a_wrong_profile(options):
    renewal = FakeRenewal(chain(40))
    SimulatedRun(chain(40), 100.0, 80.0, renewal=renewal, **options).go()
    assert not renewal.finished


def test_always_renews_the_profile_before_every_selection():
    timings = chain(40)
    renewal = FakeRenewal(timings)
    run = SimulatedRun(timings, 100.0, epochs=3, interval=1, renewal=renewal, reprofile="always").go()
    assert [step for _, _, step, _, _ in renewal.finished] == run.schedule.selection_steps
    assert [traced for *_, traced in renewal.finished] == [4, 4, 4]
    assert run.policy.selections == 3 and run.policy.corrections == 0


def test_a_trace_in_progress_is_dropped_when_the_run_ends_early():
    renewal = FakeRenewal(chain(40))
    run = SimulatedRun(chain(40), 100.0, renewal=renewal, reprofile="always").go(46)
    run.policy.close()
    run.policy.close()
    assert renewal.abandoned == 1 and not renewal.finished
