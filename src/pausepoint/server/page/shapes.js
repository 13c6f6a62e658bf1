// A status is a shape, a word and a colour. Also the other small drawings that several screens use.
import { html, svg, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';
import { number } from './words.js';

const line = (d, width = 1.6) => svg`<path d=${d} fill="none" stroke="currentColor" stroke-width=${width} stroke-linecap="round" stroke-linejoin="round"/>`;
const turning = (d) => svg`<path class="spin" d=${d} fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round"/>`;
const ring = (r, extra = 'none') => svg`<circle cx="8" cy="8" r=${r} fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray=${extra}/>`;

const SHAPES = {
  running: svg`<g opacity=".3">${ring(6)}</g>${turning('M8 2a6 6 0 0 1 6 6')}`,
  pausing: svg`${line('M6 5v6M10 5v6', 2)}${turning('M8 1.5a6.5 6.5 0 0 1 6.5 6.5')}`,
  paused: svg`<rect x="3.5" y="2.5" width="3.2" height="11" rx="1.2" fill="currentColor"/><rect x="9.3" y="2.5" width="3.2" height="11" rx="1.2" fill="currentColor"/>`,
  waiting: svg`${line('M2.5 3.5h11v7h-6l-3 3v-3h-2z')}${line('M6.6 5.6c.2-1.2 2.9-1.2 2.8.3 0 .9-1.4.9-1.4 1.8', 1.3)}`,
  sleeping: svg`<path d="M13 9.6A5.6 5.6 0 1 1 6.4 3a4.6 4.6 0 0 0 6.6 6.6z" fill="currentColor"/>`,
  completed: svg`<circle cx="8" cy="8" r="6.4" fill="currentColor" opacity=".18"/>${line('m5 8.3 2.1 2.1L11 6', 1.9)}`,
  failed: svg`<path d="M8 1.8 15 14H1z" fill="currentColor" opacity=".2"/>${line('M8 6v4M8 12v.4', 1.8)}`,
  cancelled: svg`${ring(5.6)}${line('m4.2 11.8 7.6-7.6')}`,
  ready: line('M5 3.5v9l7-4.5z'),
  created: ring(5.4, '2.4 2.4'),
  blocked: svg`${ring(5.6)}${line('M5 8h6')}`,  // a task that waits for others
};

export const STATUSES = Object.keys(SHAPES);

export const status = (name, pill) => html`<span class="st ${name} ${pill ? 'pill' : ''}"><svg viewBox="0 0 16 16" aria-hidden="true">${SHAPES[name]}</svg>${name}</span>`;

const ICONS = {
  now: 'M3 12h4l3-7 4 14 3-7h4', inbox: 'M4 5h16v14H4zM4 13h5l1.5 2.5h3L15 13h5', sessions: 'M5 6h14M5 12h14M5 18h14',
  agents: 'M12 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6M5 20c0-4 3-6 7-6s7 2 7 6',
  store: 'M5 6c0-3 14-3 14 0v12c0 3-14 3-14 0zM5 6c0 3 14 3 14 0M5 12c0 3 14 3 14 0',
};
export const icon = (name) => html`<svg width="18" height="18" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${ICONS[name]}></path></svg>`;

export const PAUSE = svg`<svg viewBox="0 0 24 24" fill="currentColor" aria-hidden="true"><rect x="5" y="4" width="5" height="16" rx="1.6"/><rect x="14" y="4" width="5" height="16" rx="1.6"/></svg>`;
export const PLAY = svg`<svg viewBox="0 0 24 24" fill="currentColor" aria-hidden="true"><path d="M7 4.5v15l13-7.5z"/></svg>`;

// How much of something is done: { done, total }.
export function bar(progress) {
  if (!progress || !progress.total) return nothing;
  const percent = Math.min(100, 100 * progress.done / progress.total);
  return html`<svg class="bar" role="progressbar" aria-label="Progress" aria-valuenow=${progress.done} aria-valuemin="0" aria-valuemax=${progress.total} width="100%" height="5"><rect width="${percent}%" height="5" rx="2.5"/></svg>`;
}

// Where a session is: its step and visit.
export const at = (s) => s.step ? `${s.held_by_guard ? 'after ' : ''}${s.step}${s.visit > 1 ? '#' + s.visit : ''}` : '';

// No list draws more than this. A head of a table is its text and its class.
export const ROWS = 200;
export const more = ({ length }) => length > ROWS ? html`<p class="small dim pad">${number(length - ROWS)} more.</p>` : nothing;
export const table = (heads, list, key, row, foot = nothing) => html`<table><thead><tr>${heads.map(([text, kind = '']) => html`<th class=${kind}>${text}</th>`)}</tr></thead>
  <tbody>${repeat(list.slice(0, ROWS), (each) => each[key], row)}</tbody>${foot}</table>${more(list)}`;
// A part of a screen: its title, and rows or what it says without any. And one row: name, mark, further lines.
export const sheet = (name, rows, none, more) => html`<section class="sheet" aria-label=${name}><header><h2>${name}</h2><span class="more">${more}</span></header>
  ${rows.length ? html`<ul>${rows}</ul>` : html`<p class="empty">${none}</p>`}</section>`;
export const item = (name, mark, ...subs) => html`<li class="item"><span class="name clip">${name}</span>${mark}${subs.map((sub) => html`<span class="sub">${sub}</span>`)}</li>`;
