// A history that is read while fifty messages a second come into it: what is read stays where it is, and who follows sees
// the end. CI has a short form; LASTWORD_LIVE_SECONDS=60 .ci/browser/run reading.test.mjs is the long one.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Broker, accessible, connected, launch, signedIn, until } from './world.mjs';

const SECONDS = Number(process.env.LASTWORD_LIVE_SECONDS ?? 5);
const RATE = 50;
/** One exchange has a request and an answer. */
const MESSAGES = 2;
const AGENTS = 5;

let browser, broker, page;

before(async () => {
  browser = await launch();
  broker = await Broker.start(`[limits]
sender_messages_max = 1000000
pair_messages_max = 1000000
fan_out_targets_max = 1000000
inbox_max = 100000
`);
  for (let n = 0; n < AGENTS; n += 1) await broker.agent(`agent-${n}`);
  for (let n = 0; n < 150; n += 1) await exchange(n);
  page = await signedIn(browser, broker);
  page.setDefaultTimeout(15_000);
});

// Whatever failed, nothing stays that would keep the command from its end.
after(async () => {
  await browser?.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

const exchange = async (n) => {
  const who = `agent-${n % AGENTS}`;
  await broker.ask(who, 'LIVE-1', `Part ${n}, which is a text of some length`);
  const { turn } = await broker.take(who);
  await broker.call(who, 'POST', `/turns/${turn.id}/finish`, { answer: `Part ${n} is done` });
};

/** Messages at a steady pace, for a while; returns how many a second it were. */
const storm = async (seconds) => {
  const count = Math.ceil((seconds * RATE) / MESSAGES / AGENTS);
  const period = (1_000 * MESSAGES * AGENTS) / RATE;
  const began = Date.now();
  await Promise.all(Array.from({ length: AGENTS }, async (_, agent) => {
    for (let n = 0, due = began + (agent * period) / AGENTS; n < count; n += 1, due += period) {
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - Date.now())));
      await exchange(n * AGENTS + agent);
    }
  }));
  return (1_000 * count * MESSAGES * AGENTS) / (Date.now() - began);
};

/** Watches a row, frame by frame. */
const watched = (id) => page.evaluate((row) => {
  const place = () => document.getElementById(row)?.getBoundingClientRect().top;
  const first = place();
  window.moved = 0;
  window.swaps = 0;
  document.addEventListener('htmx:after:swap', () => { window.swaps += 1; });
  const look = () => {
    // A row that went has moved.
    window.moved = Math.max(window.moved, Math.abs((place() ?? Infinity) - first));
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}, id);

/** The row in the middle of the window. */
const underEye = () => page.evaluate(() => {
  const rows = [...document.querySelectorAll('#history [data-row][id]')];
  return rows.find((row) => row.getBoundingClientRect().top > innerHeight / 2).id;
});

for (const view of ['tree', 'log']) {
  test(`in the ${view}, what is read stays where it is while ${RATE} messages a second come in`, { timeout: (SECONDS + 60) * 1_000 }, async () => {
    await page.goto(`${broker.url}/conversations/LIVE-1?view=${view}`);
    await connected(page);
    await page.evaluate(() => document.querySelector('#history').scrollIntoView());
    await page.mouse.wheel(0, 2_500);
    await until(() => page.evaluate(() => scrollY > 2_000), true);
    await watched(await underEye());
    const rate = await storm(SECONDS);
    await until(() => page.evaluate(() => window.swaps > 2), true);
    await page.locator('#grown').getByText(/^\d+ newer$/).waitFor();
    const { moved, swaps } = await page.evaluate(() => ({ moved: window.moved, swaps: window.swaps }));
    console.log(`${view}: ${rate.toFixed(0)} messages a second, ${swaps} reloads, moved by ${moved} px`);
    assert.ok(moved <= 2, `it moved by ${moved}`);
  });
}

test('what is newer is counted, and a press of its note goes to the end and follows it', async () => {
  await page.goto(`${broker.url}/conversations/LIVE-1?view=log`);
  await connected(page);
  await page.mouse.wheel(0, 1_500);
  await until(() => page.evaluate(() => scrollY > 1_000), true);
  await broker.ask('agent-0', 'LIVE-1', 'The newest of all');
  await page.locator('#grown').getByText(/^\d+ newer$/).waitFor();
  await accessible(page, 'a history with newer lines');
  await page.locator('#grown').click();
  await page.locator('#follow[aria-pressed=true]').waitFor();
  await page.waitForURL(/follow=true/);
  const isLast = () => page.evaluate(() => {
    const { top, bottom } = [...document.querySelectorAll('.log li')].at(-1).getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight + 2;
  });
  await until(isLast, true);
  assert.ok(await page.locator('#grown').isHidden());
  await storm(1);
  await page.getByText('Part 0 is done').last().waitFor();
  await until(isLast, true);
  // Who scrolls up reads: the page stays there.
  await page.mouse.move(600, 500);
  await page.mouse.wheel(0, -600);
  await page.locator('#follow[aria-pressed=false]').waitFor();
  await page.waitForURL(/since=msg-\d+$/);
  await watched(await underEye());
  await broker.ask('agent-1', 'LIVE-1', 'And one more');
  await page.locator('#grown').getByText(/newer$/).waitFor();
  assert.ok(await page.evaluate(() => window.moved) <= 2);
});

test('without scripts the link to follow leads to the newest part, and back to this one', async () => {
  const context = await browser.newContext({ javaScriptEnabled: false, storageState: await page.context().storageState() });
  const plain = await context.newPage();
  await plain.goto(`${broker.url}/conversations/LIVE-1?view=log&at=msg-40`);
  await plain.getByRole('button', { name: 'Follow' }).click();
  await plain.waitForURL(/follow=true$/);
  assert.equal(await plain.getByRole('link', { name: 'Later' }).count(), 0);
  await plain.getByRole('button', { name: 'Follow' }).click();
  await plain.waitForURL(/since=msg-\d+$/);
  await context.close();
});
