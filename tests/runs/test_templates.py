"""Page templates: what is filled in, what is escaped, what is refused."""

import jinja2
import pytest

from elastictrainer.runs.templates import render


def test_html_templates_escape_their_values():
    page = render(
        "report.html.j2",
        about="x > y",
        rows=[{"run": "<elastic>", "scheme": "<full>"}],
        curves="data:,",
        runs=[],
    )
    assert "x &gt; y" in page
    for name in ("full", "elastic"):
        assert f"&lt;{name}&gt;" in page and f"<{name}>" not in page


def test_a_template_without_its_values_is_refused():
    with pytest.raises(jinja2.UndefinedError):
        render("report.html.j2")


def test_an_unknown_template_is_refused():
    with pytest.raises(jinja2.TemplateNotFound):
        render("nothing.j2")
