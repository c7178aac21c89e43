# The C declarations of declared_state.py, for the compiler.

cimport cython


@cython.final
cdef class DeclaredState:
    cdef readonly object declaration
