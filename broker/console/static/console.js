// The theme's switch, keys, boxes, confirmations and charts.  Everything else works without JavaScript.
"use strict";

const POINTS_MAX = 300; // of each chart: ten minutes
const PERIOD_MS = 2000;
const SAMPLES = "samples";

// -- theme ------------------------------------------------------------------------------------------------------------

const root = document.documentElement;
const themeButton = document.getElementById("theme");
const themes = { "": "system", light: "light", dark: "dark" };

function showTheme() {
  themeButton.textContent = `Theme: ${themes[root.dataset.theme ?? ""]}`;
  document.dispatchEvent(new Event("theme"));
}

if (themeButton) {
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    const names = Object.keys(themes);
    const next = names[(names.indexOf(root.dataset.theme ?? "") + 1) % names.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    try {
      localStorage.setItem("theme", next);
    } catch { /* only this page has it */ }
    showTheme();
  });
  showTheme();
}

// -- keys, boxes, confirmations -------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = document.getElementById("find") ?? document.getElementById("search");
    if (search) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  }
  if (event.key === "Escape" && typing) event.target.blur();
});

for (const all of document.querySelectorAll("input[data-all]")) {
  const boxes = () => all.form.querySelectorAll('input[name="id"]:not(:disabled)');
  all.hidden = false;
  all.addEventListener("change", () => boxes().forEach((box) => { box.checked = all.checked; }));
}

/** What a button asks about the messages that its form has chosen; nothing for one that can be brought back. */
function aboutMessages(button) {
  const { elements, dataset } = button.form;
  const verb = button.dataset.many;
  const all = elements.namedItem("all").checked;
  const ticked = button.form.querySelectorAll('input[name="id"]:checked').length;
  if (elements.namedItem("dry-run").checked || (!all && ticked < (verb === "Remove" ? 1 : 2))) return null;
  const counted = (number) => `${Number(number).toLocaleString("en")} ${Number(number) === 1 ? "message" : "messages"}`;
  let what = `${counted(ticked)} of ${dataset.queue}`;
  if (all) {
    what = `all ${counted(dataset.total)} of ${dataset.queue}`;
    if (dataset.which) what = `all messages${dataset.which} of ${dataset.queue}, which has ${counted(dataset.total)}`;
  }
  const to = elements.namedItem("to").value;
  const ends = { Move: ` to ${to}`, Retry: ", back to where they came from", Remove: " for good" };
  return `${verb} ${what}${ends[verb]}?`;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-sure], button[data-many]");
  const asks = button && (button.dataset.sure ?? aboutMessages(button));
  if (!asks) return;
  if (!window.confirm(asks)) return event.preventDefault();
  const mark = document.createElement("input"); // else the broker would ask again
  Object.assign(mark, { type: "hidden", name: "confirmed", value: "1" });
  button.form.append(mark);
});

// -- whether the broker answers ---------------------------------------------------------------------------------------

const STATE_PERIOD_MS = 3000;
const STATE_PATIENCE_MS = 5000;

const state = document.getElementById("state");
if (state) {
  const titled = document.title;
  let answered = new Date();
  const show = (kind, text) => {
    state.className = `state ${kind}`;
    if (state.textContent !== text) state.textContent = text; // only a change is read aloud
  };
  const ask = async () => {
    const headers = { "Console-Refresh": "1" };
    const answer = await fetch(state.dataset.url, { headers, signal: AbortSignal.timeout(STATE_PATIENCE_MS) });
    if (answer.status === 401) {
      show("bad", "Logged out");
    } else {
      const { unready } = await answer.json();
      show(unready ? "bad" : "good", unready ? `Not ready: ${unready}` : "Ready");
    }
    answered = new Date();
    document.title = titled;
  };
  const later = () => {
    const failed = () => {
      show("bad", `No answer since ${answered.toISOString().slice(11, 19)} UTC`);
      document.title = `No answer - ${titled}`;
    };
    ask().catch(failed).finally(() => setTimeout(later, STATE_PERIOD_MS));
  };
  setTimeout(later, STATE_PERIOD_MS);
}

