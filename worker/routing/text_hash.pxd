# The C types of text_hash.py.

cimport cython
from cpython.array cimport array


cdef extern from "Python.h":
    bint is_ascii "PyUnicode_IS_COMPACT_ASCII" (object text)
    Py_ssize_t length_of "PyUnicode_GET_LENGTH" (object text)
    const unsigned char* bytes_of "PyUnicode_1BYTE_DATA" (object text)


cdef unsigned int[256] TABLE


cpdef unsigned long long mix(unsigned long long number) noexcept


@cython.locals(size=Py_ssize_t, at=Py_ssize_t, crc=cython.ulonglong, number=cython.ulonglong)
cpdef unsigned long long text_hash(str key) except? 0


cpdef Py_ssize_t choice_of(str key, Py_ssize_t tasks) except -1


@cython.locals(
    count=Py_ssize_t, place=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t, size=Py_ssize_t, at=Py_ssize_t,
    crc=cython.ulonglong, number=cython.ulonglong, places=cython.int[::1],
)
cpdef array choices_of(const unsigned char[::1] data, const int[::1] offsets, Py_ssize_t tasks)


@cython.locals(number=Py_ssize_t, at=Py_ssize_t, found=list)
cpdef Py_ssize_t spread(list keys, list lists) except -1
