// A status is a shape, a word and a colour. Also the other small drawings that several screens use.
import { svg } from './vendor/lit-html.js';
import { html } from './marks.js';
import { repeat } from './vendor/directives/repeat.js';
import { number } from './words.js';

export const ROWS = 200;  // no list draws more

const line = (d, width = 1.6, kind = '') =>
  svg`<path class=${kind} d=${d} fill="none" stroke="currentColor" stroke-width=${width} stroke-linecap="round" stroke-linejoin="round"/>`;
const filled = (d, opacity = 1) => svg`<path d=${d} fill="currentColor" opacity=${opacity}/>`;
const drawn = (size, view, shape) => html`<svg width=${size} height=${size} viewBox="0 0 ${view} ${view}" aria-hidden="true">${shape}</svg>`;

const ROUND = 'M8 2a6 6 0 0 1 0 12A6 6 0 0 1 8 2z', ARC = 'M8 2a6 6 0 0 1 6 6';
const SHAPES = {
  running: [filled(ROUND, .2), line(ARC, 2, 'spin')],
  pausing: [line('M6 5v6M10 5v6', 2), line(ARC, 2, 'spin')],
  paused: line('M5 4v8M11 4v8', 3),
  waiting: [line('M2.5 3.5h11v7h-6l-3 3v-3h-2z'), line('M6.6 5.6c.2-1.2 2.9-1.2 2.8.3 0 .9-1.4.9-1.4 1.8', 1.3)],
  sleeping: filled('M13 9.6A5.6 5.6 0 1 1 6.4 3a4.6 4.6 0 0 0 6.6 6.6z'),
  completed: [filled(ROUND, .2), line('m5 8.3 2.1 2.1L11 6', 1.9)],
  failed: [filled('M8 1.8 15 14H1z', .2), line('M8 6v4M8 12v.4', 1.8)],
  cancelled: [line(ROUND), line('m4.2 11.8 7.6-7.6')],
  ready: line('M5 3.5v9l7-4.5z'),
  created: line(ROUND, 1.2),
  blocked: [line(ROUND), line('M5 8h6')],  // a task that waits for others
};

export const STATUSES = Object.keys(SHAPES);

export const status = (name, pill) => html`<span class="st ${name} ${pill ? 'pill' : ''}">${drawn(14, 16, SHAPES[name])}${name}</span>`;

const ICONS = {
  now: 'M3 12h4l3-7 4 14 3-7h4', inbox: 'M4 5h16v14H4zM4 13h5l1.5 2.5h3L15 13h5', sessions: 'M5 6h14M5 12h14M5 18h14',
  agents: 'M12 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6M5 20c0-4 3-6 7-6s7 2 7 6',
  store: 'M5 6c0-3 14-3 14 0v12c0 3-14 3-14 0zM5 6c0 3 14 3 14 0M5 12c0 3 14 3 14 0',
};
export const icon = (name) => drawn(18, 24, line(ICONS[name], 1.8));
export const PAUSE = drawn(26, 24, line('M7.5 6v12M16.5 6v12', 5));
export const PLAY = drawn(26, 24, filled('M7 4.5v15l13-7.5z'));

// How much of something is done: { done, total }.
export const bar = (progress) => progress?.total ? html`<svg class="bar" role="progressbar" aria-label="Progress" aria-valuenow=${progress.done}
  aria-valuemin="0" aria-valuemax=${progress.total}><rect width="${Math.min(100, 100 * progress.done / progress.total)}%" height="6" rx="3"/></svg>` : '';

// An agent at the gate: it makes calls, and has no steps.
export const isAgent = ({ guest, workflow }) => guest && workflow === 'agent';

// Where a session is: its step and visit.
export const at = (s) => s.step && !isAgent(s) ? `${s.held_by_guard ? 'after ' : ''}${s.step}${s.visit > 1 ? '#' + s.visit : ''}` : '';

// A part of a screen: its title, and a list or what it says without one. And one row of it: name, mark, further lines.
const key = (each, n) => each.id ?? each.session_id ?? n;
export const sheet = (name, list, draw, none, more) => html`<section class="sheet" aria-label=${name}><header><h2>${name}</h2><span
  class="more dim small">${more}</span></header>${list.length ? html`<ul>${repeat(list.slice(0, ROWS), key, (each) => html`<li>${draw(each)}</li>`)}</ul>` :
    html`<p class="empty">${none}</p>`}</section>`;
export const item = (name, mark, ...subs) => html`<div class="item"><span class="name clip">${name}</span>${mark}${subs.map((sub) =>
  html`<span class="sub">${sub}</span>`)}</div>`;

// A head of a table is its text and its class.
export const more = ({ length }) => length > ROWS ? html`<p class="small dim pad">${number(length - ROWS)} more.</p>` : '';
export const table = (heads, list, key, row, foot = '') => html`<table><thead><tr>${heads.map(([text, kind = '']) =>
  html`<th class=${kind}>${text}</th>`)}</tr></thead><tbody>${repeat(list.slice(0, ROWS), (each) => each[key], row)}</tbody>${foot}</table>${more(list)}`;
