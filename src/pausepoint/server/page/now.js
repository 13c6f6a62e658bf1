// Now: what runs, what waits for people, what failed, what it costs, and the one button.
import { html } from './marks.js';
import { act, of } from './api.js';
import { at, bar, item, sheet, status, PAUSE, PLAY } from './shapes.js';
import { counted, later, money, number, span, spent, sum, time, total } from './words.js';
import { how, why } from './dialog.js';
import { asked, waiting } from './inbox.js';

export const title = () => 'Now';
export const topics = () => ['inbox'];
export const keys = { p: (page) => mayPause(page) && !page.now.standing_pause && pauseAll(page) };
export const load = async (route, page) => page.may('answerer') ? (await asked({ limit: 3 }, page.data ?? [])).questions : [];

const mayPause = (page) => page.may('operator') && !page.me.owner;
const count = ({ counts }, ...names) => total(names.map((name) => sum(Object.values(counts), name)));

// the sentence, the six figures and the button

function hero(page) {
  const { now } = page, { standing_pause: pause, questions } = now, running = count(now, 'running', 'pausing'), failed = total(now.failures);
  const figures = { running, 'open questions': questions, sleeping: count(now, 'sleeping'), paused: count(now, 'paused'), failed,
    spent: money(now.spent_usd) };
  const [press, shape, name, where] = pause ? [lift, PLAY, 'Resume', 'from exactly there'] : [pauseAll, PAUSE, 'Pause everything', 'at the next safe point'];
  return html`<section class="hero ${pause ? 'still' : ''}" aria-label="At a glance"><div><h1>${pause ? 'Everything is paused' : running ?
    `${counted(running, 'session')} ${running === 1 ? 'is' : 'are'} running` : 'Nothing is running'}</h1>${pause ? standing(pause) : html`<p><a
    href="#/inbox">${counted(questions, 'question')}</a> for people. <a href="#/sessions?failed=true">${counted(failed, 'session')} failed.</a></p>`}
    <div class="facts">${Object.entries(figures).map(([what, figure]) =>
      html`<div class="fact"><b class="num">${number(figure)}</b><span>${what}</span></div>`)}</div></div>${mayPause(page) ?
    html`<button class="button-of-all ${pause ? 'go' : ''}" @click=${() => press(page)}>${shape}<span>${name}<small>${where}</small></span></button>` :
    ''}</section>`;
}

// Only a person who sees all sessions learns how the pause took effect.
const standing = ({ by, reason, created_at, asked, stopped, finishing = [], longest_seconds }) => html`<p><b>${by ?? 'Unknown'}</b> paused it
  ${time(created_at)}${reason && `: “${reason}”`}. New sessions stay paused.</p><p>${finishing.length ?
    `${stopped} of ${counted(asked, 'running session')} stopped. Still finishing:` :
    asked ? `${counted(asked, 'running session')} stopped after ${span(longest_seconds ?? 0)}.` : ''}</p><ul class="finishing">${finishing.map((each) =>
    html`<li><a class="mono" href="#${of(each.session_id)}">${each.session_id}</a> ${each.operation || each.step}, since ${time(each.since)}</li>`)}</ul>`;

const pauseAll = (page) => page.ask({
  title: 'Pause everything', say: 'Pause everything',
  body: () => html`<p class="dim">${counted(count(page.now, 'running'), 'running session')} will stop at the next safe point, in every process. New
    sessions stay paused. People can still answer questions. Others see that ${page.me.name} paused it.</p>${why}${how}`,
  send: (given) => page.act(() => act('PUT', '/standing-pause', given), 'Everything is paused.'),
});

const lift = (page) => page.act(() => act('DELETE', '/standing-pause'), 'Sessions continue where they stopped.');

// lists

const link = (hash, text) => html`<a data-row href="#${hash}">${text}</a>`;

// member of `/now` → name, filter, second line of a row, and the text without rows
const LISTS = {
  running: ['Running', 'status=running,pausing', ({ progress, ...s }) => [s.workflow, at(s),
    progress && `${number(progress.done)} of ${number(progress.total)}`, spent(s)].filter(Boolean).join(' · '),
  'Nothing is running. Start a session with pausepoint run.'],
  failed: ['Failed', 'failed=true', ({ failure }) => `${failure.step}: ${failure.type}: ${failure.message.split('\n')[0]}`, 'Nothing failed.'],
  paused: ['Paused individually', 'status=paused', ({ pause: { kind, by, reason } }) => `${by ? `by ${by}` : kind}: ${reason || 'no reason given'}`,
    'No session is paused individually.'],
  waking: ['Wakes next', 'status=sleeping', (s) => html`${s.workflow} · ${s.status === 'sleeping' ? 'wakes' : 'expires'} ${later(s.wakes_at)}`,
    'No timer runs.'],
};

function list(now, member) {
  const [name, filter, sub, none] = LISTS[member];
  return sheet(name, now[member].slice(0, 6), (s) => item(link(of(s.session_id), s.session_id), status(s.status),
    html`<div class="clip">${sub(s)}</div>`, bar(s.progress)), none, link(`/sessions?${filter}`, 'all'));
}

function spend({ spending }) {
  const found = Object.entries(spending).filter(([, usd]) => usd).sort((a, b) => b[1] - a[1]).slice(0, 12);
  return sheet('Spent by workflow', found, ([name, usd]) => item(link(`/sessions?workflow=${encodeURIComponent(name)}`, name), money(usd),
    bar({ done: usd, total: found[0][1] })), 'A step says what it costs with ctx.spend.');
}

export const view = (questions, page) => html`${hero(page)}<div class="cols"><div class="stack">${waiting(questions, page, true,
  html`<a href="#/inbox">all ${page.now.questions}</a>`)}${list(page.now, 'running')}</div>
  <div class="stack">${['failed', 'paused', 'waking'].map((each) => list(page.now, each))}${spend(page.now)}</div></div>`;
