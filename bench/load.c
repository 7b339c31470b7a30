/* A load generator for brokers, and a broker that stores nothing. bench/load.py compiles and runs this file.
 *
 *   load frames PORT FILE CONNECTIONS WINDOW COUNT    send COUNT frames of FILE, WINDOW in flight on each connection
 *   load flood PORT FILE CONNECTIONS RATE SECONDS     send frames of FILE at RATE a second, whatever the answers are
 *   load crowd PORT FILE CONNECTIONS WINDOW SECONDS   keep WINDOW frames of FILE in flight on each connection
 *   load quiet PORT FILE RATE SECONDS                 send a frame of FILE at RATE a second, one in flight
 *   load burn SHARE SECONDS                           use this share of a processor, and send nothing
 *   load held PORT FILE CONNECTIONS FIRST BURSTS EVENLY   hold a pull on each connection, then send, see held()
 *   load stub FILE                                    answer the sends of any client, see stub()
 *
 * FILE  frames of one size; `held` and `stub`: see there
 * One thread. Results are one line of JSON. An answer with another code than 0 ends the program with 1; `flood`, `crowd`
 * and `quiet` count those with code 2. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROOM (4 << 20)      /* bytes of unread answers of one connection */
#define SLOTS 4000000       /* of 100 ns: latencies up to 0.4 s */
#define EVENTS 256
#define WAIT_S 20           /* for an answer */

struct connection {
    int fd;
    size_t have;        /* bytes of an incomplete frame */
    uint8_t *rest;      /* these bytes */
    uint64_t sent, got; /* frames */
    int64_t *at;        /* ns when each frame in flight was sent, by number modulo the window */
    size_t cut;         /* flood, crowd: bytes of the frame that was written in part */
    int64_t offset;     /* held: queue offset of its pull */
};

static uint32_t latencies[SLOTS], refusals[SLOTS]; /* refusals: flood, crowd, of the answers with code 2 alone */
static uint8_t *input;

static void die(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static double cpu(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + 1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static uint32_t big_endian(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return ntohl(v);
}

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        die(path);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*size + 1);
    if (data == NULL || fread(data, 1, *size, f) != *size)
        die(path);
    data[*size] = 0;
    fclose(f);
    return data;
}

static int connect_to(int port)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void watch(int poll, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) != 0)
        die("epoll_ctl");
}

static void write_all(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n <= 0)
            die("write");
        data += n;
        size -= (size_t)n;
    }
}

/* The header of a frame, which is JSON, begins with its code in most servers; search for it if not. */
static void must_be_ok(const uint8_t *frame)
{
    uint32_t size = big_endian(frame + 4) & 0xFFFFFF;
    const uint8_t *header = frame + 8;
    const uint8_t *code = size > 9 && memcmp(header, "{\"code\":", 8) == 0 ? header + 1 : memmem(header, size, "\"code\":", 7);
    if (code == NULL || code[7] != '0') {
        fprintf(stderr, "load: an answer is not a success: %.*s\n", (int)size, (const char *)header);
        exit(1);
    }
}

static void note_in(uint32_t *table, int64_t ns)
{
    int64_t slot = ns / 100;
    table[slot < 0 ? 0 : slot < SLOTS ? slot : SLOTS - 1]++;
}

static void note(int64_t ns)
{
    note_in(latencies, ns);
}

static double quantile_of(const uint32_t *table, double share)
{
    uint64_t total = 0, seen = 0;
    for (long i = 0; i < SLOTS; i++)
        total += table[i];
    for (long i = 0; i < SLOTS; i++) {
        seen += table[i];
        if (total > 0 && (double)seen >= share * (double)total)
            return (double)i / 10;
    }
    return 0;
}

static double quantile(double share)
{
    return quantile_of(latencies, share);
}

