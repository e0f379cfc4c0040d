// Makes elements and spells numbers. Text is only ever set as text, so nothing that a model or a
// client wrote can become markup.

export function byId(id) {
  return document.getElementById(id);
}

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children.map(String));
  return element;
}

export function makeAround(tag, attributes, ...children) {
  const element = make(tag, attributes);
  element.append(...children);
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 100 || Number.isInteger(value)) return whole.format(value);
  return Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function percent(share) {
  if (share === null || !Number.isFinite(share)) return "–";
  return (share * 100).toFixed(share < 0.1 ? 1 : 0);
}

export function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days ${hours % 24} h`;
}
