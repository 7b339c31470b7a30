# cython: language_level=3
"""The folders of many queues and the files in them, listed by several threads.

A store may have many thousands of queues, and opening it lists a folder for each. Nearly all of that time is spent in
the kernel, so several threads do it at once.
"""
import os
import threading
from collections import Counter

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset, strdup

from rocketc._status cimport check_file

from rocketc.files.durable import errors_named

cdef extern from *:
    """
    #include <dirent.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/stat.h>

    static int rc_found_order(const void *a, const void *b)
    {
        const rc_found *x = a, *y = b;
        return x->start != y->start ? (x->start > y->start) - (x->start < y->start) : strcmp(x->name, y->name);
    }

    /* Fill f from an entry of folder d. Return 1 if its name is a number of up to 20 digits, otherwise 0. */
    static int rc_found_entry(DIR *d, const char *name, rc_found *f)
    {
        struct stat s;
        size_t n = strspn(name, "0123456789");
        if (n == 0 || n > 20 || name[n] != 0)
            return 0;
        memcpy(f->name, name, n + 1);
        errno = 0;
        f->start = strtoll(name, NULL, 10);     /* LLONG_MAX if it is too large: no file begins there */
        f->size = 0;
        f->inode = 0;
        f->odd = 0;
        if (fstatat(dirfd(d), name, &s, AT_SYMLINK_NOFOLLOW) != 0)
            s.st_mode = 0;
        if (S_ISLNK(s.st_mode)) {
            f->odd = 2;
            if (fstatat(dirfd(d), name, &s, 0) != 0)
                s.st_mode = 0;
        }
        if (!S_ISREG(s.st_mode)) {
            f->odd = 1;
        } else {
            f->size = s.st_size;
            f->inode = s.st_ino;
        }
        return 1;
    }

    /* List the files of a folder with a number as their name, by number; none if the folder does not exist. The
     * caller frees *files. Returns 0 or an errno. */
    static int rc_find_files(const char *folder, rc_found **files, int *count)
    {
        struct dirent *e;
        int room = 0, rc;
        DIR *d = opendir(folder);
        if (d == NULL)
            return errno == ENOENT ? 0 : errno;
        for (errno = 0; (e = readdir(d)) != NULL; errno = 0) {
            if (*count == room) {
                rc_found *more = realloc(*files, (size_t)(2 * room + 4) * sizeof **files);
                if (more == NULL) {
                    errno = ENOMEM;
                    break;
                }
                *files = more;
                room = 2 * room + 4;
            }
            *count += rc_found_entry(d, e->d_name, *files + *count);
        }
        rc = errno;
        closedir(d);
        if (*count > 1)
            qsort(*files, (size_t)*count, sizeof **files, rc_found_order);
        return rc;
    }
    """
    int rc_find_files(const char* folder, rc_found** files, int* count) noexcept nogil

cdef enum:
    LEAST = 128             # one more thread is worth its start for this many queues
    LOOKED_AT = 1000        # queues whose files usual_size() counts


cdef int in_threads(object work, int64_t count, object more) except -1:
    """Call work(n, threads, more) for each n below threads, each in a thread of its own.

    count  number of items to process; it limits the number of threads
    work must not raise.
    """
    cdef int64_t processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cdef int threads = <int>min(processors, 1 + count // LEAST)
    others = [threading.Thread(target=work, args=(n, threads, more)) for n in range(1, threads)]
    for thread in others:
        thread.start()
    work(0, threads, more)
    for thread in others:
        thread.join()
    return 0


cdef class QueueFolders:
    """The folders that were added; find() lists their files."""

    def __cinit__(self):
        self.queues = []

    def __dealloc__(self):
        cdef int i
        for i in range(self.count):
            free(self.folders[i].path)
            free(self.folders[i].files)
        free(self.folders)

    cdef int add(self, bytes topic, object queue_id, bint batch, bytes path) except -1:
        """Add the folder of a queue."""
        cdef QueueFolder* f
        cdef int room = 2 * self._room + 64
        if self.count == self._room:
            f = <QueueFolder*>realloc(self.folders, <size_t>room * sizeof(QueueFolder))
            if f == NULL:
                raise MemoryError
            self.folders = f
            self._room = room
        f = &self.folders[self.count]
        memset(f, 0, sizeof(QueueFolder))
        f.path = strdup(path)
        if f.path == NULL:
            raise MemoryError
        self.count += 1
        self.queues.append((topic, queue_id, batch))
        return 0

    cdef int64_t usual_size(self, bint batch, int64_t unit, int64_t wanted) except -1:
        """Return the file size of one kind of queues: `wanted`, or the most frequent size if no file has that size."""
        cdef QueueFolder* f
        cdef int i, n
        sizes = Counter()
        for i in range(min(self.count, LOOKED_AT)):
            f = &self.folders[i]
            for n in range(f.count if self.queues[i][2] == batch else 0):
                if f.files[n].size > 0 and f.files[n].size % unit == 0:
                    sizes[f.files[n].size] += 1
        return sizes.most_common(1)[0][0] if sizes and wanted not in sizes else wanted

    def find(self):
        """List the files of all folders. Raises StoreIOError, MemoryError."""
        cdef int i
        in_threads(self._find, self.count, None)
        for i in range(self.count):
            if self.folders[i].error == ENOMEM:
                raise MemoryError
            if self.folders[i].error != 0:
                check_file(self.folders[i].error, os.fsdecode(self.folders[i].path))

    def _find(self, int first, int step, _):
        cdef QueueFolder* f
        cdef int i = first
        with nogil:
            while i < self.count:
                f = &self.folders[i]
                f.error = rc_find_files(f.path, &f.files, &f.count)
                i += step


cdef list folders_in(bytes above, list links=None):
    """Names of the folders in a folder, sorted; an empty list if it does not exist.

    links  a list to which the paths of all symbolic links are added; None: a link to a folder counts as a folder
    Raises StoreIOError if it can't be read.
    """
    cdef list found = []
    with errors_named(os.fsdecode(above)):
        try:
            with os.scandir(above) as entries:
                for entry in entries:
                    if links is not None and entry.is_symlink():
                        links.append(entry.path)
                    elif entry.is_dir():
                        found.append(entry.name)
        except FileNotFoundError:
            pass
    found.sort()
    return found


cdef list files_in(str folder, list odd=None):
    """(offset, path, bytes) of each file with a number as its name, by offset.

    odd  a list to which the paths of symbolic links, and of entries that are not regular files, are added; None: a link
         to a file counts as a file
    """
    cdef QueueFolders found = QueueFolders()
    cdef QueueFolder* f
    cdef list out = []
    cdef int i
    found.add(b"", 0, False, os.fsencode(folder))
    found.find()
    f = &found.folders[0]
    for i in range(f.count):
        path = os.path.join(folder, f.files[i].name.decode())
        if f.files[i].odd == 1 or (f.files[i].odd != 0 and odd is not None):
            if odd is not None:
                odd.append(path)
        else:
            out.append((f.files[i].start, path, f.files[i].size))
    return out


cdef int unlink_files(list files) except -1:
    """Delete the files that files_in() returned."""
    for _, path, _ in files:
        with errors_named(path):
            os.unlink(path)
    return 0