/* Read what has arrived; return how many whole answers, which are checked. */
static int take(struct connection *c)
{
    int frames = 0;
    memcpy(input, c->rest, c->have);
    ssize_t n = read(c->fd, input + c->have, ROOM - c->have);
    if (n <= 0)
        die("read");
    size_t end = c->have + (size_t)n, at = 0;
    while (end - at >= 8) {
        size_t size = big_endian(input + at) + 4UL;
        if (end - at < size)
            break;
        must_be_ok(input + at);
        at += size;
        frames++;
    }
    c->have = end - at;
    if (c->have > 0) {
        if ((c->rest = realloc(c->rest, c->have)) == NULL)
            die("memory");
        memcpy(c->rest, input + at, c->have);
    }
    return frames;
}

static int frames(int port, const char *path, int connections, int window, uint64_t count)
{
    size_t all;
    uint8_t *file = read_file(path, &all);
    size_t size = big_endian(file) + 4UL, kinds = all / size;
    struct connection *c = calloc((size_t)connections, sizeof *c);
    uint64_t sent = 0, got = 0;
    int poll = epoll_create1(0);
    for (int i = 0; i < connections; i++) {
        c[i].fd = connect_to(port);
        c[i].at = calloc((size_t)window, sizeof *c[i].at);
        watch(poll, c[i].fd, &c[i]);
    }
    double used = cpu();
    int64_t start = now(), last = start;

    /* Frames of a connection go out in runs that do not pass the end of the file. */
#define SEND(c, n)                                                                                                     \
    do {                                                                                                               \
        uint64_t left_ = (uint64_t)(n) < count - sent ? (uint64_t)(n) : count - sent;                                  \
        int64_t at_ = now();                                                                                           \
        while (left_ > 0) {                                                                                            \
            uint64_t from_ = sent % kinds, run_ = left_ < kinds - from_ ? left_ : kinds - from_;                       \
            for (uint64_t k_ = 0; k_ < run_; k_++)                                                                     \
                (c)->at[((c)->sent + k_) % (uint64_t)window] = at_;                                                    \
            (c)->sent += run_;                                                                                         \
            sent += run_;                                                                                              \
            left_ -= run_;                                                                                             \
            write_all((c)->fd, file + from_ * size, run_ * size);                                                      \
        }                                                                                                              \
    } while (0)

    for (int begun = 0; begun < window; begun += 50) /* in parts: a whole window could fill the sockets */
        for (int i = 0; i < connections; i++)
            SEND(&c[i], window - begun < 50 ? window - begun : 50);
    while (got < count) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(poll, events, EVENTS, 20000);
        if (n <= 0)
            die("no answer for 20 s");
        for (int i = 0; i < n; i++) {
            struct connection *one = events[i].data.ptr;
            int done = take(one);
            last = now();
            for (int k = 0; k < done; k++)
                note(last - one->at[(one->got + (uint64_t)k) % (uint64_t)window]);
            one->got += (uint64_t)done;
            got += (uint64_t)done;
            if (done > 0 && sent < count)
                SEND(one, done);
        }
    }
    printf("{\"seconds\":%.9f,\"count\":%lu,\"p50_us\":%.1f,\"p99_us\":%.1f,\"own_cpu\":%.6f}\n", (double)(last - start) / 1e9,
           (unsigned long)got, quantile(0.5), quantile(0.99), cpu() - used);
    return 0;
}

static void put_digits(uint8_t *at, int digits, int64_t value)
{
    for (int i = digits - 1; i >= 0; i--, value /= 10)
        at[i] = (uint8_t)('0' + value % 10);
}

/* FILE has a pull and a send. Connection i pulls queue i; it is answered when a message of this queue arrives, and then
 * pulls at the next offset; the first one is FIRST. In a frame, QQQQ is the number of the queue, and OOOOOOOOOO the offset.
 * bursts: a message to each queue in one write, 0.2 s apart; last_us: until the last pull is answered, of each burst.
 * evenly: messages, 1 ms apart, to the queues in turn; p50_us and p99_us: from the send to the answer of the pull. */
