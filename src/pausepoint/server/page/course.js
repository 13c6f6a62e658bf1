// The course of a session: a row for each step, and for each operation of a function, and when it ran.
import { svg } from './vendor/lit-html.js';
import { html, marked } from './marks.js';
import { repeat } from './vendor/directives/repeat.js';
import { counted, exact, local, money, span, sum } from './words.js';
import { table } from './shapes.js';
import { pages } from './overview.js';
import { isWait, scale } from './scale.js';

const LONG = 40, DRAWN = 60, BARS = 800;

let scrolled = '';  // the session whose current step was scrolled to

const isItem = (part) => part.id.startsWith('/map:') && part.id.split('/').length > 2;
const joined = (list, by) => list.filter(Boolean).join(by);
const lasted = ({ from, to }) => span((to - from) / 1000);
const worked = ({ seconds, waited }) => joined([span(seconds), waited >= 0.5 && `waited ${span(waited)}`], ', ');

function row({ s, plan }, name, visits, here, total, targets = []) {
  const plans = plan ? [...plan.steps, ...plan.operations] : [];
  const { verdict = 'done', why, visits: before } = plans.find((each) => name === (each.step ?? each.operation)) ?? {};
  const kept = visits.filter((each) => !each.left_behind), isPast = verdict === 'done' && before > 0;  // before a fork
  const isTold = verdict !== 'done' && !['completed', 'cancelled'].includes(s.status);
  return { name, visits, kept, here, total, targets, verdict: isTold && (why === 'running' ? why : verdict),
    why: (isTold || !visits.length) && why !== 'running' && local(why), isReached: here || isPast || kept.length || total?.count,
    parts: visits.flatMap((each) => each.parts ?? []) };
}

