"""The description of the machine that a run writes, and the import of TensorFlow, which writes nothing."""

import json
import os
import platform
import subprocess
import sys

import pytest

from elastictrainer.runs import environment


def test_threads_are_those_that_tensorflow_was_told_to_use(tf, monkeypatch):
    assert tf.config.threading.get_intra_op_parallelism_threads() == 0
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert environment.threads()["intra_op"] == 3
    for nonsense in ("many", ""):
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", nonsense)
        assert environment.threads()["intra_op"] == 0


def test_the_description_is_json_and_names_versions_and_device(tf):
    described = json.loads(json.dumps(environment.describe(), allow_nan=False))
    assert described["versions"]["python"] == platform.python_version()
    assert described["versions"]["tensorflow"] == tf.__version__
    assert described["device"] and described["threads"]["processors"] >= 1


def test_the_peak_of_memory_is_in_bytes_and_never_falls():
    before = environment.peak_rss_bytes()
    buffer = bytearray(b"x" * 50_000_000)
    assert 10**7 < before <= environment.peak_rss_bytes() < 10**12 and len(buffer)


PROGRAM = """
import os, sys
from elastictrainer.runs.environment import load_tensorflow
sys.argv = ["et-test", *sys.argv[1:]]
load_tensorflow()
print("tensorflow" in sys.modules)
os.write(2, b"stderr works")
"""


@pytest.mark.parametrize(
    "content, options, status, said",
    [
        ("import os\nos.write(2, b'noise ')", (), 0, ("True\n", "stderr works")),
        # With --debug the import is left to the caller.
        ("import os\nos.write(2, b'noise ')", ("--debug",), 0, ("False\n", "stderr works")),
        ("raise ImportError('broken')", (), 1, ("", "broken")),
    ],
    ids=["noise", "debug", "failing"],
)
def test_what_the_import_writes_is_discarded_and_stderr_works_afterwards(
    tmp_path, content, options, status, said
):
    (tmp_path / "tensorflow.py").write_text(content)
    program = "import sys; sys.path.insert(0, sys.argv.pop(1))" + PROGRAM
    command = [sys.executable, "-c", program, tmp_path, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (status, said[0])
    assert said[1] in done.stderr and "noise" not in done.stderr


@pytest.mark.parametrize(
    "before, given, expected",
    [("", None, "1"), ("", "0", "0"), ("import types; sys.modules['tensorflow'] = types; ", None, "None")],
    ids=["not set", "the user's own", "TensorFlow is there"],
)
def test_onednn_is_asked_for_on_x86_before_tensorflow_looks(before, given, expected):
    variables = {k: v for k, v in os.environ.items() if k != "TF_ENABLE_ONEDNN_OPTS"}
    if given is not None:
        variables["TF_ENABLE_ONEDNN_OPTS"] = given
    for machine in ("x86_64", "aarch64"):
        program = (
            f"import os, sys, platform; platform.machine = lambda: {machine!r}; {before}"
            "import elastictrainer; print(os.environ.get('TF_ENABLE_ONEDNN_OPTS'))"
        )
        said = subprocess.check_output([sys.executable, "-c", program], env=variables, text=True)
        assert said.strip() == (expected if machine == "x86_64" else str(given))
