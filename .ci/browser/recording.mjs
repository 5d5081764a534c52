// The README's picture: three agents ask each other in a circle, as in the demo's incident I08, until a rule cuts it. It is the
// film that the console saves of that conversation. To be run by hand, from the folder that .ci/browser/run fills:
// node recording.mjs FILE
import { writeFile } from 'node:fs/promises';
import { Broker, launch, signedIn } from './world.mjs';

const [file] = process.argv.slice(2);
if (!file) throw new Error('say which file the film becomes: node recording.mjs FILE');
process.env.LASTWORD ??= '../debug/lastword';

const broker = await Broker.start();
const browser = await launch();
for (const name of ['coder', 'tester', 'ops']) await broker.agent(name);
await broker.ask('coder', 'I08-1', 'Is the release ready?');
await broker.take('coder');
const asks = (from, to) => broker.call(from, 'POST', '/messages', { type: 'request', to, body: 'Please check this.' });
for (const [from, to] of [['coder', 'tester'], ['tester', 'ops']]) {
  await asks(from, to);
  await broker.take(to);
}
const refusal = await asks('ops', 'coder').then(() => null, (error) => error);
if (!refusal?.message.includes('cycle')) throw new Error(`not cut by the cycle rule: ${refusal?.message}`);
const page = await signedIn(browser, broker);
const film = await page.request.get(`${broker.url}/conversations/I08-1/film`);
if (!film.ok()) throw new Error(await film.text());
await writeFile(file, await film.body());
await browser.close();
await broker.end();