// -- charts -----------------------------------------------------------------------------------------------------------

const DOUBLING = Array.from({ length: 50 }, (_, power) => 2 ** power); // the axis marks for bytes
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(unit && value < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

function plain(value) {
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}

const FORMATS = { bytes, count: plain, rate: (value) => `${plain(value)}/s` };

/** The last samples that this browser has since the broker's present start. */
function remembered(started) {
  try {
    const found = JSON.parse(sessionStorage.getItem(SAMPLES) ?? "[]");
    return found.length && found[0].started === started ? found : [];
  } catch {
    return [];
  }
}

function remember(samples) {
  try {
    sessionStorage.setItem(SAMPLES, JSON.stringify(samples));
  } catch { /* only this page has them */ }
}

/** Makes the chart of a figure; returns the function that draws samples. */
function chart(figure) {
  const box = figure.querySelector(".chart");
  const legend = figure.querySelector("[data-legend]");
  const names = figure.dataset.series.split(" ");
  const titles = figure.dataset.titles.split("|");
  const format = FORMATS[figure.dataset.unit];
  const rate = figure.dataset.unit === "rate";
  const color = (kind) => getComputedStyle(document.getElementById(`color-${kind}`)).color;
  const axis = { stroke: () => color("axis"), grid: { stroke: () => color("grid"), width: 1 }, ticks: { show: false } };
  const options = {
    width: box.clientWidth,
    height: 150,
    legend: { show: false },
    cursor: { y: false, drag: { setScale: false } },
    scales: { y: { range: (_, low, high) => [rate || low >= 0 ? 0 : low, Math.max(high * 1.1, 1)] } },
    axes: [
      { ...axis, size: 30, space: 70, values: (_, ticks) => ticks.map((at) => new Date(at * 1000).toISOString().slice(11, 19)) },
      { ...axis, size: 72, space: 35, values: (_, ticks) => ticks.map(format), ...(format === bytes && { incrs: DOUBLING }) },
    ],
    series: [{}, ...names.map((_, at) => ({ stroke: () => color(at), width: 1.5, points: { show: false } }))],
  };
  const plot = new uPlot(options, [[], ...names.map(() => [])], box);
  new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: 150 })).observe(box);
  document.addEventListener("theme", () => plot.redraw(false, true));
  return (samples) => {
    const used = rate ? samples.slice(1) : samples;
    const value = (name, sample, at) => {
      if (!rate) return sample[name];
      const before = samples[at];
      const seconds = (sample.now - before.now) / 1000;
      return seconds > 0 ? Math.max(sample[name] - before[name], 0) / seconds : null;
    };
    const rows = names.map((name) => used.map((sample, at) => value(name, sample, at)));
    plot.setData([used.map((sample) => sample.now / 1000), ...rows]);
    const last = rows.map((row) => row.at(-1)).map((each) => (each == null ? "-" : format(each)));
    legend.replaceChildren(...titles.map((title, at) => {
      const item = document.createElement("span");
      item.className = `key key-${at}`;
      item.textContent = `${title} ${last[at]}`;
      return item;
    }));
  };
}

const charts = document.getElementById("charts");
if (charts && window.uPlot) {
  const drawn = [...charts.querySelectorAll("figure")].map(chart);
  let samples = [];
  const look = async () => {
    const answer = await fetch(charts.dataset.live, { headers: { "Console-Refresh": "1" } });
    if (answer.status === 401) {
      window.location.assign("/login");
      return;
    }
    const sample = await answer.json();
    if (!samples.length || samples[0].started !== sample.started) samples = remembered(sample.started);
    if (!samples.length || sample.now > samples.at(-1).now) samples.push(sample);
    samples = samples.slice(-POINTS_MAX);
    remember(samples);
    drawn.forEach((draw) => draw(samples));
  };
  const again = () => {
    look().catch(() => { /* the broker may be back at the next attempt */ }).finally(() => setTimeout(again, PERIOD_MS));
  };
  again();
}
