// Charts that answer: a point says what it stands for, a name in the legend shows and hides its lines, and of many
// panels one is picked. Without this all panels stand side by side, and a line's own title has its values.
(() => {
  "use strict";
  const NEAR = 14; // how far from a point the pointer reads it, in the drawing's own units

  const made = (tag, attributes = {}, ...inside) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...inside);
    return element;
  };

  const drawnIn = (parent, tag, attributes) => {
    const element = document.createElementNS(parent.namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return parent.appendChild(element);
  };

  // ---- reading points

  const reading = made("div", { class: "reading", hidden: "" });

  const hush = () => {
    reading.hidden = true;
    document.querySelectorAll(".point.here").forEach((point) => point.classList.remove("here"));
  };

  const read = (point) => {
    hush();
    const panel = point.closest(".panel");
    reading.textContent = point.getAttribute("aria-label");
    reading.hidden = false;
    panel.append(reading);
    point.classList.add("here");
    const [at, around] = [point.getBoundingClientRect(), panel.getBoundingClientRect()];
    const left = at.left - around.left + at.width / 2 - reading.offsetWidth / 2;
    reading.style.left = `${Math.max(0, Math.min(left, around.width - reading.offsetWidth))}px`;
    reading.style.top = `${at.top - around.top - reading.offsetHeight - 6}px`;
  };

  // A series' title is its name and then a line for each of its points, which its path visits in order.
  const pointsOf = (series) => {
    const title = series.querySelector("title");
    const path = series.querySelector(".p");
    if (!title || !path) return;
    const [name, ...told] = title.textContent.split("\n");
    series.dataset.of ??= name;
    title.remove();
    const places = [...path.getAttribute("d").matchAll(/M(-?[\d.]+) (-?[\d.]+)(?:V-?[\d.]+H(-?[\d.]+))?/g)];
    places.slice(0, told.length).forEach(([, x, y, right], index) => {
      const middle = right === undefined ? x : (Number(x) + Number(right)) / 2; // of a bar
      const said = { tabindex: -1, role: "img", "aria-label": `${name}, ${told[index]}` };
      drawnIn(series, "circle", { class: "point", cx: middle, cy: y, r: 5, ...said });
    });
  };

  const shown = (svg) => [...svg.querySelectorAll(".series:not([hidden]) .point")];
  const place = (point) => [Number(point.getAttribute("cx")), Number(point.getAttribute("cy"))];

  // One point of a chart is in the order of the Tab key, and arrows lead to the others.
  const enter = (svg, point = shown(svg)[0]) => {
    svg.querySelectorAll('.point[tabindex="0"]').forEach((each) => each.setAttribute("tabindex", -1));
    point?.setAttribute("tabindex", 0);
  };

  const next = (svg, point, key) => {
    const series = point.parentNode;
    const own = [...series.querySelectorAll(".point")];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (step && own.length > 1) return own[own.indexOf(point) + step];
    const all = [...svg.querySelectorAll(".series:not([hidden])")].filter((each) => each.querySelector(".point"));
    const to = all[all.indexOf(series) + (step ?? { ArrowDown: 1, ArrowUp: -1 }[key])];
    const [x] = place(point);
    return to && [...to.querySelectorAll(".point")].sort((a, b) => Math.abs(place(a)[0] - x) - Math.abs(place(b)[0] - x))[0];
  };

  const answer = (svg) => {
    const holder = svg.parentNode;
    svg.querySelectorAll(".series").forEach(pointsOf);
    if (!shown(svg).length) return;
    svg.removeAttribute("aria-hidden");
    holder.setAttribute("role", "group");
    enter(svg);
    svg.addEventListener("pointermove", (event) => {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const far = (point) => Math.hypot(place(point)[0] - at.x, place(point)[1] - at.y);
      const nearest = shown(svg).reduce((best, point) => (far(point) < far(best) ? point : best));
      if (far(nearest) < NEAR) read(nearest);
      else hush();
    });
    svg.addEventListener("pointerleave", hush);
    svg.addEventListener("focusin", (event) => {
      enter(svg, event.target);
      read(event.target);
    });
    svg.addEventListener("focusout", hush);
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hush();
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      next(svg, event.target, event.key)?.focus();
    });
  };

  // ---- the legend

  const toggled = (figure) => {
    figure.querySelectorAll(".legend li").forEach((item) => {
      const series = [...figure.querySelectorAll(".series")].filter((each) => each.dataset.of === item.dataset.label);
      if (!series.length) return;
      const button = made("button", { type: "button", "aria-pressed": "true" }, ...item.childNodes);
      item.append(button);
      button.addEventListener("click", () => {
        const pressed = button.getAttribute("aria-pressed") === "false";
        button.setAttribute("aria-pressed", pressed);
        series.forEach((each) => each.toggleAttribute("hidden", !pressed));
        figure.querySelectorAll(".panel .chart").forEach((svg) => enter(svg));
      });
    });
  };

  // ---- one of many panels

  const ALL = "";
  const MANY = 4; // from more than these on one is shown at first

  const picked = (figure) => {
    const panels = [...figure.querySelectorAll(".panel")];
    const names = [...new Set(panels.flatMap((panel) => Object.keys(panel.dataset)))];
    const options = (name) => [...new Set(panels.map((panel) => panel.dataset[name]).filter(Boolean))];
    const facets = names.filter((name) => options(name).length > 1);
    if (!facets.length) return;
    const selects = facets.map((name) => {
      const select = made("select", { name }, made("option", { value: ALL }, "all"));
      options(name).forEach((value) => select.append(made("option", { value }, value)));
      return select;
    });
    const none = made("p", { class: "note", role: "status", hidden: "" }, "Nothing was measured there.");
    const show = () => {
      const fits = panels.filter((panel) =>
        selects.every((select) => select.value === ALL || panel.dataset[select.name] === select.value)
      );
      panels.forEach((panel) => panel.toggleAttribute("hidden", !fits.includes(panel)));
      figure.querySelector(".panels").classList.toggle("one", fits.length === 1);
      none.hidden = fits.length > 0;
      const there = new Set(fits.flatMap((panel) => [...panel.querySelectorAll(".series")].map((each) => each.dataset.of)));
      figure.querySelectorAll(".legend li").forEach((item) => (item.hidden = fits.length === 1 && !there.has(item.dataset.label)));
    };
    const picks = made("div", { class: "picks" });
    selects.forEach((select) => {
      picks.append(made("label", {}, made("span", {}, select.name), select));
      select.addEventListener("change", show);
    });
    figure.querySelector(".panels").before(picks, none);
    if (panels.length > MANY) selects.forEach((select) => (select.value = panels[0].dataset[select.name] ?? ALL));
    show();
  };

  // ---- a chart as a file

  const KEPT = [
    ...["color", "fill", "stroke", "stroke-width", "stroke-dasharray", "opacity"],
    ...["font-family", "font-size", "text-anchor", "display"],
  ];

  // The names of the lines that are seen, below the drawing.
  const named = (svg, copy, below) => {
    const seen = new Set([...svg.querySelectorAll(".series:not([hidden])")].map((each) => each.dataset.of));
    const items = [...svg.closest("figure").querySelectorAll(".legend li")].filter((item) => seen.has(item.dataset.label));
    items.forEach((item, index) => {
      const y = below + 12 * index;
      const swatch = plain(item.querySelector(".chart"));
      for (const [name, value] of Object.entries({ x: 40, y, width: 32, height: 12 })) swatch.setAttribute(name, value);
      copy.append(swatch);
      drawnIn(copy, "text", { x: 78, y: y + 9, "font-size": 8 }).textContent = item.dataset.label;
    });
    return below + 12 * items.length + 4;
  };

  // With the styles of the page written into it, by which other programs draw it as it is seen here.
  const plain = (svg) => {
    const copy = svg.cloneNode(true);
    const [from, to] = [svg, copy].map((root) => [root, ...root.querySelectorAll("*")]);
    from.forEach((element, index) => {
      const style = getComputedStyle(element);
      KEPT.forEach((name) => to[index].setAttribute(name, style.getPropertyValue(name)));
      to[index].removeAttribute("style");
    });
    copy.querySelectorAll(".point, [display='none']").forEach((each) => each.remove());
    copy.removeAttribute("aria-hidden");
    return copy;
  };

  const alone = (svg) => {
    const copy = plain(svg);
    const [, , width, height] = copy.getAttribute("viewBox").split(" ").map(Number);
    const whole = named(svg, copy, height + 4);
    copy.setAttribute("viewBox", `0 0 ${width} ${whole}`);
    copy.setAttribute("width", `${width}pt`);
    copy.setAttribute("height", `${whole}pt`);
    return new XMLSerializer().serializeToString(copy);
  };

  const saved = (panel, name) => {
    const svg = panel.querySelector(".chart");
    const title = panel.querySelector("h4").firstChild?.textContent || name;
    const file = made("button", { type: "button", "aria-label": `Save ${title} as SVG` }, "SVG");
    file.addEventListener("click", () => {
      const address = URL.createObjectURL(new Blob([alone(svg)], { type: "image/svg+xml" }));
      made("a", { href: address, download: `${name}.svg` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
    });
    const print = made("button", { type: "button", "aria-label": `Print ${title}, also as PDF` }, "PDF");
    print.addEventListener("click", () => {
      const frame = made("iframe", { hidden: "", title });
      frame.srcdoc = `<style>@page{size:5in 5in;margin:.3in}body{margin:0}svg{width:100%;height:auto}</style>${alone(svg)}`;
      frame.addEventListener("load", () => {
        frame.contentWindow.addEventListener("afterprint", () => frame.remove());
        frame.contentWindow.print();
      });
      document.body.append(frame);
    });
    panel.append(made("div", { class: "save" }, file, print));
  };

  document.querySelectorAll("figure.charts").forEach((figure) => {
    figure.querySelectorAll(".panel .chart").forEach(answer);
    toggled(figure);
    figure.querySelectorAll(".panel").forEach((panel, index) => saved(panel, `${figure.id}-${index + 1}`));
    picked(figure);
  });
})();
