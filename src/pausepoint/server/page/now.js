// Now: what runs, what waits for people, what failed, what it costs, and the one button.
import { html, nothing } from './vendor/lit-html.js';
import { act, of } from './api.js';
import { at, bar, status, PAUSE, PLAY } from './shapes.js';
import { counted, later, money, number, span, time } from './words.js';
import { how, why } from './dialog.js';
import { asked, item, question, sheet } from './inbox.js';

const SHOWN = 6;

export const title = () => 'Now';
export const topics = () => ['inbox'];
export const keys = { p: (page) => mayPause(page) && !page.now.standing_pause && pauseAll(page) };
export const load = async (route, page) => page.may('answerer') ? (await asked({ limit: 3 }, page.data ?? [])).questions : [];

const sum = (figures) => Object.values(figures).reduce((all, each) => all + each, 0);
const count = ({ counts }, ...names) => sum(Object.values(counts).flatMap((each) => names.map((name) => each[name] ?? 0)));

// the sentence, the six figures and the button

const mayPause = (page) => page.may('operator') && !page.me.owner;

function hero(page) {
  const { now } = page, { standing_pause: pause, questions } = now, running = count(now, 'running', 'pausing'), failed = sum(now.failures);
  const figures = [[running, 'running'], [questions, 'open questions'], [count(now, 'sleeping'), 'sleeping'], [count(now, 'paused'), 'paused'], [failed, 'failed']];
  const says = running ? `${counted(running, 'session')} ${running === 1 ? 'is' : 'are'} running` : 'Nothing is running';
  const [act, shape, name, where] = pause ? [lift, PLAY, 'Resume', 'from exactly there'] : [pauseAll, PAUSE, 'Pause everything', 'at the next safe point'];
  return html`<section class="hero ${pause ? 'still' : ''}" aria-label="At a glance"><div><h1>${pause ? 'Everything is paused' : says}</h1>${pause ? standing(pause) :
    html`<p><a href="#/inbox">${counted(questions, 'question')}</a> for people. <a href="#/sessions?failed=true">${counted(failed, 'session')} failed.</a></p>`}
    <div class="facts">${[...figures.map(([n, what]) => [number(n), what]), [money(now.spent_usd), 'spent']].map(([figure, what]) =>
      html`<div class="fact"><b class="num">${figure}</b><span>${what}</span></div>`)}</div></div>
    ${mayPause(page) ? html`<button class="button-of-all ${pause ? 'go' : ''}" @click=${() => act(page)}>${shape}<span>${name}<small>${where}</small></span></button>` :
      nothing}</section>`;
}

// A person with an owner does not learn how the pause took effect.
function standing({ by, reason, created_at, mode, freeze, asked, stopped, finishing = [], longest_seconds }) {
  const effect = finishing.length ? `${stopped} of ${counted(asked, 'running session')} stopped. Still finishing:` :
    asked ? `${counted(asked, 'running session')} stopped after ${span(longest_seconds ?? 0)}.` : '';
  return html`<p><b>${by ?? 'Unknown'}</b> paused it ${time(created_at)}${reason ? `: “${reason}”` : '.'}${mode === 'abort' ? ' Operations were aborted.' : ''}${
    freeze ? ' Timers are frozen.' : ''} New sessions are stored and stay paused.</p><p>${effect}</p><ul class="finishing">${finishing.slice(0, SHOWN).map((each) =>
    html`<li><a class="mono" href="#${of(each.session_id)}">${each.session_id}</a> ${each.operation ?? each.step}, since ${time(each.since)}</li>`)}</ul>`;
}

function pauseAll(page) {
  page.ask({
    title: 'Pause everything', say: 'Pause everything',
    body: () => html`<p class="dim">${counted(count(page.now, 'running'), 'running session')} will stop at the next safe point, in every process. New sessions are
      stored and stay paused. People can still answer questions. Others see that ${page.me.name} paused it.</p>${why}${how}`,
    send: (given) => page.act(() => act('PUT', '/standing-pause', given), 'Everything is paused.'),
  });
}

const lift = (page) => page.act(() => act('DELETE', '/standing-pause'), 'The pause is lifted. Sessions continue where they stopped.');

// lists

const paid = (s) => `${money(s.spent_usd)}${s.budget_usd ? ` of ${money(s.budget_usd)}` : ''}`;
const done = ({ progress }) => progress ? ` · ${number(progress.done)} of ${number(progress.total)}` : '';

// member of `/now` → name, filter of the sessions, the second line of a row, and what is said if there is no row
const LISTS = {
  running: ['Running', 'status=running,pausing', (s) => `${s.workflow} · ${at(s)}${done(s)} · ${paid(s)}`, 'Nothing is running. Start a session with pausepoint run.'],
  failed: ['Failed', 'failed=true', ({ failure }) => `${failure.step}: ${failure.type}: ${failure.message.split('\n')[0]}`, 'Nothing failed.'],
  paused: ['Paused individually', 'status=paused', ({ pause }) => `${pause.kind}${pause.by ? ` by ${pause.by}` : ''}: ${pause.reason || 'no reason given'}`,
    'No session is paused individually.'],
  waking: ['Wakes next', 'status=sleeping', (s) => html`${s.workflow} · ${s.waiting.includes('answer') ? 'its question expires' : 'wakes'} ${later(s.wakes_at)}`,
    'No timer runs.'],
};

function list(now, member) {
  const [name, filter, sub, none] = LISTS[member];
  const draw = (s) => item(of(s.session_id), s.session_id, status(s.status), sub(s), bar(s.progress));
  return sheet(name, now[member].slice(0, SHOWN), draw, none, html`<a class="more dim small" href="#/sessions?${filter}">all</a>`);
}

function spend({ spending }) {
  const found = Object.entries(spending).filter(([, usd]) => usd).sort((a, b) => b[1] - a[1]).slice(0, 12);
  return sheet('Spent by workflow', found, ([name, usd]) => html`<div class="spend"><span class="clip">${name}</span><span class="num r">${money(usd)}</span>${
    bar({ done: usd, total: found[0][1] })}</div>`, 'A step says what it costs with ctx.spend.');
}

export function view(questions, page) {
  const { now } = page, more = now.questions - questions.length;
  return html`${hero(page)}<div class="cols"><div class="stack">${sheet('Questions for people', questions, (q) => question(q, page, true),
    'No open question. When a step calls ctx.ask, its question appears here.',
    html`<a class="more dim small" href="#/inbox">${more > 0 ? `${more} more` : 'inbox'}</a>`)}${list(now, 'running')}</div>
    <div class="stack">${['failed', 'paused', 'waking'].map((each) => list(now, each))}${spend(now)}</div></div>`;
}
