// The course of a session: a row for each step, and for each operation of a function, and when it ran.
import { svg } from './vendor/lit-html.js';
import { html } from './marks.js';
import { repeat } from './vendor/directives/repeat.js';
import { counted, local, money, span, sum } from './words.js';
import { table } from './shapes.js';
import { isWait, scale } from './scale.js';

const LONG = 40, DRAWN = 60, BARS = 800;

let scrolled = '';  // the session whose current step was scrolled to

const isItem = (part) => part.id.startsWith('/map:') && part.id.split('/').length > 2;
const joined = (list, by) => list.filter(Boolean).join(by);
const lasted = ({ from, to }) => span((to - from) / 1000);

function row({ s, plan }, name, visits, here, targets = []) {
  const plans = plan ? [...plan.steps, ...plan.operations] : [];
  const { verdict = 'done', why, visits: before } = plans.find((each) => name === (each.step ?? each.operation)) ?? {};
  const kept = visits.filter((each) => !each.left_behind), isPast = verdict === 'done' && before > 0;  // before a fork
  const isTold = verdict !== 'done' && !['completed', 'cancelled'].includes(s.status);
  return { name, visits, kept, here, targets, verdict: isTold && (why === 'running' ? why : verdict),
    why: (isTold || !visits.length) && why !== 'running' && local(why), isReached: here || isPast || kept.length,
    parts: visits.flatMap((each) => each.parts ?? []) };
}