static int held(int port, const char *path, int connections, int first, int bursts, int evenly)
{
    size_t all;
    uint8_t *pull = read_file(path, &all);
    size_t pull_size = big_endian(pull) + 4UL, send_size = all - pull_size;
    uint8_t *send = pull + pull_size;
    uint8_t *pull_queue = memmem(pull, pull_size, "QQQQ", 4), *offset = memmem(pull, pull_size, "OOOOOOOOOO", 10);
    uint8_t *send_queue = memmem(send, send_size, "QQQQ", 4);
    struct connection *c = calloc((size_t)connections, sizeof *c), sender = {.fd = connect_to(port)};
    uint8_t *burst = malloc(send_size * (size_t)connections);
    int64_t *sent_at = calloc((size_t)connections, sizeof *sent_at), total = 0;
    struct epoll_event events[EVENTS];
    int poll = epoll_create1(0);
    if (pull_queue == NULL || offset == NULL || send_queue == NULL)
        die("the frames have no places");
    watch(poll, sender.fd, &sender);

#define PULL(i)                                                                                                        \
    do {                                                                                                               \
        put_digits(pull_queue, 4, (i));                                                                                \
        put_digits(offset, 10, c[i].offset);                                                                           \
        write_all(c[i].fd, pull, pull_size);                                                                           \
    } while (0)

    for (int i = 0; i < connections; i++) {
        c[i].fd = connect_to(port);
        c[i].offset = first;
        watch(poll, c[i].fd, &c[i]);
        PULL(i);
        put_digits(send_queue, 4, i);
        memcpy(burst + (size_t)i * send_size, send, send_size);
    }
    printf("{\"last_us\":[");
    for (int round = 0; round < bursts; round++) {
        usleep(200000);
        int64_t start = now();
        int left = connections;
        write_all(sender.fd, burst, send_size * (size_t)connections);
        while (left > 0) {
            int n = epoll_wait(poll, events, EVENTS, 20000);
            if (n <= 0)
                die("no answer for 20 s");
            for (int i = 0; i < n; i++) {
                struct connection *one = events[i].data.ptr;
                int done = take(one);
                if (one != &sender && done > 0) {
                    one->offset++;
                    left -= done;
                }
            }
        }
        printf("%s%.1f", round ? "," : "", (double)(now() - start) / 1e3);
        for (int i = 0; i < connections; i++)
            PULL(i);
    }
    usleep(200000);
    int64_t next = now();
    int sent = 0, got = 0;
    while (got < evenly) {
        int64_t t = now();
        if (sent < evenly && t >= next) {
            int queue = sent % connections;
            sent_at[queue] = now();
            write_all(sender.fd, burst + (size_t)queue * send_size, send_size);
            sent++;
            next += 1000000;
            continue;
        }
        struct timespec wait = {0, sent < evenly ? (next - t > 0 ? next - t : 0) : 999999999};
        int n = epoll_pwait2(poll, events, EVENTS, &wait, NULL);
        if (n < 0 || (n == 0 && sent == evenly && ++total > 20))
            die("no answer for 20 s");
        for (int i = 0; i < n; i++) {
            struct connection *one = events[i].data.ptr;
            int done = take(one);
            if (one == &sender || done == 0)
                continue;
            int queue = (int)(one - c);
            note(now() - sent_at[queue]);
            one->offset++;
            got++;
            PULL(queue);
        }
    }
    printf("],\"p50_us\":%.1f,\"p99_us\":%.1f}\n", quantile(0.5), quantile(0.99));
    return 0;
}

/* Listens on a free port, which is printed. Every request is answered: FILE is the answer of a send, and its opaque is
 * a row of @; a request with another code than 310 gets the same fields, which its client does not read. */
