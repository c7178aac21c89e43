# What the compiler makes of ids.py.

from squall.transport.id_columns cimport IdColumn
from worker.text_hash cimport mix
