// Tabs: arrow keys, Home and End move, the address keeps which one is open.

const tabs = [...document.querySelectorAll("[role=tab]")];
const listeners = [];

export function onTab(listener) {
  listeners.push(listener);
}

export function openTab() {
  return nameOf(tabs.find((tab) => tab.getAttribute("aria-selected") === "true"));
}

function nameOf(tab) {
  return tab.id.replace("tab-", "");
}

function open(tab) {
  for (const each of tabs) {
    const chosen = each === tab;
    each.setAttribute("aria-selected", String(chosen));
    each.tabIndex = chosen ? 0 : -1;
    document.getElementById(each.getAttribute("aria-controls")).hidden = !chosen;
  }
  listeners.forEach((listener) => listener(nameOf(tab)));
}

function choose(tab) {
  history.replaceState(null, "", `#${nameOf(tab)}`);
  open(tab);
}

function fromAddress() {
  open(tabs.find((tab) => nameOf(tab) === location.hash.slice(1)) ?? tabs[0]);
}

export function startTabs() {
  for (const tab of tabs) {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const place = tabs.indexOf(tab);
      const places = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: -1 };
      if (!(event.key in places)) return;
      event.preventDefault();
      const next = tabs.at(places[event.key] % tabs.length);
      choose(next);
      next.focus();
    });
  }
  addEventListener("hashchange", fromAddress);
  fromAddress();
}
