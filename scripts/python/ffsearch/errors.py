"""What goes wrong, as exceptions with the program's own message."""

from __future__ import annotations

from typing import Sequence


class FfsearchError(Exception):
    """Anything that ffsearch, ffexec or this package refuses or cannot do.

    Attributes:
        message: what the program said, without its name in front.
        exit_code: exit code of the program: 1 and 2 wrong input, 3 the machine; 0 if no program ran.
        command: the command line that failed; empty if no program ran.
    """

    def __init__(self, message: str, exit_code: int = 0, command: Sequence[str] = ()):
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.command = tuple(command)


class InputError(FfsearchError):
    """A file, a model, an argument or data is at fault. The message says how to go on."""


class MachineError(FfsearchError):
    """The machine is at fault: a program or GPU is missing, memory ran out, a rank was lost."""


class ProgramNotFound(MachineError):
    """ffsearch, ffexec or mpirun is not installed, or not where it was looked for."""


def error_of(exit_code: int, message: str, command: Sequence[str]) -> FfsearchError:
    """The exception that an exit code stands for (docs/reference.md, "Exit codes")."""
    kind = InputError if exit_code in (1, 2) else MachineError
    return kind(message, exit_code, command)
