// The theme that was chosen, before anything is painted.
// Nothing chosen: the system's.
{
  let chosen;
  try {
    chosen = localStorage.getItem("alara.theme");
  } catch {
    // Storage is forbidden: the system's theme.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
