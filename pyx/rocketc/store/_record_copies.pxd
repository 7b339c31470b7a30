"""Copying and checking the records that a read of a queue picked."""
from rocketc.store._raw_records cimport RawRecords
from rocketc.store._results cimport QueueIdentity, ReadResult

cdef int copy_records(ReadResult answer, RawRecords* h, const QueueIdentity* of, int how) except? -1
cdef int copy_around_bodies(ReadResult answer, RawRecords* h, const QueueIdentity* of, int how) except? -1
