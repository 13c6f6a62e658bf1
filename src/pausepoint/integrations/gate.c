/* The hook of an agent in 2 ms: send its JSON to the gate as it came, wait, and print the answer.

   gate-hook PYTHON GATE.PY KIND

   It decides nothing. Whatever is not the plain case (no server, a server that goes away, input that is not plain or is
   too long) is left to the hook in Python, gate.py, which then runs in this process with the same input. If a server was
   reached, the last argument of gate.py says for how many seconds it was heard: it may only be restarting. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum {
    LIMIT = 1000000,       /* the most bytes of one message, as in gate.py */
    PATIENCE = 2,          /* seconds for a server to read a message */
    LOOK_EVERY = 500,      /* milliseconds between two looks at the agent and the clock */
    DEADLINE = 86400 - 60, /* seconds until Python refuses the call */
    DEPTH = 32,            /* the most shells between the agent and the hook */
    PATHS = 4096
};

static char *input;
static size_t size;
static char **words;
static double reached; /* when a server was reached; 0 before */

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Return a file that has no name. */
static int nameless(void) {
#ifdef __linux__
    return memfd_create("hook", 0);
#else
    FILE *file = tmpfile();
    return file ? fileno(file) : -1;
#endif
}

/* Become the hook in Python, with the same input. */
static void leave_to_python(void) {
    char seconds[32];
    int file = nameless();
    size_t done = 0;
    while (file >= 0 && done < size) {
        ssize_t count = write(file, input + done, size - done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        done += (size_t)count;
    }
    if (file >= 0 && done == size && lseek(file, 0, SEEK_SET) == 0 && dup2(file, 0) == 0) {
        snprintf(seconds, sizeof seconds, "%.3f", now() - reached);
        char *line[] = {words[1], "-I", "-S", words[2], words[3], reached ? seconds : NULL, NULL};
        execv(words[1], line);
    }
    fprintf(stderr, "Pausepoint's gate: %s cannot be started: %s\n", words[1], strerror(errno));
    _exit(1);
}

/* Read a file or a pipe to its end, at most `most` bytes. Return the text, ended by 0, or NULL. */
static char *all_of(int file, size_t most, size_t *count) {
    size_t room = 65536, length = 0;
    char *text = malloc(room);
    while (text) {
        ssize_t got = read(file, text + length, room - length - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        length += (size_t)got;
        if (!got) {
            text[length] = 0;
            *count = length;
            return text;
        }
        if (length > most) break;
        if (room - length < 2) {
            char *more = realloc(text, room *= 2);
            if (!more) break;
            text = more;
        }
    }
    free(text);
    return NULL;
}

/* Copy the text of a member of a JSON object. Return 0 if there is none. What is not plain is left to Python. */
static int member(const char *text, const char *name, char *value, size_t room) {
    int depth = 0, is_object = 0, is_name = 0, is_wanted = 0, is_there = 0;
    for (const char *at = text; *at; at++) {
        if (*at == '{' || *at == '[') {
            if (depth == 0 ? is_object || *at == '[' : depth == 1 && is_wanted) leave_to_python();
            is_object = 1;
            is_name = ++depth == 1;
        } else if (*at == '}' || *at == ']') {
            depth--;
        } else if (*at == ',') {
            if (depth == 1) is_name = 1, is_wanted = 0;
        } else if (*at == ':') {
            if (depth == 1) is_name = 0;
        } else if (*at == '"') {
            const char *end = ++at;
            int is_plain = 1;
            for (; *end && *end != '"'; end++)
                if (*end == '\\') {
                    is_plain = 0;
                    if (!*++end) leave_to_python();
                }
            if (!*end) leave_to_python();
            size_t length = (size_t)(end - at);
            if (depth == 1 && is_name) {
                if (!is_plain) leave_to_python();
                is_wanted = length == strlen(name) && !memcmp(at, name, length);
            } else if (depth == 1 && is_wanted) {
                if (!is_plain || length >= room) leave_to_python();
                memcpy(value, at, length);
                value[length] = 0;
                is_there = 1;
            }
            at = end;
        } else if (depth == 1 && is_wanted && !is_name && !strchr(" \t\r\n", *at)) {
            leave_to_python(); /* it is no text */
        }
    }
    if (depth || !is_object) leave_to_python();
    return is_there;
}

/* Find the socket of the gate in the nearest .pausepoint/gate.json. Return 0 if there is no gate. */
static int find_gate(char *folder, char *path, size_t room) {
    char name[PATHS + 32];
    if (folder[0] != '/') leave_to_python();
    for (;;) {
        snprintf(name, sizeof name, "%s/.pausepoint/gate.json", folder);
        int file = open(name, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            size_t length;
            char *text = all_of(file, LIMIT, &length);
            if (!text || strlen(text) != length || !member(text, "socket", path, room)) leave_to_python();
            close(file);
            return 1;
        }
        if (errno != ENOENT && errno != ENOTDIR) leave_to_python();
        char *last = strrchr(folder, '/');
        if (!last) return 0;
        *last = 0;
    }
}

/* Write the processes from the parent up to the agent. Shells in between only started the hook. */
static int lineage(pid_t *pids) {
    static const char *shells[] = {"sh", "dash", "bash", "zsh", "ash", "busybox"};
    int count = 0;
    pids[count++] = getppid();
    while (count < DEPTH) {
        char name[64], text[512];
        snprintf(name, sizeof name, "/proc/%d/stat", (int)pids[count - 1]);
        int file = open(name, O_RDONLY | O_CLOEXEC);
        if (file < 0) return count;
        ssize_t length = read(file, text, sizeof text - 1);
        close(file);
        if (length <= 0) return count;
        text[length] = 0;
        char *first = strchr(text, '('), *last = strrchr(text, ')'), state;
        int parent, is_shell = 0;
        if (!first || !last || sscanf(last + 1, " %c %d", &state, &parent) != 2) return count;
        *last = 0;
        for (size_t each = 0; each < sizeof shells / sizeof *shells; each++)
            is_shell |= !strcmp(first + 1, shells[each]);
        if (!is_shell) return count;
        pids[count++] = parent;
    }
    return count;
}

static int send_all(int wire, const char *data, size_t length) {
    while (length) {
        ssize_t count = send(wire, data, length, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return 0;
        data += count;
        length -= (size_t)count;
    }
    return 1;
}

/* Print the answer, the line after its "=". It may be empty. Another line is not for us: a former server wrote it. */
static void answer(const char *line, size_t length) {
    size_t done = 1;
    if (!length || *line != '=') leave_to_python();
    while (length > 1 && done <= length) {
        ssize_t count = done < length ? write(1, line + done, length - done) : write(1, "\n", 1);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) _exit(1);
        done += (size_t)count;
    }
    _exit(0);
}

int main(int count, char **arguments) {
    char folder[PATHS], path[PATHS], head[8192], line[65536];
    words = arguments;
    if (count != 4) {
        fputs("usage: gate-hook PYTHON GATE.PY KIND\n", stderr);
        return 1;
    }
    if (!(input = all_of(0, (size_t)1 << 30, &size))) {
        fputs("Pausepoint's gate: the input cannot be read\n", stderr);
        return 1;
    }
    if (size > LIMIT || strlen(input) != size) leave_to_python();

    const char *token = getenv("PAUSEPOINT_GATE_TOKEN"), *own = getenv("PAUSEPOINT_GATE");
    if (!member(input, "cwd", folder, sizeof folder) || !*folder) leave_to_python();
    if (own && *own) {
        if (strlen(own) >= sizeof path) leave_to_python();
        strcpy(path, own);
    } else {
        token = NULL;
        if (!find_gate(folder, path, sizeof path)) return 0;
    }
    for (const char *at = token; at && *at; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\') leave_to_python();
    for (const char *at = words[3]; *at; at++)
        if (*at < 'a' || *at > 'z') leave_to_python();

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) leave_to_python();
    strcpy(address.sun_path, path);
    struct timeval patience = {.tv_sec = PATIENCE};
    int wire = socket(AF_UNIX, SOCK_STREAM, 0);
    if (wire < 0 || setsockopt(wire, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience)) leave_to_python();
    if (connect(wire, (struct sockaddr *)&address, sizeof address)) leave_to_python();
    fcntl(wire, F_SETFD, FD_CLOEXEC);
    pid_t agent[DEPTH], later[DEPTH];
    int shells = lineage(agent);
    int length = snprintf(
        head, sizeof head, "{\"raw\":%zu,\"kind\":\"%s\",\"pid\":%d,\"token\":%s%s%s}\n", size, words[3],
        (int)agent[shells - 1], token ? "\"" : "", token ? token : "null", token ? "\"" : "");
    if (length >= (int)sizeof head || !send_all(wire, head, (size_t)length)) leave_to_python();
    if (!send_all(wire, input, size)) leave_to_python();
    reached = now();

    size_t rest = 0;
    for (;;) {
        struct pollfd each[2] = {{wire, POLLIN, 0}, {1, 0, 0}};
        int ready = poll(each, 2, LOOK_EVERY);
        if (each[1].revents & (POLLERR | POLLHUP | POLLNVAL)) return 1; /* nobody reads the answer */
        if (ready <= 0) {
            if (lineage(later) != shells || memcmp(agent, later, (size_t)shells * sizeof *agent)) return 1;
            if (now() - reached > DEADLINE) leave_to_python();
            continue;
        }
        ssize_t got = recv(wire, line + rest, sizeof line - rest, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0 || rest + (size_t)got == sizeof line) leave_to_python();
        rest += (size_t)got;
        char *end;
        while ((end = memchr(line, '\n', rest))) {
            size_t long_is = (size_t)(end - line);
            if (long_is != 4 || memcmp(line, "wait", 4)) answer(line, long_is);
            rest -= long_is + 1;
            memmove(line, end + 1, rest);
        }
    }
}
