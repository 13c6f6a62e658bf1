// What a session spent, by step and visit.
import { html, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';
import { counted, money, number, span } from './words.js';

const ROWS = 200;

const row = (name, sub, cells) => html`<tr><td class="${sub ? 'depth1 dim' : ''}"><span class="mono">${name}</span>${sub && sub !== true ? html` <span class="small">${sub}</span>` : nothing}</td>${cells.map((cell) => html`<td class="r num ${sub ? 'dim' : ''}">${cell}</td>`)}</tr>`;

const took = (each) => each.reduce((sum, { took_seconds }) => sum + took_seconds, 0);
const sum = (each, name) => each.reduce((total, one) => total + one[name], 0);
const cells = (each) => [span(took(each)), sum(each, 'tokens') ? number(sum(each, 'tokens')) : '–', money(sum(each, 'usd'))];

export function cost(d) {
  const steps = Map.groupBy(d.spans, (each) => each.step);
  const rows = [...steps].flatMap(([step, visits]) => [[step, null, visits], ...(visits.length > 1 ? visits.map((each) => [step, each, [each]]) : [])]);
  if (!rows.length) return html`<p class="empty"><b>Nothing has run yet</b>A step says what it costs with <code>ctx.spend</code>.</p>`;
  const draw = ([step, each, visits]) => each ? row(`${step}#${each.visit}`, each.left_behind ? 'undone by a rewind' : true, cells(visits)) : row(step, visits.length > 1 ? false : visits[0].left_behind && 'undone by a rewind', cells(visits));
  return html`<table><thead><tr><th>Step and visit</th><th class="r">Time</th><th class="r">Tokens</th><th class="r">Cost</th></tr></thead>
    <tbody>${repeat(rows.slice(0, ROWS), ([step, each]) => `${step} ${each?.seq ?? ''} ${each?.began_at ?? ''}`, draw)}</tbody>
    <tfoot><tr><td><b>${counted(d.spans.length, 'visit')}</b></td>${cells(d.spans).map((cell) => html`<td class="r num"><b>${cell}</b></td>`)}</tr></tfoot></table>
    ${d.s.spent_usd > sum(d.spans, 'usd') + 0.00005 ? html`<p class="small dim pad">The session has spent ${money(d.s.spent_usd)} in all: ${money(d.s.spent_usd - sum(d.spans, 'usd'))} in its children or in visits that are not on this page.</p>` : nothing}`;
}
