# The C types of maps.py.

from worker.state.codecs cimport Codec
from worker.state.expiry cimport Expiry
from worker.state.table cimport StateHandle


cdef class MapHandle(StateHandle):
    cdef public Codec keys_codec
    cdef public Codec codec
    cdef public bint plain
    cdef public bint by_item
    cdef public dict cells
    cdef public Expiry expiry
    cdef public long long turn
    cdef public list log
    cdef public set logged

    cpdef begin_log(self)
    cpdef keep_old(self, item)
    cpdef remove(self, item)
    cpdef first_touch(self, key, item)
    cpdef touch_all(self, key)
    cpdef undo(self)


cdef class MarkingMapHandle(MapHandle):
    cpdef keep_old(self, item)
    cpdef mark_at_hand(self)
    cpdef kept(self, cell)
