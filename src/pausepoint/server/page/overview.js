// A long session as a whole: what each step and each operation has done in all, and ways to any visit.
import { html } from './marks.js';
import { money, number, span } from './words.js';
import { table } from './shapes.js';

const link = (d, text, from, label) => html`<a class="b tiny" href=${d.to({ from, before: '', at: '' })} aria-label=${label ?? text}>${text}</a>`;

const HEADS = (noun) => [['Name'], [noun, 'r'], ['Took', 'r'], ['Longest', 'r'], ['Failed attempts', 'r opt'], ['Cost', 'r opt'], ['Go to', 'r']];

const row = (d, ways) => (each) => html`<tr><td class="mono">${each.name}<div class="dim small">${each.undone ?
  `${number(each.undone)} undone by a rewind` : ''}</div></td><td class="r num">${number(each.count)}</td><td class="r num">${span(each.took_seconds)}</td><td
    class="r num">${span(each.longest_seconds)}</td><td class="r num opt ${each.failures ? 'err' : ''}">${number(each.failures)}</td><td
    class="r num opt">${money(each.usd)}</td><td><span class="row end">${each.count ? ways(each) : ''}</span></td></tr>`;

const visits = (d) => ({ name, first, longest_at: longest, last }) => [link(d, 'First', first, `First visit of ${name}`),
  link(d, 'Longest', longest, `Longest visit of ${name}`), link(d, 'Last', last, `Last visit of ${name}`)];

const call = (d, text, seq, name) => html`<a class="b tiny" aria-label="${text} call of ${name}" href=${d.to({ tab: 'operations', calls: seq + 1 })}>${text}</a>`;
const calls = (d) => ({ name, first, longest_at: longest, last }) => [['First', first], ['Longest', longest], ['Last', last]].map(([text, seq]) => call(d, text, seq, name));

export function overview(d) {
  const { totals, page } = d, hasMore = page && (page.isPage || page.all > page.last - page.first + 1 || d.spans.some((each) => each.part_count > each.parts.length));
  if (!hasMore) return '';
  const { steps, operations } = totals;
  return html`<section class="sheet" aria-label="Overview"><header><h2>Overview</h2><span class="dim small">the whole session, also what is not drawn
    above</span></header><div class="scroll" tabindex="0" role="region" aria-label="Totals">${table(HEADS('Visits'), steps, 'name', row(d, visits(d)))}${operations.length ?
      table(HEADS('Calls'), operations, 'name', row(d, calls(d))) : ''}</div></section>`;
}

// Which visits are drawn, and ways to the others. A jump takes the name of a step and the number of a visit.
export function pages(d, page) {
  const { page: at, spans, totals } = d;
  if (!at || !(at.isPage || at.first > 1)) return '';
  const seqs = spans.filter((each) => each.seq).map((each) => each.seq), names = totals.steps.filter((each) => each.count).map((each) => each.name);
  const jump = (event) => {
    event.preventDefault();
    const { step, visit } = Object.fromEntries(new FormData(event.target));
    page.go(d.to({ from: `${step}#${visit}`, before: '', at: '' }));
  };
  return html`<span class="num">${seqs.length ? `Visits ${number(at.first)} to ${number(at.last)} of ${number(at.all)}` : `After visit ${number(at.all)}`}</span>
    ${at.first > 1 ? [link(d, 'Oldest visits', 1), seqs.length ? html`<a class="b tiny" href=${d.to({ before: seqs[0], from: '', at: '' })}>Earlier visits</a>` : ''] : ''}
    ${at.last < at.all ? link(d, 'Later visits', seqs.at(-1) + 1) : ''}${at.isPage ? link(d, 'Latest visits', '') : ''}
    <form class="row" aria-label="Jump to a visit" @submit=${jump}>${names.length > 1 ? html`<select class="in short" name="step" aria-label="Step">${names.map((name) =>
      html`<option value=${name}>${name}</option>`)}</select>` : html`<input type="hidden" name="step" value=${names[0] ?? ''}>`}<input class="in short jump"
        name="visit" type="number" min="1" required placeholder="Visit" aria-label="Number of the visit"><button class="b tiny">Go</button></form>${d.missed ?
        html`<span class="err" role="alert">${d.missed}</span>` : ''}`;
}
