// Pictures of every page of the console, light and dark, wide and narrow, of what `lastword demo --keep` leaves, and what
// axe finds on each. To be run by hand, from the folder that .ci/browser/run fills: node screenshots.mjs FOLDER [light-1280]
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { accessible, demo, fits, launch, signedIn } from './world.mjs';

const [folder, only = ''] = process.argv.slice(2);
if (!folder) throw new Error('say into which folder the pictures go: node screenshots.mjs FOLDER');
await mkdir(folder, { recursive: true });

const { url, operator, end } = await demo();
const call = async (path) => (await fetch(`${url}/v1${path}`, { headers: { authorization: `Bearer ${operator}` } })).json();

// A conversation of several agents, and one of its messages.
const tree = (await call('/conversations/I08-1')).tree;
const pages = {
  now: '/',
  inbox: '/inbox',
  conversations: '/conversations',
  beside: '/conversations?open=I14-1',
  tree: '/conversations/I08-1',
  waterfall: '/conversations/I08-1?view=waterfall',
  log: '/conversations/I08-1?view=log',
  message: `/messages/${tree[0].message.id}`,
  refused: null,
  agents: '/agents',
  graph: '/graph',
  'graph-of-one': '/conversations/I14-1?graph=true',
  spend: '/spend',
  'waterfall-of-many': '/conversations/I14-1?view=waterfall',
  decision: '/approvals/apr-2',
  always: '/approvals/apr-2/always',
  team: '/team',
  bound: '/limits?hops_max=4',
  question: '/questions/esc-1',
  agent: '/agents/coder',
  human: '/agents/operator',
  rooms: '/rooms',
  room: '/rooms/I03-room',
  schedules: '/schedules',
  incidents: '/incidents/inc-1',
  limits: '/limits',
  compose: '/compose',
  workspace: '/workspace',
  'no-page': '/nowhere',
};

const faults = [];
const browser = await launch();
const page = await signedIn(browser, { url, tokens: { operator } });
await page.goto(`${url}/limits`);
pages.refused = await page.getByRole('link', { name: 'latest' }).first().getAttribute('href');
const shot = async (name) => {
  const window = page.viewportSize();
  if (!/palette|help|stop/.test(name)) {
    // What sticks to the window's edge would lie over the middle of a page that is taller.
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    await page.setViewportSize({ ...window, height: Math.max(height, window.height) });
  }
  await page.screenshot({ path: join(folder, `${name}.png`) });
  await page.setViewportSize(window);
};
for (const colorScheme of ['light', 'dark']) {
  for (const width of [1280, 375, 1920]) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.setViewportSize({ width, height: width > 800 ? 860 : 760 });
    if (!`${colorScheme}-${width}`.includes(only)) continue;
    const named = (name) => `${name}-${colorScheme}-${width}`;
    for (const [name, path] of Object.entries(pages)) {
      // A narrower window shows the list alone.
      if (name === 'beside' && width < 1400) continue;
      await page.goto(url + path, { waitUntil: 'load' });
      await shot(named(name));
      for (const check of [accessible, fits]) await check(page, named(name)).catch((fault) => faults.push(fault.message));
    }
    await page.goto(`${url}/`);
    await page.keyboard.press('?');
    await shot(named('help'));
    await page.keyboard.press('Escape');
    await page.keyboard.press('Control+k');
    await page.locator('#palette-list a').first().waitFor();
    await shot(named('palette'));
    await page.keyboard.press('Escape');
    await page.locator('[data-open=workspace]').first().click();
    await page.getByRole('button', { name: 'Stop everything' }).waitFor();
    await shot(named('stop'));
    await page.keyboard.press('Escape');
    const stranger = await browser.newContext({ colorScheme, viewport: { width, height: 700 } });
    const door = await stranger.newPage();
    await door.goto(`${url}/sign-in`);
    await door.screenshot({ path: join(folder, `${named('sign-in')}.png`) });
    await stranger.close();
  }
}
await browser.close();
await end();
for (const fault of faults) console.error(fault);
process.exitCode = faults.length ? 1 : 0;
