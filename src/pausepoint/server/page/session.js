import { html } from './vendor/lit-html.js';
export const title = () => 'session';
export const load = async () => ({});
export const view = () => html`<div class="top"><h1>session</h1></div>`;
