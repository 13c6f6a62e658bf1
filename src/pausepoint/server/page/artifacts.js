// The tab Artifacts: the files that the steps published.
import { html } from './marks.js';
import { address, content, get, of, post } from './api.js';
import { size } from './words.js';
import { table } from './shapes.js';
import { why } from './dialog.js';
import { diff } from './diff.js';
import { tell } from './toast.js';

const SHAPES = { valid: 'completed', edited: 'waiting', invalid: 'failed', missing: 'failed', stale: 'paused' };
const VERBS = {
  Adopt: ['adopted', 'The session takes the present content. Steps that read it run again with the next resume.'],
  Restore: ['restored', 'The recorded content replaces the present one, which is kept in .pausepoint/bin.'],
};

const base = ({ s }) => of(s.session_id) + '/artifacts';
const path = (d, file, version) => `${base(d)}/${file.split('/').map(encodeURIComponent).join('/')}?version=${version}`;

export async function load(d) {
  const { artifacts, refused } = await get(base(d)).catch((problem) => ({ refused: problem.message }));
  const chosen = artifacts?.find((each) => each.path === d.query.get('file'));
  const texts = chosen?.size < 1e6 && await Promise.all(['recorded', 'present'].map((version) => content(path(d, chosen.path, version)).catch(() => '')));
  return { artifacts, refused, chosen, texts };
}

const act = (d, page, file, [say, [past, text]]) => html`<button class="b tiny" @click=${() => page.ask({
  title: `${say} ${file}`, say, body: () => html`<p class="dim">${text}</p>${why}`,
  send: async ({ reason = '' }) => {
    await post(`${base(d)}/${say.toLowerCase()}`, { paths: [file], reason });
    tell(`${file} is ${past}.`);
    await page.load();
  },
})}>${say}…</button>`;

const compared = ({ texts }) => html`<tr><td colspan="3"><b class="small">Recorded against present</b><pre class="trace" tabindex="0">${
  !texts ? 'The file is too large to compare here.' : texts[0] === texts[1] ? 'The content is the same.' : diff(...texts)}</pre></td></tr>`;

// Only an edit can be adopted.
function row(d, page, each) {
  const isChosen = d.chosen === each, verbs = { edited: 2, invalid: 1, missing: 1 }[each.state] ?? 0;
  return html`<tr data-row><td><a class="mono" href=${address(path(d, each.path, 'present'))} download>${each.path}</a><div
    class="dim small">${each.step} · ${size(each.size)}</div></td><td><span class="st ${SHAPES[each.state]}">${each.state}</span><div
      class="dim small">${each.by ? `adopted from ${each.by}; ` : ''}${each.why}</div></td><td><span class="row end"><a class="b tiny"
        href=${d.to({ file: isChosen ? '' : each.path })} aria-expanded=${isChosen}>Compare</a>${page.may('operator') ?
          Object.entries(VERBS).slice(2 - verbs).map((verb) => act(d, page, each.path, verb)) : ''}</span></td></tr>${isChosen ? compared(d) : ''}`;
}

export function view(d, page) {
  if (d.artifacts?.length) return table([['File'], ['Condition'], ['Actions', 'r']], d.artifacts, 'path', (each) => row(d, page, each));
  return html`<p class="empty"><b>${d.refused ?? 'It has no artifacts'}</b>A step publishes files with
    <code>@step(publishes=Artifact("draft.md"))</code>.</p>`;
}
