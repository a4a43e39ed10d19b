// What moves on the console's pages: lines over time, values that are live, bytes beside their fields, copied commands.
"use strict";

(() => {
  const sources = new Map();

  // --- streams: one connection for all on a page that show the same -------------------------------------------------

  function follow(url, take, silent) {
    let one = sources.get(url);
    if (one === undefined) {
      const source = new EventSource(url);
      one = { takers: [], silent: [] };
      source.onmessage = (event) => {
        const sample = JSON.parse(event.data);
        one.takers.forEach((taker) => taker(sample));
      };
      source.onerror = () => one.silent.forEach((tell) => tell(true));
      source.onopen = () => one.silent.forEach((tell) => tell(false));
      sources.set(url, one);
    }
    one.takers.push(take);
    if (silent !== undefined) one.silent.push(silent);
  }

  const at = (value, path) => path.split(".").reduce((here, name) => (here === null || here === undefined ? undefined : here[name]), value);

  function size(value) {
    let left = value;
    for (const unit of ["bytes", "KiB", "MiB", "GiB"]) {
      if (Math.abs(left) < 1024) return unit === "bytes" ? `${Math.round(left)} bytes` : `${left.toFixed(1)} ${unit}`;
      left /= 1024;
    }
    return `${left.toFixed(1)} TiB`;
  }

  function shown(value, unit) {
    if (value === null || value === undefined) return "–";
    if (unit === "size") return size(value);
    if (unit === "ratio") return `${(value * 100).toFixed(1)} %`;
    return typeof value === "number" ? value.toLocaleString("en-US", { maximumFractionDigits: 2 }) : String(value);
  }

  // --- lines over time ------------------------------------------------------------------------------------------------

  const LINES = 8;
  const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];

  function colours(count) {
    const base = getComputedStyle(document.documentElement).getPropertyValue("--series").trim();
    return Array.from({ length: count }, (_, i) => (i === 0 ? base : `hsl(${(188 + i * 67) % 360} 55% 48%)`));
  }

  function chart(figure) {
    const place = figure.querySelector(".plot");
    const paths = figure.dataset.values.split(",");
    const unit = figure.dataset.unit;
    const times = [];
    const lines = new Map();
    let plot = null;
    const ink = () => getComputedStyle(document.body).color;

    function values(sample) {
      const found = {};
      for (const path of paths) {
        if (path.endsWith("*")) Object.assign(found, at(sample, path.slice(0, -2)) ?? {});
        else found[path.split(".").pop()] = at(sample, path);
      }
      return found;
    }

    function draw() {
      const names = [...lines.keys()].slice(0, LINES);
      const data = [times, ...names.map((name) => lines.get(name))];
      if (plot !== null && plot.series.length === names.length + 1) {
        plot.setData(data);
        return;
      }
      if (plot !== null) plot.destroy();
      const shades = colours(names.length);
      const axis = { stroke: ink, grid: { stroke: "rgba(128,128,128,.25)" }, ticks: { stroke: "rgba(128,128,128,.25)" } };
      plot = new uPlot({
        width: place.clientWidth, height: 190, cursor: { drag: { x: false, y: false } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.05)] } },
        axes: [axis, { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => shown(tick, unit)) }],
        series: [{}, ...names.map((name, i) => ({ label: name, stroke: shades[i], width: 2, dash: DASHES[i % 4], value: (_, v) => shown(v, unit) }))],
      }, data, place);
    }

    follow(figure.dataset.live, (sample) => {
      if (sample.error !== undefined) return;
      times.push(sample.time / 1000);
      const now = values(sample);
      for (const name of Object.keys(now)) if (!lines.has(name)) lines.set(name, new Array(times.length - 1).fill(null));
      for (const [name, line] of lines) line.push(now[name] ?? null);
      if (times.length > 720) { times.shift(); lines.forEach((line) => line.shift()); }
      window.requestAnimationFrame(draw);
    }, (isSilent) => { figure.querySelector(".stale").hidden = !isSilent; });
    new ResizeObserver(() => { if (plot !== null && place.clientWidth) plot.setSize({ width: place.clientWidth, height: 190 }); }).observe(place);
  }

  // --- values that are live: data-of="/live/…" data-value="log.maxOffset" data-unit="size" --------------------------------

  function value(element) {
    follow(element.dataset.of, (sample) => {
      if (sample.error === undefined) element.textContent = shown(at(sample, element.dataset.value), element.dataset.unit);
    });
  }

  function progress(element) {
    follow(element.dataset.run, (sample) => {
      if (sample.total) { element.max = sample.total; element.value = sample.done; }
      if (sample.ended) window.location.reload();
    });
  }

  // --- bytes beside fields: what lies under the pointer or has the focus is marked on both sides ------------------------

  function mark(view, field) {
    view.querySelectorAll(".on").forEach((one) => one.classList.remove("on"));
    if (field !== undefined) view.querySelectorAll(`[data-field="${CSS.escape(field)}"]`).forEach((one) => one.classList.add("on"));
  }

  function bytes(view) {
    for (const kind of ["mouseover", "focusin"]) {
      view.addEventListener(kind, (event) => mark(view, event.target.closest("[data-field]")?.dataset.field));
    }
    view.addEventListener("mouseleave", () => mark(view));
  }

  // --- the rest -----------------------------------------------------------------------------------------------------

  function copies(button) {
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("[data-copy]").textContent);
      button.textContent = "✓";
    });
  }

  function begin(root) {
    root.querySelectorAll("[data-live]").forEach(chart);
    root.querySelectorAll("[data-of]").forEach(value);
    root.querySelectorAll("[data-run]").forEach(progress);
    root.querySelectorAll("[data-bytes]").forEach(bytes);
    root.querySelectorAll("[data-copies]").forEach(copies);
  }

  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    const search = document.querySelector("[data-search]");
    if (search !== null) { event.preventDefault(); search.focus(); }
  });
  begin(document);
  document.addEventListener("htmx:afterSwap", (event) => begin(event.target));
})();
