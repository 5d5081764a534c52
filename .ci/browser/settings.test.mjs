import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { Broker, accessible, connected, fits, launch, signedIn, until } from './world.mjs';

let browser, broker, page, viewer;

before(async () => {
  browser = await launch();
  broker = await Broker.start('[[notify]]\nname = "desk"\ncommand = ["true"]\n[[schedule]]\nname = "weekly"\ncron = "0 9 * * MON"\ntime_zone = "Europe/Berlin"\nto = "#report"\nbody = "Report <b>what</b> was done."\n');
  for (const name of ['coder', 'tester']) await broker.agent(name);
  for (const [name, role] of [['vera', 'viewer'], ['anna', 'approver']]) {
    broker.tokens[name] = (await broker.call('operator', 'POST', '/humans', { name, role })).token;
  }
  page = await signedIn(browser, broker);
  viewer = await signedIn(browser, broker, {}, 'vera');
});

beforeEach(() => page.goto(`${broker.url}/inbox`));

after(async () => {
  await browser.close();
  await broker?.end();
  assert.deepEqual([page?.errors, viewer?.errors], [[], []]);
});

const flash = (on = page) => on.locator('#flash');
const said = (form) => page.locator(`#${form}-said`);

test('a schedule is set by keyboard, and what is wrong is told in the form with all that was typed kept', async () => {
  await page.keyboard.press('g');
  await page.keyboard.press('s');
  await page.waitForURL(/\/schedules$/);
  await connected(page);
  await page.locator('#s-weekly').getByText('At 09:00, on Monday, Europe/Berlin').waitFor();
  await page.getByLabel('Name').fill('nightly');
  await page.getByLabel('Or as minute').fill('often');
  await page.getByLabel('Time zone').fill('Europe/Berlin');
  await page.getByLabel('To an agent').fill('tester');
  await page.getByLabel('Request of each tick').fill('Run the tests');
  await page.keyboard.press('Control+Enter');
  await said('schedule-form').getByText('`cron` "often"').waitFor();
  // What happens elsewhere leaves both.
  await broker.call('operator', 'POST', '/schedules', { name: 'other', cron: '0 4 * * *', to: 'coder', body: 'x' });
  await page.locator('#s-other').waitFor();
  assert.ok(await said('schedule-form').getByText('`cron` "often"').isVisible());
  assert.equal(await page.getByLabel('Request of each tick').inputValue(), 'Run the tests');
  assert.equal(await page.getByLabel('Or as minute').inputValue(), 'often');
  await page.getByLabel('Or as minute').fill('0 2 * * *');
  await page.keyboard.press('Control+Enter');
  await page.locator('#s-nightly').getByText('At 02:00, Europe/Berlin').waitFor();
  await flash().getByText('nightly ticks next at').waitFor();
  assert.equal(await said('schedule-form').textContent(), '');
  assert.equal(await page.getByLabel('Name').inputValue(), '', 'the form is for the next one');
});

test('a schedule runs when a human says so, shows that its work is open, and is removed', async () => {
  await page.keyboard.press('Control+k');
  await page.keyboard.type('sched');
  await until(() => page.locator('#palette-list a').first().textContent(), 'Schedules page');
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/schedules$/);
  await connected(page);
  const card = page.locator('#s-nightly');
  await card.getByRole('button', { name: 'Run now' }).click();
  await flash().getByText('Sent a request to tester').waitFor();
  await card.locator('.badge', { hasText: 'open' }).waitFor();
  const { message, turn } = await broker.take('tester');
  assert.equal(message.body, 'Run the tests');
  await broker.call('tester', 'POST', `/turns/${turn.id}/finish`, { answer: 'all green' });
  await card.getByText('number 1, closed').waitFor();
  await card.getByRole('button', { name: 'Remove' }).click();
  await card.waitFor({ state: 'detached' });
  assert.equal((await broker.call('operator', 'GET', '/schedules')).items.some(({ name }) => name === 'nightly'), false);
});

