import { html } from './vendor/lit-html.js';
export const title = () => 'store';
export const load = async () => ({});
export const view = () => html`<div class="top"><h1>store</h1></div>`;
