"""Builds the package's wheel for pip (PEP 517), with the standard library alone: setuptools would have to be
downloaded, and `pip install scripts/python` is to work without a network. The package is pure Python, so that a wheel
is a zip archive of its files and three files of metadata (binary distribution format of packaging.python.org)."""

import base64
import hashlib
import pathlib
import re
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent
TAG = "py3-none-any"


def version():
    return re.search(r'__version__ = "(.*)"', (ROOT / "ffsearch/__init__.py").read_text(encoding="utf-8"))[1]


def metadata():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return (f"Metadata-Version: 2.1\nName: ffsearch\nVersion: {version()}\n"
            "Summary: Plans how to train neural networks on several devices, and trains them with the plan\n"
            "License: Apache-2.0\nRequires-Python: >=3.9\nProvides-Extra: data\nProvides-Extra: torch\n"
            'Requires-Dist: numpy; extra == "data"\nRequires-Dist: numpy; extra == "torch"\n'
            f'Requires-Dist: torch; extra == "torch"\nDescription-Content-Type: text/markdown\n\n{readme}')


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def write(wheel_directory, files):
    folder = f"ffsearch-{version()}.dist-info"
    files = {**files, f"{folder}/METADATA": metadata().encode(),
             f"{folder}/WHEEL": ("Wheel-Version: 1.0\nGenerator: ffsearch\nRoot-Is-Purelib: true\n"
                                 f"Tag: {TAG}\n").encode()}
    record = "".join(record_line(name, content) for name, content in files.items()) + f"{folder}/RECORD,,\n"
    name = f"ffsearch-{version()}-{TAG}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in {**files, f"{folder}/RECORD": record.encode()}.items():
            archive.writestr(path, content)
    return name


def sources():
    paths = [*sorted((ROOT / "ffsearch").glob("*.py")), ROOT / "ffsearch/py.typed"]
    return {f"ffsearch/{path.name}": path.read_bytes() for path in paths}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):  # pylint: disable=unused-argument
    return write(wheel_directory, sources())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):  # pylint: disable=unused-argument
    return write(wheel_directory, {"ffsearch.pth": f"{ROOT}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):  # pylint: disable=unused-argument
    name = f"ffsearch-{version()}"
    with tarfile.open(pathlib.Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as archive:
        for path in (*sources(), "pyproject.toml", "README.md", "build_wheel.py"):
            archive.add(ROOT / path, f"{name}/{path}")
    return f"{name}.tar.gz"
