"""The strategy "mirrored": one process for each device of this machine, and one that watches them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Dict, List, Optional, Sequence

from elastictrainer.errors import RunError, UsageError
from elastictrainer.runs import environment
from elastictrainer.runs.run_folder import RunFolder

_MARK = "ELASTICTRAINER_REPLICA"  # in a replica's environment: their number
_PATIENCE_S = 5.0  # for the others to say what is wrong, too, and end
_INTERRUPTED = (130, -signal.SIGINT, -signal.SIGTERM)  # the latter two while Python itself was starting
_ERROR = "et-train: "  # how its line begins
# Not `python -m`, which would let modules of the working directory stand for any other.
_CODE = (
    "import sys; sys.path[:] = {path!r}; from elastictrainer.training import private_network; "
    "private_network.enter({network!r}); from elastictrainer.cli.train import main; sys.exit(main())"
)


def is_replica() -> bool:
    """Return whether this process was started by `train`."""
    return _MARK in os.environ


def suffix(rank: int) -> str:
    """Return a suffix that makes a process' run folder differ from the first one's."""
    return f"-worker{rank}" if rank else ""


def devices(asked: Optional[int]) -> List[Optional[str]]:
    """Return for each replica the GPU it is to see, as CUDA_VISIBLE_DEVICES; None for one without.

    Args:
        asked: how many; None: one for each GPU.

    Raises:
        UsageError: there are not so many GPUs; or none, and it was not said how many processes to make.
    """
    import tensorflow as tf

    count = len(tf.config.list_physical_devices("GPU"))
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = named.split(",") if named else [str(k) for k in range(count)]
    if not count and asked is None:
        raise UsageError(
            "--strategy mirrored makes a process for each GPU, and TensorFlow sees none here. --replicas 2 "
            "makes two that share the processors; leave --strategy out to train in one."
        )
    if count and asked is not None and asked > count:
        raise UsageError(
            f"--replicas {asked}: TensorFlow sees {count} GPUs. Ask for at most as many, or leave it out."
        )
    return list(gpus[: asked or count]) if count else [None] * (asked or 0)


def end_with_launcher() -> None:
    """Stop this replica, as if asked to terminate, once the process that started it has ended in any way."""

    def wait() -> None:
        # The launcher writes nothing: this returns when its end of the pipe is closed.
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def divide_processors() -> None:
    """Use a share of the processors, in a replica without a GPU. Call it before any op of TensorFlow's."""
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        usable = environment.threads()["processors"]
        tf.config.threading.set_intra_op_parallelism_threads(
            max(1, usable // int(os.environ.get(_MARK, "1")))
        )


def train(
    commands: Sequence[Sequence[str]],
    seen: Sequence[Optional[str]],
    run: str,
    program: Optional[Sequence[str]] = None,
    network: Optional[int] = None,
) -> None:
    """Run a process for each of `commands` to its end. A signal goes to all; the first one's output is shown.

    Args:
        commands: arguments of et-train, the first replica's first.
        seen: what `devices` returned.
        run: the run folder of the first.
        program: what takes these arguments; None: et-train, which finds modules where this process does.
        network: the process that keeps theirs, see `private_network`; None: they are in that of this one.

    Raises:
        RunError, UsageError: a replica failed; its last line is in the message. The others are ended.
        SystemExit: the first one did not end well, and has said why itself; with its exit status.
    """
    code = _CODE.format(path=[p for p in sys.path if p], network=network)
    program = program or (sys.executable, "-c", code)
    started: List[subprocess.Popen] = []
    with contextlib.ExitStack() as files:
        said = [files.enter_context(tempfile.TemporaryFile("w+")) for _ in commands]
        try:
            for rank, (command, variables) in enumerate(zip(commands, _environments(seen))):
                started.append(
                    subprocess.Popen(
                        [*program, *command],
                        env=variables,
                        start_new_session=True,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.DEVNULL if rank else None,
                        stderr=said[rank] if rank else None,
                    )
                )
            try:
                failed = _watch(started)
            except KeyboardInterrupt:  # each finishes its step and saves; once more ends them
                for process in started:
                    process.terminate()  # not SIGINT, which a shell's background job ignores
                failed = _watch(started)
        finally:
            for process in started:
                process.kill()
                process.wait()
                if process.stdin is not None:
                    process.stdin.close()
        if started[0].returncode == 2:  # what is asked wrongly is wrong for all, and they end in any order
            failed = 0
        # The first one says itself what is wrong, unless it was killed.
        if failed or failed == 0 and started[0].returncode < 0:
            said[failed].seek(0)
            lines = [line.strip() for line in said[failed] if line.startswith(_ERROR)]
            why = lines[-1][len(_ERROR) :] if lines else "it was killed."
            if started[failed].returncode == 2:
                raise UsageError(f"replica {failed}: {why}")
            begun = RunFolder(run)
            further = f" Go on with: {begun.resume_command}" if begun.config_path.exists() else ""
            raise RunError(f"replica {failed} failed: {why}{further}")
    status = started[0].returncode
    if status:
        raise SystemExit(_INTERRUPTED[0] if status in _INTERRUPTED else status)


def _watch(started: Sequence[subprocess.Popen]) -> Optional[int]:
    """Wait for all to end; returns the first that failed. The others, which wait for it, may then end too."""
    failed: Optional[int] = None
    since = 0.0
    while True:
        ended = all(process.poll() is not None for process in started)
        if failed is None:
            failed = next(
                (k for k, process in enumerate(started) if process.poll() not in (None, 0, *_INTERRUPTED)),
                None,
            )
            since = time.monotonic()
        if ended or failed is not None and time.monotonic() - since > _PATIENCE_S:
            return failed
        time.sleep(0.1)


def _environments(seen: Sequence[Optional[str]]) -> List[Dict[str, str]]:
    """Return the environment of each replica: who the others are, and which device is its own."""
    ports = [socket.socket() for _ in seen]
    for port in ports:
        port.bind(("127.0.0.1", 0))
    workers = [f"127.0.0.1:{port.getsockname()[1]}" for port in ports]
    for port in ports:
        port.close()
    return [
        {
            **os.environ,
            _MARK: str(len(seen)),
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
            ),
            **({"CUDA_VISIBLE_DEVICES": gpu} if gpu is not None else {}),
        }
        for rank, gpu in enumerate(seen)
    ]
