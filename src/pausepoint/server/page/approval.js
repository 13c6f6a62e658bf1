// A call of an agent that needs an approval: everything that would run, with the words that made it restricted. The gate
// sends the pieces of the short form; the whole is one click away.
import { html } from './marks.js';
import { counted } from './words.js';

const opened = new Set();  // parts that a person has unfolded

const piece = ([kind, text]) => kind === 'match' ? html`<mark>${text}</mark>` : kind === 'fold' ? html`<b class="gap">${text}</b>` : text;

// Positions count characters as Python does, not the halves of pairs.
function whole({ text, spans = [] }) {
  const chars = [...text], pieces = [];
  let at = 0;
  for (const [begin, end] of spans) {
    if (begin < at) continue;
    pieces.push(['', chars.slice(at, begin).join('')], ['match', chars.slice(begin, end).join('')]);
    at = end;
  }
  return [...pieces, ['', chars.slice(at).join('')]];
}

const KINDS = { '+': 'added', '-': 'removed', '@': 'dim' };
const lines = (text) => text.split('\n').map((line) => html`<span class="line ${KINDS[line[0]] ?? ''}">${line || ' '}</span>`);
const drawn = (part, pieces) => html`<pre class="call mono" tabindex="0" aria-label=${part.title}>${part.kind === 'diff' ?
  lines(pieces.map(([, text]) => text).join('')) : pieces.map(piece)}</pre>`;

function unfold({ target }, key, page) {
  if (target.open === opened.has(key)) return;
  opened[target.open ? 'add' : 'delete'](key);
  page.draw();
}

function part(it, key, page) {
  const { title, text = '', note, folded, omitted } = it, isOpen = opened.has(key);
  return html`<h3>${title}${note ? html`<span class="dim">: ${note}</span>` : ''}</h3>${omitted ? html`<p class="note bad" role="alert">${
    counted(omitted, 'byte')} of it are missing in this question, so nobody can check them here.</p>` : ''}${!text ? '' : folded ?
    html`${isOpen ? '' : drawn(it, folded)}<details class="known" ?open=${isOpen} @toggle=${(event) => unfold(event, key, page)}><summary>${isOpen ? 'Fold it again' :
      `Show all: ${counted(text.split('\n').length, 'line')}, ${counted([...text].length, 'character')}`}</summary>${isOpen ? drawn(it, whole(it)) : ''}</details>` :
    drawn(it, whole(it))}`;
}

export const isApproval = (payload) => payload?.approval === 1 && Array.isArray(payload.parts);

export function approval({ id, payload: { tool, folder, agent, restricted = [], parts } }, page) {
  const rules = html`${tool}, restricted (<mark>${restricted.join(', ')}</mark>)`;
  return html`<div class="approval"><dl class="kv plain"><dt>Tool</dt><dd>${rules}</dd><dt>Folder</dt><dd class="mono">${folder}</dd><dt>Agent</dt><dd>${
    agent}</dd></dl>${parts.map((one, n) => part(one, `${id} ${n}`, page))}</div>`;
}