function operations(d) {
  const calls = d.spans.flatMap(({ parts, left_behind }) => parts.filter((part) => !isItem(part)).map((part) => ({ ...part, left_behind })));
  return [...Map.groupBy(calls, (part) => part.id.split('/')[1]?.split(/[~=#[]/)[0] || part.name)].map(([name, found]) =>
    row(d, name, found.slice(-BARS), d.s.step && found.some((each) => !each.ended_at && !each.left_behind), d.totals?.operations.find((each) => each.name === name)));
}

function rowsOf(d) {
  const { steps, routes, returns, guest } = d.s.description, visits = Map.groupBy(d.spans, (each) => each.step);
  const total = new Map(d.totals?.steps.map((each) => [each.name, each])), names = [...steps.map((each) => each.name), ...total.keys(), ...visits.keys()];
  const found = [...new Set(names)].map((name) =>
    row(d, name, visits.get(name) ?? [], d.s.step === name, total.get(name), routes.find((each) => each.after === name)?.targets));
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

function label({ name, visits, kept, total, verdict, why, parts }, d) {
  const seq = visits.findLast((each) => each.seq)?.seq, items = sum(parts, 'total'), last = kept.at(-1), noun = last && !last.parts ? 'call' : 'visit';
  const done = kept.filter((each) => each.ended_at || each.parts), waits = kept.filter(isWait), work = sum(kept.filter((each) => !isWait(each)), 'seconds');
  // the figures are those of the whole session, even if only a page of its visits is drawn
  const { count = done.length, took_seconds: took = work, usd = sum(visits, 'usd'), failures = 0 } = total?.count > done.length ? total : {};
  const waited = total?.count > done.length ? 0 : sum(kept, 'waited') + sum(waits, 'seconds');
  const text = joined([
    count > 1 && counted(count, noun), took > 0 && span(took), waited >= 0.5 && `waited ${span(waited)}`, usd && money(usd),
    failures && counted(failures, 'failed attempt'), items && counted(items, 'item'), last?.skipped && `skipped: ${last.skipped}`, why], ' · ');
  return html`<div class="stp"><b class="mono">${seq ? html`<a href=${d.to({ tab: 'state', at: seq })}>${name}</a>` : name}</b>
    ${verdict ? html`<span class="verdict ${verdict.split(' ')[0]}">${verdict}</span>` : ''}
    <div class="v" title=${text}>${text}</div></div>`;
}

const title = (each) => joined([
  (isWait(each) ? 'waits: ' : '') + (each.name ?? `${each.step}#${each.visit}`), each.label, worked(each), each.usd && money(each.usd),
  each.total && counted(each.total, 'item'), each.left_behind && 'undone by a rewind',
  each.attempts > 1 && counted(each.attempts, 'attempt'), each.error && `failed ${counted(each.retries, 'time')}: ${each.error}`,
  !each.error && each.tries?.length && `failed: ${each.tries.at(-1).error}`], ', ');

// y, height and class
function look(each, isInside) {
  if (isWait(each)) return [16, 26, 'wt'];
  if (isInside) return each.kind === 'map' ? [24, 10, 'op'] : [33, 3, 'op'];
  return [20, 18, each.left_behind ? 'behind' : each.ended_at ? 'vis' : 'open'];
}

// An attempt that failed, and the rest until the next one.
function failure(each, { from, to, until, error }, n, x, isInside) {
  const [y, tall] = isInside ? [30, 9] : [20, 18], at = x(from), end = x(to);
  return svg`<rect class="fail" x="${at}%" width="${Math.max(0.4, end - at)}%" y=${y} height=${tall}><title>${marked(`failed attempt ${n + 1} of ${
    each.name ?? `${each.step}#${each.visit}`}, ${lasted({ from, to })}: ${error}`)}</title></rect>${until > to ? svg`<rect class="rest" x="${end}%"
      width="${x(until) - end}%" y=${y + tall / 2 - 1} height="2"><title>${`the next attempt after ${lasted({ from: to, to: until })}`}</title></rect>` : ''}`;
}

function bar(each, x, isInside) {
  const [y, tall, kind] = look(each, isInside), from = x(each.ran), width = x(each.to) - from, text = svg`<title>${marked(title(each))}</title>`;
  const isRetried = each.attempts > 1 || each.retries, tries = each.tries.map((one, n) => failure(each, one, n, x, isInside));
  if (kind === 'op' && width < 0.05 && !isRetried) return '';  // too short to be seen
  if (tries.length && each.ran >= each.to) return tries;  // no attempt has ended it
  return svg`${tries}<rect class=${kind} x="${from}%" width="${Math.max(0.4, width)}%" y=${y} height=${tall}>${text}</rect>${isRetried ?
    svg`<svg x="${from}%" y="11" overflow="visible"><path class="retry" d="M-4 0h8l-4 7z">${text}</path></svg>` : ''}`;
}

const lane = ({ name, visits }, { x, gaps }) => html`<div class="lane"><svg role="img"
  aria-label="${name}: ${visits.slice(-20).map(title).join('; ')}">
  ${gaps.map(({ at, width }) => svg`<rect class="stl" x="${at}%" width="${width}%" height="100%"/>`)}
  ${visits.map((visit) => [bar(visit, x), visit.left_behind ? '' : visit.parts?.map((part) => isItem(part) ? '' : bar(part, x, true))])}</svg></div>`;

// The times at both ends as exactly as the session is short; between them what was shortened, or else the time since the beginning.
function axis({ gaps, from, to, when }) {
  const edge = innerWidth > 760 ? 16 : 40, isFree = (place) => place > edge && place < 100 - edge;  // the times at the ends need room
  const wide = gaps.filter((gap) => gap.width > 7 && (isFree(gap.at + gap.width / 2) || (gap.to === to && gap.at > edge))), long = to - from, places = !long || gaps.length ? [] : innerWidth > 760 ? [25, 50, 75] : [50];
  const texts = [...wide.map((gap) => [gap.at + gap.width / 2, lasted(gap)]), ...places.map((place) => [place, `+${span((when(place) - from) / 1000)}`])];
  return html`<div class="head axis lane"><svg aria-hidden="true"><text y="18">${exact(from, long)}</text>${texts.map(([x, text]) =>
    svg`<text x="${x}%" y="18" text-anchor="middle">${text}</text>`)}<text x="100%" y="18"
      text-anchor="end">${wide.at(-1)?.to === to ? '' : exact(to, long)}</text></svg></div>`;
}

// Sums up the whole session: its visits, their work, and the time since it was created, until its end or now.
function whole(d) {
  const { s, spans, totals } = d, kept = spans.filter((each) => !each.left_behind), open = spans.at(-1)?.seq === 0 ? 1 : 0, visits = totals ? totals.visits + open : kept.length;
  const work = totals?.took_seconds ?? sum(kept, 'seconds'), all = (d.now() - Date.parse(s.created_at)) / 1000;
  return joined([counted(visits, 'visit'), `${span(work)} of work`, `${span(Math.max(0, all))} from the beginning ${
    ['completed', 'cancelled', 'failed'].includes(s.status) ? 'to the end' : 'until now'}`], ' · ');
}

const items = ({ name, parts }) => html`<details class="known pad"><summary>Items of ${name}</summary><div class="scroll"
  tabindex="0">${table([['Item'], ['Took', 'r']], parts.filter(isItem), 'id', (part) => html`<tr><td class="mono">${part.label || part.name} <span
    class="err">${part.error}</span></td><td class="r num dim">${part.ended_at ? lasted(part) : 'not yet'}</td></tr>`)}</div></details>`;

const KEYS = html`<div class="keys grow">${['visit', 'current', 'waits', 'idle time, shortened', 'undone by a rewind'].map((text, n) =>
  html`<span><i class="k${n + 1}"></i>${text}</span>`)}<span><i class="k7"></i>failed attempt</span><span><b class="k6">▾</b> retry</span></div>`;

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
  return html`<section class="sheet" aria-label="Course"><header><h2>Course</h2><span class="dim small">${d.planRefused ?
    `There is no plan: ${d.planRefused}` : 'what ran, and what is next'}</span><span class="more dim small">${whole(d)}</span></header>
    <div class="course ${d.s.status} ${isLong ? 'long' : ''}" role="region" aria-label="Steps" tabindex=${isLong ? 0 : -1}
      @scroll=${() => page.drawSoon()}><div class="head railhead"></div><div class="head stphead"></div>${axis(time)}${gap(from)}
      ${repeat(rows, (each) => each.name, (each, n) => [rail(each, from + n, all), label(each, d), lane(each, time)])}
      ${gap(all.length - from - rows.length)}</div>
    ${all.filter((each) => each.parts.some(isItem)).map(items)}
    <footer class="row">${KEYS}${d.spans.some((each) => each.part_count > each.parts.length) ?
      html`<span>At most 200 operations of a visit are drawn.</span>` : ''}${pages(d, page)}</footer></section>`;
}
