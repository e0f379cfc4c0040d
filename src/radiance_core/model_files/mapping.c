/* mapping.c - what a process says of a mapped file that was shortened, before it ends.
 *
 * A read beyond the end of a mapped file is SIGBUS, wherever it comes from: C that lays weights
 * out, numpy that copies, a parser. None of them can go on, so the one thing to do is to name the
 * file. Nothing here allocates, locks or formats inside the handler.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf_native.h"

#define RAD_API __attribute__((visibility("default")))

typedef struct Guarded {
    uintptr_t first; /* 0 while nobody uses it; written last, read first */
    uintptr_t end;
    char *words;
    struct Guarded *next; /* never taken out of the list, since a handler may walk along it */
} Guarded;

static Guarded *guarded;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;

/* Leaves what is not ours to whoever had the signal: a handler, or the end of the process. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(number);
    else {
        signal(number, SIG_DFL);
        raise(number);
    }
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static int told;
    const uintptr_t at = (uintptr_t)info->si_addr;
    for (const Guarded *g = __atomic_load_n(&guarded, __ATOMIC_ACQUIRE); g != NULL; g = g->next) {
        const uintptr_t first = __atomic_load_n(&g->first, __ATOMIC_ACQUIRE);
        if (info->si_code <= 0 || first == 0 || at < first || at >= g->end) continue;
        if (__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED)) /* another thread is at it */
            for (;;) pause();
        const ssize_t written = write(STDERR_FILENO, g->words, strlen(g->words));
        (void)written;
        _exit(1);
    }
    pass_on(number, info, context);
}

/* Once: a second time it would take our own handler for the one before. */
static void install(void)
{
    static int installed;
    struct sigaction mine;
    if (installed) return;
    installed = 1;
    memset(&mine, 0, sizeof mine);
    sigemptyset(&mine.sa_mask);
    mine.sa_sigaction = on_bus_error;
    mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGBUS, &mine, &before);
}

RAD_API int32_t rad_map_guard(const uint8_t *first, int64_t size, const char *words)
{
    char *kept = strdup(words);
    if (kept == NULL) return -1;
    pthread_mutex_lock(&changing);
    install();
    Guarded *g = guarded;
    while (g != NULL && g->first != 0) g = g->next;
    const int is_new = g == NULL;
    if (is_new && (g = calloc(1, sizeof *g)) == NULL) {
        pthread_mutex_unlock(&changing);
        free(kept);
        return -1;
    }
    free(g->words);
    g->words = kept;
    g->end = (uintptr_t)first + (uintptr_t)size;
    __atomic_store_n(&g->first, (uintptr_t)first, __ATOMIC_RELEASE);
    if (is_new) {
        g->next = guarded;
        __atomic_store_n(&guarded, g, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&changing);
    return 0;
}

RAD_API void rad_map_forget(const uint8_t *first)
{
    pthread_mutex_lock(&changing);
    for (Guarded *g = guarded; g != NULL; g = g->next)
        if (g->first == (uintptr_t)first) __atomic_store_n(&g->first, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&changing);
}
