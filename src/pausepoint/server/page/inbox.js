// Inbox: what sessions ask people, each with the form that its answer needs.
import { html, marked } from './marks.js';
import { get, HERE, of, post, Problem } from './api.js';
import { approval, isApproval } from './approval.js';
import { item, sheet } from './shapes.js';
import { ago, later, left, shown } from './words.js';
import { drawn, readValue } from './form.js';
import { tell } from './toast.js';

const CLOSED = { RESUMED: 'answered', COMPLETED: 'answered', EXPIRED: 'expired', CANCELLED: 'cancelled' };
const refusals = new Map(), sent = new Map();  // by question: the last refusal, and the last answer

export const title = () => 'Inbox';
export const topics = (route, { only, done }) => only || done ? ['inbox'] : [];  // an answer link ends with its question

// Open questions. The one that a person is answering stays, even if another person was faster.
export async function asked(query, former = []) {
  const { questions, next } = await get('/inbox', { sort: 'expires', ...query }), typed = document.activeElement.closest('form.f')?.dataset.id;
  const kept = former.filter((q) => (CLOSED[q.status] || q.id === typed) && questions.every((each) => each.id !== q.id));
  return { questions: [...await Promise.all(kept.map((q) => get(`/inbox/${q.id}`))), ...questions], next };
}

export async function load({ path, query }, page) {
  const id = page.me.question ?? path[1];
  if (id) return { only: await get(`/inbox/${id}`).catch((problem) => { if (problem.status !== 410) throw problem; }) };
  const [open, { questions: done }] = await Promise.all([asked({ after: query.get('after') }, page.data?.questions),
    get('/inbox', { status: Object.keys(CLOSED), sort: 'updated', limit: 12 })]);
  return { ...open, done };
}

// A question that is asked again begins with the former answer.
const schemaOf = (q) => ({ ...q.answer_schema, default: sent.get(q.id) ?? q.default ?? undefined });

async function send(event, q, page) {
  event.preventDefault();
  const { target, submitter } = event;
  refusals.delete(q.id);
  try {
    const value = q.kind === 'confirm' ? { approved: submitter.value === 'yes', reason: target.elements.reason.value } : readValue(q.id, schemaOf(q), target);
    await post(`/inbox/${q.id}/answer`, { value, seen: q.digest });
    sent.set(q.id, value);
    document.activeElement.blur();
    tell('The answer is sent.');
    if (page.me.question) await new Promise((done) => setTimeout(done, 1500));  // the step may ask again
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (!problem.status) tell(problem.message, true);
    else refusals.set(q.id, { text: problem.by ? `${problem.by} was faster and has answered this question.` : problem.message, field: problem.field });
  }
  await page.load();
  target.querySelector(':has(> .err) :is(input, textarea, select)')?.focus();
}

// "No" comes first, so the Enter key after a reason never says yes.
const form = (q, page, refusal) => html`<form class="f" data-id=${q.id} @submit=${(event) => send(event, q, page)}>${q.kind === 'confirm' ?
  html`<label class="field"><span class="label">Reason, if the answer is no</span><input class="in" name="reason"></label>
    <div class="row"><button class="b bad">No</button><button class="b main" value="yes">Yes, do it</button></div>` :
  html`${drawn(q.id, schemaOf(q), refusal, () => page.draw())}<div><button class="b main">Answer</button></div>`}</form>`;

const known = (name, value, unfold) => value == null ? '' : html`<details class="known" ?open=${!unfold} @toggle=${unfold}><summary>${name}</summary><pre
  class="mono" tabindex="0" .textContent=${marked(shown(value))}></pre></details>`;

// Only a single question comes with its state.
async function showState({ target }, id) {
  const found = await get(`/inbox/${id}`).catch(tell);
  if (found) target.lastChild.textContent = marked(shown(JSON.parse(found.context_json)));
}

// Make an answer link, and show it once. Without a lock on the connection a browser does not let a page copy.
const SPANS = { '1 hour': 3600, '1 day': 86_400, '7 days': 604_800, '30 days': 2_592_000 };

