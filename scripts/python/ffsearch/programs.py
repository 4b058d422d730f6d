"""Finds the installed programs, runs them, and passes on what they say: results as JSON, errors as exceptions, progress
lines, and Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .errors import MachineError, ProgramNotFound, error_of

Progress = Union[bool, Callable[[str], None]]

PACKAGE = pathlib.Path(__file__).resolve().parent
BUILDS = ("release", "dev", "ci", "cuda")  # presets of CMakePresets.json, the first that is there counts


def program_folders() -> List[pathlib.Path]:
    """Where the programs are looked for, in this order."""
    if os.environ.get("FFSEARCH_BIN"):
        return [pathlib.Path(os.environ["FFSEARCH_BIN"])]
    folders = [pathlib.Path(folder) for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    folders += [PACKAGE.parents[2] / "build" / name for name in BUILDS]  # scripts/python/ffsearch in a checkout
    folders += [parent / "bin" for parent in PACKAGE.parents[:5]]        # PREFIX/lib/python3/dist-packages/ffsearch
    return folders


def find_program(name: str) -> str:
    """The path of ffsearch or ffexec.

    Looked for in the folder FFSEARCH_BIN alone if that variable is set. Otherwise in PATH, in the build folders of a
    checkout that this package is part of, and in the bin folder of the prefix in which it is installed.
    """
    for folder in program_folders():
        path = folder / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    if os.environ.get("FFSEARCH_BIN"):
        raise ProgramNotFound(f"{os.environ['FFSEARCH_BIN']}: has no program {name}; FFSEARCH_BIN must name the folder "
                              "with ffsearch and ffexec")
    raise ProgramNotFound(f"{name} is neither in PATH nor in a build folder next to {PACKAGE}: install it "
                          "(docs/how-to/install.md), or set FFSEARCH_BIN to the folder with ffsearch and ffexec")


def mpi_environment() -> Dict[str, str]:
    """This process's environment with what mpirun needs: one thread per rank, more ranks than processors, root."""
    environment = dict(os.environ)
    for name, value in (("OMP_NUM_THREADS", "1"), ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
                        ("OMPI_MCA_hwloc_base_binding_policy", "none")):
        environment.setdefault(name, value)
    if os.geteuid() == 0:
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return environment


def flags_of(flags: Mapping[str, Any]) -> List[str]:
    """Command-line flags from keyword arguments: micro_batches="auto" is --micro-batches auto, True is a flag without
    a value, None and False are left out, a list is a flag with comma-separated values, a tuple is repeated."""
    arguments: List[str] = []
    for name, value in flags.items():
        flag = "--" + name.strip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(flag)
        elif isinstance(value, tuple):
            for each in value:
                arguments += [flag, str(each)]
        elif isinstance(value, list):
            arguments += [flag, ",".join(str(each) for each in value)]
        else:
            arguments += [flag, str(value)]
    return arguments


@dataclass(frozen=True)
class Finished:
    """What a program said."""

    output: str
    notes: Tuple[str, ...]
    interrupted: bool
    exit_code: int

    def json(self) -> Dict[str, Any]:
        return json.loads(self.output)


class _Stderr:
    """Divides what comes on stderr into progress lines, which end with a carriage return or are those of ffexec, and
    all others."""

    PROGRESS = re.compile(r"(iteration|epoch) \d+.*: ")

    def __init__(self, progress: Progress):
        self.progress = progress
        self.lines: List[str] = []
        self.pending = b""
        self.width = 0  # of the progress line that stands on the terminal

    def feed(self, data: bytes) -> None:
        self.pending += data
        while True:
            found = re.search(rb"\r\n|\r(?!$)|\n", self.pending)  # a CR at the end may be the first half of CR LF
            if not found:
                break
            self._line(self.pending[:found.start()], found[0] == b"\r")
            self.pending = self.pending[found.end():]

    def finish(self) -> None:
        self._line(self.pending.rstrip(b"\r"), self.pending.endswith(b"\r"))
        self.pending = b""
        if self.width:
            print("\r" + " " * self.width + "\r", end="", file=sys.stderr, flush=True)

    def _line(self, raw: bytes, returns: bool) -> None:
        text = raw.decode(errors="replace").replace("\033[K", "")
        if not text.strip():
            return
        if not returns and not self.PROGRESS.match(text):
            self.lines.append(text)
        elif callable(self.progress):
            self.progress(text.strip())
        elif self.progress and returns:
            print("\r" + text.rstrip().ljust(self.width), end="", file=sys.stderr, flush=True)
            self.width = max(self.width, len(text.rstrip()))
        elif self.progress:
            print(text, file=sys.stderr, flush=True)


# What mpirun adds to a failure stands between lines of dashes.
_MPIRUN = re.compile(r"^-{20,}\n.*?^-{20,}\n?", re.MULTILINE | re.DOTALL)


def message_of(lines: Sequence[str]) -> str:
    """The program's message, without its name, its notes and what mpirun adds."""
    text = "\n".join(lines) + "\n"
    shorter = _MPIRUN.sub("", text)
    kept = [line for line in (shorter if shorter.strip() else text).split("\n")
            if "note:" not in line[:20] and line != "Run with --help for more information."]
    return re.sub(r"^(ffsearch|ffexec): ", "", "\n".join(kept).strip())


def notes_of(lines: Sequence[str]) -> Tuple[str, ...]:
    found = (re.match(r"(?:ffsearch|ffexec): (?:note: )?(.*)", line) for line in lines)
    return tuple(match[1] for match in found if match)


def _guarded(command: Sequence[str]) -> List[str]:
    """The command, ended by the system if this process dies without a word."""
    guard = shutil.which("setpriv")
    return [guard, "--pdeathsig", "TERM", "--", *command] if guard else list(command)


