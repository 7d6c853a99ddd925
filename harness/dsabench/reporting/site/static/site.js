// Sorts and filters tables, and copies a command. Everything is readable without it.
"use strict";
const number = (cell) => {
  const text = cell.dataset.v ?? cell.textContent.replace(/[,\s]/g, "");
  return text === "" ? NaN : Number(text.replace(/%$/, ""));
};
const compare = (index, sign) => (left, right) => {
  const [a, b] = [left.cells[index], right.cells[index]];
  const [x, y] = [number(a), number(b)];
  if (Number.isNaN(x) && Number.isNaN(y)) return sign * a.textContent.localeCompare(b.textContent, "en", { numeric: true });
  if (Number.isNaN(x)) return 1;
  return Number.isNaN(y) ? -1 : sign * (x - y);
};
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(compare(index, up ? 1 : -1)));
    });
  });
}
for (const table of document.querySelectorAll("table.filterable")) {
  if (table.tBodies[0].rows.length < 6) continue;
  const field = document.createElement("input");
  field.className = "filter";
  field.type = "search";
  field.placeholder = "Filter: words that must occur";
  field.setAttribute("aria-label", "Filter the table");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  table.parentElement.before(field);
}
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(source); // a page from disk may not write to the clipboard: the text is marked
      button.textContent = "marked";
    }
  });
}
