import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Broker, accessible, connected, fits, launch, signedIn, until } from './world.mjs';

let browser, broker, page;

before(async () => {
  browser = await launch();
  broker = await Broker.start('[limits]\nack_woken_ms = 1000\nack_polling_ms = 1000\ngrant_messages_max = 6\n');
  for (const name of ['coder', 'reviewer', 'idler', 'helper', 'sleeper']) await broker.agent(name);
  page = await signedIn(browser, broker);
  page.setDefaultTimeout(10_000);
});

after(async () => {
  await browser.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

const flash = () => page.locator('#flash');
const escalation = (id) => broker.call('operator', 'GET', `/escalations/${id}`);
/** Asks an agent that takes nothing, and returns the broker's question about it once both attempts are over. */
const timeOut = async (ref, body, agent = 'idler') => {
  await broker.ask(agent, ref, body);
  let found;
  await until(async () => {
    const { items } = await broker.call('operator', 'GET', '/escalations');
    found = items.find((asked) => asked.ref === ref && asked.cause === 'timed_out');
    return Boolean(found);
  }, true);
  return found;
};

test('the front page says what waits, what runs, what went wrong and what it cost, and a badge counts all that waits', async () => {
  await page.goto(`${broker.url}/`);
  await connected(page);
  await broker.ask('coder', 'SHOP-1', 'Sell <b>more</b>\nand a second line');
  const { turn } = await broker.take('coder');
  await broker.call('coder', 'POST', `/turns/${turn.id}/progress`, { usage: { input_tokens: 1_000, output_tokens: 200, cost_usd: 0.25 } });
  const question = await broker.call('coder', 'POST', '/escalations', { message: 'To eu or us?', options: ['eu', 'us'] });
  const call = await broker.call('coder', 'POST', '/approvals', { tool: 'Bash', arguments: { zeal: 1, command: 'rm -rf build' } });
  for (const to of ['idler', 'reviewer']) await broker.call('coder', 'POST', '/messages', { type: 'request', to, body: 'a part' });
  await assert.rejects(broker.call('coder', 'POST', '/messages', { type: 'request', to: 'helper', body: 'too many' }), /grant_messages/);
  const { items } = await broker.call('operator', 'GET', '/incidents');
  const latch = items.find((incident) => incident.ref === 'SHOP-1').id;
  const waits = page.locator('#waits .wait');
  await page.locator(`#now-${latch}`).waitFor();
  await page.locator(`#now-${call.id}`).getByText('rm -rf build').waitFor();
  await page.locator(`#now-${question.id}`).getByText('To eu or us?').waitFor();
  // The call destroys, and all of the work waits for the latch.
  const order = await waits.evaluateAll((all) => all.map(({ id }) => id).filter((id) => !id.includes('esc-9')));
  const at = [call.id, latch, question.id].map((id) => order.indexOf(`now-${id}`));
  assert.ok(at.every((place, n) => place >= 0 && (n === 0 || place > at[n - 1])), `${order}`);
  assert.match(await page.locator(`#now-${call.id} .countdown`).textContent(), /min \d+ s left$/);
  const badge = () => page.locator('#waiting').getAttribute('data-waiting').then(Number);
  await until(async () => (await badge()) === (await waits.count()), true);
  const runs = page.locator('#runs .work', { hasText: 'SHOP-1' });
  await runs.getByText('Sell <b>more</b>').waitFor();
  assert.doesNotMatch(await runs.innerText(), /second line/);
  await page.locator('.tile[href="#runs"]').getByText(/pieces? of work: \d/).waitFor();
  assert.match(await runs.innerText(), /held/);
  // A decision that waits is counted once, as such.
  await page.locator(`#now-${latch}`).getByText('SHOP-1 is held: the grant has used up its messages.').waitFor();
  assert.equal(await page.locator('#wrong').getByText('is held').count(), 0);
  assert.match(await runs.innerText(), /coder is waiting for you/);
  assert.match(await runs.innerText(), /\$0\.25/);
  await page.locator('#wrong').getByText(/Rules refused \d+ messages?; the agents were told why/).waitFor();
  // What an agent went on from is a count, and nothing that went wrong.
  const wrongs = await page.locator('#wrong li').count();
  assert.equal(await page.locator('.tile[href="#wrong"] b').textContent(), `${wrongs}`);
  assert.doesNotMatch(await page.locator('#wrong ul').innerText(), /refused/);
  assert.match(await page.locator('#cost').innerText(), /\$0\.25/);
  await page.getByRole('link', { name: `Decide ${call.id}` }).click();
  await page.waitForURL(new RegExp(`/approvals/${call.id}$`));
  await page.getByRole('button', { name: /^Approve apr-/ }).click();
  await flash().getByText('is approved').waitFor();
  // The page stays readable, and says who decided.
  await page.getByText('The call was approved by operator').waitFor();
  await page.getByText('rm -rf build').first().waitFor();
  await page.goto(`${broker.url}/questions/${question.id}`);
  await connected(page);
  await page.getByRole('button', { name: 'us', exact: true }).click();
  await page.locator('li', { hasText: 'us' }).getByText('chosen').waitFor();
  await page.getByText('by operator').waitFor();
  assert.equal(await page.locator('li', { hasText: 'eu' }).count(), 1);
  await page.goto(`${broker.url}/inbox`);
  await page.locator(`#${latch}`).getByRole('button', { name: 'Lift', exact: true }).click();
  await page.locator(`#${latch}`).waitFor({ state: 'detached' });
});

test('what timed out says who took no request of whom, and is asked again, asked of another, or dismissed', async () => {
  const one = await timeOut('LATE-1', 'Paint it red');
  const two = await timeOut('LATE-2', 'Paint it blue');
  const three = await timeOut('LATE-3', 'Paint it');
  assert.match(three.message, /^idler didn't take operator's request in time: 2 deliveries/);
  await page.goto(`${broker.url}/agents`);
  await page.locator('#a-idler').getByRole('link', { name: /^\d went wrong$/ }).click();
  await page.locator('#wrong').getByText(/idler stopped responding · \d/).click();
  await page.locator('#wrong').getByText('Paint it red').waitFor();
  // No agent waits for it, so it is no decision.
  await page.goto(`${broker.url}/inbox`);
  assert.equal(await page.getByText("idler didn't take operator's request").filter({ visible: true }).count(), 0);
  const card = (asked) => page.locator(`#${asked.id}`);
  const look = async (asked) => {
    await page.goto(`${broker.url}/questions/${asked.id}`);
    await connected(page);
  };
  await look(three);
  await card(three).getByText("idler didn't take operator's request").waitFor();
  await card(three).getByText('Paint it', { exact: true }).first().waitFor();
  assert.equal(await card(three).locator('textarea').count(), 0, 'nobody waits for a text');
  await card(three).getByRole('button', { name: 'Ask idler again' }).click();
  await flash().getByText('Asked idler again').waitFor();
  await card(three).waitFor({ state: 'detached' });
  assert.equal((await broker.take('idler')).message.body, 'Paint it');
  await look(two);
  await card(two).getByRole('combobox').selectOption('helper');
  await card(two).getByRole('button', { name: 'Ask this agent' }).click();
  await card(two).waitFor({ state: 'detached' });
  const again = (await broker.take('helper')).message;
  assert.deepEqual([again.body, again.ref], ['Paint it blue', 'LATE-2']);
  await look(one);
  await card(one).getByRole('button', { name: 'Dismiss', exact: true }).click();
  await card(one).waitFor({ state: 'detached' });
  assert.equal((await escalation(one.id)).answer, 'dismissed');
});

test('the front page fits a window of 375 and has nothing serious that axe finds, light and dark', async () => {
  const late = await timeOut('LATE-4', 'x'.repeat(400), 'sleeper');
  const wide = await timeOut('LATE-5', 'Once more', 'sleeper');
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const path of ['/', '/inbox', `/questions/${late.id}`]) {
      await page.goto(broker.url + path);
      for (const width of [375, 1280, 1920]) {
        await page.setViewportSize({ width, height: 800 });
        await fits(page, `${path} at ${width}`);
        await accessible(page, `${path} ${colorScheme} ${width}`);
      }
    }
  }
  for (const { id } of [late, wide]) await broker.call('operator', 'POST', `/escalations/${id}/answer`, { answer: 'seen' });
});
