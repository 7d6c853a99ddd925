/* A paced /generate server: every request gets its tokens at a fixed gap, one SSE frame each, as sglang 0.5.16 writes
 * them (cumulative text and output_ids, meta_info), chunked, kept alive. One thread, epoll, no allocation per frame.
 *
 * usage: paced_mock PORT GAP_US [SEED] [HOLD]
 *   PORT 0 lets the system choose; several processes may share a port (SO_REUSEPORT). "port N" is printed once.
 *   GAP_US between the frames of an answer. The first comes after a random part of it, counted from the request's
 *   last byte. HOLD > 0 caps the tokens of text and output_ids that a frame repeats (0: all, as sglang does).
 * At SIGTERM, or when its standard input ends, it prints its truth as one JSON line: of every answer begun, the time
 * from the request's last byte to the write of its first frame, and how late it was against its own schedule.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define TOKENS_MAX 1100
#define FD_MAX 65536

typedef struct {
    char *in, *out;                 /* unparsed request bytes; bytes the socket did not take */
    size_t in_len, in_cap, out_len, out_cap;
    int fd, asked, sent, prompt, heap_at, want_out;
    uint64_t due_ns, received_ns;
    uint32_t id[4];
} Conn;

static Conn *conns[FD_MAX];
static Conn *heap[FD_MAX];
static int heap_len, ep;
static uint64_t gap_ns, rng_state = 88172645463325252ull;
static int hold;
static char text[TOKENS_MAX * 8], ids[TOKENS_MAX * 8];
static int text_end[TOKENS_MAX + 1], ids_end[TOKENS_MAX + 1];
static uint64_t requests, ended, frames, bytes_out;
static double ttft_sum_s, late_sum_s, late_max_s;
static FILE *ttfts;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}
static uint64_t rng(void) {
    rng_state ^= rng_state << 13; rng_state ^= rng_state >> 7; rng_state ^= rng_state << 17;
    return rng_state;
}

static void heap_swap(int a, int b) {
    Conn *t = heap[a]; heap[a] = heap[b]; heap[b] = t;
    heap[a]->heap_at = a; heap[b]->heap_at = b;
}
static void heap_up(int i) {
    while (i && heap[i]->due_ns < heap[(i - 1) / 2]->due_ns) { heap_swap(i, (i - 1) / 2); i = (i - 1) / 2; }
}
static void heap_down(int i) {
    for (;;) {
        int l = 2 * i + 1, m = i;
        if (l < heap_len && heap[l]->due_ns < heap[m]->due_ns) m = l;
        if (l + 1 < heap_len && heap[l + 1]->due_ns < heap[m]->due_ns) m = l + 1;
        if (m == i) return;
        heap_swap(i, m); i = m;
    }
}
static void heap_push(Conn *c) { c->heap_at = heap_len; heap[heap_len] = c; heap_up(heap_len++); }
static void heap_remove(Conn *c) {
    int i = c->heap_at;
    if (i < 0) return;
    heap_len--;
    if (i != heap_len) { heap[i] = heap[heap_len]; heap[i]->heap_at = i; heap_up(i); heap_down(heap[i]->heap_at); }
    c->heap_at = -1;
}

static void drop(Conn *c) {
    heap_remove(c);
    close(c->fd);
    conns[c->fd] = NULL;
    free(c->in); free(c->out); free(c);
}

static void want(Conn *c, int out) {
    struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.fd = c->fd};
    if (c->want_out == out) return;
    c->want_out = out;
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
}

/* Returns 0 when the connection is gone. */
static int put(Conn *c, struct iovec *v, int n) {
    ssize_t wrote = 0;
    size_t all = 0;
    for (int i = 0; i < n; i++) all += v[i].iov_len;
    bytes_out += all;
    if (!c->out_len) {
        wrote = writev(c->fd, v, n);
        if (wrote < 0) {
            if (errno != EAGAIN) { drop(c); return 0; }
            wrote = 0;
        }
        if ((size_t)wrote == all) return 1;
    }
    if (c->out_len + all > c->out_cap) c->out = realloc(c->out, c->out_cap = 2 * (c->out_len + all));
    for (int i = 0; i < n; i++) {
        size_t skip = (size_t)wrote < v[i].iov_len ? (size_t)wrote : v[i].iov_len;
        memcpy(c->out + c->out_len, (char *)v[i].iov_base + skip, v[i].iov_len - skip);
        c->out_len += v[i].iov_len - skip;
        wrote -= (ssize_t)skip;
    }
    want(c, 1);
    return 1;
}
static int put_bytes(Conn *c, const char *s, size_t n) {
    struct iovec v = {(void *)s, n};
    return put(c, &v, 1);
}

static void serve_more(Conn *c);

