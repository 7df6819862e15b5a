// Dark or light theme, set before the first paint: the user's choice, by default the system's.
"use strict";

(() => {
  const root = document.documentElement;
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const savedTheme = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // storage may be disabled
    }
  };
  const apply = (theme) => {
    root.dataset.theme = theme;
    document.getElementById("theme")?.setAttribute("aria-pressed", theme === "dark");
  };
  const applyPreferred = () => apply(savedTheme() ?? (systemDark.matches ? "dark" : "light"));
  applyPreferred();
  systemDark.addEventListener("change", applyPreferred);
  document.addEventListener("DOMContentLoaded", applyPreferred);
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("#theme")) return;
    const other = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("theme", other);
    } catch {
      // Not saved; the theme applies until the page is left.
    }
    apply(other);
  });
})();
