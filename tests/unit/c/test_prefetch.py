"""prefetch.h: prefetching a cache line is harmless for every address, and changes nothing."""

from support.native import Fence, in_child, native


def test_any_address_is_allowed():
    def check():
        fence = Fence()
        data = fence.at_end(b"kept")
        beside = (fence.start - 1, fence.end, fence.end + 64)
        for address in (None, 1, 1 << 46, *beside, fence.start, data):
            native.rc_prefetch(address)
            native.rc_prefetch_for_writing(address)
        assert native.rc_get_i32(data) == int.from_bytes(b"kept", "big")

    in_child(check)
