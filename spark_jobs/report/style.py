"""The style of the HTML reports: system fonts, light and dark, screen and paper."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: #f4f5f7; --card: #ffffff; --ink: #1a1f26; --ink-2: #5a6472; --ink-3: #8b95a3; --line: #e1e5ea;
  --hover: #f4f6f9; --shade: #1a1f2630;
  --good: #116b3c; --good-bg: #e6f5ec; --warn: #8a5300; --warn-bg: #fdf2dc; --bad: #a81f2d; --bad-bg: #fdeaec;
  --link: #1f5fbf;
  --s1: #2f6fcb; --s2: #e08a1e; --s3: #2b9a8c; --s4: #c94f6d; --s5: #8a63c7;
  --s6: #8b9a2b; --s7: #4fb3d9; --s8: #8d97a5;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #12151a; --card: #1b2027; --ink: #e7eaee; --ink-2: #9aa5b3; --ink-3: #6b7685; --line: #313943;
    --hover: #232a33; --shade: #000000a0;
    --good: #6fd79c; --good-bg: #14301f; --warn: #f0bd62; --warn-bg: #35280d; --bad: #ff8f99; --bad-bg: #3d171b;
    --link: #86b4ff;
    --s1: #6ea2f5; --s2: #f0a94b; --s3: #4fc2b1; --s4: #ee819b; --s5: #b293ea;
    --s6: #b7c552; --s7: #7fd0ee; --s8: #8e99a8;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 28px 20px 40px; }
p { margin: 0; }
header { display: grid; grid-template-columns: 1fr auto; align-items: baseline; margin-bottom: 18px; }
.brand { grid-column: 1 / -1; font-weight: 650; letter-spacing: .01em; color: var(--ink-2); }
.brand span { font-weight: 400; }
h1 { margin: 0; font-size: 30px; line-height: 1.2; letter-spacing: -.015em; font-weight: 680; }
h2 { margin: 0 0 12px; font-size: 18px; line-height: 1.3; font-weight: 640; }
.asof { color: var(--ink-2); font-variant-numeric: tabular-nums; }

.verdict { display: flex; gap: 16px; padding: 18px 20px; margin-bottom: 18px; border-radius: 12px; border: 1px solid; }
.verdict .sign {
  flex: none; width: 34px; height: 34px; border-radius: 50%; color: var(--card); text-align: center;
  font-size: 19px; font-weight: 700; line-height: 34px;
}
.verdict .word { font-size: 20px; line-height: 34px; font-weight: 680; }
.verdict ul { margin: 10px 0 0; padding-left: 18px; }
.verdict li { margin: 3px 0; overflow-wrap: anywhere; }
.good { background: var(--good-bg); border-color: var(--good); } .good .word { color: var(--good); }
.warn { background: var(--warn-bg); border-color: var(--warn); } .warn .word { color: var(--warn); }
.bad { background: var(--bad-bg); border-color: var(--bad); } .bad .word { color: var(--bad); }
.good .sign { background: var(--good); } .warn .sign { background: var(--warn); } .bad .sign { background: var(--bad); }

.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(172px, 1fr)); gap: 12px; margin: 0 0 18px; }
.tiles div {
  display: flex; flex-direction: column; justify-content: space-between; gap: 4px;
  padding: 12px 14px 14px; background: var(--card); border: 1px solid var(--line); border-radius: 12px;
}
.tiles dt { color: var(--ink-2); font-size: 13.5px; overflow-wrap: anywhere; }
.tiles dd { margin: 0; overflow-wrap: anywhere; }
.tiles .figure {
  font-size: 21px; line-height: 1.25; font-weight: 640; font-variant-numeric: tabular-nums; overflow-wrap: normal;
}
.tiles .words { font-size: 16px; font-weight: 600; }

.card {
  padding: 20px; margin-bottom: 18px; background: var(--card); border: 1px solid var(--line); border-radius: 12px;
}
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 10px 28px; margin: 0; }
.facts dt { color: var(--ink-2); font-size: 13.5px; }
.facts dd { margin: 0; font-size: 14.5px; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.facts .damaged dd { color: var(--warn); font-weight: 640; }
.facts + .scroll { margin-top: 16px; }

nav ul { display: flex; flex-wrap: wrap; gap: 6px 18px; list-style: none; margin: 0 2px 18px; padding: 0; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }

figure { margin: 0 0 18px; }
figcaption { color: var(--ink-2); font-size: 13.5px; margin-bottom: 6px; }
.canvas { overflow-x: auto; }
.chart { display: block; width: 100%; min-width: 620px; height: auto; }
.chart path { stroke-linejoin: round; }

.scroll {
  overflow-x: auto; border: 1px solid var(--line); border-radius: 8px;
  /* a shadow at the right edge, covered when there is nothing more to scroll to */
  background:
    linear-gradient(to left, var(--card) 30%, transparent) right / 42px 100% no-repeat local,
    linear-gradient(to left, var(--shade), transparent) right / 14px 100% no-repeat scroll;
}
.scroll.narrow { max-width: 620px; }
.scroll.long { max-height: 640px; overflow-y: auto; }
.scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { width: 100%; border-collapse: separate; border-spacing: 0; font-size: 14px; line-height: 1.4; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
th {
  position: sticky; top: 0; padding: 9px 12px; background: var(--hover); color: var(--ink-2);
  font-weight: 600; text-align: left; vertical-align: bottom; white-space: nowrap; border-bottom: 1px solid var(--line);
}
td {
  max-width: 420px; padding: 7px 12px; vertical-align: top; border-bottom: 1px solid var(--line);
  overflow-wrap: break-word;
}
@media (min-width: 800px) {
  th:first-child, td:first-child { position: sticky; left: 0; background: var(--card); }
  th:first-child { z-index: 1; background: var(--hover); }
}
tbody tr:last-child td { border-bottom: 0; }
tbody tr:hover td { background: var(--hover); }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.time { white-space: nowrap; font-variant-numeric: tabular-nums; }
.zero { color: var(--ink-3); }
.note, .none { color: var(--ink-2); font-size: 14px; margin-top: 10px; overflow-wrap: anywhere; }
.none { margin-top: 0; }
footer { display: flex; flex-wrap: wrap; gap: 2px 24px; padding: 4px 2px; color: var(--ink-2); font-size: 13.5px; }

@media print {
  :root { --paper: #ffffff; --hover: #ffffff; }
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  .card, .tiles div, .verdict { break-inside: avoid-page; border-radius: 0; }
  .card { border-width: 1px 0 0; padding: 14px 0 0; break-inside: auto; }
  .verdict, .sign { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .chart { min-width: 0; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .scroll, .scroll.long { max-height: none; overflow: visible; border: 0; }
  table { font-size: 8.5pt; }
  th, td, th:first-child, td:first-child { position: static; padding: 3px 6px; white-space: normal; }
  tr, figure { break-inside: avoid; }
  h2 { break-after: avoid; } nav { display: none; }
}
"""
