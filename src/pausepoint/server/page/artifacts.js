// The tab Artifacts: the files that the steps published, and what a person has changed in them.
import { html, nothing } from './vendor/lit-html.js';
import { address, content, get, of, post } from './api.js';
import { size } from './words.js';
import { table } from './shapes.js';
import { why } from './dialog.js';
import { tell } from './toast.js';
import { diff } from './diff.js';

const TEXT = 1_000_000;
const SHAPES = { valid: 'completed', edited: 'waiting', invalid: 'failed', missing: 'failed', stale: 'paused' };
const VERBS = [
  ['adopt', 'Adopt', 'The present content becomes part of the session. Steps that read it run again with the next resume.'],
  ['restore', 'Restore', 'The recorded content replaces the present one, which is kept in the folder .pausepoint/bin.'],
];

const base = ({ s }) => of(s.session_id) + '/artifacts';
const path = (d, file, version) => `${base(d)}/${file.split('/').map(encodeURIComponent).join('/')}?version=${version}`;

// The recorded and the present content of the chosen file. One that is missing has none.
export async function load(d) {
  const { artifacts, refused } = await get(base(d)).catch((problem) => ({ refused: problem.message }));
  const chosen = artifacts?.find((each) => each.path === d.query.get('file'));
  const texts = chosen?.size < TEXT && await Promise.all(['recorded', 'present'].map((version) => content(path(d, chosen.path, version)).catch(() => '')));
  return { artifacts, refused, chosen, texts };
}

const act = (d, page, file, [verb, say, text]) => html`<button class="b tiny" @click=${() => page.ask({
  title: `${say} ${file}`, say, body: () => html`<p class="dim">${text}</p>${why}`,
  send: async ({ reason = '' }) => {
    const { stale = [] } = await post(`${base(d)}/${verb}`, { paths: [file], reason });
    tell(`Done. ${stale.length ? `Will run again: ${stale.map((each) => each.step).join(', ')}.` : ''}`);
    await page.load();
  },
})}>${say}…</button>`;

const compared = (d, { path: file }) => html`<tr><td colspan="3" class="whole"><b class="small">Recorded against present</b> <a class="b tiny"
  href=${address(path(d, file, 'recorded'))} download>Download recorded</a><pre class="trace diff" tabindex="0">${!d.texts ?
    'The file is too large to compare here. Download both.' : d.texts[0] === d.texts[1] ? 'The content is the same.' : diff(...d.texts)}</pre></td></tr>`;

function row(d, page, each) {
  const isChosen = d.chosen === each, isOther = ['edited', 'invalid', 'missing'].includes(each.state);
  return html`<tr data-row><td><a class="mono" href=${address(path(d, each.path, 'present'))} download>${each.path}</a><div
    class="dim small">${each.step} · ${size(each.size)}</div></td><td><span class="st ${SHAPES[each.state]}">${each.state}</span><div
      class="dim small">${each.by ? `adopted from ${each.by} ` : ''}${each.why}</div></td><td><span class="row end">${isOther || isChosen ?
        html`<a class="b tiny" href=${d.to({ file: isChosen ? '' : each.path })} aria-expanded=${isChosen}>Compare</a>` : nothing}${isOther &&
          page.may('operator') ? VERBS.map((verb) => act(d, page, each.path, verb)) : nothing}</span></td></tr>${isChosen ? compared(d, each) : nothing}`;
}

export function view(d, page) {
  if (d.artifacts?.length) return table([['File'], ['Condition'], [html`<span class="unseen">Verbs</span>`]], d.artifacts, 'path', (each) => row(d, page, each));
  return html`<p class="empty"><b>It has no artifacts</b>${d.refused ?? html`A step publishes files with
    <code>@step(publishes=Artifact("draft.md"))</code>.`}</p>`;
}
