// Tables without a file of their own are saved as CSV by the browser, which also works offline and in a single file. Further lines
// of a cell, such as a spread, are in a column of their own.
(() => {
  "use strict";

  const LINES = ".small, .paper";
  const CONTROLS = ".permalink, .unseen";
  const text = (node) => node.textContent.trim().replace(/\s+/gu, " ");

  const parts = (cell) => {
    const copy = cell.cloneNode(true);
    copy.querySelectorAll(CONTROLS).forEach((node) => node.remove());
    copy.querySelectorAll("svg").forEach((drawing) => drawing.replaceWith(drawing.getAttribute("aria-label") ?? ""));
    const further = [...copy.querySelectorAll(LINES)].filter((line) => !line.parentElement.closest(LINES));
    further.forEach((line) => line.remove());
    const first = text(copy);
    const hover = cell.dataset.title ?? cell.title; // live.js moves titles
    return [first === "–" ? "" : first, [...further.map(text), hover].filter(Boolean).join("; ")];
  };

  // Notes that begin with an interval have columns for its ends; `kind` names them.
  const RANGE = /^(95 % interval )?([−\d.,e∞]+) to ([−\d.,e∞]+)(?:; |$)/u;
  const columnsOf = (name, cells, kind) => {
    const ranges = cells.map(([, notes]) => RANGE.exec(notes));
    const rest = cells.map(([, notes], row) => (ranges[row] ? notes.slice(ranges[row][0].length) : notes));
    const columns = [[name, ...cells.map(([value]) => value)]];
    const known = ranges.find(Boolean);
    if (known) {
      const end = kind || (known[1] ? "end of the 95 % interval" : "end");
      columns.push([`${name}, lower ${end}`, ...ranges.map((range) => range?.[2] ?? "")]);
      columns.push([`${name}, upper ${end}`, ...ranges.map((range) => range?.[3] ?? "")]);
    }
    if (rest.some(Boolean)) columns.push([`${name}, notes`, ...rest]);
    return columns;
  };

  // A spreadsheet runs texts with these beginnings as formulas, unless they are numbers.
  const field = (value) => {
    const plain = value.replace(/−(?=[\d∞])/gu, "-");
    const safe = /^[=+\-@\t\r]/u.test(plain) && Number.isNaN(Number(plain)) ? `'${plain}` : plain;
    return /[",\n]/u.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };

  const csv = (table) => {
    const rows = [];
    const below = []; // by column: a cell that reaches down, and the number of rows left
    for (const row of [...table.rows].filter((row) => getComputedStyle(row).display !== "none")) {
      const values = [];
      const fill = () => { for (let span; (span = below[values.length])?.rows; span.rows -= 1) values.push(span.pair); };
      for (const cell of row.cells) {
        fill();
        const pair = parts(cell);
        for (let column = 0; column < cell.colSpan; column += 1) {
          below[values.length] = { rows: cell.rowSpan - 1, pair };
          values.push(column ? ["", ""] : pair);
        }
      }
      fill();
      rows.push(values);
    }
    const head = rows[0];
    const columns = head.flatMap(([name, unit], column) => {
      const whole = [name, unit && `(${unit})`].filter(Boolean).join(" ");
      return columnsOf(whole, rows.slice(1).map((row) => row[column] ?? ["", ""]), table.dataset.range);
    });
    return rows.map((_, row) => columns.map((column) => field(column[row])).join(",")).join("\n") + "\n";
  };

  for (const scroll of document.querySelectorAll(".scroll")) {
    const table = scroll.querySelector("table");
    const label = scroll.getAttribute("aria-label");
    if (!table.tHead || scroll.nextElementSibling?.querySelector("a[download]")) continue;
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "CSV", ariaLabel: `Save table as CSV: ${label}` });
    button.addEventListener("click", () => {
      const file = new Blob([csv(table)], { type: "text/csv" });
      const name = `${label.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/gu, "")}.csv`;
      Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: name }).click();
    });
    const line = Object.assign(document.createElement("div"), { className: "save" });
    line.append(button);
    scroll.after(line);
  }
})();
