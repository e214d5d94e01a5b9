// Light or dark: what was chosen, before anything is painted; else the system's.
{
  const KEY = "alara.theme";
  const root = document.documentElement.dataset;
  const attempt = (action) => {
    try {
      return action();
    } catch {
      // Forbidden.
    }
  };
  const chosen = attempt(() => localStorage.getItem(KEY));
  if (chosen === "light" || chosen === "dark") root.theme = chosen;
  addEventListener("click", (event) => {
    if (!event.target.closest("#theme")) return;
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const next = (root.theme ?? system) === "dark" ? "light" : "dark";
    if (next === system) delete root.theme;
    else root.theme = next;
    attempt(() => (root.theme ? localStorage.setItem(KEY, next) : localStorage.removeItem(KEY)));
  });
}
