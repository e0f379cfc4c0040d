/* team.h - how many threads of a pool take part: fewer while another program keeps taking
 * processors away.
 *
 * A thread that loses its processor in the middle of a chunk keeps all others waiting for
 * milliseconds, where a chunk takes microseconds. So time is kept of what the caller lost: waiting
 * for a chunk far longer than its own work took, or without a processor itself. Where that is more
 * than half of what one thread adds, the team shrinks by one, and the system moves the threads that
 * are left to the processors that are left. Later it grows again to see whether peace has returned;
 * each time that it has not, "later" is twice as far off. Arithmetic only: who is on the team
 * changes when a result comes, never what it is (ADR 0003).
 */
#ifndef RADIANCE_TEAM_H_
#define RADIANCE_TEAM_H_

#include <stdint.h>

/* Steps of so long are judged together: many slices of the scheduler (4 ms). */
#define TEAM_WINDOW_NS     50000000
#define TEAM_PAUSE_NS      50000000 /* the first pause of a member */
#define TEAM_MOST_PAUSE_NS 800000000
/* Waiting that is never called lost; wakes and cache misses take that. */
#define TEAM_PATIENCE_NS 50000

typedef struct RadTeam {
    int32_t size, full; /* threads that take part, and all; the caller included */
    int64_t ran_ns;     /* time in steps since the last judgement */
    int64_t lost_ns;    /* of that, what the caller lost */
    int64_t pause_ns;   /* how long the next member to go stays away */
    int64_t return_ns;  /* when the team grows again, if it is not full */
} RadTeam;

static inline RadTeam team_of(int32_t threads)
{
    return (RadTeam){ .size = threads, .full = threads, .pause_ns = TEAM_PAUSE_NS };
}

/* What of a wait counts as lost when the caller worked for `worked_ns` on the same call. */
static inline int64_t team_lost(int64_t waited_ns, int64_t worked_ns)
{
    int64_t late = waited_ns - TEAM_PATIENCE_NS - worked_ns;
    return late > 0 ? late : 0;
}

/* Take note of a step that ended at `now_ns`, and say how many take part in the next one. */
static inline int32_t team_after(RadTeam *team, int64_t now_ns, int64_t ran_ns, int64_t lost_ns)
{
    team->ran_ns += ran_ns;
    team->lost_ns += lost_ns;
    int64_t window = team->ran_ns > TEAM_WINDOW_NS ? team->ran_ns : TEAM_WINDOW_NS;
    if (team->size < team->full && now_ns >= team->return_ns) {
        team->size++;
    } else if (team->size > 1 && team->lost_ns * 2 * team->size > window) {
        team->size--;
        team->return_ns = now_ns + team->pause_ns;
        if (team->pause_ns < TEAM_MOST_PAUSE_NS)
            team->pause_ns *= 2;
    } else if (team->ran_ns < TEAM_WINDOW_NS) {
        return team->size;
    } else if (team->size == team->full && team->pause_ns > TEAM_PAUSE_NS) {
        team->pause_ns /= 2;
    }
    team->ran_ns = team->lost_ns = 0;
    return team->size;
}

#endif /* RADIANCE_TEAM_H_ */