static const char HEAD[] = "HTTP/1.1 200 OK\r\ndate: Thu, 01 Oct 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
                           "content-type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";

static void frame(Conn *c, uint64_t now) {
    static const char text_key[] = "data: {\"text\":\"", ids_key[] = "\",\"output_ids\":[";
    char chunk[24], meta[640], finish[64] = "null", latency[64] = "";
    int k = ++c->sent, last = k == c->asked, from = hold && k > hold ? k - hold : 0;
    double late_s = (double)(now - c->due_ns) * 1e-9;
    late_sum_s += late_s;
    if (late_s > late_max_s) late_max_s = late_s;
    frames++;
    if (k == 1) {
        double ttft_s = (double)(now - c->received_ns) * 1e-9;
        ttft_sum_s += ttft_s;
        if (ttfts) fprintf(ttfts, "%.9f\n", ttft_s);
        if (!put_bytes(c, HEAD, sizeof HEAD - 1)) return;
    }
    if (last) {
        snprintf(finish, sizeof finish, "{\"type\":\"length\",\"length\":%d}", c->asked);
        snprintf(latency, sizeof latency, ",\"e2e_latency\":%.17g", (double)(now - c->received_ns) * 1e-9);
    }
    int ids_from = ids_end[from] + (from ? 1 : 0); /* past the comma */
    int text_len = text_end[k] - text_end[from], ids_len = ids_end[k] - ids_from;
    int meta_len = snprintf(meta, sizeof meta,
        "],\"meta_info\":{\"id\":\"%08x%08x%08x%08x\",\"finish_reason\":%s,\"prompt_tokens\":%d,"
        "\"weight_version\":\"default\",\"num_retractions\":0,\"reasoning_tokens\":0,\"completion_tokens\":%d,"
        "\"cached_tokens\":0,\"dp_rank\":null%s}}\n\n\r\n",
        c->id[0], c->id[1], c->id[2], c->id[3], finish, c->prompt, k, latency);
    int size = (int)sizeof text_key - 1 + text_len + (int)sizeof ids_key - 1 + ids_len + meta_len - 2;
    struct iovec v[6] = {
        {chunk, (size_t)snprintf(chunk, sizeof chunk, "%x\r\n", size)},
        {(void *)text_key, sizeof text_key - 1}, {text + text_end[from], (size_t)text_len},
        {(void *)ids_key, sizeof ids_key - 1}, {ids + ids_from, (size_t)ids_len}, {meta, (size_t)meta_len},
    };
    if (!put(c, v, 6)) return;
    if (!last) {
        c->due_ns += gap_ns;
        heap_down(0);
        return;
    }
    heap_remove(c);
    if (!put_bytes(c, "e\r\ndata: [DONE]\n\n\r\n", 19)) return;
    if (!put_bytes(c, "0\r\n\r\n", 5)) return;
    ended++;
    c->asked = 0;
    serve_more(c);
}

