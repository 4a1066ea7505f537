"""First import of a fork server whose processes are to have MKL's AVX-512 kernels: before torch."""

from stemrepro.common.mkl_avx512 import load

load()
