# cython: language_level=3
"""Numbers from texts by Java's rules: the conversions of SQL filters. Nothing is allocated."""
import unicodedata

from libc.math cimport INFINITY, NAN, isnan, signbit
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport strtod
from libc.string cimport memcmp

cdef enum:
    DIGITS_MAX = 800        # significant digits that can change a double; one more says whether others follow
    FAST_DIGITS = 15        # this many digits, and 10 ** FAST_POWER, are exact as double
    FAST_POWER = 22
    POWER_MAX = 1 << 30     # where an exponent stops to grow; the result is 0 or infinite long before
    ASCII_END = 128
    SMALL = 32              # the bit that makes a letter of ASCII a small one
    SETS_MAX = 64           # sets of ten digits in Unicode's basic plane; 37 in Unicode 15

cdef double[FAST_POWER + 1] POWERS
cdef uint16_t[SETS_MAX] ZEROS       # the digit 0 of each set, beyond ASCII
cdef int zeros = 0


def _prepare():
    """Fill the tables."""
    global zeros
    cdef int i
    for i in range(FAST_POWER + 1):
        POWERS[i] = 10.0 ** i
    for i in range(ASCII_END, 1 << 16):
        if zeros < SETS_MAX and unicodedata.decimal(chr(i), None) == 0:
            ZEROS[zeros] = <uint16_t>i
            zeros += 1


_prepare()


cdef int wide_digit(const uint8_t* p, size_t n) noexcept nogil:
    """Return the value of a digit beyond ASCII in UTF-8 at p, or -1; all of them in the basic plane have 2 or 3 bytes.

    -1 also for bytes that are not UTF-8: Java reads them as U+FFFD.
    Source: Java's Character.digit(char, 10).
    """
    cdef int code, i
    if n < 2 or (p[1] & 0xC0) != 0x80:
        return -1
    if (p[0] & 0xE0) == 0xC0:
        code = (p[0] & 0x1F) << 6 | (p[1] & 0x3F)
    elif n >= 3 and (p[0] & 0xF0) == 0xE0 and (p[2] & 0xC0) == 0x80:
        code = (p[0] & 0x0F) << 12 | (p[1] & 0x3F) << 6 | (p[2] & 0x3F)
        if code < 0x800:        # too long: it has a form of 2 bytes
            return -1
    else:
        return -1
    for i in range(zeros):
        if ZEROS[i] <= code < ZEROS[i] + 10:
            return code - ZEROS[i]
    return -1


cdef bint whole(const uint8_t* p, size_t n, uint64_t most, int64_t* out) noexcept nogil:
    """Set out to the number of a text: a sign or none, and digits. most: its largest value; the least is -most - 1."""
    cdef size_t at = 0
    cdef uint64_t v = 0
    cdef bint negative = False
    cdef int digit
    if n > 0 and (p[0] == c"-" or p[0] == c"+"):
        negative = p[0] == c"-"
        most += 1 if negative else 0
        at = 1
    if at == n:
        return False
    while at < n:
        if p[at] < ASCII_END:
            digit = p[at] - c"0"
            at += 1
        else:
            digit = wide_digit(p + at, n - at)
            at += 2 if p[at] < 0xE0 else 3
        if digit < 0 or digit > 9 or v > (most - <uint64_t>digit) // 10:
            return False
        v = 10 * v + <uint64_t>digit
    out[0] = <int64_t>(0 - v if negative else v)
    return True


cdef bint java_int(const uint8_t* p, size_t n, int64_t* out) noexcept nogil:
    return whole(p, n, INT32_MAX, out)


cdef bint java_long(const uint8_t* p, size_t n, int64_t* out) noexcept nogil:
    return whole(p, n, INT64_MAX, out)


cdef inline int hex_digit(uint8_t c) noexcept nogil:
    if c"0" <= c <= c"9":
        return <int>c - <int>c"0"
    c |= SMALL
    if c"a" <= c <= c"f":
        return <int>c - <int>c"a" + 10
    return -1


cdef bint power_of(const uint8_t* p, size_t n, size_t* at, int64_t* power) noexcept nogil:
    """Add the exponent at p + at to power: a sign or none, and digits. Moves at to its end."""
    cdef bint negative = False
    cdef int64_t v = 0
    cdef size_t first
    if at[0] < n and (p[at[0]] == c"-" or p[at[0]] == c"+"):
        negative = p[at[0]] == c"-"
        at[0] += 1
    first = at[0]
    while at[0] < n and c"0" <= p[at[0]] <= c"9":
        if v < POWER_MAX:
            v = 10 * v + (p[at[0]] - c"0")
        at[0] += 1
    power[0] += -v if negative else v
    return at[0] > first