const made = ({ address, expires_at }) => ({
  title: 'Answer link',
  body: () => html`<label class="field">Copy the link. It is shown only once.<input class="in mono" readonly .value=${address}
      @focus=${(event) => event.target.select()}></label>${navigator.clipboard ? html`<div><button class="b" type="button"
      @click=${() => navigator.clipboard.writeText(address).then(() => tell('The link is copied.'), (error) => tell(error.message, true))}>Copy</button></div>` : ''}
    <p class="dim">Whoever has it can see and answer this question, and nothing else. It ends ${later(expires_at)}, or when the question is answered.${
      /^(localhost|127[.]|\[::1\])/.test(location.hostname) ? ` It works on this computer only, because you have opened the page at ${location.host}.` : ''}</p>`,
});

const link = (q, page) => page.ask({
  title: 'Make an answer link', say: 'Make the link',
  body: () => html`<p class="dim">A link with which one person answers this question, without an account: “${q.next_question}”</p>
    <label class="field">Who answers<input class="in" name="name" maxlength="100" placeholder="The history names this person, and you" autocomplete="off"></label>
    <label class="field">The link ends after<select class="in" name="seconds">${Object.entries(SPANS).map(([text, seconds]) =>
      html`<option value=${seconds} ?selected=${text === '7 days'}>${text}</option>`)}</select></label>`,
  send: async ({ name, seconds }) => page.ask(made(await post(`/inbox/${q.id}/link`, { name, seconds: Number(seconds), url: HERE }))),
});

// `isBrief`: a form with several fields is folded.
export function question(q, page, isBrief) {
  const { id, status, next_question, current_round: round, pending_tool_name: tool, collected_params_json: collected, expired_at } = q;
  const session = q.sub_chain_id ?? q.session_id, closed = CLOSED[status], refusal = refusals.get(id) ?? { text: closed ? '' : q.complaint };
  const facts = [q.workflow_id, q.llm_node_id, `asked ${ago(q.created_at)}`, tool && `tool ${tool}`, round > 1 && `round ${round} of ${q.max_rounds}`,
    closed ?? (expired_at && left(expired_at)), q.receipt?.by && `by ${q.receipt.by}`];
  const fields = closed || !page.may('answerer') ? '' : form(q, page, refusal);
  const size = q.kind === 'confirm' ? 1 : Object.keys(q.answer_schema?.properties ?? {}).length;
  return html`<article class="q" data-row tabindex="-1" aria-label=${next_question}><h2 class="ask">${next_question}</h2><div class="where">${page.me.question ?
    '' : html`<a class="mono" href="#${of(session)}">${session}</a>`}<span>${facts.filter(Boolean).join(' · ')}</span>${
    closed || page.me.question || !page.may('operator') ? '' : html`<button class="b tiny quiet more" @click=${() => link(q, page)}>Share…</button>`}</div>
    ${refusal.text && refusal.field == null ? html`<p class="note bad" role="alert">${refusal.text}</p>` : ''}
    ${isApproval(q.payload) ? approval(q, page) : known('Details', q.payload)}${known('Collected so far', collected && JSON.parse(collected))}
    ${isBrief ? '' : known('What the step knew', '', (event) => showState(event, id))}
    ${isBrief && size > 1 ? html`<details class="fill"><summary class="b">Fill in ${size} fields…</summary>${fields}</details>` : fields}</article>`;
}

// the screen

const closed = (q) => item(html`<a data-row href="#/inbox/${q.id}">${q.next_question}</a>`, CLOSED[q.status],
  [q.session_id, q.receipt?.by, ago(q.updated_at)].filter(Boolean).join(' · '));

export const waiting = (questions, page, isBrief, more) => sheet('Open questions', questions, (q) => question(q, page, isBrief),
  'No open question. When a step calls ctx.ask, its question appears here.', more);

export function view({ questions, next, done, only }, page) {
  if (only) return html`<div class="top"><h1>Question</h1></div><section class="sheet">${question(only, page)}</section>`;
  if (!done) return html`<h1>${sent.has(page.me.question) ? 'Thank you' : 'This question is closed'}</h1><p>You can close this page.</p>`;
  return html`<div class="top"><h1>Inbox</h1></div><div class="cols">${waiting(questions, page, false,
    next && html`<a href="#/inbox?after=${encodeURIComponent(next)}">next page</a>`)}${sheet('Recently closed', done, closed, 'No question was closed yet.')}</div>`;
}
