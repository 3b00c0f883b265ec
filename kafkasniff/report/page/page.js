"use strict";
// Filters, the switch between light and dark, and ladders that open when a link leads into them. Without scripts, the
// whole page can still be read, printed and linked to.
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  const rowsOf = (name) =>
    document.querySelectorAll(
      { findings: "#findings .finding", connections: ".ladder" }[name] ?? `#${CSS.escape(name)} tbody tr`,
    );

  for (const input of document.querySelectorAll("input[data-filter]")) {
    const output = input.parentElement.querySelector("output");
    const rows = [...rowsOf(input.dataset.filter)];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, index) => {
        row.hidden = !words.every((word) => texts[index].includes(word));
        shown += row.hidden ? 0 : 1;
      });
      output.value = words.length ? `${shown} of ${rows.length}` : "";
    });
  }

  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let one = target; one; one = one.parentElement) {
      one.hidden = false;
      if (one instanceof HTMLDetailsElement) one.open = true;
    }
    target.scrollIntoView({ block: target.matches("li, .finding") ? "center" : "start" });
  };
  addEventListener("hashchange", reveal);
  reveal();

  const button = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  const use = (theme) => {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    button.textContent = `theme: ${theme}`;
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    use(themes[(themes.indexOf(root.dataset.theme ?? "auto") + 1) % themes.length]);
  });
})();
