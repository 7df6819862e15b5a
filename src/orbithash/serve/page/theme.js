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
  const show = () => {
    root.dataset.theme = chosen() ?? (system.matches ? "dark" : "light");
    document.getElementById("theme")?.setAttribute("aria-pressed", root.dataset.theme === "dark");
  };
  show();
  system.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", () => {
      const other = root.dataset.theme === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("theme", other);
        show();
      } catch {
        root.dataset.theme = other;
      }
    });
  });
})();
