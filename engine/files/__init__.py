"""L2, the only place that touches the operating system's files.

Everything goes through a `Disk` (disk.py, on seam.py, directories.py and file_system.py); what stands on it: segments
and mapped files (segment.py, file_backing.py, mapped_file.py), queues of them (listing.py, placement.py, queue.py),
what makes them ahead of time (allocator.py, transient_pool.py), the store's lock and abort file (lock.py, abort.py),
and the disk that fails on purpose (faults.py, durable.py).
"""
