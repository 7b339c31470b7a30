"""A network of its own for this process and its children: only the loopback device, all ports free. Linux only.

So a page can show the default ports and the addresses of several machines, beside all other tests.
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Sequence

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR = 0x8913, 0x8914, 0x8916
IFF_UP = 1


class NoNetworkError(OSError):
    """This machine does not allow it."""


def enter(addresses: Sequence[str] = ()) -> None:
    """Move this process, which must have one thread, into a new network.

    addresses  IPv4 addresses that the new network has beside 127.0.0.1
    Raises NoNetworkError; nothing is changed then.
    """
    user, group = os.geteuid(), os.getegid()
    spaces = CLONE_NEWNET if user == 0 else CLONE_NEWUSER | CLONE_NEWNET
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(spaces) != 0:
        number = ctypes.get_errno()
        raise NoNetworkError(number, f"a network of its own: {os.strerror(number)} ({errno.errorcode[number]})")
    if spaces & CLONE_NEWUSER:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        _bring_up(device, b"lo")
        for number, address in enumerate(addresses):
            name = b"lo:%d" % number
            request = struct.pack("16sH2s4s8x", name, socket.AF_INET, b"", socket.inet_aton(address))
            fcntl.ioctl(device, SIOCSIFADDR, request)
            _bring_up(device, name)


def _bring_up(device: socket.socket, name: bytes) -> None:
    answer = fcntl.ioctl(device, SIOCGIFFLAGS, struct.pack("16sh14x", name, 0))
    [flags] = struct.unpack_from("16xh", answer)
    fcntl.ioctl(device, SIOCSIFFLAGS, struct.pack("16sh14x", name, flags | IFF_UP))
