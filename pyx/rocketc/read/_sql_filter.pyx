# cython: language_level=3
"""A compiled SQL92 filter: a program for a stack machine that runs on a property string, without the GIL.

`rocketc.read.sql.compile_sql()` makes the programs. The values are RocketMQ's: a property is a text, or null if the
message does not have it. A text that is compared with a number becomes a number of the same type, by Java's rules.
Source: observed with RocketMQ's filter module; tests/golden/sql92.jsonl has the answers.
"""
from libc.stdint cimport INT32_MAX, INT32_MIN, int16_t, int32_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from rocketc.c.properties cimport rc_separators
from rocketc.read._java_numbers cimport java_compare, java_double, java_int, java_long

cdef extern from "<string.h>" nogil:
    void* memmem(const void* text, size_t n, const void* part, size_t m)

cdef extern from *:
    int rc_low_bit "__builtin_ctzll"(uint64_t bits) noexcept nogil

cdef enum:
    STACK_MAX = 512     # values; a program that needs more is refused
    NAME_MAX = 256      # properties of one program
    MARKS = 64
    SMALL = 32          # the bit that makes a letter of ASCII a small one
    BLOCK = 64          # bytes that are searched at once
    ON_STACK = -1       # an operand that is on the stack; others are 2 * property, or 2 * constant + 1

cdef enum Op:           # and what left and right of a step are
    PUSH                # operand
    EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL      # operand, operand
    IS_NULL, IS_NOT_NULL                                            # operand
    CONTAINS, NOT_CONTAINS, STARTS, NOT_STARTS, ENDS, NOT_ENDS      # operand, constant: the part
    IN, NOT_IN          # operand, set
    NEGATE              # operand; null for all but numbers
    TEST                # operand as a condition: a text is false
    NOT                 # operand
    JUMP_IF_FALSE, JUMP_IF_TRUE     # -, a later step; the top stays
    AND, OR             # of the two on top; -, a later step, which is next if the result is false, or true for OR
    COPY                # push the top again
    COPY_SECOND         # push the value below the top again
    DROP_SECOND         # remove the value below the top
    OP_COUNT

OPS = {
    "push": PUSH, "=": EQUAL, "<>": NOT_EQUAL, ">": GREATER, ">=": GREATER_EQUAL, "<": LESS, "<=": LESS_EQUAL,
    "is null": IS_NULL, "is not null": IS_NOT_NULL,
    "contains": CONTAINS, "not contains": NOT_CONTAINS, "startswith": STARTS, "not startswith": NOT_STARTS,
    "endswith": ENDS, "not endswith": NOT_ENDS, "in": IN, "not in": NOT_IN, "negate": NEGATE, "test": TEST, "not": NOT,
    "jump if false": JUMP_IF_FALSE, "jump if true": JUMP_IF_TRUE, "and": AND, "or": OR,
    "copy": COPY, "copy second": COPY_SECOND, "drop second": DROP_SECOND,
}
NAMES_MAX = NAME_MAX        # for Python


cdef inline int mark(const uint8_t* p) noexcept nogil:
    """Return a number below MARKS for a name and the byte after it; most names of a message differ in it."""
    return (p[0] + 8 * p[1]) & (MARKS - 1)


cdef inline void set_truth(SqlValue* value, int verdict) noexcept nogil:
    value.kind = NULL_VALUE if verdict == NULL_VERDICT else TRUTH
    value.whole = verdict


cdef inline int truth_of(const SqlValue* value) noexcept nogil:
    """Return the verdict of a value as a condition."""
    if value.kind == TRUTH:
        return <int>value.whole
    return NULL_VERDICT if value.kind == NULL_VALUE else FALSE_VERDICT


cdef inline bint same_text(const SqlValue* a, const SqlValue* b) noexcept nogil:
    return a.n == b.n and memcmp(a.p, b.p, <size_t>a.n) == 0


cdef bint says_true(const SqlValue* value) noexcept nogil:
    """Whether a text is "true", in any case. Source: Java's Boolean.parseBoolean."""
    return (
        value.n == 4 and (value.p[0] | SMALL) == c"t" and (value.p[1] | SMALL) == c"r"
        and (value.p[2] | SMALL) == c"u" and (value.p[3] | SMALL) == c"e"
    )


cdef bint as_number(const SqlValue* text, SqlKind kind, SqlValue* out) noexcept nogil:
    """Convert a text to a number of a kind; False if Java refuses the text."""
    out.kind = kind
    if kind == INT:
        return java_int(text.p, <size_t>text.n, &out.whole)
    if kind == LONG:
        return java_long(text.p, <size_t>text.n, &out.whole)
    return java_double(text.p, <size_t>text.n, &out.real)