def _open_stderr(terminal: bool) -> Tuple[int, int]:
    """(end to read, end to write). The programs show progress on a terminal only."""
    if not terminal:
        return os.pipe()
    import pty  # pylint: disable=import-outside-toplevel
    import termios  # pylint: disable=import-outside-toplevel
    reading, writing = pty.openpty()
    attributes = termios.tcgetattr(writing)
    attributes[1] &= ~termios.OPOST  # line ends as they are
    termios.tcsetattr(writing, termios.TCSANOW, attributes)
    return reading, writing


class _Child:
    """A running program. The first Ctrl-C asks it to end with what it has, the second one ends it."""

    def __init__(self, process: "subprocess.Popen[bytes]", stderr: int, progress: Progress, interrupt: int):
        self.process, self.stderr, self.says = process, stderr, _Stderr(progress)
        self.signal = interrupt
        self.interrupted = False

    def wait(self) -> None:
        while True:
            try:
                self._read_to_the_end()
                return
            except KeyboardInterrupt:
                self._interrupt()
            except BaseException:
                self.process.kill()
                self.process.wait()
                raise

    def _interrupt(self) -> None:
        if self.interrupted:
            self.process.kill()
            self.process.wait()
            raise KeyboardInterrupt
        self.interrupted = True
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(self.signal)

    def _read_to_the_end(self) -> None:
        # Not until the pipe's end alone: a program that the child has left behind may hold it open.
        while True:
            ended = self.process.poll() is not None
            readable = select.select([self.stderr], [], [], 0 if ended else 0.1)[0]
            data = b""
            if readable:
                with contextlib.suppress(OSError):  # EIO is the end of a terminal
                    data = os.read(self.stderr, 1 << 16)
            if data:
                self.says.feed(data)
            elif ended:
                return
            elif readable:
                self.process.wait()


def run(command: Sequence[str], *, progress: Progress = False, terminal: bool = False,
        environment: Optional[Dict[str, str]] = None, interrupt: int = signal.SIGINT,
        shown: Mapping[str, str] = {}) -> Finished:  # pylint: disable=dangerous-default-value
    """Runs a program to its end. `shown`: what paths of temporary files are called in messages. `interrupt`: the signal
    that Ctrl-C becomes.

    Raises:
        InputError, MachineError: with the program's message.
        KeyboardInterrupt: a second Ctrl-C.
    """
    command = [str(part) for part in command]
    reading, writing = _open_stderr(terminal)
    with tempfile.TemporaryFile() as output:
        try:
            # In a session of its own, so that Ctrl-C reaches it once: by us.
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                _guarded(command), stdin=subprocess.DEVNULL, stdout=output, stderr=writing, env=environment,
                start_new_session=True)
        except OSError as error:
            os.close(reading)
            raise MachineError(f"{command[0]}: {error.strerror}", 0, command) from None
        finally:
            os.close(writing)
        child = _Child(process, reading, progress, interrupt)
        try:
            child.wait()
        finally:
            os.close(reading)
            child.says.finish()
        output.seek(0)
        text = output.read().decode(errors="replace")
    lines = [_named(line, shown) for line in child.says.lines]
    interrupted = child.interrupted or process.returncode == 130
    if process.returncode != 0 and not interrupted:
        raise error_of(process.returncode, message_of(lines) or _died(process.returncode), command)
    return Finished(text, notes_of(lines), interrupted, process.returncode)


def _died(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}, without a message"


def _named(line: str, shown: Mapping[str, str]) -> str:
    for path, name in shown.items():
        line = line.replace(path, name)
    return line


def ffsearch(*arguments: Any, progress: Progress = False, shown: Mapping[str, str] = {}) -> Finished:  # noqa: B006
    """`ffsearch ARGUMENTS`."""
    command = [find_program("ffsearch"), *(str(argument) for argument in arguments)]
    return run(command, progress=progress, terminal=bool(progress), shown=shown)


def ffexec(ranks: int, *arguments: Any, mpirun: Sequence[str] = ("mpirun",), progress: Progress = False,
           shown: Mapping[str, str] = {}) -> Finished:  # noqa: B006
    """`mpirun -n RANKS ffexec ARGUMENTS`."""
    launcher = shutil.which(mpirun[0])
    if not launcher:
        raise ProgramNotFound(f"{mpirun[0]} is not in PATH: training needs Open MPI (package openmpi-bin)")
    command = [launcher, *mpirun[1:], "-n", str(ranks), find_program("ffexec"), *(str(each) for each in arguments)]
    # After SIGINT mpirun passes on only a part of the ranks' output; SIGUSR1 it passes on to the ranks.
    return run(command, progress=progress, environment=mpi_environment(), interrupt=signal.SIGUSR1, shown=shown)


class Folder:
    """A temporary folder that stays as long as an object that refers to it."""

    def __init__(self) -> None:
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="ffsearch-"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, str(self.path), ignore_errors=True)

    def __truediv__(self, name: str) -> pathlib.Path:
        return self.path / name


def data_folder() -> pathlib.Path:
    """The folder with graphs/, topologies/ and profiles/: of the checkout, or of the installed programs."""
    folders = [PACKAGE.parents[2]] + [parent / "share" / "ffsearch" for parent in PACKAGE.parents[:5]]
    with contextlib.suppress(ProgramNotFound):
        folders.append(pathlib.Path(find_program("ffsearch")).resolve().parents[1] / "share" / "ffsearch")
    for folder in folders:
        if (folder / "topologies").is_dir() and (folder / "graphs").is_dir():
            return folder
    raise ProgramNotFound("graphs, topologies and profiles are not installed next to the programs: use the path of a "
                          "file instead of a name")
