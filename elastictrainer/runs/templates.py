"""The package's page templates."""

from typing import Any


def render(name: str, **values: Any) -> str:
    """Render the template `name` of the package's assets; HTML templates escape their `values`."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("elastictrainer", "assets"),
        autoescape=name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(name).render(**values)
