// Inbox: what sessions ask people, each with the form that its answer needs.
import { html, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';
import { get, post, Problem } from './api.js';
import { left, shown, time } from './words.js';
import { fields, read } from './form.js';
import { tell } from './toast.js';

const OPEN = 'WAITING_USER_INPUT', LATELY = 12;

export const title = () => 'Inbox';
export const topics = () => ['inbox'];

const refusals = new Map();  // question → { text, field } of the answer that was refused last

export async function load({ path, query }) {
  if (path[1]) return { only: await get(`/inbox/${encodeURIComponent(path[1])}`) };
  const [open, done] = await Promise.all([
    get('/inbox', { sort: 'expires', workflow: query.get('workflow'), after: query.get('after') }),
    get('/inbox', { status: 'RESUMED,COMPLETED,EXPIRED,CANCELLED', sort: 'updated', limit: LATELY }),
  ]);
  return { open, done };
}

// one question

async function send(q, page, form, approved) {
  if (!form.reportValidity()) return;
  let value;
  try {
    value = read(form, q, approved);
  } catch (error) {
    return refuse(q, page, { text: error.message, field: error.field });
  }
  try {
    await post(`/inbox/${encodeURIComponent(q.id)}/answer`, { value, seen: q.digest });
    refusals.delete(q.id);
    tell(`Answered. ${q.session_id} continues.`);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    refuse(q, page, { text: late(problem), field: problem.field });
  }
  await page.load();
}

const late = (problem) => problem.type?.endsWith('answer-conflict') && problem.by ? `${problem.by} was faster and has answered this question.` : problem.message;

function refuse(q, page, refusal) {
  refusals.set(q.id, refusal);
  page.draw();
}

const parsed = (text) => { try { return JSON.parse(text); } catch { return text; } };

function known(name, text) {
  return text ? html`<details class="known"><summary>${name}</summary><pre class="mono" tabindex="0">${shown(parsed(text))}</pre></details>` : nothing;
}

function confirmed(q) {
  if (q.kind !== 'confirm' || q.payload == null) return nothing;
  return html`<pre class="payload mono" tabindex="0" aria-label="What would be done">${shown(q.payload)}</pre>`;
}

const facts = (q) => html`<div class="where"><a class="mono" href="#/sessions/${encodeURIComponent(q.sub_chain_id ?? q.session_id)}">${q.sub_chain_id ?? q.session_id}</a>
  <span>${q.workflow_id} · ${q.llm_node_id}</span><span>asked ${time(q.created_at)}</span>
  ${q.expired_at && q.status === OPEN ? html`<span class=${Date.parse(q.expired_at) - Date.now() < 3.6e6 ? 'urgent' : ''}>${left(q.expired_at)}</span>` : nothing}
  ${q.current_round > 1 ? html`<span>round ${q.current_round} of ${q.max_rounds}</span>` : nothing}${q.pending_tool_name ? html`<span>tool ${q.pending_tool_name}</span>` : nothing}</div>`;

function form(q, page) {
  const refusal = refusals.get(q.id), isConfirm = q.kind === 'confirm';
  return html`<form class="f" @submit=${(event) => { event.preventDefault(); send(q, page, event.target, true); }}>
    ${fields(q, refusal, () => page.draw())}
    <div class="row"><button class="b main">${isConfirm ? 'Yes, do it' : 'Answer'}</button>${isConfirm ? html`<button class="b bad" type="button" @click=${(event) => send(q, page, event.target.form, false)}>No</button>` : nothing}<span class="dim small">as ${page.me.name}</span></div></form>`;
}

// `brief`: a form with several fields is folded.
export function question(q, page, brief = false) {
  const refusal = refusals.get(q.id), complaint = refusal && !refusal.field ? refusal.text : q.complaint;
  const several = Object.keys(q.answer_schema?.properties ?? {}).length;
  return html`<article class="q" data-row tabindex="-1" aria-label=${q.next_question}><h3 class="ask">${q.next_question}</h3>${facts(q)}
    ${complaint ? html`<div class="note bad" role="alert"><p>${complaint}</p></div>` : nothing}
    ${confirmed(q)}${known('Collected so far', q.collected_params_json)}${brief ? nothing : known('What the step knew', q.context_json)}
    ${q.status !== OPEN ? answered(q) : !page.may('answerer') ? nothing : brief && several > 1 && q.kind !== 'confirm' ? html`<details class="fill"><summary class="b">Fill in ${several} fields…</summary>${form(q, page)}</details>` : form(q, page)}</article>`;
}

const WORDS = { RESUMED: 'answered', COMPLETED: 'completed', EXPIRED: 'expired', CANCELLED: 'cancelled' };
const answered = (q) => html`<p class="dim">This question is ${WORDS[q.status]}${q.receipt?.by ? html` by <b>${q.receipt.by}</b> ${time(q.receipt.answered_at)}` : nothing}.</p>`;

// the screen

export function view(d, page) {
  if (d.only) return html`<div class="top"><h1>Question</h1></div><section class="sheet">${question(d.only, page)}</section>`;
  const { questions, next } = d.open;
  return html`<div class="top"><div><h1>Inbox</h1><p class="dim">What sessions ask people. An answer counts once, for exactly the question that you see.</p></div></div>
  <div class="cols"><section class="sheet" aria-label="Open questions">
    ${questions.length ? repeat(questions, (q) => q.id, (q) => question(q, page)) : html`<p class="empty"><b>No open question</b>When a step calls <code>ctx.ask</code>, its question appears here at once.</p>`}
    ${next ? html`<footer><a href="#/inbox?after=${encodeURIComponent(next)}">Next page</a></footer>` : nothing}</section>
  <section class="sheet" aria-label="Recently closed"><header><h2>Recently closed</h2></header>${d.done.questions.length ? html`<ul>${d.done.questions.map(closed)}</ul>` : html`<p class="empty">No question was closed yet.</p>`}</section></div>`;
}

const closed = (q) => html`<li><a class="item" href="#/inbox/${encodeURIComponent(q.id)}" data-row><span class="name clip">${q.next_question}</span><span class="small dim">${WORDS[q.status]}</span><span class="sub clip">${q.receipt?.by ? `${q.receipt.by} · ` : ''}${q.session_id} · ${time(q.updated_at)}</span></a></li>`;
