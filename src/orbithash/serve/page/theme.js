// Dark or light, before anything is painted; the choice is remembered, the system's is the default.
"use strict";

(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // storage may be switched off
    }
  };
  const show = (theme) => {
    root.dataset.theme = theme;
    document.getElementById("theme")?.setAttribute("aria-pressed", theme === "dark");
  };
  const showChosen = () => show(chosen() ?? (system.matches ? "dark" : "light"));
  showChosen();
  system.addEventListener("change", showChosen);
  document.addEventListener("DOMContentLoaded", showChosen);
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("#theme")) return;
    const other = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("theme", other);
    } catch {
      // Not remembered, then.
    }
    show(other);
  });
})();
