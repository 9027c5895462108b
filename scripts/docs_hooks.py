"""What the pages in docs/ link to outside of it, as part of the built site.

On a code host a page of docs/ links to `../SECURITY.md` or `../tests/files/wheels.json`, and README.md to
`docs/usage.md`. In the site README.md and the other pages beside it are pages, README.md the first; any other
file that is linked to is copied into `files/`. The links are changed to lead there. One that leads nowhere
fails the build.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
# [text](target#anchor), an image or not; anything with a scheme leads elsewhere.
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages beside docs/."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let the page's links lead to where their targets are in the site."""
    name = page.file.src_uri
    folder = "" if name in PAGES else "docs"

    def in_site(found: "re.Match[str]") -> str:
        target = posixpath.normpath(posixpath.join(folder, found[2]))
        if target.startswith("docs/"):
            target = target[len("docs/") :]
        elif target not in PAGES and (ROOT / target).is_file():
            place = f"files/{target}" if "." in posixpath.basename(target) else f"files/{target}.txt"
            if files.get_file_from_path(place) is None:
                files.append(File.generated(config, place, abs_src_path=str(ROOT / target)))
            target = place
        return f"{found[1]}{target}{found[3]}"

    return LINK.sub(in_site, markdown)
