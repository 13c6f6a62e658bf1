// A dialog asks before something is done: why, how, and what it would do.
//
// { title, say, isBad, isForm, body(page), plan(values), send(values) }: `say` is the word on the button. `isForm`: it is
// wide, and the server checks what was typed. `plan` is
// called with the present values of the form, and what it draws is shown above the button.
import { html, nothing, render } from './vendor/lit-html.js';
import { Problem } from './api.js';

export function values(form) {
  const given = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ''));
  for (const box of form.querySelectorAll('input[type=checkbox][name]')) given[box.name] = box.checked;
  return given;
}

async function preview(page, form) {
  const place = form.querySelector('.preview'), { plan } = page.dialog ?? {};
  if (!plan || !place) return;
  const asked = (page.dialog.asked = {});  // an older answer that comes later is dropped
  try {
    const drawn = await plan(values(form));
    if (page.dialog?.asked === asked) render(drawn, place);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (page.dialog?.asked === asked) render(html`<p class="err" role="alert">${error.message}</p>`, place);
  }
}

async function submit(page, event) {
  event.preventDefault();
  const { send } = page.dialog, form = event.target;
  if (!send) return page.closeDialog();
  const button = form.querySelector('button.go');
  button.disabled = true;
  try {
    await send(values(form));
    page.closeDialog();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    render(html`<p class="err">${error.message}</p>`, form.querySelector('.refusal'));
    button.disabled = false;
  }
}

export function dialog(page) {
  const { title, say, isBad, isForm, body } = page.dialog;
  return html`<dialog class=${isForm ? 'wide' : ''} aria-labelledby="dialog-title" @close=${() => page.dialog && page.closeDialog()}>
    <form method="dialog" ?novalidate=${isForm} @submit=${(event) => submit(page, event)} @change=${(event) => preview(page, event.currentTarget)}>
      <header><h2 id="dialog-title">${title}</h2></header>
      <div class="body">${body(page)}<div class="preview"></div><div class="refusal" role="alert"></div></div>
      <footer><button class="b" type="button" @click=${() => page.closeDialog()}>${say ? 'Not now' : 'Close'}</button>${say ? html`<button class="b go ${isBad ? 'bad' : 'main'}">${say}</button>` : nothing}</footer>
    </form>
  </dialog>`;
}

// The first plan is drawn when the dialog opens.
export function opened(page) {
  const form = document.querySelector('dialog form');
  if (form) preview(page, form);
}

// parts of dialogs

export const why = html`<div class="field"><label for="why">Why</label><input class="in" id="why" name="reason" placeholder="Others will read this" autocomplete="off" maxlength="10000"></div>`;

export const how = html`<fieldset class="field"><legend class="label">How</legend><div class="choices">
  <label class="choice"><input type="radio" name="mode" value="finish" checked><span>after the current operation</span></label>
  <label class="choice"><input type="radio" name="mode" value="abort"><span>abort it and run it again later</span></label></div></fieldset>
  <label class="check"><input type="checkbox" name="freeze"><span>Freeze timers<br><span class="hint">Sleeping sessions wake later by the length of the pause</span></span></label>`;

const KEYS = [
  ['g n', 'Now'], ['g i', 'Inbox'], ['g s', 'Sessions'], ['g a', 'Agents'], ['g d', 'Store'], ['j k', 'next, previous row'],
  ['Enter', 'open it'], ['/', 'search'], ['p', 'pause everything, or this session'], ['x', 'select a session in the list'],
  ['?', 'these keys'],
];

export const keysDialog = () => ({
  title: 'Keys',
  body: () => html`<dl class="kv">${KEYS.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>`,
});
