"""Pieces of CUDA C, compiled for the host."""

import ctypes
import shutil
import subprocess

import pytest

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


def compiled(folder, text):
    """A library; products and sums are not contracted, as they are not on the device."""
    source, library = folder / "code.c", folder / "code.so"
    source.write_text(text)
    options = ["-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-Wall", "-Wno-unused-function", "-shared", "-fPIC"]
    subprocess.run([COMPILER, *options, "-o", library, source, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def pointer(array):
    """NULL for None."""
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)
