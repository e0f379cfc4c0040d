// Live numbers: tiles with their last two minutes, the cache's pools, totals.

import { Sparkline } from "./chart.js";
import { pools, rates, share } from "./rates.js";
import { byId, duration, make, makeAround, number, percent, setText } from "./view.js";

const ROOM = 120;

// title, unit, how to spell it, value of a look (null is a gap), what stands below
const TILES = [
  ["Decode step", "ms", number, (rate) => rate.decodeStepMs, () => "decode seconds / decode steps"],
  ["Generated", "tokens/s", number, (rate) => rate.decodeRate, total("tokens_generated", "in all")],
  [
    "Prompts computed",
    "tokens/s",
    number,
    (rate) => rate.promptRate,
    total("prompt_tokens", "in all"),
  ],
  [
    "Requests running",
    "requests",
    number,
    (_, engine) => engine.requests_running,
    total("requests_waiting", "waiting"),
  ],
  [
    "Cache in flight",
    "%",
    percent,
    (_, engine) => fullest(engine),
    (engine) => `${percent(held(engine))} % held for reuse`,
  ],
  [
    "Prefix hits",
    "%",
    percent,
    (rate) => rate.hitRate,
    overall("prefix_cache_hits", "prefix_cache_queries"),
  ],
  [
    "Drafts accepted",
    "%",
    percent,
    (rate) => rate.acceptance,
    overall("accepted_tokens", "draft_tokens"),
  ],
  ["First token after", "ms", number, (rate) => rate.firstTokenMs, (_, stats) => meanFirst(stats)],
].map(([title, unit, spell, value, below]) => ({ title, unit, spell, value, below, past: [] }));

let before = null;

export function showStats(stats) {
  if (before !== null && stats.uptime_s < before.uptime_s) before = null; // another server by now
  const rate = before === null ? null : rates(before, stats);
  if (before === null) build();
  before = stats;
  TILES.forEach((tile) => show(tile, rate, stats));
  showPools(stats.engine);
  showTotals(stats);
}

function build() {
  byId("tiles").replaceChildren(
    ...TILES.map((tile) => {
      tile.chart = new Sparkline(tile.title, tile.unit, tile.spell);
      tile.text = make("span", { class: "figure" }, "–");
      tile.note = make("p", { class: "note" });
      const value = makeAround(
        "p",
        {},
        tile.text,
        make("span", { class: "unit" }, ` ${tile.unit}`),
      );
      return makeAround(
        "section",
        { class: "tile" },
        make("h2", {}, tile.title),
        value,
        tile.chart.element,
        tile.note,
      );
    }),
  );
}

function show(tile, rate, stats) {
  const value = rate === null ? null : tile.value(rate, stats.engine);
  tile.past = [...tile.past, Number.isFinite(value) ? value : null].slice(-ROOM);
  // A figure that only moves with work stays until there is a new one.
  const last = tile.past.findLast((each) => each !== null) ?? null;
  setText(tile.text, last === null ? "–" : tile.spell(last));
  setText(tile.note, tile.below(stats.engine, stats));
  tile.chart.show(tile.past, ROOM);
}

function showPools(engine) {
  const box = byId("pools");
  const all = pools(engine);
  if (box.childElementCount !== all.length) box.replaceChildren(...all.map(() => makePool()));
  all.forEach((pool, place) => fillPool(box.children[place], pool));
}

function makePool() {
  const bar = makeAround(
    "div",
    { class: "bar", role: "img" },
    make("span", { class: "used" }),
    make("span", { class: "held" }),
  );
  return makeAround("div", { class: "pool" }, make("p"), bar);
}

function fillPool(element, { pool, total: all, used, held: kept }) {
  const [text, bar] = element.children;
  const free = `${number(all - used - kept)} free of ${number(all)}`;
  const words = `${pool}: ${number(used)} pages in flight, ${number(kept)} held, ${free}`;
  setText(text, words);
  bar.setAttribute("aria-label", words);
  bar.children[0].style.width = `${(100 * used) / all}%`;
  bar.children[1].style.width = `${(100 * kept) / all}%`;
}

function showTotals({ engine, finished, http, uptime_s: uptime }) {
  const totals = {
    "Up for": duration(uptime),
    Answers: Object.entries(finished)
      .map(([why, count]) => `${number(count)} ${why}`)
      .join(", "),
    Cancelled: number(engine.requests_cancelled ?? 0),
    "Turned away": number(engine.requests_rejected ?? 0),
    Failed: number(engine.requests_failed ?? 0),
    Preempted: number(engine.preemptions ?? 0),
    Steps: number(engine.steps ?? 0),
    Connections: number(http.connections),
  };
  const list = byId("totals");
  if (!list.childElementCount) {
    list.append(
      ...Object.keys(totals).map((name) => makeAround("div", {}, make("dt", {}, name), make("dd"))),
    );
  }
  Object.values(totals).forEach((text, place) => setText(list.children[place].lastChild, text));
}

function total(name, words) {
  return (engine) => `${number(engine[name] ?? 0)} ${words}`;
}

function overall(part, whole) {
  return (engine) => {
    const all = share(engine[part] ?? 0, engine[whole] ?? 0);
    return all === null ? "none so far" : `${percent(all)} % in all`;
  };
}

function meanFirst({ latency: { first_token: first } }) {
  const mean = share(first.sum_s * 1000, first.count);
  return mean === null ? "none so far" : `${number(mean)} ms on average`;
}

function fullest(engine) {
  return Math.max(0, ...pools(engine).map(({ used, total: all }) => used / all));
}

function held(engine) {
  return Math.max(0, ...pools(engine).map(({ held: kept, total: all }) => kept / all));
}
