// A small line of the last values, with its meaning in words for those who do not see it.

const SPACE = "http://www.w3.org/2000/svg";
const WIDTH = 120;
const HEIGHT = 32;

export class Sparkline {
  constructor(name, unit, spell) {
    this.name = name;
    this.unit = unit;
    this.spell = spell;
    this.element = document.createElementNS(SPACE, "svg");
    this.element.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.element.setAttribute("preserveAspectRatio", "none");
    this.element.setAttribute("role", "img");
    this.element.setAttribute("aria-label", `${name}: nothing seen yet`);
    this.line = document.createElementNS(SPACE, "path");
    this.element.append(this.line);
  }

  // A null is a gap: there was nothing to measure.
  show(values, room) {
    const seen = values.filter((value) => value !== null);
    const most = Math.max(...seen, 0);
    this.line.setAttribute("d", path(values, room, most || 1));
    if (!seen.length) return;
    const [least, last] = [Math.min(...seen), seen.at(-1)].map(this.spell);
    const range = `from ${least} to ${this.spell(most)} in the last ${values.length} seconds`;
    this.element.setAttribute("aria-label", `${this.name} in ${this.unit}: now ${last}, ${range}`);
  }
}

function path(values, room, most) {
  const step = WIDTH / (room - 1);
  const start = WIDTH - step * (values.length - 1);
  let drawing = false;
  return values
    .map((value, place) => {
      if (value === null) {
        drawing = false;
        return "";
      }
      const x = (start + step * place).toFixed(1);
      const y = (HEIGHT - 1 - (value / most) * (HEIGHT - 3)).toFixed(1);
      const point = drawing ? `L${x} ${y}` : `M${x} ${y}h0.1`;
      drawing = true;
      return point;
    })
    .join("");
}