test('limits of an agent are set on its page, and a refusal stands beside what was typed', async () => {
  await page.goto(`${broker.url}/agents/coder`);
  await connected(page);
  await page.getByText('Set per-agent limits').click();
  await page.getByLabel('Roots in an hour').fill('3');
  await page.getByLabel('Time to acknowledge').fill('soon');
  await page.locator('#limits-form').getByRole('button', { name: 'Set' }).click();
  await said('limits-form').getByText('`ack_ms` isn\'t an amount: "soon"').waitFor();
  await broker.call('operator', 'POST', '/agents/coder/pause');
  await page.locator('.heading .badge', { hasText: 'paused' }).waitFor();
  await broker.call('operator', 'POST', '/agents/coder/resume');
  await page.getByRole('button', { name: 'Pause', exact: true }).waitFor();
  assert.ok(await said('limits-form').isVisible());
  assert.equal(await page.getByLabel('Roots in an hour').inputValue(), '3');
  await page.getByLabel('Time to acknowledge').fill('90');
  await page.locator('#limits-form').getByRole('button', { name: 'Set' }).click();
  await page.locator('#own').getByText('Roots in an hour: 3').waitFor();
  assert.deepEqual((await broker.call('operator', 'GET', '/agents/coder')).limits, { ack_ms: 90000, roots_per_hour_max: 3 });
  await until(() => page.getByLabel('Time to acknowledge').inputValue(), '90');
  await page.getByLabel('Time to acknowledge').fill('0');
  await page.locator('#limits-form').getByRole('button', { name: 'Set' }).click();
  await page.locator('#own').getByText('Time to acknowledge').waitFor({ state: 'detached' });
  assert.deepEqual((await broker.call('operator', 'GET', '/agents/coder')).limits, { roots_per_hour_max: 3 });
});

test('an agent is given more for today on its page', async () => {
  await page.goto(`${broker.url}/agents/coder`);
  await connected(page);
  await page.getByText("Extend today's budget").click();
  await page.getByRole('button', { name: 'Give' }).click();
  await said('grant-form').getByText('nothing is given').waitFor();
  await page.getByLabel('Tokens', { exact: true }).fill('50000');
  await page.getByRole('button', { name: 'Give' }).click();
  await flash().getByText(/coder may spend .* more today/).waitFor();
  await page.locator('.bar', { hasText: 'tokens today' }).getByText(/\.05\sM/).waitFor();
});

test('an owner gives a human another role, whose pages then have what it may do', async () => {
  await viewer.goto(`${broker.url}/agents/coder`);
  await viewer.getByText('Pausing or stopping an agent needs the role operator. Yours is viewer.').waitFor();
  assert.equal(await viewer.locator('main button').count(), 0);
  assert.equal(await viewer.getByRole('button', { name: 'Stop…' }).count(), 0);
  await page.goto(`${broker.url}/agents/vera`);
  await connected(page);
  await page.getByLabel('Role').selectOption('operator');
  await page.getByRole('button', { name: 'Set the role' }).click();
  await flash().getByText('vera is operator now').waitFor();
  await viewer.goto(`${broker.url}/agents/coder`);
  await viewer.getByRole('button', { name: 'Pause' }).waitFor();
  await viewer.getByRole('button', { name: 'Stop…' }).waitFor();
  await viewer.getByText('Setting per-agent limits needs the role owner. Yours is operator.').waitFor();
  await page.goto(`${broker.url}/agents/operator`);
  await page.getByLabel('Role').selectOption('viewer');
  await page.getByRole('button', { name: 'Set the role' }).click();
  await said('role-form').getByText('the last owner of the workspace').waitFor();
  assert.equal(await page.getByLabel('Role').inputValue(), 'viewer');
  await broker.call('operator', 'PATCH', '/humans/vera', { role: 'viewer' });
});

