// The console and the API under a path of a reverse proxy: nginx with the configuration of the documentation, once keeping
// the path and once stripping it.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { Broker, connected, launch, menu, signedIn, until } from './world.mjs';

let browser, broker, nginx, dir;
/** The broker as it is reached through the proxy. */
const behind = {};

const freePort = async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
};

before(async () => {
  browser = await launch();
  broker = await Broker.start('path = "/lw"\n');
  dir = await mkdtemp(join(tmpdir(), 'lastword-nginx-'));
  const documented = /```nginx\n(.*?)```/s.exec(await readFile('../../docs/tls.md', 'utf8'))[1];
  const [map] = /^map.*$/m.exec(documented);
  const servers = [];
  for (const [way, end] of [['keeping', ''], ['stripping', '/']]) {
    const port = await freePort();
    const server = documented.replace(map, '').replace('listen 443 ssl', `listen 127.0.0.1:${port}`).replace(/^ *ssl_.*$/gm, '')
      .replace('http://127.0.0.1:7171;', `${new URL(broker.url).origin}${end};`);
    servers.push(server);
    behind[way] = Object.assign(Object.create(broker), { url: `http://127.0.0.1:${port}/lw` });
  }
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((of) => `${of}_temp_path ${dir}/${of};`);
  await writeFile(join(dir, 'nginx.conf'), `daemon off; master_process off; pid ${dir}/pid; events {}
    http { ${temporary.join(' ')} log_format lines "$status $server_port $request_uri"; access_log ${dir}/lines lines; ${map} ${servers.join('\n')} }`);
  nginx = spawn('/usr/sbin/nginx', ['-p', dir, '-e', 'stderr', '-c', join(dir, 'nginx.conf')], { stdio: ['ignore', 'ignore', 'inherit'] });
  for (const { url } of Object.values(behind)) await until(() => fetch(`${url}/healthz`).then(({ ok }) => ok, () => false), true);
  await broker.agent('coder');
  await broker.ask('coder', 'PATH-1', 'Make calls');
  await broker.take('coder');
});

after(async () => {
  await browser.close();
  if (nginx) {
    const ended = once(nginx, 'exit');
    nginx.kill('SIGTERM');
    await ended;
  }
  await broker?.end();
  if (dir) await rm(dir, { recursive: true });
});

/** How the program is run by somebody at the broker behind the proxy. */
const lastword = (at, who, ...args) => [process.env.LASTWORD, ['--url', at.url, ...args], { env: { PATH: process.env.PATH, LASTWORD_TOKEN: broker.tokens[who] } }];
/** Waits until nginx has passed on a request with this status. */
const logged = (at, status, path) => until(async () => (await readFile(join(dir, 'lines'), 'utf8')).includes(`${status} ${new URL(at.url).port} /lw${path}\n`), true);
const told = async (...of) => (await promisify(execFile)(...lastword(...of))).stdout;

test('serve prints a link below the path, and it signs in', async () => {
  assert.match(broker.link, /^http:\/\/127\.0\.0\.1:\d+\/lw\/sign-in#/);
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(broker.link);
  await page.waitForURL(`${broker.url}/`);
  assert.deepEqual((await context.cookies()).map(({ path }) => path), ['/lw']);
  await context.close();
});

for (const way of ['keeping', 'stripping']) {
  test(`behind a proxy ${way} the path, a human signs in, decides, and sees what changes`, async () => {
    const at = behind[way];
    const failed = [];
    const page = await signedIn(browser, at, { viewport: { width: 1500, height: 900 } });
    page.setDefaultTimeout(10_000);
    page.on('response', (response) => { if (response.status() >= 400) failed.push(`${response.status()} ${response.url()}`); });
    await logged(at, '204', '/attend');
    // It can be installed, from below the path.
    const tools = await page.context().newCDPSession(page);
    const { url, data, errors } = await tools.send('Page.getAppManifest');
    assert.deepEqual(errors, []);
    const { start_url: start, icons } = JSON.parse(data);
    assert.equal(new URL(start, url).href, `${at.url}/`);
    for (const { src, type } of icons) {
      const icon = await page.request.get(new URL(src, url).href);
      assert.deepEqual([icon.status(), icon.headers()['content-type']], [200, type]);
    }
    await page.getByRole('navigation').getByRole('link', { name: 'Inbox' }).click();
    await page.waitForURL(`${at.url}/inbox`);
    await connected(page);
    // The page hears of it by the stream of hints.
    const { id } = await at.call('coder', 'POST', '/approvals', { tool: 'Bash', arguments: { command: `make ${way}` } });
    await page.locator(`#${id} .call`).getByText(`make ${way}`).waitFor();
    await page.locator(`#${id}-approve button`).click();
    await page.locator('.cards').locator(`#${id}`).waitFor({ state: 'detached' });
    assert.equal((await at.call('coder', 'GET', `/approvals/${id}`)).state, 'approved');
    // A conversation opens beside the list.
    await page.goto(`${at.url}/conversations`);
    await page.getByRole('link', { name: 'PATH-1' }).first().click();
    await page.waitForURL(`${at.url}/conversations?open=PATH-1`);
    await page.keyboard.press('Control+k');
    await page.locator('#palette-list').getByRole('link', { name: 'coder' }).click();
    await page.waitForURL(`${at.url}/agents/coder`);
    await menu(page);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.waitForURL(`${at.url}/sign-in`);
    await page.goto(`${at.url}/inbox`);
    await page.waitForURL(`${at.url}/sign-in?next=%2Finbox`);
    assert.deepEqual([page.errors, failed], [[], []]);
    await page.context().close();
  });

  test(`behind a proxy ${way} the path, the command line asks and an agent answers in a session`, async () => {
    const at = behind[way];
    const [echo, taker] = [`echo-${way}`, `taker-${way}`];
    for (const name of [echo, taker]) await at.agent(name);
    const runner = spawn(...lastword(at, echo, 'run', '--', 'cat'));
    assert.match(await told(at, 'operator', 'ask', echo, 'Are you there?'), /Are you there\?/);
    await at.ask(taker, `TAKE-${way}`, 'Take this');
    assert.match(await told(at, taker, 'inbox'), /Take this/);
    const ended = once(runner, 'exit');
    runner.kill('SIGTERM');
    await ended;
    // A session is logged once it ends.
    await logged(at, '101', '/v1/session');
  });

  test(`behind a proxy ${way} the path, MCP answers, and tells a stranger where it describes itself`, async () => {
    const at = behind[way];
    const ask = (headers) => fetch(`${at.url}/mcp`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' }),
    });
    const listed = await ask({ authorization: `Bearer ${broker.tokens.coder}` });
    assert.ok((await listed.json()).result.tools.length > 0);
    const [, place] = /resource_metadata="([^"]+)"/.exec((await ask({})).headers.get('www-authenticate'));
    assert.ok(place.startsWith(`${at.url}/`), place);
    assert.equal((await (await fetch(place)).json()).resource, `${at.url}/mcp`);
  });
}
