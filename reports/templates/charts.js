// Charts that answer: a point says what it stands for, a name in the legend shows and hides its lines, and of many
// panels one is picked, also of those that come packed. Without this all others stand side by side, and a line's own
// title has its values.
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
      const nearest = shown(svg).reduce((best, point) => (best && far(best) <= far(point) ? best : point), null);
      if (nearest && far(nearest) < NEAR) read(nearest);
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

  const away = (figure) =>
    new Set([...figure.querySelectorAll('.legend [aria-pressed="false"]')].map((button) => button.parentNode.dataset.label));

  const showSeries = (figure) => {
    const hidden = away(figure);
    figure.querySelectorAll(".panel .series").forEach((each) => each.toggleAttribute("hidden", hidden.has(each.dataset.of)));
    figure.querySelectorAll(".panel .chart").forEach((svg) => enter(svg));
  };

  const toggled = (figure) => {
    if (!figure.querySelector(".series[data-of]")) return;
    figure.querySelectorAll(".legend li").forEach((item) => {
      const button = made("button", { type: "button", "aria-pressed": "true" }, ...item.childNodes);
      item.append(button);
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "false");
        showSeries(figure);
      });
    });
  };

  // ---- some of many panels, and those that come packed

  const ALL = "";
  const MANY = 4; // from more than these on one is shown at first

  const panelsOf = (holder) => [...holder.querySelectorAll(".panel")];
  const valuesOf = (places, name) => [...new Set(places.map(({ dataset }) => dataset[name]).filter(Boolean))];

  // A pack is a template with what it holds as gzip in base64, and with the facet that its panels have in common.
  const unpacked = async (pack) => {
    const bytes = Uint8Array.from(atob(pack.dataset.packed), (sign) => sign.charCodeAt(0));
    const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    pack.innerHTML = text;
    panelsOf(pack.content).forEach((panel) => (panel.hidden = true));
    pack.replaceWith(pack.content);
  };

  const picked = (figure) => {
    const holder = figure.querySelector(".panels");
    const packs = () => [...holder.querySelectorAll("template[data-packed]")];
    if (!("DecompressionStream" in window)) packs().forEach((pack) => pack.remove());
    const [apart] = packs().flatMap((pack) => Object.keys(pack.dataset).filter((name) => name !== "packed"));
    const picks = made("div", { class: "picks" });
    const none = made("p", { class: "note", role: "status", hidden: "" }, "Nothing was measured there.");
    const selects = new Map(); // by facet
    const places = () => [...holder.querySelectorAll(".panel, template[data-packed]")];
    const fits = ({ dataset }, names) =>
      names.every((name) => !(name in dataset) || [ALL, dataset[name]].includes(selects.get(name)?.value ?? ALL));

    // Each list has what there is of what was picked in those before it.
    const offer = (names) => {
      names.forEach((name, index) => {
        const among = panelsOf(holder).filter((panel) => fits(panel, names.slice(0, index)));
        const values = name === apart ? valuesOf(places(), name) : valuesOf(among, name);
        const before = selects.get(name);
        const select = before ?? made("select", { name });
        const offered = [ALL, ...values];
        if ([...select.options].map(({ value }) => value).join("\n") !== offered.join("\n") || !before) {
          const kept = before?.parentNode.hidden ? undefined : before?.value; // what a reader saw and left so
          const first = among.length > MANY || name === apart ? (among[0]?.dataset[name] ?? ALL) : ALL;
          select.replaceChildren(...offered.map((value) => made("option", { value }, value || "all")));
          select.value = offered.includes(kept) ? kept : first;
        }
        if (!before) {
          selects.set(name, select);
          picks.append(made("label", {}, made("span", {}, name), select));
          select.addEventListener("change", () => show(name));
        }
        select.parentNode.hidden = values.length < 2;
        if (values.length < 2) select.value = offered[0];
      });
    };

    const namesOf = () => {
      const every = places().flatMap(({ dataset }) => Object.keys(dataset));
      return [...new Set([...(apart ? [apart] : []), ...every])].filter((name) => name !== "packed");
    };

    const show = async (changed) => {
      const wanted = changed === apart ? packs().filter((pack) => fits(pack, [apart])) : [];
      if (wanted.length) {
        await Promise.all(wanted.map(unpacked));
        ready(figure);
      }
      const names = namesOf();
      offer(names);
      const panels = panelsOf(holder);
      const seen = panels.filter((panel) => fits(panel, names));
      panels.forEach((panel) => panel.toggleAttribute("hidden", !seen.includes(panel)));
      holder.classList.toggle("one", seen.length === 1);
      none.hidden = seen.length > 0;
      const there = new Set(seen.flatMap((panel) => [...panel.querySelectorAll(".series")].map((each) => each.dataset.of)));
      const narrowed = apart || seen.length === 1;
      figure.querySelectorAll(".legend li").forEach((item) => (item.hidden = narrowed && !there.has(item.dataset.label)));
    };

    holder.before(picks, none);
    show();
    picks.hidden = [...picks.children].every((label) => label.hidden);
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

  // What has not been made ready yet, as panels come when they are picked.
  const known = new Map(); // panels by figure

  const ready = (figure) => {
    const own = known.get(figure) ?? known.set(figure, new Set()).get(figure);
    panelsOf(figure).filter((panel) => !own.has(panel)).forEach((panel) => {
      own.add(panel);
      panel.querySelectorAll(".chart").forEach(answer);
      saved(panel, `${figure.id}-${own.size}`);
    });
    showSeries(figure);
  };

  document.querySelectorAll("figure.charts").forEach((figure) => {
    ready(figure);
    toggled(figure);
    picked(figure);
  });
})();
