// Improves pages that work without it: times in the viewer's zone, the chart, copying, what goes on by itself and its pause.
"use strict";

(() => {
  const lang = document.documentElement.lang;
  const resolved = new Intl.DateTimeFormat(lang).resolvedOptions();
  const format = new Intl.DateTimeFormat(lang, {
    year: "numeric", month: lang === "ja" ? "2-digit" : "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
  });
  const offset = new Intl.DateTimeFormat(lang, { timeZoneName: "longOffset" });

  function times(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.textContent = format.format(at);
      time.title = time.dateTime;
    }
  }

  function zone() {
    const part = offset.formatToParts(new Date()).find((one) => one.type === "timeZoneName");
    document.getElementById("zone").textContent = `${resolved.timeZone} (${part ? part.value : ""})`;
  }

  function copies(root) {
    for (const button of root.querySelectorAll("button.copy")) {
      if (!navigator.clipboard) continue;
      button.hidden = false;
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
        button.textContent = button.dataset.done;
      });
    }
  }

  let paused = false;
  function pausing() {
    const button = document.getElementById("pause");
    const show = () => { button.textContent = paused ? button.dataset.on : button.dataset.off; };
    button.hidden = !document.querySelector("[hx-trigger]");
    button.addEventListener("click", () => { paused = !paused; show(); });
    show();
  }

  // A chart shows columns of the table below it, which is there for whoever cannot see it.
  function charts(root) {
    const draws = window.uPlot ? [...root.querySelectorAll("[data-chart]")].map(chart) : [];
    if (draws.length === 0) return;
    const all = () => draws.forEach((draw) => draw());
    all();
    window.onresize = all;
  }

  function chart(place) {
    const table = place.parentElement.querySelector("table");
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const rows = [...table.tBodies[0].rows];
    const at = rows.map((row) => Date.parse(row.querySelector("time").dateTime) / 1000);
    const number = (text) => (Number.isNaN(Number(text)) ? null : Number(text));
    const column = (index) => rows.map((row) => number(row.cells[index].textContent));
    const columns = place.dataset.chart.split(" ").map(Number);
    const css = getComputedStyle(document.documentElement);
    const colour = (name) => css.getPropertyValue(name).trim();
    const looks = [["--accent"], ["--bad", [6, 3]], ["--warn", [2, 3]]];
    const line = (index, nth) => ({ label: names[index], stroke: colour(looks[nth][0]), width: 2, dash: looks[nth][1], spanGaps: true, points: { show: true, size: 5 } });
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const two = (number) => String(number).padStart(2, "0");
    const clock = (_, values) => values.map((value) => { const d = new Date(value * 1000); return `${two(d.getHours())}:${two(d.getMinutes())}`; });
    return () => {
      place.replaceChildren();
      new uPlot({
        width: place.clientWidth, height: 200, cursor: { drag: { x: false, y: false } },
        scales: { y: { range: (_, low, high) => [0, Math.max(high, Number(place.dataset.least))] } },
        axes: [{ ...axis, values: clock }, { ...axis, size: 44 }],
        series: [{ label: names[0], value: (_, value) => (value === null ? "" : format.format(new Date(value * 1000))) },
          ...columns.map(line)],
      }, [at, ...columns.map(column)], place);
    };
  }

  function tail() {
    const lines = document.getElementById("tail");
    if (!lines) return;
    const MOST_LINES = 500;
    const filter = document.getElementById("tail-filter");
    const pause = document.getElementById("tail-pause");
    const state = document.getElementById("tail-state");
    let held = null;
    const fits = (row) => { row.hidden = !row.textContent.toLowerCase().includes(filter.value.toLowerCase()); };
    const add = (html) => {
      const template = document.createElement("template");
      template.innerHTML = html; // a line of ours, in which what came from elsewhere is text already
      const row = template.content.querySelector("tr");
      times(row);
      fits(row);
      lines.prepend(row);
      while (lines.rows.length > MOST_LINES) lines.lastElementChild.remove();
    };
    document.getElementById("tail-tools").hidden = false;
    filter.addEventListener("input", () => [...lines.rows].forEach(fits));
    pause.hidden = false;
    pause.textContent = pause.dataset.off;
    pause.addEventListener("click", () => {
      const waiting = held;
      held = held ? null : [];
      if (waiting) waiting.forEach(add);
      pause.textContent = held ? pause.dataset.on : pause.dataset.off;
    });
    const source = new EventSource(lines.dataset.stream);
    source.onopen = () => { state.textContent = state.dataset.live; };
    source.onerror = () => { state.textContent = source.readyState === EventSource.CLOSED ? state.dataset.refused : state.dataset.lost; };
    source.onmessage = (event) => { if (held) { if (held.push(event.data) > MOST_LINES) held.shift(); } else add(event.data); };
  }

  // A second click sends nothing a second time.
  const sent = new Set();
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (sent.has(event.target)) event.preventDefault();
    sent.add(event.target);
  });
  window.addEventListener("pageshow", () => sent.clear());

  function enhance(root) {
    times(root);
    copies(root);
    charts(root);
  }

  // What somebody reads or works in is not taken from under them.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.requestConfig.verb !== "get") return;
    if (paused || document.hidden || event.target.contains(document.activeElement)) event.preventDefault();
  });
  document.addEventListener("htmx:afterSettle", (event) => enhance(event.target));
  enhance(document);
  zone();
  pausing();
  tail();
})();
