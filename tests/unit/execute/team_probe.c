/* The arithmetic of team.h for a test in Python: one team, moved on step by step. */
#include <radiance_abi.h>

#include "team.h"

static RadTeam team;

RAD_EXPORT void start(int32_t threads) { team = team_of(threads); }
RAD_EXPORT int32_t after(int64_t now_ns, int64_t ran_ns, int64_t lost_ns)
{
    return team_after(&team, now_ns, ran_ns, lost_ns);
}
RAD_EXPORT int64_t lost(int64_t waited_ns, int64_t worked_ns)
{
    return team_lost(waited_ns, worked_ns);
}
