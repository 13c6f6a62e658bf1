// The course of a session: one row for each step with its routes and its place, and on the same row when it ran.
//
// A workflow that is one function, and a guest, have one row for each operation instead. The rows have percentages
// where a length depends on their height, which is another one on a narrow screen.
import { html, svg, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';
import { counted, money, number, span } from './words.js';
import { between, ms, scale } from './scale.js';

const LONG = 40, DRAWN = 60, BARS = 800, ITEMS = 200, Y = 20, H = 18;
const WAITS = ['question', 'timer', 'child'];
const ENDED = ['completed', 'cancelled'];

const opened = new Set();  // the rows whose items are listed
let first = 0, scrolled = '';  // the first drawn row of a long course, and whose it is

// rows

const key = (part) => part.id.split('/')[1]?.split(/[~=#]/)[0] || part.name;
const isItem = (part) => part.id.startsWith('/map:') && part.id.split('/').length > 2;

export const isFunction = ({ steps, returns, guest }) => steps.length === 1 && (returns !== null || guest);

function stepRows(d) {
  const { steps, routes, guards } = d.s.description, plan = new Map((d.plan?.steps ?? []).map((each) => [each.step, each]));
  const names = new Set([...steps.map((each) => each.name), ...d.spans.map((each) => each.step)]), visits = Map.groupBy(d.spans, (each) => each.step);
  return [...names].map((name) => ({
    name, visits: visits.get(name) ?? [], plan: plan.get(name), here: d.s.step === name, targets: routes.find((each) => each.after === name)?.targets,
    guards: guards.filter((each) => each.after === name).map((each) => each.name),
  }));
}

function operationRows(d) {
  const [step] = stepRows(d), plan = new Map((d.plan?.operations ?? []).map((each) => [each.operation, each]));
  const parts = d.spans.flatMap((visit) => visit.parts.filter((part) => !isItem(part)).map((part) =>
    ({ ...part, behind: visit.left_behind, until: visit.ended_at })));
  const rows = [...Map.groupBy(parts, key)].map(([name, found]) => ({ name, parts: found, visits: [], plan: plan.get(name), here: d.s.step &&
    found.some((part) => !part.ended_at && !part.behind) }));
  return [{ ...step, here: step.here && !rows.some((each) => each.here) }, ...rows];
}

// the rail: a line from step to step, arcs for routes, a mark for the place

function dot(row) {
  if (row.here) return svg`<circle class="halo" cx="38" cy="50%" r="13"/><circle cx="38" cy="50%" r="7" class="here"/>`;
  const isDone = isPast(row) || row.visits.some((each) => each.ended_at && !each.left_behind) || row.parts?.some((each) => each.ended_at && !each.behind);
  return svg`<circle cx="38" cy="50%" r="7" class=${isDone ? 'done' : ''}/>${isDone ?
    svg`<svg x="32" y="50%" overflow="visible"><path class="tick" d="m3 .4 2 2 4-4.4" fill="none"/></svg>` : nothing}`;
}

// Visits that are not on this page, such as those before a fork.
const isPast = (row) => row.plan?.verdict === 'done' && row.plan.visits > 0;

const wasReached = (row) => row && (row.here || isPast(row) || row.visits.some((each) => !each.left_behind) || row.parts?.some((each) => !each.behind));

// An arc over some rows, down or up.
function arc(rows, n) {
  const x = 14 - 5 * n, y = (row) => row > 0 ? `${100 * row}%` : '0';
  const [top, height] = rows > 0 ? ['50%', y(rows)] : [`${50 + 100 * rows}%`, y(-rows)];
  return svg`<svg y=${top} width="58" height=${height} viewBox="0 0 58 100" preserveAspectRatio="none" overflow="visible"><path class="back"
    vector-effect="non-scaling-stroke" d="M31 0C${x} 4 ${x} 96 29 100"/></svg>
    <svg y="${50 + 100 * rows}%" overflow="visible"><path d="M24 -4l5 4-5 4" class="back" stroke-dasharray="none"/></svg>`;
}

function rail(row, i, rows, status) {
  const targets = (row.targets ?? []).map((to) => rows.findIndex((each) => each.name === to)).filter((to) => to >= 0 && to !== i && to !== i + 1);
  return html`<div class="rail ${row.here ? status : ''}"><svg aria-hidden="true"><line x1="38" x2="38" y1=${i ? '0' : '50%'} y2="50%"
    class=${wasReached(row) ? 'passed' : ''}/>
    ${i < rows.length - 1 ? svg`<line x1="38" x2="38" y1="50%" y2="100%" class=${wasReached(rows[i + 1]) ? 'passed' : ''}/>` :
      nothing}${targets.map((to, n) => arc(to - i, n))}${dot(row)}</svg></div>`;
}

// what a row says

const seconds = (visit, end) => visit.ended_at ? visit.took_seconds : (end - ms(visit.began_at)) / 1000;

function summary(row, d, end) {
  const kept = row.visits.filter((each) => !each.left_behind), closed = kept.filter((each) => each.ended_at),
    usd = row.visits.reduce((sum, each) => sum + each.usd, 0);
  const tried = row.visits.reduce((most, each) => Math.max(most, each.attempts), d.s.failure?.step === row.name ? d.s.failure.attempts : 1);
  const told = row.plan && (row.plan.verdict !== 'done' ? !ENDED.includes(d.s.status) : !row.visits.length && row.plan.visits);
  return [
    kept.length > 1 ? counted(kept.length, 'visit') : '', row.parts?.length > 1 ? counted(row.parts.length, 'call') : '',
    closed.length || row.parts || kept.some((each) => end - ms(each.began_at) >= 1) ?
      span(row.parts ? between(row.parts, end) : (closed.length ? closed : kept).reduce((sum, each) => sum + seconds(each, end), 0)) : '',
    usd ? money(usd) : '', tried > 1 ? counted(tried, 'attempt') : '', kept.at(-1)?.skipped ? `skipped: ${kept.at(-1).skipped}` : '', told ? row.plan.why : '',
    ...(row.guards ?? []).map((name) => `guard ${name}`), row.targets?.length > 1 ? `routes to ${row.targets.map((to) => to ?? 'the end').join(' or ')}` : '',
  ].filter(Boolean).join(' · ');
}

const total = (row) => row.visits.flatMap((each) => each.parts).reduce((sum, part) => sum + part.total, 0);

function label(row, d, page, end) {
  const shows = row.plan && !ENDED.includes(d.s.status) && row.plan.verdict !== 'done', last = row.visits.findLast((each) => each.seq);
  const text = summary(row, d, end), items = total(row), flip = () => { opened.has(row.name) ? opened.delete(row.name) : opened.add(row.name); page.draw(); };
  return html`<div class="stp"><b class="mono">${last ? html`<a href=${d.to({ tab: 'state', at: last.seq })}
    title="The state after ${row.name}">${row.name}</a>` : row.name}</b>
    ${shows ? html`<span class="verdict ${row.plan.verdict.split(' ')[0]}">${row.plan.verdict}</span>` : nothing}
    ${items ? html`<button class="b tiny quiet" aria-expanded=${opened.has(row.name)} @click=${flip}>${counted(items, 'item')} ▾</button>` : nothing}
    <div class="v" title=${text}>${text}</div></div>`;
}

// the bars

function bar({ x }, from, to, y, height, kind, title) {
  const begin = x(from), width = Math.max(x(to) - begin, 0.4);
  return svg`<rect class=${kind} x="${begin}%" width="${width}%" y=${y} height=${height}><title>${title}</title></rect>`;
}

const retry = ({ x }, when, text) => svg`<svg x="${x(when)}%" y=${Y - 9} overflow="visible"><path class="retry"
  d="M-4 0h8l-4 7z"><title>${text}</title></path></svg>`;

const lasted = (from, to) => span(Math.max(0, to - from) / 1000);
const stopped = (part, end) => part.ended_at ? ms(part.ended_at) : Math.min(end, part.until ? ms(part.until) : end);

function partBar(time, part, end, isWhole) {
  const from = ms(part.began_at), to = stopped(part, end), isWait = WAITS.includes(part.kind);
  const text = `${isWait ? `waits (${part.kind}): ` : ''}${part.name}, ${lasted(from, to)}${part.total ? `, ${counted(part.total, 'item')}` : ''}${part.error
    ? `; failed ${counted(part.retries, 'time')}: ${part.error}` : ''}`;
  const [y, height, kind] = isWait ? [Y - 4, H + 8, 'wt'] : isWhole ? [Y, H, part.behind ? 'behind' : part.ended_at ? 'vis' : 'open'] : part.kind === 'map' ?
    [Y + 4, H - 8, 'op'] : [Y + H - 5, 3, 'op'];
  return svg`${bar(time, from, to, y, height, kind, text)}${part.retries ? retry(time, from, text) : nothing}`;
}

function visitBars(time, visit, d, end, isDense) {
  const from = ms(visit.began_at), to = visit.ended_at ? ms(visit.ended_at) : end;
  const kind = visit.left_behind ? 'behind' : visit.ended_at ? 'vis' : 'open';
  const text = `${visit.step}#${visit.visit}: ${lasted(from, to)}${visit.usd ? `, ${money(visit.usd)}` : ''}${visit.left_behind ? ' (undone by a rewind)' :
    ''}${visit.skipped ? `, skipped: ${visit.skipped}` : ''}`;
  const parts = visit.parts.filter((part) => !isItem(part) && (!isDense || WAITS.includes(part.kind) || part.retries));
  return svg`${bar(time, from, to, Y, H, kind, text)}${visit.attempts > 1 ? retry(time, from, `${visit.attempts} attempts`) : nothing}
    ${visit.left_behind ? nothing : parts.map((part) => partBar(time, { ...part, until: visit.ended_at }, end))}`;
}

function lane(row, d, time, end, isDense) {
  const spoken = row.parts ? counted(row.parts.length, 'call') : row.visits.map((each) => `visit ${each.visit}, ${span(seconds(each, end))}`).slice(0,
    20).join('; ');
  return html`<div class="lane ${d.s.status}"><svg role="img" aria-label="${row.name}: ${spoken || 'did not run'}">
    ${time.gaps.map((gap) => svg`<rect class="stl" x="${gap.at}%" width="${gap.till - gap.at}%" y="0" height="100%"/>`)}
    ${row.parts ? row.parts.slice(-BARS).map((part) => partBar(time, part, end, true)) :
      row.visits.map((visit) => visitBars(time, visit, d, end, isDense))}</svg></div>`;
}

const hour = (when) => new Date(when).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });

function axis({ gaps, from, to }) {
  const wide = gaps.filter((gap) => gap.till - gap.at > 7 && gap.till < 92 && gap.at > 9);
  return html`<div class="head axis lane"><svg aria-hidden="true"><text x="0" y="18">${hour(from)}</text>
    ${wide.map((gap) => svg`<text x="${(gap.at + gap.till) / 2}%" y="18" text-anchor="middle">${lasted(gap.from, gap.to)}</text>`)}<text x="100%" y="18"
      text-anchor="end">${hour(to)}</text></svg></div>`;
}

// the items of a map

function items(row) {
  const parts = row.visits.flatMap((each) => each.parts).filter(isItem).slice(0, ITEMS);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Items of ${row.name}"><table><thead>
    <tr><th>${row.name}: the first ${number(parts.length)} of ${counted(total(row), 'item')}</th><th class="r">Took</th></tr></thead>
    <tbody>${parts.map((part) => html`<tr><td><span class="mono">${part.name}</span> <span
      class="dim small">${part.id.split('~')[1] ?? ''}</span>${part.error ? html`<div class="err">${part.error}</div>` : nothing}</td><td
        class="r num dim">${part.ended_at ? lasted(ms(part.began_at), ms(part.ended_at)) : 'not yet'}</td></tr>`)}</tbody></table></div>`;
}

// all of it

const KEYS = html`<div class="keys"><span><i class="k1"></i>visit</span><span><i class="k2"></i>current</span><span><i class="k3"></i>waits</span><span><i
  class="k4"></i>idle time, shortened</span><span><i class="k5"></i>undone by a rewind</span><span><b class="k6">▾</b> retry</span></div>`;

// Of a long course only the rows near the visible ones are drawn.
function shown(d, rows, page) {
  if (rows.length <= LONG) return { from: 0, rows };
  if (scrolled !== d.s.session_id) {
    scrolled = d.s.session_id;
    const here = Math.max(0, rows.findIndex((row) => row.here));
    first = Math.max(0, here - 10);
    requestAnimationFrame(() => { const box = document.querySelector('.course.long'); if (box) box.scrollTop = Math.max(0,
      here - 4) * box.querySelector('.rail:not(.head)').offsetHeight; });
  }
  first = Math.max(0, Math.min(first, rows.length - DRAWN));
  return { from: first, rows: rows.slice(first, first + DRAWN), isLong: true };
}

function scroll(event, page) {
  const height = event.currentTarget.querySelector('.rail:not(.head)').offsetHeight,
    next = Math.max(0, Math.floor(event.currentTarget.scrollTop / height) - 20);
  if (Math.abs(next - first) < 8) return;
  first = next;
  page.draw();
}

const gap = (rows) => rows > 0 ? html`<div class="gap"><svg class="short" width="1" height=${58 * rows}></svg><svg class="tall" width="1"
  height=${92 * rows}></svg></div>` : nothing;

function says(d) {
  if (d.planRefused) return `What a resume would do is not known here: ${d.planRefused}`;
  return ENDED.includes(d.s.status) ? 'what ran, and when' : 'what ran, where it is, and what a resume would do';
}

export function course(d, page) {
  const all = isFunction(d.s.description) ? operationRows(d) : stepRows(d), end = d.end(), time = scale(d.spans, end, ms(d.s.created_at));
  const isDense = d.spans.reduce((sum, each) => sum + each.parts.filter((part) => !isItem(part)).length, 0) > BARS,
    { from, rows, isLong } = shown(d, all, page);
  return html`<section class="sheet" aria-label="Course"><header><h2>Course</h2><span class="dim small">${says(d)}</span></header>
    <div class="course ${isLong ? 'long' : ''}" tabindex=${isLong ? 0 : nothing} role=${isLong ? 'region' : nothing}
      aria-label=${isLong ? counted(all.length, 'step') : nothing} @scroll=${isLong ? (event) => scroll(event, page) : nothing}>
      <div class="head railhead"></div><div class="head stphead"></div>${axis(time)}${gap(from)}
      ${repeat(rows, (row) => row.name, (row, n) => html`${rail(row, from + n, all, d.s.status)}${label(row, d, page, end)}${lane(row, d, time, end,
        isDense)}`)}${gap(all.length - from - rows.length)}</div>
    ${all.filter((row) => opened.has(row.name)).map(items)}
    <footer class="row">${KEYS}<span class="grow"></span>${d.spans.some((each) => each.part_count > each.parts.length) ?
      html`<span>Only the first 200 operations of a visit are drawn.</span>` : nothing}${d.earlier ?
        html`<a class="b tiny" href=${d.to({ before: d.spans[0].seq, at: '' })}>Earlier visits</a>` : nothing}${d.before ?
          html`<a class="b tiny" href=${d.to({ before: '', at: '' })}>Latest visits</a>` : nothing}</footer></section>`;
}
