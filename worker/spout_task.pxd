# What the compiler makes of spout_task.py.

from worker.emitter cimport SpoutEmitter
from worker.tracker cimport Tracker