cdef inline int order(const SqlValue* a, const SqlValue* b) noexcept nogil:
    """Compare two numbers: < 0, 0, > 0."""
    if a.kind != DOUBLE and b.kind != DOUBLE:
        return <int>(a.whole > b.whole) - <int>(a.whole < b.whole)
    return java_compare(
        a.real if a.kind == DOUBLE else <double>a.whole, b.real if b.kind == DOUBLE else <double>b.whole
    )


cdef int equal(const SqlValue* a, const SqlValue* b) noexcept nogil:
    """Return the verdict of a = b. The sides differ: null = 1 is null, 1 = null is false, null = null is true."""
    cdef SqlValue number
    if a.kind == NULL_VALUE:
        return TRUE_VERDICT if b.kind == NULL_VALUE else NULL_VERDICT
    if b.kind == NULL_VALUE:
        return FALSE_VERDICT
    if a.kind == TEXT:
        if b.kind == TEXT:
            return same_text(a, b)
        if b.kind == TRUTH:
            return says_true(a) == (b.whole != 0)
        return order(&number, b) == 0 if as_number(a, b.kind, &number) else ERROR_VERDICT
    if a.kind == TRUTH:
        if b.kind == TRUTH:
            return a.whole == b.whole
        return ERROR_VERDICT if b.kind == TEXT else FALSE_VERDICT
    if b.kind == TEXT:
        return order(a, &number) == 0 if as_number(b, a.kind, &number) else ERROR_VERDICT
    return FALSE_VERDICT if b.kind == TRUTH else order(a, b) == 0


cdef int compare(int op, const SqlValue* a, const SqlValue* b) noexcept nogil:
    """Return the verdict of an ordering: null if a side is null; two texts are compared as doubles."""
    cdef SqlValue left, right
    cdef int sign
    if a.kind == NULL_VALUE or b.kind == NULL_VALUE:
        return NULL_VERDICT
    if a.kind == TRUTH or b.kind == TRUTH:
        return ERROR_VERDICT
    if a.kind == TEXT:
        if not as_number(a, DOUBLE if b.kind == TEXT else b.kind, &left):
            return ERROR_VERDICT
        a = &left
    if b.kind == TEXT:
        if not as_number(b, a.kind, &right):
            return ERROR_VERDICT
        b = &right
    sign = order(a, b)
    if op == GREATER:
        return sign > 0
    if op == GREATER_EQUAL:
        return sign >= 0
    return sign < 0 if op == LESS else sign <= 0


cdef inline int joined(int decisive, int a, int b) noexcept nogil:
    """Return the verdict of a AND b or a OR b. decisive: FALSE_VERDICT for AND, TRUE_VERDICT for OR."""
    if a == decisive or b == decisive:
        return decisive
    return <int>NULL_VERDICT if a == NULL_VERDICT else b


cdef bint has_part(int op, const SqlValue* value, const SqlValue* part) noexcept nogil:
    """Return whether a text contains, begins or ends with a part, or does not. False for no text and an empty part."""
    cdef bint found
    if value.kind != TEXT or part.n == 0:
        return False
    if value.n < part.n:
        found = False
    elif op == CONTAINS or op == NOT_CONTAINS:
        found = memmem(value.p, <size_t>value.n, part.p, <size_t>part.n) != NULL
    elif op == STARTS or op == NOT_STARTS:
        found = memcmp(value.p, part.p, <size_t>part.n) == 0
    else:
        found = memcmp(value.p + (value.n - part.n), part.p, <size_t>part.n) == 0
    return found == (op == CONTAINS or op == STARTS or op == ENDS)


cdef bint is_in(const SqlValue* value, const SqlValue* sorted, int count) noexcept nogil:
    cdef int low = 0, high = count, middle, sign
    while low < high:
        middle = (low + high) // 2
        if sorted[middle].n != value.n:
            sign = 1 if value.n > sorted[middle].n else -1
        else:
            sign = memcmp(value.p, sorted[middle].p, <size_t>value.n)
            if sign == 0:
                return True
        if sign > 0:
            low = middle + 1
        else:
            high = middle
    return False


