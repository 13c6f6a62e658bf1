// What a session spent, by step and visit.
import { html, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';
import { counted, money, number, span } from './words.js';

const ROWS = 200, UNDONE = 'undone by a rewind';

const sum = (visits, name) => visits.reduce((total, each) => total + each[name], 0);

// The time of an open visit is not known before it ends.
function cells(visits) {
  const took = sum(visits, 'took_seconds'), tokens = sum(visits, 'tokens'), isOpen = visits.some((each) => !each.ended_at);
  return [isOpen && !took ? 'open' : span(took), tokens ? number(tokens) : '–', money(sum(visits, 'usd'))].map((cell) => html`<td class="r num">${cell}</td>`);
}

const note = (visits) => visits.every((each) => each.left_behind) ? html` <span class="small dim">${UNDONE}</span>` : nothing;
const stepRow = (step, visits) => [step, html`<tr><td><span class="mono">${step}</span>${note(visits)}</td>${cells(visits)}</tr>`];
const visitRow = (each) => [`${each.step}#${each.visit} ${each.began_at}`,
  html`<tr class="dim"><td class="depth1"><span class="mono">${each.step}#${each.visit}</span>${note([each])}</td>${cells([each])}</tr>`];

export function cost(d) {
  if (!d.spans.length) return html`<p class="empty"><b>Nothing has run yet</b>A step says what it costs with <code>ctx.spend</code>.</p>`;
  const rows = [...Map.groupBy(d.spans, (each) => each.step)].flatMap(([step, visits]) =>
    [stepRow(step, visits), ...(visits.length > 1 ? visits.map(visitRow) : [])]);
  const rest = d.s.spent_usd - sum(d.spans, 'usd');
  return html`<table><thead><tr><th>Step and visit</th><th class="r">Time</th><th class="r">Tokens</th><th
    class="r">Cost</th></tr></thead><tbody>${repeat(rows.slice(0, ROWS), ([key]) => key, ([, row]) => row)}</tbody>
    <tfoot><tr><td><b>${counted(d.spans.length, 'visit')}</b></td>${cells(d.spans)}</tr></tfoot></table>
    ${rows.length > ROWS ? html`<p class="small dim pad">${counted(rows.length - ROWS, 'more row')}.</p>` : nothing}${rest > 0.00005 ?
      html`<p class="small dim pad">The session has spent ${money(d.s.spent_usd)}.
      ${money(rest)} of it is in its children, or in visits that are not on this page.</p>` : nothing}`;
}
