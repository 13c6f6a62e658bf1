// The tab Cost: what a session spent, by step and visit.
import { html } from './marks.js';
import { money, number, span, sum } from './words.js';
import { table } from './shapes.js';

const row = ({ name, visits, kind = '' }) => html`<tr><td class=${kind}><span class="mono">${name}</span> <span
  class="small dim">${visits.every((each) => each.left_behind) ? 'undone by a rewind' : ''}</span></td>${[
    span(sum(visits, 'seconds')), number(sum(visits, 'tokens')), money(sum(visits, 'usd'))].map((cell) => html`<td class="r num">${cell}</td>`)}</tr>`;

// Of a long session each step is one row; the visits of the drawn page would not add up.
export function cost({ s, spans: drawn, totals }) {
  const spans = totals ? totals.steps.map(({ name, took_seconds, ...each }) => ({ step: name, seconds: took_seconds, ...each })) : drawn;
  const rest = s.spent_usd - sum(spans, 'usd'), all = rest > 0.00005 ? [...spans, { step: totals ? 'children and the open visit' : 'children', usd: rest }] : spans;
  const rows = [...Map.groupBy(all, (each) => each.step)].flatMap(([name, visits]) => [{ name, visits, key: name },
    ...(visits.length > 1 ? visits : []).map((each) => ({ name: `${name}#${each.visit}`, visits: [each], kind: 'depth1', key: each.began_at }))]);
  if (rows.length) return table([['Step and visit'], ['Time', 'r'], ['Tokens', 'r'], ['Cost', 'r']], rows, 'key', row,
    html`<tfoot>${row({ name: 'all', visits: all })}</tfoot>`);
  return html`<p class="empty"><b>Nothing has run yet</b>A step says what it costs with <code>ctx.spend</code>.</p>`;
}
