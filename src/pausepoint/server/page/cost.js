// The tab Cost: what a session spent, by step and visit.
import { html, nothing } from './vendor/lit-html.js';
import { counted, money, number, span, sum } from './words.js';
import { table } from './shapes.js';

const HEADS = [['Step and visit'], ['Time', 'r'], ['Tokens', 'r'], ['Cost', 'r']];

const row = ({ name, visits, kind = '' }) => html`<tr><td class=${kind}><span class="mono">${name}</span> <span
  class="small dim">${visits.every((each) => each.left_behind) ? 'undone by a rewind' : ''}</span></td>${[
    span(sum(visits, 'seconds')), number(sum(visits, 'tokens')), money(sum(visits, 'usd'))].map((cell) => html`<td class="r num">${cell}</td>`)}</tr>`;

export function cost({ s, spans }) {
  if (!spans.length) return html`<p class="empty"><b>Nothing has run yet</b>A step says what it costs with <code>ctx.spend</code>.</p>`;
  const rows = [...Map.groupBy(spans, (each) => each.step)].flatMap(([name, visits]) => [{ name, visits, key: name },
    ...(visits.length > 1 ? visits : []).map((each) => ({ name: `${each.step}#${each.visit}`, visits: [each], kind: 'depth1', key: each.began_at }))]);
  const rest = s.spent_usd - sum(spans, 'usd');
  return [table(HEADS, rows, 'key', row, html`<tfoot>${row({ name: counted(spans.length, 'visit'), visits: spans })}</tfoot>`), rest > 0.00005 ?
    html`<p class="small dim pad">${money(rest)} more is in its children, or in visits that are not on this page.</p>` : nothing];
}
