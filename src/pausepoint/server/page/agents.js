// Agents: those at the gate; a run of an orchestrator with its button, agents, approvals and tasks, and the other runs.
import { html } from './marks.js';
import { get, of, post } from './api.js';
import { bar, item, PAUSE, PLAY, ROWS, sheet, status } from './shapes.js';
import { number, spent, time } from './words.js';
import { how, why } from './dialog.js';
import { question } from './inbox.js';
import { ask, can } from './verbs.js';

const EVERY = 1500;  // milliseconds between two readings of a run: its agents change it many times in a second
const ORDER = ['running', 'paused', 'waiting', 'failed', 'ready', 'blocked', 'completed', 'cancelled'];  // of tasks
const path = (id) => `/${encodeURIComponent(id)}`;

export const title = () => 'Agents';
export const topics = (route, { run }) => run ? [`session:${run.session_id}`] : [];

export async function load(route) {
  const [list, { agents }] = await Promise.all([get('/runs', { after: route.query.get('after') }), get('/agents')]);
  const id = route.path[1] ?? (list.runs.find((each) => each.phase) ?? list.runs[0])?.session_id;
  return { list, agents, run: id && await get('/runs' + path(id)) };
}

let due;
export function live(name, data, page) {
  due ??= setTimeout(() => { due = null; page.refresh(); }, EVERY);
  return true;
}

function button({ session_id, phase }, page) {
  const send = (verb, given) => page.act(() => post(`/runs${path(session_id)}/${verb}`, given), (run) => `The run is ${run.phase ?? run.status}. ${run.note}`);
  const pause = () => page.ask({
    title: `Pause ${session_id}`, say: 'Pause all agents', send: (given) => send('pause', given),
    body: () => html`<p class="dim">All agents stop at the next safe point. People can still answer questions.</p>${why}${how}`,
  });
  if (!phase || !page.may('operator')) return '';
  return phase === 'running' ? html`<button class="button-of-all" @click=${pause}>${PAUSE}Pause all agents</button>`
    : html`<button class="button-of-all go" @click=${() => send('resume')}>${PLAY}Resume all agents</button>`;
}

const agent = ({ id, task, since, last }) => html`<li class="fact clip"><b>${task ?? 'free'}</b>
  <span>${id} · ${time(since)}<br>${last.summary || last.event_type} · ${time(last.created_at)}</span></li>`;

const hero = (run, page) => html`<div class="hero ${run.phase?.startsWith('paus') ? 'still' : ''}"><div>
  <h1 class="mono"><a href="#${of(run.session_id)}">${run.session_id}</a></h1>
  <p>${status(run.phase ?? run.status, true)} ${run.reason && `“${run.reason}”.`} ${run.note}</p>
  <p>Tasks: ${[...Map.groupBy(run.tasks, standing(run))].map(([name, some]) => `${number(some.length)} ${name}`).join(', ')}. Spent: ${spent(run)}.</p>
  ${bar({ done: run.counts.done ?? 0, total: run.tasks.length })}
  <ul class="facts" aria-label="Agents">${run.agents.map(agent)}</ul></div>${button(run, page)}</div>`;

const standing = ({ phase }) => ({ status: word, question: asks, waits_for }) => {
  if (word === 'begun') return asks ? 'waiting' : phase === 'paused' ? phase : 'running';
  if (word === 'pending') return waits_for.length ? 'blocked' : 'ready';
  return { done: 'completed', skipped: 'cancelled' }[word] ?? word;
};

function task([word, { id, needs, waits_for, agent, note, began_at, ended_at }]) {
  const about = waits_for.length ? `blocked by ${waits_for.join(', ')}` : needs.length && `after ${needs.join(', ')}`;
  return item(id, status(word), html`${[about, agent, note].filter(Boolean).join(' · ')}${agent ? ' · ' : ''}${time(ended_at ?? began_at)}`);
}

// An agent at the gate: what it was told, what it waits for, and one button.
function gated(s, page) {
  const { call, background, prompt, folder, branch, terminal } = s.agent, held = s.status === 'paused', may = page.may('operator');
  return html`${item(html`<a class="mono" data-row href="#${of(s.session_id)}?tab=conversation">${s.session_id}</a>`, status(s.status),
    prompt && html`“${prompt}”`, call && html`waits to run <b class="mono">${call}</b>`, background && html`left running: ${background}`,
    html`${[terminal, branch, folder, s.spent_tokens && `${number(s.spent_tokens)} tokens`].filter(Boolean).map((each) => `${each} · `)}${time(s.updated_at)}`)}${
    may && can(s)[held ? 'resume' : 'pause'] ? html`<p class="pad"><button class="b tiny" @click=${() => ask(held ? 'resume' : 'pause', { s }, page)}>${held ?
      'Resume…' : 'Pause…'}<span class="unseen"> ${s.session_id}</span></button></p>` : ''}`;
}

const other = (run) => item(html`<a class="mono" data-row href="#/agents${path(run.session_id)}">${run.session_id}</a>`, status(run.phase ?? run.status),
  html`${run.owner ? `${run.owner} · ` : ''}${time(run.updated_at)} ${bar(run.progress)}`);

export function view({ list, run, agents }, page) {
  const none = html`A run of an <code>Orchestrator</code> appears here, with its agents, tasks and approvals.`;
  const runs = sheet('Runs', list.runs, other, none, list.next && html`<a href="#/agents?after=${encodeURIComponent(list.next)}">older</a>`);
  const gate = sheet('At the gate', agents, (s) => gated(s, page), html`An agent such as Claude Code appears here while <code>pausepoint gate serve</code> runs.`);
  if (!run) return html`<div class="top"><h1>Agents</h1></div><div class="stack">${gate}${runs}</div>`;
  const tasks = run.tasks.map((each) => [standing(run)(each), each]).sort(([one], [two]) => ORDER.indexOf(one) - ORDER.indexOf(two));
  return html`${hero(run, page)}<div class="cols"><div class="stack">
    ${run.questions.length ? sheet('Waits for approval', run.questions, (q) => question(q, page)) : ''}
    ${sheet('Tasks', tasks, task, '', `${number(Math.min(ROWS, tasks.length))} of ${number(tasks.length)}`)}</div><div class="stack">${gate}${runs}</div></div>`;
}
