"""The description of the machine that a run writes."""

import json
import platform


def test_threads_are_those_that_tensorflow_was_told_to_use(tf, monkeypatch):
    from elastictrainer.runs import environment

    assert tf.config.threading.get_intra_op_parallelism_threads() == 0
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert environment.threads()["intra_op"] == 3
    for nonsense in ("many", ""):
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", nonsense)
        assert environment.threads()["intra_op"] == 0


def test_the_description_is_json_and_names_versions_and_device(tf):
    from elastictrainer.runs import environment

    described = json.loads(json.dumps(environment.describe(), allow_nan=False))
    assert described["versions"]["python"] == platform.python_version()
    assert described["versions"]["tensorflow"] == tf.__version__
    assert described["device"] and described["threads"]["processors"] >= 1


def test_the_peak_of_memory_is_in_bytes_and_never_falls():
    from elastictrainer.runs import environment

    before = environment.peak_rss_bytes()
    buffer = bytearray(b"x" * 50_000_000)
    assert 10**7 < before <= environment.peak_rss_bytes() < 10**12 and len(buffer)


def test_the_memory_of_this_machine_is_known():
    from elastictrainer.runs import environment

    assert 1e8 < environment.memory_bytes() < 1e15
