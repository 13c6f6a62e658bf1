// The tab Artifacts: the files that the steps published, and what a person has changed in them.
import { html, nothing } from './vendor/lit-html.js';
import { repeat } from './vendor/directives/repeat.js';
import { address, content, get, of, post, Problem } from './api.js';
import { counted, size } from './words.js';
import { why } from './dialog.js';
import { tell } from './toast.js';
import { diff } from './diff.js';

const ROWS = 200, TEXT = 1_000_000;
const SHAPES = { valid: 'completed', edited: 'waiting', invalid: 'failed', missing: 'failed', stale: 'paused' };
const DIFFERS = ['edited', 'invalid', 'missing'];

const path = (d, file) => `${of(d.s.session_id)}/artifacts/${file.split('/').map(encodeURIComponent).join('/')}`;

export async function load(d) {
  let artifacts;
  try {
    ({ artifacts } = await get(of(d.s.session_id) + '/artifacts'));
  } catch (problem) {
    if (![409, 422, 507].includes(problem.status)) throw problem;
    return { refused: problem.message, artifacts: [] };
  }
  const chosen = artifacts.find((each) => each.path === d.query.get('file'));
  return { artifacts, chosen, texts: chosen && await texts(d, chosen) };
}

// The recorded and the present content. A missing file has none.
async function texts(d, { path: file, size: bytes }) {
  if (bytes > TEXT) return null;
  const one = (version) => content(path(d, file), { version }).catch((problem) => { if (problem instanceof Problem) return ''; throw problem; });
  return Promise.all([one('recorded'), one('present')]);
}

function href(d, file, version) {
  const url = address(path(d, file));
  url.searchParams.set('version', version);
  return url;
}

// verbs

function ask(d, page, verb, files) {
  const isAdopt = verb === 'adopt', what = files.length === 1 ? files[0] : counted(files.length, 'file');
  page.ask({
    title: `${isAdopt ? 'Adopt' : 'Restore'} ${what}`, say: isAdopt ? 'Adopt' : 'Restore', isBad: !isAdopt,
    body: () => html`<p class="dim">${isAdopt ? 'The present content becomes part of the session. Steps that read it run again with the next resume.' :
      'The recorded content replaces the present one, which is kept in the folder .pausepoint/bin.'}</p>${why}`,
    send: async ({ reason = '' }) => {
      const found = await post(`${of(d.s.session_id)}/artifacts/${verb}`, { paths: files, reason });
      tell(isAdopt ? `Adopted.${found.stale.length ? ` ${found.stale.map((each) => each.step).join(', ')} will run again.` : ''}` : `Restored ${what}.`);
      await page.load();
    },
  });
}

const acts = (d, page, files, all = '') => page.may('operator') ? html`<button class="b tiny"
  @click=${() => ask(d, page, 'adopt', files)}>Adopt${all}…</button><button class="b tiny"
    @click=${() => ask(d, page, 'restore', files)}>Restore${all}…</button>` : nothing;

// drawing

const compared = (d) => html`<tr><td colspan="4" class="whole"><div class="row small"><b>Recorded against present</b><span class="grow"></span><a
  class="b tiny" href=${href(d, d.chosen.path, 'recorded')} download>Download recorded</a></div>
  ${d.texts ? html`<pre class="trace diff" tabindex="0" role="region" aria-label="Differences">${d.texts[0] === d.texts[1] ?
    html`<span class="line faint">The content is the same.</span>` : diff(...d.texts)}</pre>` :
      html`<p class="dim">The file is too large to compare here. Download both.</p>`}</td></tr>`;

function row(d, page, each) {
  const isChosen = d.chosen?.path === each.path, isOther = DIFFERS.includes(each.state);
  return html`<tr data-row><td><a class="mono" href=${href(d, each.path, 'present')} download>${each.path}</a><div class="dim small">${each.step}<span
    class="narrow"> · ${size(each.size)}</span></div></td>
    <td><span class="st ${SHAPES[each.state] ?? 'ready'}">${each.state}</span>${each.by ? html` <span class="dim small">adopted from ${each.by}</span>` :
      nothing}<div class="dim small">${each.why}</div></td>
    <td class="opt r num dim">${size(each.size)}</td>
    <td class="r"><span class="row end">${isOther || isChosen ? html`<a class="b tiny" href=${d.to({ file: isChosen ? '' : each.path })}
      aria-expanded=${isChosen}>Compare</a>` : nothing}${isOther ? acts(d, page, [each.path]) : nothing}</span></td></tr>${isChosen ? compared(d) : nothing}`;
}

export function view(d, page) {
  if (d.refused) return html`<p class="empty"><b>The artifacts cannot be examined here</b>${d.refused}</p>`;
  if (!d.artifacts.length) return html`<p class="empty"><b>It has no artifacts</b>
    A step publishes files with <code>@step(publishes=Artifact("draft.md"))</code>.</p>`;
  const others = d.artifacts.filter((each) => DIFFERS.includes(each.state)).map((each) => each.path);
  return html`${others.length > 1 ? html`<div class="row pad"><span class="grow dim small">${counted(others.length,
    'file')} differ from the record.</span>${acts(d, page, others, ' all')}</div>` : nothing}
    <table><thead><tr><th>File</th><th>Condition</th><th class="opt r">Size</th><th><span class="unseen">Verbs</span></th></tr></thead><tbody>${repeat(d.artifacts.slice(0, ROWS), (each) =>
      each.path, (each) => row(d, page, each))}</tbody></table>
    ${d.artifacts.length > ROWS ? html`<p class="small dim pad">${counted(d.artifacts.length - ROWS, 'more file')}.</p>` : nothing}`;
}
