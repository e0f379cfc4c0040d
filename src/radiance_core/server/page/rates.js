// What two looks at the counters say about the time between them. Nothing happened is null, not 0.

export function rates(before, now) {
  const seconds = now.uptime_s - before.uptime_s;
  if (seconds <= 0) return null;
  const gained = (name) => (now.engine[name] ?? 0) - (before.engine[name] ?? 0);
  const first = between(before, now, "first_token");
  return {
    decodeStepMs: share(gained("decode_seconds") * 1000, gained("decode_steps")),
    decodeRate: gained("tokens_generated") / seconds,
    promptRate: gained("prompt_tokens") / seconds,
    hitRate: share(gained("prefix_cache_hits"), gained("prefix_cache_queries")),
    acceptance: share(gained("accepted_tokens"), gained("draft_tokens")),
    firstTokenMs: share(first.sum_s * 1000, first.count),
  };
}

// The cache's pools, each split into pages that requests use, pages kept for later, and the rest.
export function pools(engine) {
  const prefix = "kv_pages_total_";
  return Object.keys(engine)
    .filter((name) => name.startsWith(prefix))
    .map((name) => name.slice(prefix.length))
    .map((pool) => ({
      pool,
      total: engine[prefix + pool],
      used: engine[`kv_pages_used_${pool}`] ?? 0,
      held: engine[`kv_pages_cached_${pool}`] ?? 0,
    }));
}

export function share(part, whole) {
  return whole > 0 ? part / whole : null;
}

function between(before, now, name) {
  const [old, fresh] = [before.latency[name], now.latency[name]];
  return { count: fresh.count - old.count, sum_s: fresh.sum_s - old.sum_s };
}