cdef inline void find_value(const SqlProgram* program, const uint8_t* p, int n, SqlValue* values) noexcept nogil:
    """Keep the value of a pair if the program reads it. p: n bytes between two ends of pairs."""
    cdef const SqlName* name
    cdef int i
    if n < 3:                   # name 0x01 value
        return
    i = program.heads[mark(p)]
    while i >= 0:
        name = &program.names[i]
        if n > name.n + 1 and p[name.n] == 1 and memcmp(name.p, p, <size_t>name.n) == 0:
            values[i].kind = TEXT
            values[i].p = p + name.n + 1
            values[i].n = n - name.n - 1
            break
        i = name.next


cdef void find_values(const SqlProgram* program, const uint8_t* p, int size, SqlValue* values) noexcept nogil:
    """Find the properties that a program reads, in one pass: null, or the last value of each name.

    Source: RocketMQ MessageDecoder.string2messageProperties; see properties.h.
    """
    cdef uint8_t[BLOCK] short
    cdef uint64_t ends
    cdef int start = 0, base = 0, end, i
    for i in range(program.name_count):
        values[i].kind = NULL_VALUE
    while base < size:
        if size < BLOCK:        # rc_separators() reads whole blocks
            memset(short, 0, BLOCK)
            memcpy(short, p, <size_t>size)
            ends = rc_separators(short, BLOCK, 0)
        else:
            ends = rc_separators(p, size, base)
        while ends != 0:
            end = base + rc_low_bit(ends)
            ends &= ends - 1
            find_value(program, p + start, end - start, values)
            start = end + 1
        base += BLOCK
    find_value(program, p + start, size - start, values)


cdef inline const SqlValue* operand(
    const SqlProgram* program, const SqlValue* values, int number, SqlValue** top
) noexcept nogil:
    """Return a value; one on the stack is taken from there, and stays valid until the next push."""
    if number < 0:
        top[0] -= 1
        return top[0]
    if number & 1:
        return &program.constants[number >> 1]
    return &values[number >> 1]


cdef Verdict sql_evaluate(const SqlProgram* program, const char* properties, size_t size) noexcept nogil:
    """Evaluate a program for one message.

    program     of a SqlFilter that lives
    properties  size bytes: the property string of the record; not kept
    Needs time and stack within bounds that the program sets. Allocates nothing.
    """
    cdef SqlValue[NAME_MAX] values
    cdef SqlValue[STACK_MAX] stack
    cdef SqlValue* top = &stack[0]      # the first free one
    cdef const SqlStep* step
    cdef const SqlValue* left
    cdef const SqlValue* right
    cdef const SqlSet* members
    cdef int at = 0, op, verdict
    if size > INT32_MAX:
        return ERROR_VERDICT
    find_values(program, <const uint8_t*>properties, <int>size, values)
    while at < program.step_count:
        step = &program.steps[at]
        at += 1
        op = step.op
        if op == PUSH:
            top[0] = operand(program, values, step.left, &top)[0]
            top += 1
        elif op == EQUAL or op == NOT_EQUAL:
            right = operand(program, values, step.right, &top)
            left = operand(program, values, step.left, &top)
            verdict = equal(left, right)
            if verdict == ERROR_VERDICT:
                return ERROR_VERDICT
            if op == NOT_EQUAL and verdict <= TRUE_VERDICT:
                verdict ^= 1
            set_truth(top, verdict)
            top += 1
        elif op == GREATER or op == GREATER_EQUAL or op == LESS or op == LESS_EQUAL:
            right = operand(program, values, step.right, &top)
            left = operand(program, values, step.left, &top)
            verdict = compare(op, left, right)
            if verdict == ERROR_VERDICT:
                return ERROR_VERDICT
            set_truth(top, verdict)
            top += 1
        elif op == JUMP_IF_FALSE:
            if truth_of(top - 1) == FALSE_VERDICT:
                at = step.right
        elif op == JUMP_IF_TRUE:
            if truth_of(top - 1) == TRUE_VERDICT:
                at = step.right
        elif op == AND or op == OR:
            top -= 1
            verdict = joined(op == OR, truth_of(top - 1), truth_of(top))
            set_truth(top - 1, verdict)
            if verdict == (op == OR):
                at = step.right
        elif (
            op == CONTAINS or op == NOT_CONTAINS or op == STARTS or op == NOT_STARTS or op == ENDS or op == NOT_ENDS
        ):
            left = operand(program, values, step.left, &top)
            set_truth(top, has_part(op, left, &program.constants[step.right >> 1]))
            top += 1
        elif op == IN or op == NOT_IN:
            left = operand(program, values, step.left, &top)
            members = &program.sets[step.right]
            verdict = NULL_VERDICT
            if left.kind != NULL_VALUE:
                verdict = left.kind == TEXT and is_in(left, &program.constants[members.first], members.count)
                verdict = verdict == (op == IN)
            set_truth(top, verdict)
            top += 1
        elif op == IS_NULL or op == IS_NOT_NULL:
            left = operand(program, values, step.left, &top)
            set_truth(top, (left.kind == NULL_VALUE) == (op == IS_NULL))
            top += 1
        elif op == NOT or op == TEST:
            left = operand(program, values, step.left, &top)
            verdict = truth_of(left)
            if op == NOT and verdict <= TRUE_VERDICT:
                verdict ^= 1
            set_truth(top, verdict)
            top += 1
        elif op == NEGATE:
            left = operand(program, values, step.left, &top)
            top.kind = left.kind
            if left.kind == INT or left.kind == LONG:
                top.whole = -left.whole
            elif left.kind == DOUBLE:
                top.real = -left.real
            else:
                top.kind = NULL_VALUE
            top += 1
        elif op == COPY:
            top[0] = top[-1]
            top += 1
        elif op == COPY_SECOND:
            top[0] = top[-2]
            top += 1
        else:
            top -= 1
            top[-1] = top[0]
    return <Verdict>truth_of(top - 1)


