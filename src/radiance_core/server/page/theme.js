// Light or dark: as the system says, unless the reader says otherwise.

import { byId, setText } from "./view.js";

const PLACE = "radiance-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };

function show(theme) {
  if (theme === "system") {
    delete document.documentElement.dataset.theme;
  } else {
    document.documentElement.dataset.theme = theme;
  }
  setText(byId("theme"), `Theme: ${theme}`);
}

export function startTheme() {
  let theme = localStorage.getItem(PLACE);
  if (!(theme in NEXT)) theme = "system";
  show(theme);
  byId("theme").addEventListener("click", () => {
    theme = NEXT[theme];
    localStorage.setItem(PLACE, theme);
    show(theme);
  });
}