cdef bint java_double(const uint8_t* p, size_t n, double* out) noexcept nogil:
    """Set out to the number of a text, without the characters up to a blank at both of its ends.

    The text is NaN, Infinity, a decimal number, or a hexadecimal number with a binary exponent; the last two may end
    with f, F, d or D. Rounded as IEEE 754 demands. The caller's locale does not matter: strtod() gets whole numbers.
    """
    cdef char[DIGITS_MAX + 32] text
    cdef int64_t power = 0          # of 10, or of 2
    cdef uint64_t low = 0           # the first FAST_DIGITS digits
    cdef size_t at = 0, kept = 0, i
    cdef int digit, base = 10, step = 1
    cdef bint negative = False, any_digit = False, point = False, more = False
    cdef double v
    while n > 0 and p[0] <= c" ":
        p += 1
        n -= 1
    while n > 0 and p[n - 1] <= c" ":
        n -= 1
    if n > 0 and (p[0] == c"-" or p[0] == c"+"):
        negative = p[0] == c"-"
        at = 1
    if n - at == 3 and memcmp(p + at, b"NaN", 3) == 0:
        out[0] = NAN
        return True
    if n - at == 8 and memcmp(p + at, b"Infinity", 8) == 0:
        out[0] = -INFINITY if negative else INFINITY
        return True
    if n - at > 2 and p[at] == c"0" and (p[at + 1] | SMALL) == c"x":
        base, step = 16, 4
        text[0] = c"0"
        text[1] = c"x"
        kept = 2
        at += 2
    i = kept                        # where the digits begin
    while at < n:
        if p[at] == c"." and not point:
            point = True
            at += 1
            continue
        digit = hex_digit(p[at])
        if digit < 0 or digit >= base:
            break
        any_digit = True
        if kept - i < DIGITS_MAX:
            if digit != 0 or kept > i:              # no zeros in front
                text[kept] = <char>p[at]
                kept += 1
                if kept - i <= FAST_DIGITS:
                    low = 10 * low + <uint64_t>digit
            power -= step if point else 0
        else:
            more = more or digit != 0
            power += 0 if point else step
        at += 1
    if not any_digit:
        return False
    if base == 16:
        if at == n or (p[at] | SMALL) != c"p":
            return False
        at += 1
        if not power_of(p, n, &at, &power):
            return False
    elif at < n and (p[at] | SMALL) == c"e":
        at += 1
        if not power_of(p, n, &at, &power):
            return False
    if at < n and ((p[at] | SMALL) == c"f" or (p[at] | SMALL) == c"d"):
        at += 1
    if at != n:
        return False
    if kept == i:
        v = 0.0
    elif base == 10 and kept <= FAST_DIGITS and -FAST_POWER <= power <= FAST_POWER:
        v = <double>low / POWERS[-power] if power < 0 else <double>low * POWERS[power]
    else:
        if more:
            text[kept] = c"1"
            kept += 1
            power -= step
        v = scaled(text, kept, c"p" if base == 16 else c"e", power)
    out[0] = -v if negative else v
    return True


cdef double scaled(char* text, size_t kept, char mark, int64_t power) noexcept nogil:
    """Return digits * base ** power. text: the digits, with room for 16 more characters."""
    cdef char[8] digits
    cdef int count = 0
    power = max(-9999999, min(9999999, power))
    text[kept] = mark
    text[kept + 1] = c"-" if power < 0 else c"+"
    kept += 2
    power = -power if power < 0 else power
    while power > 0 or count == 0:
        digits[count] = <char>(c"0" + power % 10)
        count += 1
        power //= 10
    while count > 0:
        count -= 1
        text[kept] = digits[count]
        kept += 1
    text[kept] = 0
    return strtod(text, NULL)


cdef int java_compare(double a, double b) noexcept nogil:
    if a < b:
        return -1
    if a > b:
        return 1
    if isnan(a) or isnan(b):
        return <int>(isnan(a) != 0) - <int>(isnan(b) != 0)
    return <int>(signbit(b) != 0) - <int>(signbit(a) != 0)


def to_int(bytes text):
    """Return Integer.parseInt(text), or None if it refuses the text."""
    cdef int64_t v = 0
    return v if java_int(text, <size_t>len(text), &v) else None


def to_long(bytes text):
    """Return Long.parseLong(text), or None if it refuses the text."""
    cdef int64_t v = 0
    return v if java_long(text, <size_t>len(text), &v) else None


def to_double(bytes text):
    """Return Double.parseDouble(text), or None if it refuses the text."""
    cdef double v = 0
    return v if java_double(text, <size_t>len(text), &v) else None


def compare(double a, double b):
    """Return Double.compare(a, b)."""
    return java_compare(a, b)