cdef bint sql_matches(const SqlProgram* program, const char* properties, size_t size) noexcept nogil:
    """Return whether a message matches: whether the program is true for its properties. See sql_evaluate()."""
    return sql_evaluate(program, properties, size) == TRUE_VERDICT


cdef class SqlFilter:
    """A compiled filter. `rocketc.read.sql.compile_sql()` makes it; immutable, and safe to use from several threads.

    text     the expression
    ignored  the rest of the text: RocketMQ reads one expression and ignores what follows
    """

    def __cinit__(self, str text, list steps, list constants, list sets, list names, str ignored=""):
        """steps: (name in OPS, left, right), see Op in the source. constants: str, float, int, bool, None."""
        self.text = text
        self.ignored = ignored
        self._parts = (text, steps, constants, sets, names, ignored)
        self._take(steps, constants, sets, names)
        self._check(len(constants), len(sets))

    def __dealloc__(self):
        free(self.program.steps)
        free(self.program.constants)
        free(self.program.sets)
        free(self.program.names)

    cdef int _take(self, list steps, list constants, list sets, list names) except -1:
        cdef SqlProgram* program = &self.program
        cdef SqlValue* value
        cdef const uint8_t* base
        cdef bytearray texts = bytearray()
        cdef dict places = {}           # UTF-8 -> where it is in texts
        cdef list members = [
            sorted({text.encode() for text in one}, key=lambda utf8: (len(utf8), utf8)) for one in sets
        ]
        cdef list values = [one.encode() if isinstance(one, str) else one for one in constants]
        cdef Py_ssize_t i
        for one in members:
            values += one
        for one in [*values, *[name.encode() for name in names]]:
            if isinstance(one, bytes) and one not in places:
                places[one] = len(texts)
                texts += one + b"\x01"      # what follows a name in a property string
        self._texts = bytes(texts)
        base = self._texts
        program.constants = <SqlValue*>calloc(<size_t>len(values) + 1, sizeof(SqlValue))
        program.steps = <SqlStep*>calloc(<size_t>len(steps) + 1, sizeof(SqlStep))
        program.sets = <SqlSet*>calloc(<size_t>len(sets) + 1, sizeof(SqlSet))
        program.names = <SqlName*>calloc(<size_t>len(names) + 1, sizeof(SqlName))
        if not (program.constants and program.steps and program.sets and program.names):
            raise MemoryError
        for i, one in enumerate(values):
            value = &program.constants[i]
            if isinstance(one, bytes):
                value.kind = TEXT
                value.p = base + <size_t>places[one]
                value.n = <int32_t>len(one)
            elif isinstance(one, bool):
                value.kind = TRUTH
                value.whole = one
            elif isinstance(one, int):
                value.kind = INT if INT32_MIN <= one <= INT32_MAX else LONG
                value.whole = one           # OverflowError beyond int64
            elif isinstance(one, float):
                value.kind = DOUBLE
                value.real = one
            elif one is not None:
                raise TypeError(f"constant {i}: a value of type {type(one).__name__}")
        i = len(constants)
        for at, one in enumerate(members):
            program.sets[<int>at].first, program.sets[<int>at].count = <int32_t>i, <int32_t>len(one)
            i += len(one)
        for at, (op, left, right) in enumerate(steps):
            program.steps[<int>at].op = OPS[op]
            program.steps[<int>at].left, program.steps[<int>at].right = left, right
        program.step_count = <int32_t>len(steps)
        return self._take_names(names, places)

    cdef int _take_names(self, list names, dict places) except -1:
        cdef SqlProgram* program = &self.program
        cdef const uint8_t* base = self._texts
        cdef SqlName* name
        cdef bytes utf8
        cdef int i, slot
        if len(names) > NAME_MAX:
            raise ValueError(f"{len(names)} properties: more than {NAME_MAX}")
        for i in range(MARKS):
            program.heads[i] = -1
        for i in range(<int>len(names)):
            utf8 = names[i].encode()
            if not utf8:
                raise ValueError("a property without a name")
            name = &program.names[i]
            name.p = base + <size_t>places[utf8]
            name.n = <int32_t>len(utf8)
            slot = mark(name.p)     # reads the byte after the name
            name.next = program.heads[slot]
            program.heads[slot] = <int16_t>i
        program.name_count = <int32_t>len(names)
        return 0

    cdef int _check(self, Py_ssize_t constants, Py_ssize_t sets) except -1:
        """Raise ValueError unless the program stays within its arrays and stack, whatever the properties are."""
        cdef SqlProgram* program = &self.program
        cdef SqlStep* step
        cdef dict jumps = {}            # step -> depth of the stack there
        cdef int at, op, needs, pushes, depth = 0
        for at in range(program.step_count + 1):
            if jumps.get(at, depth) != depth:
                raise ValueError(f"step {at}: the depth of the stack depends on the path")
            if at == program.step_count:
                break
            step = &program.steps[at]
            op = step.op
            needs, pushes = 1, 0
            if op <= NOT:
                needs = self._needs(at, step.left, constants)
                if EQUAL <= op <= LESS_EQUAL:
                    needs += self._needs(at, step.right, constants)
                pushes = 1 - needs
                if CONTAINS <= op <= NOT_ENDS and (
                    self._needs(at, step.right, constants) or not step.right & 1
                    or program.constants[step.right >> 1].kind != TEXT
                ):
                    raise ValueError(f"step {at}: the part is not a text")
                if (op == IN or op == NOT_IN) and not 0 <= step.right < sets:
                    raise ValueError(f"step {at}: set {step.right} of {sets}")
            elif op == AND or op == OR:
                needs, pushes = 2, -1
            elif op == COPY:
                pushes = 1
            elif op == COPY_SECOND:
                needs, pushes = 2, 1
            elif op == DROP_SECOND:
                needs, pushes = 2, -1
            if depth < needs or depth + pushes > STACK_MAX:
                raise ValueError(f"step {at}: the stack has {depth} values")
            depth += pushes
            if JUMP_IF_FALSE <= op <= OR:
                if not at < step.right <= program.step_count:
                    raise ValueError(f"step {at}: jumps to {step.right}")
                if jumps.setdefault(step.right, depth) != depth:
                    raise ValueError(f"step {step.right}: the depth of the stack depends on the path")
        if depth != 1:
            raise ValueError(f"the program leaves {depth} values")
        return 0

    cdef int _needs(self, int at, int number, Py_ssize_t constants) except -1:
        """Return how many values an operand takes from the stack: 0 or 1. Raise ValueError for a wrong operand."""
        cdef Py_ssize_t room = constants if number & 1 else self.program.name_count
        if number == ON_STACK:
            return 1
        if not 0 <= number >> 1 < room:
            raise ValueError(f"step {at}: operand {number}")
        return 0

    def matches(self, bytes properties not None):
        """Return whether a message with this property string matches; False also after an error."""
        cdef const char* p = properties
        cdef size_t n = <size_t>len(properties)
        cdef bint found
        with nogil:
            found = sql_matches(&self.program, p, n)
        return found

    def verdict(self, bytes properties not None):
        """Return "true", "false", "null" or "error"; a message matches if it is "true"."""
        cdef const char* p = properties
        cdef size_t n = <size_t>len(properties)
        return ("false", "true", "null", "error")[<int>sql_evaluate(&self.program, p, n)]

    def __eq__(self, other):
        return self.text == (<SqlFilter>other).text if isinstance(other, SqlFilter) else NotImplemented

    def __hash__(self):
        return hash(self.text)

    def __repr__(self):
        return f"SqlFilter({self.text!r})"

    def __reduce__(self):
        """Pickle the program: the process that unpickles it does not need lark."""
        return SqlFilter, self._parts
