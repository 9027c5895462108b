"""The description of the machine that a run writes, and the import of TensorFlow, which writes nothing."""

import json
import platform
import subprocess
import sys


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


PROGRAM = """
import os, sys
from elastictrainer.runs.environment import load_tensorflow
sys.argv = ["et-test", *sys.argv[1:]]
load_tensorflow()
print("tensorflow" in sys.modules)
os.write(2, b"stderr works")
"""


def load(tmp_path, *arguments, content="import os\nos.write(2, b'noise ')\n"):
    """Run PROGRAM with a module `tensorflow` of that content; by default its import writes to stderr."""
    (tmp_path / "tensorflow.py").write_text(content)
    program = "import sys; sys.path.insert(0, sys.argv.pop(1))" + PROGRAM
    return subprocess.run(
        [sys.executable, "-c", program, tmp_path, *arguments], capture_output=True, text=True
    )


def test_what_the_import_writes_is_discarded_and_stderr_works_afterwards(tmp_path):
    result = load(tmp_path)
    assert (result.stdout, result.stderr) == ("True\n", "stderr works")


def test_with_debug_the_import_is_left_to_the_caller(tmp_path):
    result = load(tmp_path, "--debug")
    assert (result.stdout, result.stderr) == ("False\n", "stderr works")


def test_stderr_is_restored_after_a_failed_import(tmp_path):
    result = load(tmp_path, content="raise ImportError('broken')\n")
    assert result.returncode == 1 and "broken" in result.stderr
