import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Broker, accessible, connected, fits, launch, signedIn, watch } from './world.mjs';

let browser, broker, page, context, reader;
const asked = [];

before(async () => {
  browser = await launch();
  broker = await Broker.start();
  for (const name of ['coder', 'tester']) await broker.agent(name);
  await broker.ask('coder', 'BIG-1', 'Deploy the login form.\nThe database is at https://app:canary@db.example/login?token=canary');
  await broker.take('coder');
  const args = { command: `curl -H "Authorization: Bearer canary" https://deploy.example/${'a-long-part/'.repeat(12)}`, note: 'canary' };
  await broker.call('coder', 'POST', '/approvals', { tool: 'Bash', arguments: args, reason: 'to deploy' });
  await broker.call('coder', 'POST', '/messages', { type: 'request', to: 'tester', body: 'Test it. '.repeat(400) });
  page = await signedIn(browser, broker);
  context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  reader = await context.newPage();
  watch(reader);
  reader.on('request', (request) => asked.push(request));
});

after(async () => {
  await browser.close();
  await broker?.end();
  assert.deepEqual([page?.errors, reader?.errors], [[], []]);
});

const make = async (label) => {
  await page.goto(`${broker.url}/conversations/BIG-1`);
  await connected(page);
  await page.locator('#link summary').click();
  await page.getByLabel('Expires after').selectOption('3 days');
  await page.getByRole('button', { name: label }).click();
  return page.locator('#make-link-said pre').innerText();
};

test('a link is made by a click and opens the conversation where nobody has signed in, its secret in no address', async () => {
  const link = await make('Make a link');
  const secret = link.split('#')[1];
  await page.getByText('A link that operator made expires in 2 d').waitFor();
  await reader.goto(link);
  await reader.getByRole('heading', { name: 'BIG-1' }).waitFor();
  await reader.getByText('Deploy the login form.').first().waitFor();
  await reader.getByText('lastword verify --expect').waitFor();
  assert.equal(reader.url(), `${broker.url}/shared`);
  assert.ok(asked.length > 2 && asked.every((request) => !request.url().split('#')[0].includes(secret)));
  assert.ok(asked.every((request) => !/\/live/.test(request.url()) && !(request.headers().referer ?? '').includes(secret)));
  const text = await reader.content();
  assert.ok(!text.includes('canary') && !text.includes(secret));
  assert.equal(await reader.locator('a, nav, form').count(), 0);
  assert.deepEqual(await context.cookies(), []);
});

test('its page is readable for everybody, light and dark, on a phone and on a wide screen', async () => {
  for (const colorScheme of ['light', 'dark']) {
    await reader.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const width of [375, 1280, 1920]) {
      await reader.setViewportSize({ width, height: 900 });
      await fits(reader, `a shared conversation at ${width}`);
      await accessible(reader, `a shared conversation, ${colorScheme}, at ${width}`);
      if (process.env.PICTURES) await reader.screenshot({ path: `${process.env.PICTURES}/shared-${colorScheme}-${width}.png`, fullPage: true });
    }
  }
});

test('a link that was replaced or ended opens nothing, and its page says so', async () => {
  const first = await make('Replace the link');
  const second = await make('Replace the link');
  await reader.goto('about:blank');
  await reader.goto(first);
  await reader.getByText('This link has ended').waitFor();
  await accessible(reader, 'a link that has ended');
  await reader.goto('about:blank');
  await reader.goto(second);
  await reader.getByRole('heading', { name: 'BIG-1' }).waitFor();
  await page.getByRole('button', { name: 'End the link' }).click();
  await page.getByText('opens nothing any more').waitFor();
  await page.getByText('A link that operator made').waitFor({ state: 'detached' });
  await reader.goto('about:blank');
  await reader.goto(second);
  await reader.getByText('This link has ended').waitFor();
});
