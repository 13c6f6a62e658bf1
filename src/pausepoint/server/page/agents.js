import { html } from './vendor/lit-html.js';
export const title = () => 'agents';
export const load = async () => ({});
export const view = () => html`<div class="top"><h1>agents</h1></div>`;
