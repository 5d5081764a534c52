import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { Broker, accessible, fits, launch, signedIn, until } from './world.mjs';

let browser, broker, page, cdp, device;

/** A port for the address that the configuration names. */
const free = async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
};

before(async () => {
  browser = await launch();
  const port = await free();
  const address = `http://localhost:${port}`;
  broker = await Broker.start(`[console]\naddress = "${address}"\npasskey = "console"\n`, `127.0.0.1:${port}`);
  broker.url = address;
  await broker.agent('coder');
  page = await signedIn(browser, broker);
  cdp = await page.context().newCDPSession(page);
  await cdp.send('WebAuthn.enable');
  const options = { protocol: 'ctap2', transport: 'internal', hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true };
  device = (await cdp.send('WebAuthn.addVirtualAuthenticator', { options })).authenticatorId;
});

after(async () => {
  await browser.close();
  await broker?.end();
  assert.deepEqual(page?.errors, []);
});

let asked = 0;
/** Has the coder ask for a call. */
const held = async () => {
  asked += 1;
  await broker.ask('coder', `KEY-${asked}`, 'Deploy it');
  const { turn } = await broker.take('coder');
  const { id } = await broker.call('coder', 'POST', '/approvals', { tool: 'deploy', arguments: { n: asked } });
  return { id, done: () => broker.call('coder', 'POST', `/turns/${turn.id}/finish`, { answer: 'done' }) };
};
const state = async (id) => (await broker.call('operator', 'GET', `/approvals/${id}`)).state;
const approve = async (id) => {
  await page.goto(`${broker.url}/approvals/${id}`);
  await page.getByRole('button', { name: `Approve ${id}` }).click();
};
const flash = (words) => page.locator('#flash').getByText(words).waitFor();

test('a call is approved by a passkey alone, which is added first', async () => {
  const { id, done } = await held();
  await approve(id);
  await flash('you have none yet');
  assert.equal(await state(id), 'pending');
  await page.goto(`${broker.url}/devices`);
  await page.setViewportSize({ width: 375, height: 760 });
  await fits(page, 'devices');
  await page.setViewportSize({ width: 1200, height: 900 });
  await page.locator('#passkeys').getByLabel('Name').fill('this one');
  await page.getByRole('button', { name: 'Add a passkey' }).click();
  await page.locator('#passkeys li', { hasText: 'this one' }).waitFor();
  await accessible(page, 'passkeys');
  const { credentials } = await cdp.send('WebAuthn.getCredentials', { authenticatorId: device });
  assert.deepEqual([credentials.length, credentials[0].rpId], [1, 'localhost']);
  await approve(id);
  await flash('is approved');
  assert.equal(await state(id), 'approved');
  await done();
});

test('who is not verified approves nothing, and what was signed for one call serves no other', async () => {
  const { id, done } = await held();
  await cdp.send('WebAuthn.setUserVerified', { authenticatorId: device, isUserVerified: false });
  await approve(id);
  await page.locator('#flash p').waitFor();
  assert.equal(await state(id), 'pending');
  await cdp.send('WebAuthn.setUserVerified', { authenticatorId: device, isUserVerified: true });
  // On its way, the form names another decision.
  const sent = [];
  await page.route(`**/approvals/${id}/approve`, async (route) => {
    const body = route.request().postData();
    sent.push(body);
    await route.continue({ postData: body.includes('passkey=') ? body.replace(/digest=\w{8}/, 'digest=00000000') : body });
  });
  await approve(id);
  await flash("isn't what the form says");
  await page.unrouteAll({ behavior: 'wait' });
  assert.equal(await state(id), 'pending');
  // What was signed is used up, though nothing was decided.
  const answer = await page.evaluate(async ([path, body]) => {
    const headers = { 'content-type': 'application/x-www-form-urlencoded', 'hx-request': 'true' };
    const response = await fetch(path, { method: 'POST', headers, body });
    return [response.status, await response.text()];
  }, [`/approvals/${id}/approve`, sent.at(-1)]);
  assert.equal(answer[0], 403);
  assert.match(answer[1], /was used/);
  // Rejecting needs none, and a token decides as before.
  await page.getByRole('button', { name: `Reject ${id}` }).click();
  await flash('is rejected');
  await done();
  const other = await held();
  const { digest } = await broker.call('operator', 'GET', `/approvals/${other.id}`);
  await broker.call('operator', 'POST', `/approvals/${other.id}/decision`, { decision: 'approve', digest });
  assert.equal(await state(other.id), 'approved');
  await other.done();
});

test('a new token and another passkey need one as well', async () => {
  await page.goto(`${broker.url}/team`);
  await page.locator('#add').getByLabel('Name').first().fill('helper');
  await cdp.send('WebAuthn.setUserVerified', { authenticatorId: device, isUserVerified: false });
  await page.getByRole('button', { name: 'Add the agent' }).click();
  await page.locator('#add-agent-said p').waitFor();
  await assert.rejects(broker.call('operator', 'GET', '/agents/helper'), { status: 404 });
  await cdp.send('WebAuthn.setUserVerified', { authenticatorId: device, isUserVerified: true });
  await page.getByRole('button', { name: 'Add the agent' }).click();
  await page.getByText('The token of helper').waitFor();
  await page.goto(`${broker.url}/devices`);
  await page.getByRole('button', { name: 'Remove the passkey this one' }).click();
  await flash('The passkey is removed');
  await until(() => page.locator('#passkeys li').count(), 0);
});
