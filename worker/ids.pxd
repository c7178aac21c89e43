# What the compiler makes of ids.py.

from squall.transport.id_columns cimport IdColumn
from worker.text_hash cimport mix


cpdef long long next_root(long long root) noexcept
