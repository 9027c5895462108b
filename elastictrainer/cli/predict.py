"""et-predict: what a trained model sees in pictures."""

import contextlib
import functools
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Dict, Optional, Sequence

from elastictrainer.cli.command import add_trained_model, make_parser, run
from elastictrainer.errors import RunError, UsageError, abbreviated
from elastictrainer.runs.environment import load_tensorflow
from elastictrainer.runs.log import LOG

_DESCRIPTION = "Classify pictures by a trained model: class and probability, a line for each picture."
_EXAMPLE = "example: et-predict runs/birds photo.jpg; et-predict model.tflite --json - < photo.jpg"
_STDIN = "-"


def _body(arguments: Optional[Sequence[str]]) -> None:
    parser = make_parser("et-predict", _DESCRIPTION, _EXAMPLE)
    add_trained_model(parser)
    parser.add_argument(
        "images",
        metavar="IMAGE",
        nargs="+",
        help="a picture, a folder of pictures (those in its folders too), or - for one picture on standard "
        "input; for a list of files: xargs et-predict MODEL < list",
    )
    parser.add_argument("--top", type=int, default=1, metavar="K", help="the K most probable classes (1)")
    parser.add_argument(
        "--json", action="store_true", help="a line of JSON for each picture: image, classes, probabilities"
    )
    options = parser.parse_args(arguments)
    if options.top < 1:
        raise UsageError(f"--top {options.top} is out of range; allowed: at least 1.")
    load_tensorflow()
    import numpy as np

    from elastictrainer.data import pictures
    from elastictrainer.data.user_images import FileSplit
    from elastictrainer.experiment import scoring
    from elastictrainer.models import predictor

    with contextlib.ExitStack() as stack:
        shown = _pictures(options.images, stack)
        classifier = predictor.load(options.model, options.weights, options.trust_model)
        problems = pictures.find_problems(list(shown), thorough=True)
        files = [file for file in shown if str(file) not in problems]
        if not files:
            raise UsageError(f"none of the pictures can be read: {abbreviated(list(problems.values()))}.")
        for problem in problems.values():
            LOG.warning(f"et-predict: {problem}")
        width = max(map(len, shown.values()))
        split = FileSplit(np.array(files, str), np.zeros(len(files), int))
        minibatches = scoring.probabilities(classifier, split, options.image_size)
        for file, row in zip(files, itertools.chain.from_iterable(minibatches)):
            classes = classifier.names(len(row))
            best = np.argsort(-row, kind="stable")[: options.top]
            top = {classes[k]: float(row[k]) for k in best}
            if options.json:
                ranked = [{"class": each, "probability": round(p, 6)} for each, p in top.items()]
                line = json.dumps({"image": shown[file], "classes": ranked}, ensure_ascii=False)
            else:
                ranks = "   ".join(f"{each} {100 * p:.1f} %" for each, p in top.items())
                line = f"{shown[file]:<{width}}  {ranks}"
            print(line, flush=True)
        if problems:
            raise RunError(f"{len(problems)} of {len(shown)} pictures could not be read.")


def _pictures(asked: Sequence[str], stack: contextlib.ExitStack) -> Dict[Path, str]:
    """Return the files to read and their names; standard input is in a file until `stack` closes."""
    from elastictrainer.data import pictures

    found: Dict[Path, str] = {}
    for name in asked:
        if name == _STDIN:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="elastictrainer-"))
            file = Path(folder) / "standard input"
            file.write_bytes(sys.stdin.buffer.read())
            found[file] = name
        elif Path(name).is_dir():
            files = list(pictures.files_inside(Path(name)))
            images = [file for file in files if pictures.has_picture_name(file)]
            others = [str(file) for file in files if not pictures.has_picture_name(file)]
            if others:
                ends = " ".join(pictures.SUFFIXES)
                LOG.warning(f"et-predict: not read: {abbreviated(others)}; pictures end in {ends}")
            if not images:
                raise UsageError(f"there is no picture in {name}.")
            found.update({file: str(file) for file in images})
        else:
            found[Path(name)] = name
    return found


main = functools.partial(run, "et-predict", _body)

if __name__ == "__main__":
    sys.exit(main())