test('a page tells what other limits would bound', async () => {
  await page.goto(`${broker.url}/limits`);
  await page.locator('#bound').getByText(/One grant can cause at most/).waitFor();
  const field = (name) => page.locator(`#bound [name=${name}]`);
  await field('hops_max').fill('1');
  await field('grant_messages_max').fill('20');
  await page.getByRole('button', { name: 'Compare' }).click();
  const after = page.locator('#after');
  assert.match(await after.getByRole('row', { name: /^Waking messages of a grant/ }).innerText(), /\b20$/);
  await after.getByRole('button', { name: 'Change these limits' }).click();
  await flash().getByText('grant_messages_max is 20 now, after 64, hops_max is 1 now, after 3.').waitFor();
  await page.goto(`${broker.url}/limits`);
  await page.locator('#bound').getByText(/One grant can cause at most 20 waking messages/).waitFor();
  await field('hops_max').evaluate((input) => { input.type = 'text'; });
  await field('hops_max').fill('<b>');
  await page.getByRole('button', { name: 'Compare' }).click();
  await page.getByRole('alert').getByText('hops_max is a whole number, not "<b>"').waitFor();
});

test('one page adds to the team: what it shows once stays while the list behind it changes', async () => {
  await page.goto(`${broker.url}/team`);
  await connected(page);
  await page.locator('#add-agent').getByLabel('Name', { exact: true }).fill('writer');
  await page.getByRole('button', { name: 'Add the agent' }).click();
  const made = said('add-agent');
  await made.getByText(/^lw_/).waitFor();
  await made.getByText('lastword claude --as writer').waitFor();
  await page.locator('#agents').getByRole('link', { name: 'writer' }).waitFor();
  await broker.call('operator', 'POST', '/agents', { name: 'another' });
  await page.locator('#agents').getByRole('link', { name: 'another' }).waitFor();
  await made.getByText(/^lw_/).waitFor();
  await page.locator('#add-agent').getByLabel('Name', { exact: true }).fill('writer');
  await page.getByRole('button', { name: 'Add the agent' }).click();
  await made.getByText(/A live agent has that name/).waitFor();
  assert.equal(await made.getByText(/^lw_/).count(), 0);
  await page.getByRole('button', { name: 'Send a test through desk' }).click();
  await flash().getByText('Sent a test through desk').waitFor();
  await page.locator('#humans').getByRole('link', { name: 'vera' }).waitFor();
  await page.locator('#own-limits').getByText('roots_per_hour_max').waitFor();
  for (const name of ['writer', 'another']) {
    await page.locator(`#m-${name} summary`).click();
    await page.getByRole('button', { name: `Remove ${name}`, exact: true }).click();
    await flash().getByText(`Removed ${name}`).waitFor();
  }
  await viewer.goto(`${broker.url}/team`);
  await viewer.locator('#notifications').getByText('desk').waitFor();
  assert.deepEqual(await viewer.locator('main').getByRole('button').allTextContents(), []);
});

test('each of these pages fits a window of 375 and has nothing serious that axe finds, light and dark', async () => {
  await broker.call('operator', 'POST', '/schedules/other/run', {});
  for (const [who, on] of [['operator', page], ['vera', viewer]]) {
    for (const colorScheme of ['light', 'dark']) {
      await on.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      for (const path of ['/schedules', '/team', '/agents', '/agents/coder', '/agents/vera', '/']) {
        await on.setViewportSize({ width: 375, height: 760 });
        await on.goto(broker.url + path);
        await on.evaluate(() => { for (const fold of document.querySelectorAll('main details')) fold.open = true; });
        if (who === 'operator' && path === '/schedules') {
          await on.getByRole('button', { name: 'Set', exact: true }).click();
          await said('schedule-form').getByText(/`(name|to|body)`/).first().waitFor();
        }
        await fits(on, `${path} of ${who}`);
        await on.setViewportSize({ width: 1200, height: 900 });
        await accessible(on, `${path} of ${who}, ${colorScheme}`);
      }
    }
  }
});
