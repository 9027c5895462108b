"""The fingerprint of a data set, noted when a run starts, and its changes since."""

import hashlib
from typing import Any, Dict, List, Mapping, Sequence

from elastictrainer.data.image_data import ImageData
from elastictrainer.data.parts import PARTS
from elastictrainer.data.splits import Split


def fingerprint(data: ImageData) -> Dict[str, Any]:
    """Return the fingerprint of all parts of a data set."""
    return fingerprint_splits(data.class_names, data.splits)


def fingerprint_splits(class_names: Sequence[str], splits: Mapping[str, Split]) -> Dict[str, Any]:
    """Return the fingerprint of parts of a data set, as JSON values.

    These are `class_names` by label and, by part, the number of images and digests of their contents (paths,
    sizes and labels where they are files) and of these without the sizes.
    """
    return {
        "class_names": list(class_names),
        **{
            name: {"count": split.count, **{k: _digest(v) for k, v in split.fingerprint().items()}}
            for name, split in splits.items()
        },
    }


def changes(before: Dict[str, Any], now: Dict[str, Any], sizes_may_differ: bool = False) -> List[str]:
    """List the differences between two fingerprints, for a user to read.

    `sizes_may_differ` where the run named damaged files, which may have been replaced since.
    """
    found = []
    was, is_now = before["class_names"], now["class_names"]
    if was != is_now:
        found += [f"the class {name!r} is gone" for name in was if name not in is_now]
        found += [f"the class {name!r} is new" for name in is_now if name not in was]
        found = found or ["the classes are in another order"]
    if ("val" in before) != ("val" in now):
        found.append(f"the validation part is {'gone' if 'val' in before else 'new'}")
    for part in (part for part in PARTS if part in before and part in now):
        key = "names" if sizes_may_differ and "names" in before[part] else "contents"
        counts = before[part]["count"], now[part]["count"]
        if counts[0] != counts[1]:
            found.append(f"{part} had {counts[0]} images and has {counts[1]}")
        elif before[part][key] != now[part][key]:
            found.append(f"images of {part} were renamed, replaced or given another label")
    return found


def _digest(values: Any) -> str:
    return hashlib.sha256(repr(values).encode(errors="surrogateescape")).hexdigest()[:16]
