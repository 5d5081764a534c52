// Lighthouse on the built site, on a computer and on a phone. Fails where a category has less than 98.
import { join } from 'node:path';
import { serve } from './serve.mjs';
import { launchOn } from './world.mjs';

const LEAST = 98;
const PORT = 9_334;
const { default: lighthouse, desktopConfig } = await import(join(process.argv[2], 'node_modules/lighthouse/core/index.js'));
const site = await serve('public');
const version = (await (await fetch(`${site.url}/versions.json`)).json())[0];
const browser = await launchOn(PORT);
for (const [form, config] of [['desktop', desktopConfig], ['phone', undefined]]) {
  for (const path of ['index.html', 'docs/guide.html']) {
    const { lhr } = await lighthouse(`${site.url}/${version}/${path}`, { port: PORT, logLevel: 'error' }, config);
    const scores = Object.values(lhr.categories).map(({ id, score }) => [id, Math.round(score * 100)]);
    console.log(form.padEnd(8), path.padEnd(16), scores.map(([id, score]) => `${id} ${score}`).join(', '));
    if (scores.some(([, score]) => score < LEAST)) process.exitCode = 1;
  }
}
await browser.close();
site.end();
