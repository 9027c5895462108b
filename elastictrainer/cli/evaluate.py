"""et-evaluate: how well a trained model does on labelled images, class by class."""

import functools
import sys
from pathlib import Path
from typing import Optional, Sequence

from elastictrainer.cli.command import add_trained_model, make_parser, run
from elastictrainer.errors import UsageError
from elastictrainer.runs import ownership
from elastictrainer.runs.environment import load_tensorflow
from elastictrainer.runs.run_folder import RunFolder

_DESCRIPTION = (
    "Test a trained model: accuracy, precision, recall and F1 of every class, the confusion matrix, and "
    "the worst mistakes, as tables and pictures in a folder."
)
_EXAMPLE = "example: et-evaluate runs/birds --part val; et-evaluate model.tflite --dataset path/to/images"


def _body(arguments: Optional[Sequence[str]]) -> None:
    parser = make_parser("et-evaluate", _DESCRIPTION, _EXAMPLE)
    add_trained_model(parser)
    parser.add_argument(
        "--dataset",
        metavar="DATA",
        help="labelled images, as et-train takes them; a folder CLASS/IMAGE is used as a whole (default: a "
        "run's own data)",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="where tensorflow-datasets keeps its data")
    parser.add_argument("--label-column", metavar="NAME", help="of --dataset hf:, as et-train takes it")
    parser.add_argument("--part", choices=("test", "val", "train"), help="of the data (default: test)")
    parser.add_argument(
        "--output", metavar="DIR", help="where to write (default: RUN/evaluation, or evaluation here)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an evaluation that is there")
    options = parser.parse_args(arguments)

    is_run = (Path(options.model) / "config.yaml").is_file()
    if not is_run and options.dataset is None:
        raise UsageError(f"{options.model} is no run folder: name labelled images with --dataset.")
    if options.label_column is not None and options.dataset is None:
        raise UsageError(f"--label-column {options.label_column} goes with --dataset hf:NAME: leave it out.")
    if is_run and options.output is None:
        ownership.refuse_links(Path(options.model))
    folder = Path(options.output or (Path(options.model) / "evaluation" if is_run else "evaluation"))
    load_tensorflow()
    from elastictrainer.experiment import run_images, scoring
    from elastictrainer.models import predictor
    from elastictrainer.plotting import drawing, evaluation

    scoring.require_free(folder, options.overwrite)
    run_folder = RunFolder(options.model)
    if options.dataset is None:
        images = run_images.load_run_images(run_folder, options.part, options.data_dir)
        images = run_images.add_earlier_images(run_folder, images)
    else:
        images = run_images.load_images(options.dataset, options.part, options.data_dir, options.label_column)
        images = run_images.mark_old_classes(run_folder, images)
    classifier = predictor.load(options.model, options.weights, options.trust_model)
    scores = scoring.score(classifier, images, options.image_size)
    print(scores)
    written = scoring.write_tables(scores, folder)
    pictures = {"confusion.png": evaluation.confusion}
    if len(scores.worst(1)):
        pictures["mistakes.png"] = evaluation.mistakes
    else:
        (folder / "mistakes.png").unlink(missing_ok=True)  # of the evaluation that this one replaces
    for name, draw in pictures.items():
        drawing.save(draw(scores), folder / name)
        written.append(folder / name)
    print(f"written into {folder}: {', '.join(path.name for path in written)}")


main = functools.partial(run, "et-evaluate", _body)

if __name__ == "__main__":
    sys.exit(main())