/* Take one whole request off the input, if there is one and no answer is running. */
static void serve_more(Conn *c) {
    char *end, *p;
    size_t length = 0;
    if (c->asked || !c->in_len || !(end = memmem(c->in, c->in_len, "\r\n\r\n", 4))) return;
    *end = 0;
    if ((p = strcasestr(c->in, "\r\ncontent-length:"))) length = strtoul(p + 17, NULL, 10);
    *end = '\r';
    size_t whole = (size_t)(end - c->in) + 4 + length;
    if (c->in_len < whole) return;
    c->in[c->in_len] = 0;
    if (strncmp(c->in, "POST /generate", 14)) {
        char reply[256];
        int alive = strncmp(c->in, "GET /v1/models", 14);
        const char *body = alive ? "{}" : "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\"}]}";
        int n = snprintf(reply, sizeof reply,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", strlen(body), body);
        memmove(c->in, c->in + whole, c->in_len -= whole);
        if (put_bytes(c, reply, (size_t)n)) serve_more(c);
        return;
    }
    char *body = end + 4;
    c->asked = (p = strstr(body, "\"max_new_tokens\":")) ? atoi(p + 17) : 16;
    if (c->asked > TOKENS_MAX) c->asked = TOKENS_MAX;
    c->prompt = 0;
    if ((p = strstr(body, "\"input_ids\":[")))
        for (c->prompt = 1; *p && *p != ']'; p++) c->prompt += *p == ',';
    for (int i = 0; i < 4; i++) c->id[i] = (uint32_t)rng();
    memmove(c->in, c->in + whole, c->in_len -= whole);
    c->sent = 0;
    c->received_ns = now_ns();
    c->due_ns = c->received_ns + (gap_ns ? rng() % gap_ns : 0);
    requests++;
    heap_push(c);
}

static void readable(Conn *c) {
    for (;;) {
        if (c->in_cap - c->in_len < 4096) c->in = realloc(c->in, c->in_cap = 2 * c->in_cap + 8192);
        ssize_t n = read(c->fd, c->in + c->in_len, c->in_cap - c->in_len - 1);
        if (n == 0 || (n < 0 && errno != EAGAIN)) { drop(c); return; }
        if (n < 0) break;
        c->in_len += (size_t)n;
    }
    serve_more(c);
}

static void writable(Conn *c) {
    ssize_t n = write(c->fd, c->out, c->out_len);
    if (n < 0) { if (errno != EAGAIN) drop(c); return; }
    memmove(c->out, c->out + n, c->out_len -= (size_t)n);
    if (!c->out_len) want(c, 0);
}

static void vocabulary(void) {
    static const char *words[] = {" sparse", " the", " latent", "\\n", " top", "-k", " index", " of", " \\\"q\\\"", " \xc3\xa9t"};
    for (int k = 0; k < TOKENS_MAX; k++) {
        text_end[k + 1] = text_end[k] + sprintf(text + text_end[k], "%s", words[rng() % 10]);
        ids_end[k + 1] = ids_end[k] + sprintf(ids + ids_end[k], k ? ",%d" : "%d", (int)(rng() % 129280));
    }
}

int main(int argc, char **argv) {
    int port = argc > 1 ? atoi(argv[1]) : 0, one = 1, events_max = 4096;
    gap_ns = (argc > 2 ? strtoull(argv[2], NULL, 10) : 20000) * 1000;
    if (argc > 3) rng_state ^= strtoull(argv[3], NULL, 10) * 0x9e3779b97f4a7c15ull;
    if (argc > 4) hold = atoi(argv[4]);
    if (getenv("PACED_MOCK_TTFTS")) ttfts = fopen(getenv("PACED_MOCK_TTFTS"), "w");
    struct rlimit files = {FD_MAX, FD_MAX};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max < FD_MAX ? files.rlim_max : FD_MAX;
    setrlimit(RLIMIT_NOFILE, &files);
    vocabulary();
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t at_len = sizeof at;
    int server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(server, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (bind(server, (struct sockaddr *)&at, sizeof at) || listen(server, 65535)) { perror("paced_mock"); return 1; }
    getsockname(server, (struct sockaddr *)&at, &at_len);
    printf("port %d\n", ntohs(at.sin_port));
    fflush(stdout);
    sigset_t stop;
    sigemptyset(&stop); sigaddset(&stop, SIGTERM); sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    int stopping = signalfd(-1, &stop, SFD_NONBLOCK);
    ep = epoll_create1(0);
    for (int fds[] = {server, stopping, 0}, i = 0; i < 3; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fds[i]};
        epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &e);
    }
    struct epoll_event *events = calloc((size_t)events_max, sizeof *events);
    for (int running = 1; running;) {
        struct timespec wait = {0, 0}, *limit = NULL;
        if (heap_len) {
            uint64_t now = now_ns(), due = heap[0]->due_ns;
            if (due > now) { wait.tv_sec = (time_t)((due - now) / 1000000000ull); wait.tv_nsec = (long)((due - now) % 1000000000ull); }
            limit = &wait;
        }
        int n = epoll_pwait2(ep, events, events_max, limit, NULL);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == stopping) { running = 0; break; }
            if (fd == 0) { char c; if (read(0, &c, 1) <= 0) running = 0; continue; }
            if (fd == server) {
                for (int got; (got = accept4(server, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
                    if (got >= FD_MAX) { close(got); continue; }
                    struct epoll_event e = {.events = EPOLLIN, .data.fd = got};
                    setsockopt(got, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    conns[got] = calloc(1, sizeof(Conn));
                    conns[got]->fd = got; conns[got]->heap_at = -1;
                    epoll_ctl(ep, EPOLL_CTL_ADD, got, &e);
                }
                continue;
            }
            if (conns[fd] && (events[i].events & EPOLLOUT)) writable(conns[fd]);
            if (conns[fd] && (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))) readable(conns[fd]);
        }
        for (uint64_t now = now_ns(); heap_len && heap[0]->due_ns <= now; now = now_ns()) frame(heap[0], now);
    }
    if (ttfts) fclose(ttfts);
    printf("{\"requests\":%llu,\"ended\":%llu,\"frames\":%llu,\"bytes\":%llu,\"ttft_mean_ms\":%.6f,\"late_mean_ms\":%.6f,\"late_max_ms\":%.6f}\n",
        (unsigned long long)requests, (unsigned long long)ended, (unsigned long long)frames, (unsigned long long)bytes_out,
        requests ? ttft_sum_s / (double)requests * 1e3 : 0.0, frames ? late_sum_s / (double)frames * 1e3 : 0.0, late_max_s * 1e3);
    return 0;
}
