"use strict";
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const before = [...body.rows];
  const number = (text) => {
    const found = text.replace(/\u2212/g, "-").replace(/(\d),(?=\d{3})/g, "$1").match(/^\s*[<>]?\s*([-+]?\d*\.?\d+(?:e[-+]?\d+)?)/i);
    return found ? Number(found[1]) : NaN;
  };
  const compare = (a, b) => {
    const x = number(a), y = number(b);
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return Number.isNaN(x) ? a.localeCompare(b) : x - y;
  };
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const way = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
    heads.forEach((other) => other.setAttribute("aria-sort", other === head ? way : "none"));
    const rows = [...before];
    const text = (row) => row.cells[column].textContent.trim();
    if (way !== "none") rows.sort((a, b) => compare(text(a), text(b)) * (way === "ascending" ? 1 : -1));
    body.append(...rows);
  }));
}
for (const choices of document.querySelectorAll(".choices")) {
  const buttons = [...choices.querySelectorAll("button")];
  const rows = [...choices.nextElementSibling.querySelectorAll("tbody tr")];
  // A cell's small second line is no part of its value.
  const value = (row) => (row.cells[choices.dataset.column].querySelector("a, span") || row.cells[choices.dataset.column]).textContent.trim();
  buttons.forEach((chosen) => chosen.addEventListener("click", () => {
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button === chosen)));
    rows.forEach((row) => { row.hidden = chosen.dataset.value !== "" && value(row) !== chosen.dataset.value; });
  }));
}
const unfold = () => {
  const place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = place && place.closest("details");
  if (folded && !folded.open) { folded.open = true; place.scrollIntoView(); }
};
addEventListener("hashchange", unfold);
unfold();
