// Every op of a step: which library and kernel serve it, why, and what refused the others.

import { getJson } from "./api.js";
import { byId, make, makeAround, setText } from "./view.js";

let graph = null;
let rows = [];

export async function showGraph() {
  if (graph) return;
  setText(byId("graph-summary"), "Reading the graph …");
  try {
    graph = await getJson("graph");
  } catch (error) {
    setText(byId("graph-summary"), error.message);
    return;
  }
  const libraries = Object.entries(graph.libraries).map(([name, { version, ops, reference }]) => {
    return `${name} ${version}: ${ops.length} ops${reference ? ", reference" : ""}`;
  });
  setText(byId("graph-libraries"), libraries.join(" · "));
  rows = graph.nodes.map(row);
  byId("graph-rows").replaceChildren(...rows.map(({ element }) => element));
  filter();
}

function row(node) {
  const selection = graph.selections[node.selection];
  const served = [...new Set(selection.bands.map((band) => `${band.library}.${band.kernel}`))];
  const element = make("tr");
  element.append(
    make("td", { class: "number" }, node.index),
    make("td", { class: "code whole" }, node.op),
    make("td", { class: "code" }, node.name.replace(`${node.op} `, "")),
    make("td", { class: "code whole" }, served.join("\n")),
    makeAround("td", {}, details(node, selection)),
  );
  return { element, text: [node.op, node.name, ...served].join(" ").toLowerCase() };
}

function details(node, selection) {
  const refused = selection.bands.reduce((sum, band) => sum + band.refused.length, 0);
  const bands = selection.bands.length === 1 ? "1 band" : `${selection.bands.length} bands`;
  const element = makeAround("details", {}, make("summary", {}, `${bands}, ${refused} refused`));
  // Hundreds of nodes have details and few are read.
  element.addEventListener("toggle", () => element.append(...facts(node, selection)), {
    once: true,
  });
  return element;
}

function facts(node, selection) {
  const outputs = node.outputs.join(", ") || "nothing";
  const params = Object.entries(selection.params).map(([name, value]) => `${name}=${spell(value)}`);
  return [
    make("p", { class: "code" }, `${node.operands.join(", ")} → ${outputs}`),
    make("p", { class: "code" }, params.join(" ")),
    ...selection.bands.flatMap((band) => bandFacts(band, selection.ranged)),
  ];
}

function spell(value) {
  return typeof value === "number" ? Number(value.toPrecision(7)) : value;
}

function bandFacts(band, ranged) {
  const range = ranged ? `${ranged} ${band.lower}–${band.upper ?? "any"}: ` : "";
  const takes = band.takes.length ? `takes ${band.takes.join(", ")}` : "takes anything";
  const layouts = band.layouts.length ? `, weights as ${band.layouts.join(", ")}` : "";
  const found = [
    make("p", { class: "strong" }, `${range}${band.library}.${band.kernel}`),
    make("p", {}, band.why),
    make("p", { class: "note" }, `priority ${band.priority}, ${takes}${layouts}`),
  ];
  if (band.refused.length) {
    const list = make("ul");
    for (const each of band.refused) {
      list.append(make("li", {}, `${each.library}.${each.kernel}: ${each.reason}`));
    }
    found.push(list);
  }
  return found;
}

function filter() {
  const wanted = byId("graph-filter").value.trim().toLowerCase().split(/\s+/);
  let shown = 0;
  for (const { element, text } of rows) {
    element.hidden = !wanted.every((word) => text.includes(word));
    shown += element.hidden ? 0 : 1;
  }
  const kinds = graph?.num_ops ?? 0;
  setText(byId("graph-summary"), `${shown} of ${rows.length} operations, ${kinds} kinds.`);
}

export function startGraph() {
  byId("graph-filter").addEventListener("input", filter);
}
