// The tab Output: what the steps stream while they run, such as the tokens of a model. It is kept for a while only.
import { html, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';

const MOST = 64 * 1024, BLOCKS = 100;

let kept = { id: '', last: 0, blocks: [] };  // a block is the text of one source

// Take in an item. One that comes again, after a new connection, is left out.
export function heard({ session_id, agent_name, event_type, data }) {
  if (kept.id !== session_id) kept = { id: session_id, last: 0, blocks: [] };
  if (data.n <= kept.last) return true;
  kept.last = data.n;
  if (event_type === 'stream.restarted') kept.blocks = kept.blocks.filter((each) => !data.sources.includes(each.source));
  else if (event_type === 'stream.gap') add({ source: null, n: data.n, name: `${data.lost} parts were lost` }, '');
  else add({ source: data.source, n: data.n, name: [agent_name, data.operation].filter(Boolean).join(' · '), attempt: data.attempt }, data.text ?? '(bytes)\n');
  return true;
}

function add(block, text) {
  let last = kept.blocks.at(-1);
  if (!last || last.source !== block.source || last.name !== block.name) kept.blocks.push(last = { ...block, text: '' });
  last.text = (last.text + text).slice(-MOST);
  if (kept.blocks.length > BLOCKS) kept.blocks.shift();
}

const block = (each) => html`<div><span class="dim small">${each.name}${each.attempt > 1 ? `, attempt ${each.attempt}` : ''}</span><pre
  class="stream">${each.text}</pre></div>`;

export function view(d) {
  const blocks = kept.id === d.s.session_id ? kept.blocks : [];
  if (!blocks.length) return html`<p class="empty"><b>No output</b>${['running', 'pausing'].includes(d.s.status) ? 'Text that a step sends with ' :
    'While the session runs, text that a step sends with '}<code>ctx.stream</code> appears here at once.</p>`;
  return html`<div class="scroll tail" tabindex="0" role="log" aria-label="Output"
    aria-live="off"><div>${repeat(blocks, (each) => each.n, block)}</div></div>${nothing}`;
}
