// The README's recording: three agents ask each other in a circle, as in the demo's incident I08, until a rule cuts it.
// The live graph of a broker of its own, as a WebP of ten seconds. To be run by hand, from the folder that .ci/browser/run
// fills; it needs Debian's package `webp`: node recording.mjs FILE
import { execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Broker, connected, launch, signedIn } from './world.mjs';

const [file] = process.argv.slice(2);
if (!file) throw new Error('say which file the recording becomes: node recording.mjs FILE');
const FRAME_MS = 125;
const SECONDS = 10;
process.env.LASTWORD ??= '../debug/lastword';

const broker = await Broker.start();
const browser = await launch();
const frames = await mkdtemp(join(tmpdir(), 'lastword-frames-'));
for (const name of ['coder', 'tester', 'ops']) await broker.agent(name);
const page = await signedIn(browser, broker, { bypassCSP: true, colorScheme: 'dark', viewport: { width: 720, height: 470 } });

// Only the graph is recorded, over a line that says what happens.
const cropped = async () => {
  await page.goto(`${broker.url}/graph`);
  await page.addStyleTag({ content: `
    #top, .heading, .views, .legend, main .table, main details, .empty { display: none !important; }
    main, body { margin: 0 !important; padding: 0 !important; max-width: none !important; }
    .graph { border: 0; margin: 0; height: 400px; overflow: hidden; }
    .graph svg { height: 540px; width: auto; margin-top: -70px; }
    #caption { font: 600 21px var(--sans); text-align: center; height: 50px; margin: 12px 0 0; color: var(--ink); }
    #caption b { color: var(--bad); }` });
  await page.evaluate(() => {
    const caption = document.createElement('p');
    caption.id = 'caption';
    document.body.append(caption);
  });
  await connected(page);
};
const say = (words) => page.evaluate((html) => { document.querySelector('#caption').innerHTML = html; }, words);

let shots = 0;
/** Takes the frames of some seconds at an even pace. */
const film = async (seconds) => {
  const until = shots + Math.round((seconds * 1000) / FRAME_MS);
  for (let due = Date.now(); shots < until; due += FRAME_MS) {
    await page.screenshot({ path: join(frames, `${String(shots).padStart(4, '0')}.png`) });
    shots += 1;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, due + FRAME_MS - Date.now())));
  }
};
const drawn = (edges) => page.waitForFunction((wanted) => document.querySelectorAll('.graph .edge').length >= wanted, edges);

await broker.ask('coder', 'I08-1', 'Is the release ready?');
const turns = {};
const takes = async (name) => { turns[name] = (await broker.take(name)).turn; };
const asks = (from, to) => fetch(`${broker.url}/v1/messages`, {
  method: 'POST',
  headers: {
    authorization: `Bearer ${broker.tokens[from]}`, 'content-type': 'application/json', 'lastword-turn': turns[from].token,
  },
  body: JSON.stringify({ type: 'request', to, body: 'Please check this.' }),
});
await takes('coder');
await cropped();
await drawn(1);
await say('A human asks coder: one grant');
await film(2);
const hops = [['coder', 'tester'], ['tester', 'ops']];
for (const [from, to] of hops) {
  const answer = await asks(from, to);
  if (!answer.ok) throw new Error(await answer.text());
  await takes(to);
  await say(`${from} asks ${to}: “Please check this.”`);
  await drawn(2 + hops.findIndex((hop) => hop[0] === from));
  await film(2);
}
const refused = await asks('ops', 'coder');
const { code, detail } = await refused.json();
if (code !== 'cycle') throw new Error(`not cut by the cycle rule: ${code} ${detail}`);
await page.locator('.graph text.cross').waitFor();
await say('ops asks coder: <b>✕ refused, cycle</b>');
await film(2);
for (const name of ['ops', 'tester', 'coder']) {
  await broker.call(name, 'POST', `/turns/${turns[name].id}/finish`, { answer: 'Checked.' });
  if (name !== 'coder') await takes(name === 'ops' ? 'tester' : 'coder');
}
await page.waitForFunction(() => !document.querySelector('.graph .edge.open'));
await say('Each answer finds its task. The conversation ends.');
await film(SECONDS - shots * FRAME_MS / 1000);
await browser.close();
await broker.end();

const names = Array.from({ length: shots }, (_, n) => join(frames, `${String(n).padStart(4, '0')}.png`));
execFileSync('img2webp', ['-loop', '0', '-lossy', '-q', '70', '-m', '6', '-d', String(FRAME_MS), ...names, '-o', file], { stdio: ['ignore', 'ignore', 'inherit'] });
await rm(frames, { recursive: true });