static int stub(const char *path)
{
    size_t size;
    uint8_t *answer = read_file(path, &size);
    uint8_t *place = memmem(answer, size, "@@@@@@@@@@", 10);
    int listening = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0), one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET};
    struct epoll_event events[EVENTS];
    socklen_t length = sizeof a;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (place == NULL || bind(listening, (struct sockaddr *)&a, sizeof a) != 0 || listen(listening, 64) != 0)
        die("listen");
    getsockname(listening, (struct sockaddr *)&a, &length);
    printf("%d\n", ntohs(a.sin_port));
    fflush(stdout);
    watch(poll, listening, NULL);
    for (int n; (n = epoll_wait(poll, events, EVENTS, -1)) > 0;) {
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (c == NULL) {
                c = calloc(1, sizeof *c);
                c->fd = accept(listening, NULL, NULL);
                setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                c->rest = malloc(ROOM);
                watch(poll, c->fd, c);
                continue;
            }
            ssize_t got = read(c->fd, c->rest + c->have, ROOM - c->have);
            if (got <= 0) {
                close(c->fd);
                continue;
            }
            size_t end = c->have + (size_t)got, at = 0, out = 0;
            while (end - at >= 8 && end - at >= big_endian(c->rest + at) + 4UL) {
                uint32_t header = big_endian(c->rest + at + 4) & 0xFFFFFF;
                uint8_t *opaque = memmem(c->rest + at + 8, header, "\"opaque\":", 9);
                if (opaque != NULL && memmem(c->rest + at + 8, header, "\"flag\":2", 8) == NULL) {
                    if (out + size > ROOM) {
                        write_all(c->fd, input, out);
                        out = 0;
                    }
                    memcpy(input + out, answer, size);
                    put_digits(input + out + (place - answer), 10, 0);
                    long number = atol((char *)opaque + 9);
                    char text[16];
                    int digits = snprintf(text, sizeof text, "%10ld", number); /* JSON allows spaces before a number */
                    memcpy(input + out + (place - answer), text, (size_t)digits);
                    out += size;
                }
                at += big_endian(c->rest + at) + 4UL;
            }
            if (out > 0)
                write_all(c->fd, input, out);
            c->have = end - at;
            memmove(c->rest, c->rest + at, c->have);
        }
    }
    return 0;
}

/* The code of an answer: 0 or 2. Any other ends the program. */
static int code_of(const uint8_t *frame)
{
    if (memcmp(frame + 8, "{\"code\":2,", 10) == 0)
        return 2;
    must_be_ok(frame);
    return 0;
}

/* Senders whose sockets may be full: flood() and crowd(). */
struct senders {
    struct connection *all;
    int count, poll;
    uint64_t window;            /* frames in flight on a connection, at most */
    const uint8_t *file;
    size_t size, kinds;         /* of a frame; frames of the file */
    uint64_t sent, got, counts[3];  /* frames of all; answers by code */
    int64_t last;               /* ns when the last answers came */
};

static struct senders connect_all(int port, const char *path, int connections, uint64_t window)
{
    size_t all;
    uint8_t *file = read_file(path, &all);
    struct senders s = {.count = connections, .window = window, .file = file, .poll = epoll_create1(0)};
    s.size = big_endian(file) + 4UL, s.kinds = all / s.size;
    s.all = calloc((size_t)connections, sizeof *s.all);
    for (struct connection *c = s.all; c < s.all + connections; c++) {
        c->fd = connect_to(port);
        c->at = calloc(window, sizeof *c->at);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        watch(s.poll, c->fd, c);
    }
    return s;
}

/* Frames that may be written to a connection in one run, which does not pass the end of the file: `run` at most. */
static uint64_t run_of(const struct senders *s, const struct connection *c, uint64_t run)
{
    uint64_t left = s->kinds - c->sent % s->kinds;
    return run < left ? run : left;
}

/* Write the rest of the frame that was cut, and further frames: `run` in all, or what the socket takes. */
static void send_run(struct senders *s, struct connection *c, uint64_t run, int64_t at)
{
    ssize_t n = write(c->fd, s->file + c->sent % s->kinds * s->size + c->cut, run * s->size - c->cut);
    if (n < 0 && errno != EAGAIN)
        die("write");
    size_t bytes = (n > 0 ? (size_t)n : 0) + c->cut, whole = bytes / s->size;
    c->cut = bytes % s->size;
    for (size_t k = 0; k < whole; k++)
        c->at[(c->sent + k) % s->window] = at;
    c->sent += whole;
    s->sent += whole;
}

