# The C types of plain_values.py.

cimport cython

from worker.routing.text_hash cimport text_hash
from worker.state.table cimport StateTable
from worker.state.values cimport ValueHandle


cdef extern from "Python.h":
    object generic_get "PyObject_GenericGetAttr" (object owner, object name)
    int generic_set "PyObject_GenericSetAttr" (object owner, object name, object value) except -1


@cython.final
cdef class ValueCell:
    cdef public object key
    cdef public object now
    cdef public object before
    cdef public long long epoch


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define SQUALL_FETCH(place) __builtin_prefetch(place)
    #else
    #define SQUALL_FETCH(place) ((void)(place))
    #endif
    static CYTHON_INLINE void squall_fetch_item(PyObject *items, Py_ssize_t at) {
        if (at < PyList_GET_SIZE(items)) SQUALL_FETCH(PyList_GET_ITEM(items, at));
    }
    static CYTHON_INLINE void squall_fetch_end(PyObject *cell) {
        SQUALL_FETCH((char *)cell + 4 * sizeof(PyObject *));
    }
    static CYTHON_INLINE void squall_fetch_text(PyObject *text) {
        SQUALL_FETCH(text);
        SQUALL_FETCH((char *)text + sizeof(PyASCIIObject));
    }
    """
    void fetch_item "squall_fetch_item" (list items, Py_ssize_t at) noexcept
    void fetch_end "squall_fetch_end" (ValueCell cell) noexcept
    void fetch_text "squall_fetch_text" (object text) noexcept


@cython.final
cdef class RecentValues:
    cdef public object divided
    cdef public list ranges
    cdef public list lists
    cdef public list rest
    cdef public Py_ssize_t groups
    cdef public list by_group
    cdef public Py_ssize_t count
    cdef public list older


cdef class PlainValueHandle(ValueHandle):
    cdef public RecentValues recent
    cdef public object groups
    cdef public long long epoch
    cdef public Py_ssize_t absent
    cdef public list cleared
    cdef public ValueCell cell
    cdef public long long read_turn
    cdef public list ahead
    cdef public list ahead_keys
    cdef public Py_ssize_t ahead_from
    cdef public Py_ssize_t ahead_count
    cdef public long long ahead_turn

    @cython.final
    cdef read(self)
    @cython.final
    cdef write(self, new)
    @cython.final
    cdef begin(self, StateTable table)
    cpdef ValueCell found(self, key)
    cpdef look_ahead(self, list keys, Py_ssize_t start, Py_ssize_t stop)
    cpdef remove(self, ValueCell cell)
    cpdef bring_back_cells(self, list cells)
    cpdef undo(self)
    cpdef mark_at_hand(self)
    cpdef kept(self, cell)


cpdef ValueCell cell_of(key, value)


@cython.locals(number=Py_ssize_t, at=Py_ssize_t, last=Py_ssize_t, found=list)
cpdef Py_ssize_t spread_cells(list cells, list lists) except -1
