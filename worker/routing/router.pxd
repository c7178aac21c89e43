# The C types of router.py.

from topology_api.tuples cimport Source
from worker.routing.outbox cimport Outbox
from worker.routing.text_hash cimport choice_of


cdef class Route:
    cpdef Outbox pick(self, tuple row)
    cpdef check(self, tuple row)


cdef class OneTaskRoute(Route):
    cdef public Outbox box


cdef class ShuffleRoute(Route):
    cdef public list boxes
    cdef public list every
    cdef public Py_ssize_t last
    cdef public Py_ssize_t next


cdef class KeyedRoute(Route):
    cdef public list boxes
    cdef public list every
    cdef public Source source
    cdef public tuple fields
    cdef public tuple positions
    cdef public Py_ssize_t only

    cpdef key(self, tuple row)


cdef class FieldsRoute(KeyedRoute):
    cdef public dict cache


cdef class PartialKeyRoute(KeyedRoute):
    cdef public dict cache
    cdef public list used

    cpdef tuple candidates(self, tuple row)


cdef class CustomRoute(Route):
    cdef public dict boxes
    cdef public object grouping
    cdef public Source source

    cpdef list pick_many(self, tuple row)


cdef class StreamOutput:
    cdef public Source source
    cdef public Py_ssize_t arity
    cdef public bint is_direct
    cdef public list fixed
    cdef public list picked
    cdef public list many
    cdef public dict direct
    cdef public Route only
    cdef public bint unread
    cdef public Py_ssize_t key
    cdef public dict cache

    cpdef list choose(self, tuple row)
