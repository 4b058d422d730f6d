"""What graphs, topologies and plans have in common: each is a JSON file, kept as a copy of its own."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import tempfile
from typing import Any, Dict, Mapping, Optional, Type, TypeVar, Union

from .errors import InputError
from .programs import Folder, data_folder

PathLike = Union[str, "os.PathLike[str]"]
Self = TypeVar("Self", bound="JsonFile")


def write_whole(path: PathLike, text: str) -> None:
    """The file appears whole or not at all."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: {error.strerror}") from None


def copy_file(source: PathLike, target: PathLike) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        name = target if os.path.exists(source) else source
        raise InputError(f"{os.fspath(name)}: {error.strerror}") from None


class JsonFile:
    """A file of one of the product's formats (docs/formats.md).

    Attributes:
        path: the file that programs read: a copy in a temporary folder, which this object owns. Do not change it.
        source: what messages call it: the path it was loaded from, or a description.
    """

    FORMAT = ""

    def __init__(self, path: pathlib.Path, folder: Folder, source: str):
        self.path, self._folder, self.source = path, folder, source
        self._data: Optional[Dict[str, Any]] = None

    @classmethod
    def _read(cls: Type[Self], path: PathLike, **attributes: Any) -> Self:
        """A copy of the file; `attributes` are those of the constructor besides."""
        folder = Folder()
        copy = folder / pathlib.Path(path).name
        copy_file(path, copy)
        read = cls(copy, folder, os.fspath(path), **attributes)
        found = read.data.get("format") if isinstance(read.data, dict) else None
        if found != cls.FORMAT:
            raise InputError(f'{read.source}: /format: found {json.dumps(found)}, expected "{cls.FORMAT}"')
        return read

    @property
    def data(self) -> Dict[str, Any]:
        """The file's content. Changes of it have no effect."""
        if self._data is None:
            try:
                self._data = json.loads(self.path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise InputError(f"{self.source}: is not JSON: {error}") from None
        return self._data

    @property
    def name(self) -> str:
        """The name that the file gives."""
        return str(self.data.get("name", ""))

    def save(self, path: PathLike) -> None:
        """Writes the file."""
        copy_file(self.path, path)

    @property
    def _shown(self) -> Mapping[str, str]:
        return {str(self.path): self.source}


def installed_file(kind: str, name: str) -> pathlib.Path:
    """One of the files that are installed with the programs."""
    folder = data_folder() / kind
    path = folder / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in folder.glob("*.json")))
        raise InputError(f'there are no {kind} "{name}"; known: {known}')
    return path