function operations(d) {
  const calls = d.spans.flatMap(({ parts, left_behind }) => parts.filter((part) => !isItem(part)).map((part) => ({ ...part, left_behind })));
  return [...Map.groupBy(calls, (part) => part.id.split('/')[1]?.split(/[~=#[]/)[0] || part.name)].map(([name, found]) =>
    row(d, name, found.slice(-BARS), d.s.step && found.some((each) => !each.ended_at && !each.left_behind)));
}

function rowsOf(d) {
  const { steps, routes, returns, guest } = d.s.description, visits = Map.groupBy(d.spans, (each) => each.step);
  const found = [...new Set([...steps.map((each) => each.name), ...visits.keys()])].map((name) =>
    row(d, name, visits.get(name) ?? [], d.s.step === name, routes.find((each) => each.after === name)?.targets));
  if (steps.length > 1 || (returns === null && !guest)) return found;
  return [...found, ...operations(d)];
}

const dot = ({ here, isReached }) => svg`<svg x="38" y="50%" overflow="visible"><circle class="halo" r=${here ? 13 : 0}/><circle r="7"
  class=${here ? 'here' : isReached ? 'done' : ''}/><path class="tick" d=${isReached && !here ? 'm-3 .4 2 2 4-4.4' : ''}/></svg>`;

function arc(rows, n) {
  const x = 14 - 5 * n, end = 50 + 100 * rows;
  return svg`<svg y="${Math.min(50, end)}%" height="${100 * Math.abs(rows)}%" viewBox="0 0 58 100" preserveAspectRatio="none"
    overflow="visible"><path class="back" vector-effect="non-scaling-stroke" d="M31 0C${x} 4 ${x} 96 29 100"/></svg>
    <svg y="${end}%" overflow="visible"><path class="back" d="M24-4l5 4-5 4"/></svg>`;
}

function rail(each, i, rows) {
  const arcs = each.targets.map((to) => rows.findIndex(({ name }) => name === to)).filter((to) => to >= 0 && to !== i && to !== i + 1), next = rows[i + 1];
  return html`<div class="rail"><svg aria-hidden="true">${next ? svg`<line x1="38" x2="38" y1="50%" y2="150%" class=${next.isReached ? 'passed' : ''}/>` :
    ''}${arcs.map((to, n) => arc(to - i, n))}${dot(each)}</svg></div>`;
}

function label({ name, visits, kept, verdict, why, parts }, d) {
  const seq = visits.findLast((each) => each.seq)?.seq, took = sum(kept, 'seconds'), usd = sum(visits, 'usd'), items = sum(parts, 'total'), last = kept.at(-1);
  const text = joined([
    kept.length > 1 && counted(kept.length, last.parts ? 'visit' : 'call'), took && span(took), usd && money(usd),
    items && counted(items, 'item'), last?.skipped && `skipped: ${last.skipped}`, why], ' · ');
  return html`<div class="stp"><b class="mono">${seq ? html`<a href=${d.to({ tab: 'state', at: seq })}>${name}</a>` : name}</b>
    ${verdict ? html`<span class="verdict ${verdict.split(' ')[0]}">${verdict}</span>` : ''}
    <div class="v" title=${text}>${text}</div></div>`;
}

const title = (each) => joined([
  (isWait(each) ? 'waits: ' : '') + (each.name ?? `${each.step}#${each.visit}`), each.label, lasted(each), each.usd && money(each.usd),
  each.total && counted(each.total, 'item'), each.left_behind && 'undone by a rewind',
  each.attempts > 1 && counted(each.attempts, 'attempt'), each.error && `failed ${counted(each.retries, 'time')}: ${each.error}`], ', ');

// y, height and class
function look(each, isInside) {
  if (isWait(each)) return [16, 26, 'wt'];
  if (isInside) return each.kind === 'map' ? [24, 10, 'op'] : [33, 3, 'op'];
  return [20, 18, each.left_behind ? 'behind' : each.ended_at ? 'vis' : 'open'];
}

function bar(each, x, isInside) {
  const [y, tall, kind] = look(each, isInside), from = x(each.from), width = x(each.to) - from, text = svg`<title>${title(each)}</title>`;
  const isRetried = each.attempts > 1 || each.retries;
  if (kind === 'op' && width < 0.05 && !isRetried) return '';  // too short to be seen
  return svg`<rect class=${kind} x="${from}%" width="${Math.max(0.4, width)}%" y=${y} height=${tall}>${text}</rect>${isRetried ?
    svg`<svg x="${from}%" y="11" overflow="visible"><path class="retry" d="M-4 0h8l-4 7z">${text}</path></svg>` : ''}`;
}

const lane = ({ name, visits }, { x, gaps }) => html`<div class="lane"><svg role="img"
  aria-label="${name}: ${visits.slice(-20).map(title).join('; ')}">
  ${gaps.map(({ at, width }) => svg`<rect class="stl" x="${at}%" width="${width}%" height="100%"/>`)}
  ${visits.map((visit) => [bar(visit, x), visit.left_behind ? '' : visit.parts?.map((part) => isItem(part) ? '' : bar(part, x, true))])}</svg></div>`;

const hour = (when) => new Date(when).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });

function axis({ gaps, from, to }) {
  const wide = gaps.filter(({ at, width }) => width > 7 && at > 9);
  return html`<div class="head axis lane"><svg aria-hidden="true"><text y="18">${hour(from)}</text>${wide.map((gap) =>
    svg`<text x="${gap.at + gap.width / 2}%" y="18" text-anchor="middle">${lasted(gap)}</text>`)}<text x="100%" y="18"
      text-anchor="end">${wide.at(-1)?.to === to ? '' : hour(to)}</text></svg></div>`;
}

const items = ({ name, parts }) => html`<details class="known pad"><summary>Items of ${name}</summary><div class="scroll"
  tabindex="0">${table([['Item'], ['Took', 'r']], parts.filter(isItem), 'id', (part) => html`<tr><td class="mono">${part.label || part.name} <span
    class="err">${part.error}</span></td><td class="r num dim">${part.ended_at ? lasted(part) : 'not yet'}</td></tr>`)}</div></details>`;

const KEYS = html`<div class="keys grow">${['visit', 'current', 'waits', 'idle time, shortened', 'undone by a rewind'].map((text, n) =>
  html`<span><i class="k${n + 1}"></i>${text}</span>`)}<span><b class="k6">▾</b> retry</span></div>`;

const height = () => innerWidth > 760 ? 58 : 92;  // of a row, see style.css
const gap = (rows) => html`<div class="gap"><svg width="1" height=${height() * rows}></svg></div>`;

// Of a long course only the rows near the visible ones are drawn. Return the number of the first one.
function begin({ s }, rows) {
  const box = () => document.querySelector('.course'), here = rows.findIndex((each) => each.here) - 4;
  if (scrolled !== s.session_id) requestAnimationFrame(() => box()?.scrollTo(0, here * height()));
  scrolled = s.session_id;
  return Math.max(0, Math.min(Math.floor((box()?.scrollTop ?? 0) / height()) - 20, rows.length - DRAWN));
}

export function course(d, page) {
  const time = scale(d.spans, d.end()), all = rowsOf(d), isLong = all.length > LONG, from = begin(d, all), rows = all.slice(from, from + DRAWN);
  const link = (text, before) => html`<a class="b tiny" href=${d.to({ before, at: '' })}>${text} visits</a>`;
  return html`<section class="sheet" aria-label="Course"><header><h2>Course</h2><span class="dim small">${d.planRefused ?
    `There is no plan: ${d.planRefused}` : 'what ran, and what is next'}</span></header>
    <div class="course ${d.s.status} ${isLong ? 'long' : ''}" role="region" aria-label="Steps" tabindex=${isLong ? 0 : -1}
      @scroll=${() => page.drawSoon()}><div class="head railhead"></div><div class="head stphead"></div>${axis(time)}${gap(from)}
      ${repeat(rows, (each) => each.name, (each, n) => [rail(each, from + n, all), label(each, d), lane(each, time)])}
      ${gap(all.length - from - rows.length)}</div>
    ${all.filter((each) => each.parts.some(isItem)).map(items)}
    <footer class="row">${KEYS}${d.spans.some((each) => each.part_count > each.parts.length) ?
      html`<span>At most 200 operations of a visit are drawn.</span>` : ''}${d.earlier ? link('Earlier', d.spans[0].seq) :
        ''}${d.before ? link('Latest', '') : ''}</footer></section>`;
}
