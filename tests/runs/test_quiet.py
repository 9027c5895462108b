"""The import of TensorFlow leaves stderr as it was, and writes nothing to it."""

import subprocess
import sys

PROGRAM = """
import os, sys
from elastictrainer.runs.quiet import load_tensorflow
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