/* Wait for answers, for some ms at most, and note them. unit: ns of a slot are 100 times this */
static void take_answers(struct senders *s, int ms, int unit)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(s->poll, events, EVENTS, ms);
    for (int e = 0; e < n; e++) {
        struct connection *c = events[e].data.ptr;
        memcpy(input, c->rest, c->have);
        ssize_t r = read(c->fd, input + c->have, ROOM - c->have);
        if (r <= 0)
            die("read");
        size_t end = c->have + (size_t)r, p = 0;
        s->last = now();
        while (end - p >= 8 && end - p >= big_endian(input + p) + 4UL) {
            int code = code_of(input + p);
            int64_t took = (s->last - c->at[c->got++ % s->window]) / unit;
            s->counts[code]++;
            note(took);
            if (code == 2)
                note_in(refusals, took);
            s->got++;
            p += big_endian(input + p) + 4UL;
        }
        c->have = end - p;
        if ((c->rest = realloc(c->rest, c->have + 1)) == NULL)
            die("memory");
        memcpy(c->rest, input + p, c->have);
    }
}

/* Send frames at a rate for some seconds, in turn on all connections, then wait for the answers that are still due.
 * What a socket does not take is late: it is sent when the socket has room, and counted in `late` at the end. A latency
 * is from the write of a frame to an answer on its connection; answers may pass each other within one read event. */
static int flood(int port, const char *path, int connections, double rate, double seconds)
{
    const int unit = 10; /* so that 4 s have slots */
    struct senders s = connect_all(port, path, connections, 1 << 20);
    double used = cpu();
    int64_t start = s.last = now();
    while (1) {
        int64_t at = now();
        double elapsed = 1e-9 * (double)(at - start);
        uint64_t due = (uint64_t)(rate * (elapsed < seconds ? elapsed : seconds));
        for (int i = 0; elapsed < seconds && i < connections && s.sent < due; i++) {
            struct connection *c = &s.all[i];
            uint64_t run = run_of(&s, c, (due - s.sent + (uint64_t)connections - 1) / (uint64_t)connections);
            if (c->sent - c->got + run <= s.window)
                send_run(&s, c, run, at);
        }
        take_answers(&s, elapsed < seconds ? 1 : 100, unit);
        if (elapsed >= seconds && (s.got == s.sent || now() - s.last > 5000000000LL))
            break;
    }
    printf("{\"seconds\": %.6f, \"offered\": %.0f, \"sent\": %lu, \"ok\": %lu, \"busy\": %lu, \"p50_us\": %.1f, "
           "\"p99_us\": %.1f, \"busy_p50_us\": %.1f, \"busy_p99_us\": %.1f, \"own_cpu\": %.3f}\n",
           1e-9 * (double)(s.last - start), rate * seconds, s.sent, s.counts[0], s.counts[2], unit * quantile(0.5),
           unit * quantile(0.99), unit * quantile_of(refusals, 0.5), unit * quantile_of(refusals, 0.99), cpu() - used);
    return s.got == s.sent ? 0 : 1;
}

/* Keep a window of frames in flight on each connection, whatever the answers are; then wait for those that are due. A
 * latency is from the write of a frame to its answer. left: frames without an answer after WAIT_S; after_s: seconds from
 * the end of the sends to the last answer. */
static int crowd(int port, const char *path, int connections, uint64_t window, double seconds)
{
    const int unit = 100; /* so that 40 s have slots */
    struct senders s = connect_all(port, path, connections, window);
    double used = cpu();
    int64_t start = s.last = now(), end_at = start + (int64_t)(1e9 * seconds), at;
    do {
        at = now();
        for (struct connection *c = s.all; c < s.all + connections; c++) {
            uint64_t run = at < end_at ? run_of(&s, c, window - (c->sent - c->got)) : c->cut > 0;
            if (run > 0)
                send_run(&s, c, run, at);
        }
        take_answers(&s, 1, unit);
    } while (at < end_at || (s.got < s.sent && at - end_at <= WAIT_S * 1000000000LL));
    printf("{\"seconds\": %.6f, \"sent\": %lu, \"ok\": %lu, \"busy\": %lu, \"left\": %lu, \"after_s\": %.3f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"own_cpu\": %.3f}\n",
           1e-9 * (double)(s.last - start), s.sent, s.counts[0], s.counts[2], s.sent - s.got,
           1e-9 * (double)(s.last - end_at), unit * quantile(0.5), unit * quantile(0.99), cpu() - used);
    return 0;
}

