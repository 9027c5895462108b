"""Signals while a run goes on."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from elastictrainer.training.interruption import HandledSignals, Interruption


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request):
    """A signal, with Python's own handling: a shell's background job ignores SIGINT."""
    own = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {one: signal.signal(one, handler) for one, handler in own.items()}
    yield request.param
    for one, handler in before.items():
        signal.signal(one, handler)


def test_a_signal_is_noted_and_handlers_are_put_back(number):
    before = signal.getsignal(number)
    with Interruption() as interruption:
        assert not interruption.asked
        os.kill(os.getpid(), number)
        assert interruption.asked
        assert signal.getsignal(number) is signal.SIG_DFL, "the next one is held back as well"
    assert signal.getsignal(number) is before


def test_signals_can_end_the_process_at_once_for_a_while(number):
    before = signal.getsignal(number)
    with HandledSignals(signal.SIG_DFL):
        assert signal.getsignal(number) is signal.SIG_DFL
    assert signal.getsignal(number) is before


def test_entered_again_nothing_was_asked_yet(number):
    interruption = Interruption()
    with interruption:
        os.kill(os.getpid(), number)
    with interruption:
        assert not interruption.asked


def test_what_is_ignored_stays_ignored(number):
    signal.signal(number, signal.SIG_IGN)
    with Interruption() as interruption:
        os.kill(os.getpid(), number)
        assert not interruption.asked
    assert signal.getsignal(number) is signal.SIG_IGN


def test_outside_the_main_thread_it_does_nothing(number):
    before, seen = signal.getsignal(number), []

    def enter():
        with Interruption():
            seen.append(signal.getsignal(number))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_second_signal_ends_the_process_at_once():
    endless = (
        "import time\nfrom elastictrainer.training.interruption import Interruption\n"
        "with Interruption() as interruption:\n    print('go', flush=True)\n"
        "    while not interruption.asked: time.sleep(0.01)\n"
        "    print('asked', flush=True)\n    while True: time.sleep(0.01)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", endless],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        for word in ("go", "asked"):
            assert process.stdout.readline().strip() == word
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=280) == -signal.SIGINT  # 130 to a shell
    finally:
        process.kill()
        process.stdout.close()
