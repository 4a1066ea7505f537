"""MKL's AVX-512 kernels on processors of other makers than Intel.

Torch's products on a CPU are MKL's. On other makers' processors MKL takes its AVX2 kernels, and no setting changes
that. It asks its own function `mkl_serv_intel_cpu_true`, which isn't documented. A library that is loaded before torch
answers in that function's place.
"""

import ctypes
import os
import secrets
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from stemrepro.common.files import private_folder

ANSWER = "mkl_serv_intel_cpu_true"
SOURCE = f"int {ANSWER}(void) {{ return 1; }}\n"


def built() -> Path:
    """Return the library, made on its first use; OSError or CalledProcessError: there is no working C compiler."""
    library = private_folder() / "mkl_avx512.so"
    if not library.exists():
        aside = library.with_name(f".{library.name}.{secrets.token_hex(4)}")
        command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", str(aside)]
        subprocess.run(command, input=SOURCE, text=True, check=True, capture_output=True)
        os.replace(aside, library)
    return library


def in_force() -> bool:
    """Tell whether this process has a library that answers MKL."""
    return hasattr(ctypes.CDLL(None), ANSWER)


def load() -> None:
    """Load the library where it can be built; not behind torch, which has asked by then."""
    if "torch" not in sys.modules:
        with suppress(OSError, subprocess.CalledProcessError):
            ctypes.CDLL(str(built()), mode=ctypes.RTLD_GLOBAL)
