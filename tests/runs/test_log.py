"""Lines of a run are printed once."""

import logging

from elastictrainer.runs.log import LOG, printed


def test_a_line_is_printed_once_under_the_users_own_logging(monkeypatch, capsys):
    seen = []
    handler = logging.StreamHandler()
    monkeypatch.setattr(handler, "emit", seen.append)
    monkeypatch.setattr(LOG, "handlers", [])
    logging.getLogger().addHandler(handler)  # as logging.basicConfig() does
    try:
        with printed():
            LOG.info("epoch 1")
        assert capsys.readouterr().out == "epoch 1\n" and not seen
        LOG.warning("outside of a run")
        assert [record.getMessage() for record in seen] == ["outside of a run"]
    finally:
        logging.getLogger().removeHandler(handler)


def test_the_level_that_a_user_has_set_holds_during_and_after(monkeypatch, capsys):
    monkeypatch.setattr(LOG, "handlers", [])
    monkeypatch.setattr(LOG, "level", logging.WARNING)
    LOG.manager._clear_cache()
    with printed():
        LOG.info("epoch 1")
    assert not capsys.readouterr().out and LOG.level == logging.WARNING
    monkeypatch.undo()
    LOG.manager._clear_cache()
