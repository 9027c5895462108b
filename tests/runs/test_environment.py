"""What a run writes down about the machine."""


def test_threads_are_those_that_tensorflow_was_told_to_use(tf, monkeypatch):
    from elastictrainer.runs import environment

    assert tf.config.threading.get_intra_op_parallelism_threads() == 0
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert environment.threads()["intra_op"] == 3
    for nonsense in ("many", ""):
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", nonsense)
        assert environment.threads()["intra_op"] == 0
