// Now: what runs, what waits for people, what failed, what it costs, and the one button.
import { html, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';
import { get, act } from './api.js';
import { at, bar, status, PAUSE, PLAY } from './shapes.js';
import { counted, later, money, number, span, time } from './words.js';
import { how, why } from './dialog.js';
import { question } from './inbox.js';
import { tell } from './toast.js';

const SHOWN = 6;

export const title = () => 'Now';
export const topics = () => ['inbox'];
export const keys = { p: (page) => page.may('operator') && !page.data.now.standing_pause && pauseAll(page) };

export async function load(route, page) {
  const [now, inbox] = await Promise.all([get('/now'), page.may('answerer') ? get('/inbox', { sort: 'expires', limit: 3 }) : { questions: [] }]);
  return { now, questions: inbox.questions };
}

const of = (id) => `#/sessions/${encodeURIComponent(id)}`;

// The number of sessions with a status, over all workflows.
const count = (now, name) => Object.values(now.counts).reduce((sum, each) => sum + (each[name] ?? 0), 0);

export function view(d, page) {
  return html`${d.now.standing_pause ? standing(d.now, page) : hero(d.now, page)}
  <div class="cols"><div class="stack">${waits(d, page)}${running(d.now)}</div>
  <div class="stack">${failed(d.now)}${paused(d.now)}${waking(d.now)}${spend(d.now)}</div></div>`;
}

// the sentence, the six figures and the button

function facts(now) {
  const list = [
    [number(count(now, 'running') + count(now, 'pausing')), 'running'],
    [number(now.questions), now.questions === 1 ? 'open question' : 'open questions'],
    [number(count(now, 'sleeping')), 'sleeping'], [number(count(now, 'paused')), 'paused'],
    [number(now.failures ?? count(now, 'failed')), 'failed'], [money(now.spent_usd), 'spent by open sessions'],
  ];
  return html`<div class="facts">${list.map(([figure, what]) => html`<div class="fact"><b class="num">${figure}</b><span>${what}</span></div>`)}</div>`;
}

function hero(now, page) {
  const moving = count(now, 'running') + count(now, 'pausing'), bad = now.failures ?? count(now, 'failed');
  const says = moving ? `${counted(moving, 'session')} ${moving === 1 ? 'is' : 'are'} running` : now.questions || bad ? 'Nothing is running' : 'All is quiet';
  const asks = now.questions ? html`<a href="#/inbox">${counted(now.questions, 'question')}</a> for people. ` : nothing;
  const failures = bad ? html`<a href="#/sessions?failed=true">${counted(bad, 'session')} failed</a> and can be resumed at the failed step.` : nothing;
  const idle = !moving && !bad && !now.questions ? html`Start a session with <code>pausepoint run</code>, or from your own program.` : nothing;
  return html`<section class="hero" aria-label="At a glance"><div><h1>${says}</h1><p>${asks}${failures}${idle}${moving && !bad ? 'Nothing failed.' : nothing}</p>${facts(now)}</div>
    ${page.may('operator') ? html`<button class="button-of-all" @click=${() => pauseAll(page)} aria-keyshortcuts="p">${PAUSE}<span>Pause everything<small>at the next safe point</small></span></button>` : nothing}</section>`;
}

function standing(now, page) {
  const p = now.standing_pause, rest = p.finishing ?? [];
  const reason = p.reason ? html`: “${p.reason}”` : '.';
  return html`<section class="hero still" aria-label="Pause of everything"><div><h1>Everything is paused</h1>
    <p><b>${p.by ?? 'Unknown'}</b> paused it ${time(p.created_at)}${reason}</p>
    <p>${rest.length ? html`${p.stopped} of ${counted(p.asked, 'running session')} stopped. Still finishing:` : stopped(p)}</p>
    ${rest.length ? html`<ul class="finishing">${rest.slice(0, SHOWN).map((each) => html`<li><a class="mono" href=${of(each.session_id)}>${each.session_id}</a> ${each.operation ?? each.step}, since ${time(each.since)}</li>`)}${rest.length > SHOWN ? html`<li>${counted(rest.length - SHOWN, 'more session')}</li>` : nothing}</ul>` : nothing}
    ${facts(now)}</div>
    ${page.may('operator') ? html`<button class="button-of-all go" @click=${() => lift(page)}>${PLAY}<span>Resume<small>from exactly there</small></span></button>` : nothing}</section>`;
}

function stopped(p) {
  if (!p.asked) return 'Nothing was running. New sessions are stored and stay paused.';
  const took = p.longest_seconds == null ? '' : ` after ${span(p.longest_seconds)}`;
  return `${p.asked === 1 ? 'The running session' : `All ${number(p.asked)} running sessions`} stopped${took}. New sessions are stored and stay paused.`;
}

function pauseAll(page) {
  const n = count(page.data.now, 'running');
  page.ask({
    title: 'Pause everything', say: 'Pause everything',
    body: () => html`<p class="dim">${n ? `${counted(n, 'running session')} will stop at the next safe point, in every process.` : 'Nothing is running.'} New sessions are stored and stay paused. People can still answer questions.</p>${why}${how}`,
    send: async (given) => { await act('PUT', '/standing-pause', given); tell('Everything is paused.'); await page.load(); },
  });
}

const lift = (page) => page.act(() => act('DELETE', '/standing-pause'), 'The pause is lifted. Sessions continue where they stopped.');

// lists

const row = (s, sub) => html`<li><a class="item" href=${of(s.session_id)} data-row><span class="name mono clip">${s.session_id}</span>${status(s.status)}<span class="sub clip">${sub}</span></a></li>`;

function sheet(name, list, total, draw, none, more) {
  return html`<section class="sheet" aria-label=${name}><header><h2>${name}</h2>${total ? html`<span class="dim small num">${number(total)}</span>` : nothing}<a class="more dim small" href=${more}>all</a></header>
    ${list.length ? html`<ul>${repeat(list.slice(0, SHOWN), (s) => s.session_id, draw)}</ul>` : html`<p class="empty">${none}</p>`}</section>`;
}

function waits(d, page) {
  const more = d.now.questions - d.questions.length;
  return html`<section class="sheet" aria-label="Questions for people"><header><h2>Questions for people</h2>${d.now.questions ? html`<span class="dim small num">${number(d.now.questions)}</span>` : nothing}<a class="more dim small" href="#/inbox">inbox</a></header>
    ${d.questions.length ? repeat(d.questions, (q) => q.id, (q) => question(q, page, true)) : html`<p class="empty"><b>No open question</b>When a step calls <code>ctx.ask</code>, its question appears here, with a form to answer.</p>`}
    ${more > 0 ? html`<footer><a href="#/inbox">${counted(more, 'more question')}</a></footer>` : nothing}</section>`;
}

function running(now) {
  const draw = (s) => html`<li><a class="item" href=${of(s.session_id)} data-row><span class="name mono clip">${s.session_id}</span>${status(s.status)}
    <span class="sub row"><span class="clip grow">${s.workflow} · ${at(s)}${s.progress ? ` · ${number(s.progress.done)} of ${number(s.progress.total)}` : ''}</span><span class="num">${money(s.spent_usd)}${s.budget_usd ? ` of ${money(s.budget_usd)}` : ''}</span></span>${bar(s.progress)}</a></li>`;
  return sheet('Running', now.running, count(now, 'running') + count(now, 'pausing'), draw, html`<b>Nothing is running</b>Sessions that a process drives appear here.`, '#/sessions?status=running,pausing');
}

const failed = (now) => sheet('Failed', now.failed, now.failures ?? count(now, 'failed'), (s) => row(s, `${s.failure.step}: ${s.failure.type}: ${s.failure.message.split('\n')[0]}`), 'Nothing failed.', '#/sessions?failed=true');

const paused = (now) => sheet(now.standing_pause ? 'Also paused individually' : 'Paused', now.paused, now.standing_pause ? now.paused.length : count(now, 'paused'), (s) => row(s, pauseOf(s.pause)), 'No session is paused individually.', '#/sessions?status=paused');

export const pauseOf = (pause) => pause ? `${pause.kind}${pause.by ? ` by ${pause.by}` : ''}: ${pause.reason || 'no reason given'}` : '';

const waking = (now) => sheet('Wakes next', now.waking, count(now, 'sleeping'), (s) => row(s, html`${s.workflow} · ${later(s.wakes_at)}`), 'No timer runs.', '#/sessions?status=sleeping');

function spend(now) {
  const list = Object.entries(now.spent ?? {}).filter(([, usd]) => usd).sort((a, b) => b[1] - a[1]), most = list[0]?.[1];
  return html`<section class="sheet" aria-label="Spent by workflow"><header><h2>Spent by workflow</h2></header>
    ${list.length ? html`<div class="spend">${list.slice(0, 12).map(([name, usd]) => html`<span class="clip">${name}</span><span class="track"><svg aria-hidden="true"><rect width="${100 * usd / most}%" height="8" rx="4"/></svg></span><span class="num r">${money(usd)}</span>`)}</div>` : html`<p class="empty">A step says what it costs with <code>ctx.spend</code>.</p>`}</section>`;
}
