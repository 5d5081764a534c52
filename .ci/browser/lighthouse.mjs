// Lighthouse on each page of the console with what `lastword demo --keep` leaves, on a computer and on a phone. Fails where a
// category has less than 98. To be run by hand, from the folder that .ci/browser/run fills, with lighthouse installed anywhere
// else: npm i --prefix /tmp/lighthouse lighthouse && node lighthouse.mjs /tmp/lighthouse [PATH...]
import { join, resolve } from 'node:path';
import { demo, launchOn } from './world.mjs';

const LEAST = 98;
const PORT = 9_333;
const [installed, ...only] = process.argv.slice(2);
if (!installed) throw new Error('say where lighthouse is installed: node lighthouse.mjs FOLDER');
const { default: lighthouse, desktopConfig } = await import(join(resolve(installed), 'node_modules/lighthouse/core/index.js'));

const paths = only.length ? only : [
  '/', '/inbox', '/conversations', '/conversations/I08-1', '/conversations/I08-1?view=waterfall',
  '/conversations/I08-1?graph=true', '/conversations/I08-1?view=log', '/agents', '/agents/coder', '/graph', '/spend',
  '/approvals/apr-2', '/approvals/apr-2/always', '/questions/esc-1', '/incidents/inc-1', '/schedules', '/limits',
  '/team', '/compose', '/workspace', '/rooms',
];
const { url, operator, end } = await demo();
const browser = await launchOn(PORT);
const page = await browser.newPage();
await page.goto(`${url}/sign-in`);
await page.getByLabel('Your token').fill(operator);
await page.getByRole('button', { name: 'Sign in' }).click();
await page.waitForURL(`${url}/`);
const flags = { port: PORT, logLevel: 'error', disableStorageReset: true };
for (const [form, config] of [['desktop', desktopConfig], ['phone', undefined]]) {
  for (const path of paths) {
    let { lhr } = await lighthouse(url + path, flags, config);
    // Chromium painted nothing in time, which says nothing of the page.
    if (lhr.runtimeError || lhr.categories.performance.score === null) ({ lhr } = await lighthouse(url + path, flags, config));
    const scores = Object.values(lhr.categories).map(({ id, score }) => [id, Math.round(score * 100)]);
    console.log(form.padEnd(8), path.padEnd(38), scores.map(([id, score]) => `${id} ${score}`).join(', '));
    if (scores.some(([, score]) => score < LEAST)) process.exitCode = 1;
  }
}
await browser.close();
await end();