/* One frame in flight, at a steady rate: a frame that is due while another one is in flight is sent after its answer. */
static int quiet(int port, const char *path, double rate, double seconds)
{
    size_t all;
    uint8_t *file = read_file(path, &all);
    size_t size = big_endian(file) + 4UL, kinds = all / size;
    struct connection c = {.fd = connect_to(port)};
    struct timeval most = {.tv_sec = WAIT_S};
    uint64_t busy = 0, count = (uint64_t)(rate * seconds);
    int64_t start = now(), slowest = 0;
    setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    for (; c.sent < count && now() - start < (int64_t)(1e9 * seconds); c.sent++) {
        int64_t due = start + (int64_t)(1e9 * (double)c.sent / rate), at = now();
        struct timespec until = {due / 1000000000LL, due % 1000000000LL};
        if (at < due)
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        at = now();
        write_all(c.fd, file + c.sent % kinds * size, size);
        for (size_t have = 0; have < 4 || have < big_endian(input) + 4UL;) {
            ssize_t n = read(c.fd, input + have, ROOM - have);
            if (n <= 0)
                die("the quiet client got no answer");
            have += (size_t)n;
        }
        int64_t took = now() - at;
        slowest = took > slowest ? took : slowest;
        busy += code_of(input) == 2;
        note(took / 100);
    }
    printf("{\"sent\": %lu, \"busy\": %lu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"slowest_us\": %.1f}\n", c.sent, busy,
           100 * quantile(0.5), 100 * quantile(0.99), (double)slowest / 1e3);
    return 0;
}

/* Use a share of a processor, in steps of 10 ms. */
static int burn(double share, double seconds)
{
    int64_t start = now();
    for (int64_t at = start; at - start < (int64_t)(1e9 * seconds); at = now()) {
        int64_t step = 10000000LL, work = (int64_t)(share * (double)step);
        double from = cpu();
        while ((cpu() - from) * 1e9 < (double)work)
            ;
        if (step > now() - at)
            usleep((useconds_t)((step - (now() - at)) / 1000));
    }
    printf("{\"own_cpu\": %.3f}\n", cpu());
    return 0;
}

int main(int n, char **words)
{
    input = malloc(2 * ROOM);
    if (n == 7 && strcmp(words[1], "frames") == 0)
        return frames(atoi(words[2]), words[3], atoi(words[4]), atoi(words[5]), strtoul(words[6], NULL, 10));
    if (n == 7 && strcmp(words[1], "flood") == 0)
        return flood(atoi(words[2]), words[3], atoi(words[4]), atof(words[5]), atof(words[6]));
    if (n == 7 && strcmp(words[1], "crowd") == 0)
        return crowd(atoi(words[2]), words[3], atoi(words[4]), strtoul(words[5], NULL, 10), atof(words[6]));
    if (n == 6 && strcmp(words[1], "quiet") == 0)
        return quiet(atoi(words[2]), words[3], atof(words[4]), atof(words[5]));
    if (n == 4 && strcmp(words[1], "burn") == 0)
        return burn(atof(words[2]), atof(words[3]));
    if (n == 8 && strcmp(words[1], "held") == 0)
        return held(atoi(words[2]), words[3], atoi(words[4]), atoi(words[5]), atoi(words[6]), atoi(words[7]));
    if (n == 3 && strcmp(words[1], "stub") == 0)
        return stub(words[2]);
    fprintf(stderr, "usage: load frames PORT FILE CONNECTIONS WINDOW COUNT | flood PORT FILE CONNECTIONS RATE SECONDS | crowd PORT FILE CONNECTIONS WINDOW SECONDS | quiet PORT FILE RATE SECONDS | burn SHARE SECONDS | held PORT FILE CONNECTIONS FIRST BURSTS EVENLY | stub FILE\n");
    return 2;
}
